"""Runs the blocks of a Markdown page's tutorial and compares what commands print with what the page shows.

usage: python tools/new_op/run_tutorial.py PAGE
In the current folder, in order, between the lines <!-- tutorial: begin --> and <!-- tutorial: end -->:

    bash     is run; variables that it exports stay for later blocks
    python   is written to the file that its first line names: # path/to/file.py
    text     is lines that the command before it prints, in this order, maybe with others between. Times may
             differ, `...` stands for anything, and lines that name Bazel's targets may come in any order.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _pattern(line):
    """Returns a pattern of a line's words, with any white space between them."""
    line = re.sub(r"in [0-9.]+s$", "in ...", line)
    return re.compile(r"\s*" + r"\s+".join(re.escape(w).replace(r"\.\.\.", ".*") for w in line.split()) + r"\s*$")


def _missing(expected, printed):
    """Returns the first expected line that is not printed in its place, or None."""
    every = printed.replace("(cached) ", "").splitlines()
    lines = iter(every)
    for line in filter(str.strip, expected.splitlines()):
        if not any(map(_pattern(line).match, every if line.startswith("//") else lines)):
            return line
    return None


def _run(command, environment):
    """Runs a block in bash; returns what it prints and the environment after it."""
    with tempfile.NamedTemporaryFile() as left:
        script = f"set -euo pipefail\n{command}\nenv -0 >{left.name}"
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(["bash", "-c", script], env=environment, text=True, check=False, **output)
        if done.returncode != 0:
            sys.exit(f"{done.stdout}\nERROR: exit status {done.returncode} of:\n{command}")
        pairs = pathlib.Path(left.name).read_text().split("\0")
        return done.stdout, dict(pair.split("=", 1) for pair in pairs if pair)


def main():
    """Runs the tutorial's blocks; exits with 1 at the first that does something else."""
    environment, printed, command = dict(os.environ), "", ""
    page = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    tutorial = page[page.index("<!-- tutorial: begin -->") : page.index("<!-- tutorial: end -->")]
    for language, text in _BLOCK.findall(tutorial):
        if language == "bash":
            print(f"$ {text}", end="", flush=True)
            command = text
            printed, environment = _run(text, environment)
        elif language == "python":
            path = pathlib.Path(text.split("\n")[0].removeprefix("# "))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif language == "text" and (line := _missing(text, printed)) is not None:
            sys.exit(f"ERROR: this is not printed, or not in its place:\n{line}\nby:\n{command}\nbut:\n{printed}")
    print(f"{sys.argv[1]}: all commands print what it shows")


if __name__ == "__main__":
    main()
