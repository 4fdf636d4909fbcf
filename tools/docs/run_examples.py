"""Runs the Python blocks of pages and compares their output with the text blocks that follow.

    python tools/docs/run_examples.py [--excerpts] README.md docs/*.md

With --excerpts it only compares excerpts with their files.

Each page is a separate program: its blocks run in order in one process. A block ```text
with the output follows a block ```python after an empty line, unless it prints nothing.
A comment on the line before a block changes this:

    <!-- run: no, WHY -->     the block does not run
    <!-- run: bash -->        the block, in bash, runs, too: in the page's folder, which has a link to examples/
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
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import traceback

# The width of a line of code that the site shows without scrolling.
COLUMNS = 90
PEERS = ("torch", "torchvision")
ROOT = pathlib.Path(__file__).resolve().parents[2]
# A mark, the language, the code, and for Python the output.
BLOCK = re.compile(
    r"(?:^<!-- ((?:run:|part of) [^\n]*?) -->\n+)?^```(\w+)\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.M | re.S
)


def blocks_of(path: pathlib.Path):
    """Yields a page's blocks: the place of the first line of code, the mark, language, code, output."""
    text = path.read_text()
    for match in BLOCK.finditer(text):
        yield (
            f"{path.relative_to(ROOT)}:{text[: match.start(3)].count(chr(10)) + 1}",
            *(g or "" for g in match.groups()),
        )


def wrapped(output: str) -> str:
    """Returns an output as it appears on a page."""
    lines = []
    for line in output.splitlines():
        wrapper = textwrap.TextWrapper(COLUMNS, break_long_words=False, break_on_hyphens=False)
        wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip()) + 4)
        lines += wrapper.wrap(line) if len(line) > COLUMNS else [line]
    return "".join(f"{line}\n" for line in lines)


def changed_part(code: str, mark: str) -> str:
    """Returns how an excerpt differs from its file."""
    file = ROOT / mark.removeprefix("part of ")
    same = file.is_file() and "".join(code.split()) in "".join(file.read_text().split())
    return "" if same else f"the block is not {mark}"


def compared(printed: str, output: str) -> str:
    """Returns how the output of a block differs from that on the page."""
    printed = wrapped(printed)
    return "" if printed == output else f"the block prints\n\n{printed}\nbut the page says\n\n{output}"


def run_block(place: str, code: str, output: str, namespace: dict) -> str:
    """Runs a block; returns its error."""
    # For tracebacks, and for `inspect.getsource`, which AutoGraph uses.
    linecache.cache[place] = (len(code), None, code.splitlines(keepends=True), place)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, place, "exec"), namespace)
    except (ModuleNotFoundError, NameError) as error:
        skipped = namespace.setdefault("__skipped__", [])
        if error.name not in PEERS and not re.search(rf"\b{error.name}\b", "\n".join(skipped)):
            return f"the block raises\n{traceback.format_exc()}"
        skipped.append(code)
        print(f"{place}: skipped: needs {error.name}")
        return ""
    except Exception:
        return f"the block raises\n{traceback.format_exc()}"
    return compared(printed.getvalue(), output)


def run_bash(code: str, output: str) -> str:
    """Runs a block in bash, where `python` is this one; returns its error."""
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code], env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    if result.returncode:
        return f"the block fails\n{result.stderr}"
    return compared(result.stdout, output)


def check_page(path: pathlib.Path, runs: bool = True) -> int:
    """Runs a page's blocks and compares its excerpts, or only these; returns the number of failures."""
    if runs:
        with contextlib.suppress(ModuleNotFoundError):
            # Makes PyPI's torchvision load with a torch without CUDA.
            sys.path.insert(0, str(ROOT / "benchmarks"))
            import peers

            peers.torchvision()
    failed, namespace = 0, {"__name__": "__main__"}
    for place, mark, language, code, output in blocks_of(path):
        error = ""
        if mark.startswith("part of "):
            error = changed_part(code, mark)
        elif not runs or (language != "python" and mark != "run: bash"):
            continue
        elif language == "bash":
            error = run_bash(code, output)
        elif mark.startswith("run: no, "):
            print(f"{place}: skipped: {mark[9:]}")
        elif mark:
            error = f'unknown mark "{mark}"'
        else:
            error = run_block(place, code, output, namespace)
        if error:
            print(f"{place}: {error}", flush=True)
            failed += 1
    return failed


def run_page(path: pathlib.Path) -> tuple[int, str]:
    """Runs a page in a folder of its own; returns the number of failures and what it prints."""
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        os.symlink(ROOT / "examples", "examples")
        failed = check_page(path)
    return failed, printed.getvalue()


def main() -> None:
    """Runs each page in its own process; with --excerpts only compares excerpts."""
    only_excerpts = sys.argv[1:2] == ["--excerpts"]
    pages = [pathlib.Path(page).resolve() for page in sys.argv[1 + only_excerpts :]]
    if not pages:
        raise SystemExit(__doc__)
    if only_excerpts:
        raise SystemExit(min(sum(check_page(page, runs=False) for page in pages), 1))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    pages = [page for page in pages if "\n```python" in page.read_text()]
    context, total = multiprocessing.get_context("forkserver"), 0
    # The processes are forks of one that has imported these, which takes longer than most pages do.
    context.set_forkserver_preload(["tensorflow", "tensorflow_ops"])
    with concurrent.futures.ProcessPoolExecutor(2, context, max_tasks_per_child=1) as pool:
        for page, (failed, printed) in zip(pages, pool.map(run_page, pages), strict=True):
            print(f"{printed}{page.relative_to(ROOT)}: {failed} failed", flush=True)
            total += failed
    raise SystemExit(min(total, 1))


if __name__ == "__main__":
    main()
