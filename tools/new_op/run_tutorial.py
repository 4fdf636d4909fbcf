"""Runs the commands of a Markdown page and compares what they print with what the page shows.

usage: python tools/new_op/run_tutorial.py PAGE
In the current folder. Of fenced blocks, one after the other:

    bash     is run; what it exports holds for those that follow
    python   is written to the file that its first line names: # path/to/file.py
    text     is what the command before it prints: its lines, in this order, maybe with others between.
             Times may differ, `...` stands for anything, and Bazel's tests may come in any order.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pattern(line):
    """What a line of output has to match: its words, whatever is between them."""
    words, before = [], None
    for word in line.split():
        is_time = before == "in" and re.fullmatch(r"[0-9.]+s", word)
        words.append("[0-9.]+s" if is_time else re.escape(word).replace(r"\.\.\.", ".*"))
        before = word
    return re.compile(r"\s*" + r"\s+".join(words) + r"\s*$")


def missing(expected, printed):
    """Returns the first line that is not there, in its order, or None."""
    # What Bazel says of a test that it need not run again.
    every = printed.replace("(cached) ", "").splitlines()
    lines = iter(every)
    for line in filter(str.strip, expected.splitlines()):
        wanted = pattern(line)
        # Bazel lists targets in any order.
        if not any(wanted.match(other) for other in (every if line.startswith("//") else lines)):
            return line
    return None


def run(command, environment):
    """Runs a block in bash; returns (what it printed, the environment it leaves)."""
    with tempfile.NamedTemporaryFile() as left:
        script = f"set -euo pipefail\n{command}\nenv -0 >{left.name}"
        done = subprocess.run(
            ["bash", "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != 0:
            sys.exit(f"{done.stdout}\nERROR: exit status {done.returncode} of:\n{command}")
        pairs = pathlib.Path(left.name).read_text().split("\0")
        return done.stdout, dict(pair.split("=", 1) for pair in pairs if pair)


def main():
    """Runs the page's blocks; exits with 1 at the first that does something else."""
    (page,) = sys.argv[1:]
    environment, printed, command = dict(os.environ), None, None
    for language, text in _BLOCK.findall(pathlib.Path(page).read_text(encoding="utf-8")):
        if language == "bash":
            print(f"$ {text}", end="", flush=True)
            command = text
            printed, environment = run(text, environment)
        elif language == "python":
            path = pathlib.Path(text.split("\n")[0].removeprefix("# "))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif language == "text":
            line = missing(text, printed)
            if line is not None:
                sys.exit(f"ERROR: this is not printed, or not in its place:\n{line}\nby:\n{command}\nbut:\n{printed}")
    print(f"{page}: all commands print what it shows")


if __name__ == "__main__":
    main()
