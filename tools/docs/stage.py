"""A hook of MkDocs that writes the site's pages before a build.

The pages are a copy of the repository, so that its links work on the site as they do on GitHub; links to sources lead
to the files. The hook adds the API reference: a page for each public module, and an index of all names with their
equivalents in other libraries.
"""

import ast
import itertools
import pathlib
import re
import shutil

import public_names

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tensorflow_ops"
_FOLDERS = ("docs", "examples", "benchmarks", "tensorflow_ops", "third_party", "tools")
_INDEX = """# Index of ops

Every public function, layer, loss and metric. "Elsewhere" lists the calls of other libraries that
[Coming from other libraries](../docs/coming_from.md) translates, argument by argument.
"""


def equivalents(pages: str) -> dict[str, list[str]]:
    """Returns {"tfo.nn.softmax": calls of other libraries} from the tables of pages."""
    found = {}
    for left, right in re.findall(r"^\| (.*?) \| (.*?) \|", pages, re.M):
        if re.search(r"\[[^\]]*tfo[^\]]*\]\(#", right):  # only points to a section with more rows
            continue
        ours, theirs = list(dict.fromkeys(re.findall(r"\btfo(?:\.\w+)+", right))), []
        # "`torchvision.ops.nms(boxes)`, `batched_nms`" are functions of the same module; other code is not a call.
        for calls in re.findall(r"`[^`]*`(?:, `[^`]*`)*", left):
            module = ""
            for call in re.findall(r"`([\w.]+)[^`]*`", calls):
                module = call.rpartition(".")[0] or module
                theirs += [f"{module}.{call.rpartition('.')[2]}"] if module else []
        for i, call in enumerate(theirs if ours else []):
            found.setdefault(ours[i] if len(ours) == len(theirs) else ours[0], []).append(f"`{call}`")
    return {ours: list(dict.fromkeys(theirs)) for ours, theirs in found.items()}


def index(modules: dict[str, list[public_names.Name]], coming_from: str) -> str:
    """Returns the index of all names, with the calls in the pages `coming_from`."""
    elsewhere, lines = equivalents(coming_from), [_INDEX]
    for module, names in modules.items():
        lines += [f"\n## {title(module)}\n", "| name | what it does | elsewhere |", "|---|---|---|"]
        for name in names:
            if not name.is_result:  # the functions' docstrings describe it
                short = name.public.removeprefix(f"{title(module)}.")
                link = f"[`{short}`]({page_name(module)}#{name.anchor})"
                lines.append(f"| {link} | {name.summary} | {', '.join(elsewhere.get(name.public, []))} |")
    return "\n".join(lines) + "\n"


def op_pages(start: str) -> list[str]:
    """Returns the pages of ops that docs/index.md lists."""
    table = start.partition("### Ops\n")[2].partition("\n### ")[0]
    return [f"docs/{page}" for page in re.findall(r"^\| \[[^]]*\]\((\w+\.md)\)", table, re.M)]


def title(module: str) -> str:
    """Returns the title of a public module's page."""
    return f"tfo.{module}" if module else "tfo"


def page_name(module: str) -> str:
    """Returns the file of a public module's page."""
    return f"{module or 'tensorflow_ops'}.md"


def page(module: str, names: list[public_names.Name]) -> str:
    """Returns the page of a public module."""
    lines = [f"# {title(module)}\n"]
    if module:
        lines.append(ast.get_docstring(public_names.tree(PACKAGE / module / "__init__.py")) + "\n")
    lines += ["| | |", "|---|---|"]
    reference = []
    # Functions come first. Result classes show their source, which documents their fields best.
    for name in sorted(names, key=lambda name: name.is_result):
        lines.append(f"| [`{name.public.rpartition('.')[2]}`](#{name.anchor}) | {name.summary} |")
        option = "show_source: true" if name.is_result else ""
        if not name.name:
            option = f"members: [{', '.join(public_names.exports(name.file))}]"
        reference.append(f"\n::: {name.anchor}" + (f"\n    options:\n      {option}" if option else ""))
    return "\n".join(lines + reference) + "\n"


def on_config(config):
    """Writes all pages, and completes the navigation."""
    pages = pathlib.Path(config.docs_dir)
    shutil.rmtree(pages)
    for folder in _FOLDERS:
        shutil.copytree(ROOT / folder, pages / folder, ignore=shutil.ignore_patterns(".*", "bazel-*", "__pycache__"))
    for file in (*ROOT.glob("*.md"), ROOT / "LICENSE"):
        shutil.copy(file, pages)
    shutil.copytree(ROOT / "tools/docs/assets", pages / "assets")
    modules = public_names.public_names(PACKAGE)
    (pages / "api").mkdir()
    coming_from = "\n".join(path.read_text() for path in sorted(ROOT.glob("docs/coming_from_*.md")))
    (pages / "api/index.md").write_text(index(modules, coming_from))
    for module, names in modules.items():
        (pages / "api" / page_name(module)).write_text(page(module, names))
    (section,) = (section["Ops"] for section in config.nav if "Ops" in section)
    section += op_pages((ROOT / "docs/index.md").read_text())
    (section,) = (section["API"] for section in config.nav if "API" in section)
    section += ["api/index.md", *(f"api/{page_name(module)}" for module in modules)]
    (section,) = (section["Decisions"] for section in config.nav if "Decisions" in section)
    section += sorted(f"docs/decisions/{path.name}" for path in (ROOT / "docs/decisions").glob("[0-9]*.md"))
    return config


def on_page_content(html, **_):
    """Adds the names of columns to the cells of Markdown's tables, for extra.css."""

    def labeled(table):
        names = [re.sub(r"<[^>]*>", "", name) for name in re.findall(r"<th\b[^>]*>(.*?)</th>", table[0], re.S)]
        labels = [' data-label="{}"'.format(name.replace('"', "&quot;")) if name else "" for name in names]
        column = itertools.cycle(labels)  # Markdown's rows are complete
        return re.sub(r"<td\b", lambda _: f"<td{next(column)}", table[0])

    return re.sub(r"<table>.*?</table>", labeled, html, flags=re.S)
