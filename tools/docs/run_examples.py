"""Runs the Python blocks of pages and compares their output with the text blocks that follow.

    python tools/docs/run_examples.py [--excerpts] README.md docs/*.md

With --excerpts it only compares excerpts with their files.

Each page is a separate program: its blocks run in order in one process. A block ```text
with the output follows a block ```python after an empty line, unless it prints nothing.
A comment on the line before a block changes this:

    <!-- run: no, WHY -->     the block does not run
    <!-- part of FILE -->     the block, in any language, is an excerpt of that file, apart from white space;
                              it does not run

Blocks that import a package of PEERS that is not installed are skipped, and so are later
blocks that lack a name of theirs. Skipped blocks are printed.

Lines of output wider than the site's column (COLUMNS) are wrapped on the page: at words,
indented by four more spaces.
"""

import concurrent.futures
import contextlib
import io
import linecache
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import traceback
from typing import NamedTuple

# The width of a line of code that the site shows without scrolling.
COLUMNS = 90
PEERS = ("torch", "torchvision")
ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(?:^<!-- ((?:run:|part of) [^\n]*?) -->\n+)?"  # the mark
    r"^```python\n(.*?)^```$"  # the code
    r"(?:\n\n^```text\n(.*?)^```$)?",  # the output
    re.M | re.S,
)
PART = re.compile(r"^<!-- part of (\S+) -->\n+^```\w+\n(.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    """A Python block of a page."""

    line: int  # number of its first line of code
    mark: str  # text of the comment before it, or ""
    code: str
    output: str


def blocks_of(text: str) -> list[Block]:
    """Returns the Python blocks of a page."""
    return [
        Block(text[: match.start(2)].count("\n") + 1, match[1] or "", match[2], match[3] or "")
        for match in BLOCK.finditer(text)
    ]


def wrapped(output: str) -> str:
    """Returns an output as it appears on a page."""
    lines = []
    for line in output.splitlines():
        wrapper = textwrap.TextWrapper(COLUMNS, break_long_words=False, break_on_hyphens=False)
        wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip()) + 4)
        lines += wrapper.wrap(line) if len(line) > COLUMNS else [line]
    return "".join(f"{line}\n" for line in lines)


def without_space(code: str) -> str:
    """Returns code without white space, to compare it independently of wrapping and indentation."""
    return "".join(code.split())


def changed_parts(path: pathlib.Path) -> int:
    """Compares a page's excerpts with their files; returns the number of differences."""
    changed = 0
    for match in PART.finditer(path.read_text()):
        file = ROOT / match[1]
        if not file.is_file() or without_space(match[2]) not in without_space(file.read_text()):
            line = path.read_text()[: match.start(2)].count("\n") + 1
            print(f"{path.relative_to(ROOT)}:{line}: the block is not part of {match[1]}")
            changed += 1
    return changed


def run_page(path: pathlib.Path) -> int:
    """Runs a page's blocks; returns the number of failures."""
    with contextlib.suppress(ModuleNotFoundError):
        # Makes PyPI's torchvision load with a torch without CUDA.
        sys.path.insert(0, str(ROOT / "benchmarks"))
        import peers

        peers.torchvision()
    failed, ran, skipped = changed_parts(path), 0, ""
    namespace = {"__name__": "__main__"}
    for block in blocks_of(path.read_text()):
        place = f"{path.relative_to(ROOT)}:{block.line}"
        if block.mark.startswith("part of "):
            continue
        if block.mark.startswith("run: no, "):
            print(f"{place}: skipped: {block.mark[9:]}")
            continue
        if block.mark:
            print(f'{place}: unknown mark "{block.mark}"')
            failed += 1
            continue
        # For tracebacks, and for `inspect.getsource`, which AutoGraph uses.
        linecache.cache[place] = (len(block.code), None, block.code.splitlines(keepends=True), place)
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output):
                exec(compile(block.code, place, "exec"), namespace)
        except (ModuleNotFoundError, NameError) as error:
            if error.name not in PEERS and not re.search(rf"\b{error.name}\b", skipped):
                failed += 1
                print(f"{place}: the block raises\n{traceback.format_exc()}")
                continue
            print(f"{place}: skipped: needs {error.name}")
            skipped += block.code
            continue
        except Exception:
            print(f"{place}: the block raises\n{traceback.format_exc()}")
            failed += 1
            continue
        ran += 1
        printed = wrapped(output.getvalue())
        if printed != block.output:
            print(f"{place}: the block prints\n\n{printed}\nbut the page says\n\n{block.output}")
            failed += 1
    print(f"{path.relative_to(ROOT)}: {ran} blocks ran, {failed} failed", flush=True)
    return failed


def main() -> None:
    """Runs each page in its own process; with --excerpts only compares excerpts."""
    if sys.argv[1:2] == ["--excerpts"]:
        raise SystemExit(min(sum(changed_parts(pathlib.Path(page).resolve()) for page in sys.argv[2:]), 1))
    pages = [pathlib.Path(page).resolve() for page in sys.argv[1:]]
    if not pages:
        raise SystemExit(__doc__)
    if os.environ.get("TFO_ONE_PAGE"):
        raise SystemExit(min(run_page(pages[0]), 1))
    failed = []
    pages = [page for page in pages if "\n```" in page.read_text()]
    with tempfile.TemporaryDirectory() as folder:  # for files that blocks write
        with concurrent.futures.ThreadPoolExecutor(2) as pool:  # pages mostly wait for imports
            for page, result in zip(pages, pool.map(lambda page: in_own_process(page, folder), pages), strict=True):
                print(result.stdout, end="", flush=True)
                if result.returncode:
                    failed.append(page.name)
                    print(result.stderr[-4000:], flush=True)
    if failed:
        raise SystemExit(f"FAILED: {', '.join(failed)}")


def in_own_process(page: pathlib.Path, folder: str) -> subprocess.CompletedProcess:
    """Runs a page in a new process and folder."""
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "TFO_ONE_PAGE": "1"}
    command = [sys.executable, *flags(), __file__, str(page)]
    own = tempfile.mkdtemp(dir=folder)
    return subprocess.run(command, cwd=own, env=environment, capture_output=True, text=True, check=False)


def flags() -> list[str]:
    """Returns the interpreter's flags, which exclude the caller's packages."""
    return [flag for flag, on in (("-E", sys.flags.ignore_environment), ("-s", sys.flags.no_user_site)) if on]


if __name__ == "__main__":
    main()
