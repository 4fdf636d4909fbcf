"""A hook of MkDocs that writes the site's pages before a build, and checks the site after it.

Pages in the repository have links for GitHub. The hook copies the pages of mkdocs.yml's navigation, redirects links
to files outside docs/ to pages with the content of these files, and adds the API reference and the index of ops.
"""

import ast
import itertools
import pathlib
import posixpath
import re
import shutil

import check_site
import op_index
from mkdocs.exceptions import PluginError
from run_examples import COLUMNS

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tensorflow_ops"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCED = re.compile(r"(^ *```.*?^ *``` *$)", re.M | re.S)
LANGUAGES = {
    ".bzl": "python",
    ".cc": "cpp",
    ".cu": "cuda",
    ".h": "cpp",
    ".py": "python",
    ".sh": "bash",
    ".toml": "toml",
}


def site_path(path: str) -> str:
    """Returns the site's path of a file or folder of the repository. docs/ is the site's root."""
    if path == "README.md":
        return "readme.md"  # MkDocs would use it as the home page
    if pathlib.PurePath(path).suffix in (".md", ".png", ".jpg", ".svg"):
        return path.removeprefix("docs/")
    return f"source/{path}.md"


class Stage:
    """The staged pages and the files that they link to."""

    def __init__(self, pages: pathlib.Path):
        self.pages = pages
        # Names in the index link to the reference instead of the source: on_config writes it.
        self.done = {op_index.PAGE}
        self.errors = []

    def add(self, path: str) -> str:
        """Stages a file or folder of the repository, once; returns its path on the site."""
        source, target = ROOT / path, site_path(path)
        if path in self.done:
            return target
        self.done.add(path)
        if source.suffix == ".md":
            text = source.read_text()
            if path == "README.md" or path.startswith("docs/"):
                self.check_width(text, path)
            self.write(target, self.include(self.relink(text, path), path))
        elif source.is_dir():
            names = sorted(p.name for p in source.iterdir() if not p.name.startswith((".", "__pycache__")))
            links = "".join(f"- [{name}]({source.name}/{name})\n" for name in names)
            self.write(target, self.relink(f"# {path}\n\n{links}", path))
        elif target.endswith(".md"):
            language = LANGUAGES.get(source.suffix, "text")
            self.write(target, f"# {path}\n\n````{language}\n{source.read_text()}\n````\n")
        else:
            (self.pages / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, self.pages / target)
        return target

    def write(self, target: str, text: str) -> None:
        """Writes a page."""
        (self.pages / target).parent.mkdir(parents=True, exist_ok=True)
        (self.pages / target).write_text(text)

    def check_width(self, text: str, path: str) -> None:
        """Finds lines of fenced code that are too wide for the site."""
        line = 1
        for i, part in enumerate(FENCED.split(text)):
            for number, code in enumerate(part.split("\n") if i % 2 else (), line):
                if len(code) > COLUMNS:
                    self.errors.append(f"{path}:{number}: a line of code has more than {COLUMNS} columns")
            line += part.count("\n")

    def include(self, text: str, path: str) -> str:
        """Replaces comments such as <!-- include FILE --> by the results of benchmarks."""

        def included(match):
            file = str((ROOT / path).parent.joinpath(match[1]).resolve().relative_to(ROOT))
            _, body = (ROOT / file).read_text().split("\n", 1)  # drops the title
            return self.relink(re.sub(r"^#", "##", body, flags=re.M), file, onto=path)

        return re.sub(r"^<!-- include (\S+) -->$", included, text, flags=re.M)

    def relink(self, text: str, path: str, onto: str = "") -> str:
        """Redirects links in a file's text, on its page or `onto`, to pages of the site, and stages these."""
        here = posixpath.dirname(site_path(onto or path)) or "."

        def lead(match):
            mark, label, target = match.groups()
            file, hash_, anchor = target.partition("#")
            if re.match(r"\w+:", target) or not file:
                return match[0]
            linked = ((ROOT / path).parent / file).resolve()
            if not linked.is_relative_to(ROOT) or not linked.exists():
                self.errors.append(f"{path}: the link to {target} leads nowhere")
                return match[0]
            address = f"{posixpath.relpath(self.add(str(linked.relative_to(ROOT))), here)}{hash_}{anchor}"
            # An image links to itself at full size.
            return f"[![{label}]({address})]({address})" if mark else f"[{label}]({address})"

        parts = FENCED.split(text)
        parts[::2] = [LINK.sub(lead, part) for part in parts[::2]]
        return "".join(parts)

    def add_api(self, module: str, names: list[op_index.Name]) -> str:
        """Writes the page of a public module; returns its path."""
        lines = [f"# tfo.{module}\n" if module else "# tfo\n"]
        if module:
            lines.append(ast.get_docstring(op_index.tree(PACKAGE / module / "__init__.py")) + "\n")
        lines += ["| | |", "|---|---|"]
        reference = []
        # Functions come first. Result classes show their source, which documents their fields best.
        for name in sorted(names, key=lambda name: name.is_result):
            lines.append(f"| [`{name.public.rpartition('.')[2]}`](#{name.anchor}) | {name.summary} |")
            option = "show_source: true" if name.is_result else ""
            if not name.name:
                option = f"members: [{', '.join(op_index.exports(name.file))}]"
            reference.append(f"\n::: {name.anchor}" + (f"\n    options:\n      {option}" if option else ""))
        self.write(api_path(module), "\n".join(lines + reference) + "\n")
        return api_path(module)


def api_path(module: str) -> str:
    """Returns the path of a public module's page of the API reference."""
    return f"api/{module or 'tensorflow_ops'}.md"


def on_config(config):
    """Stages all pages, and completes the navigation."""
    pages = pathlib.Path(config.docs_dir)
    shutil.rmtree(pages)
    stage = Stage(pages)
    for section in config.nav:
        ((name, entries),) = section.items()
        for entry in entries:
            path = entry if isinstance(entry, str) else next(iter(entry.values()))
            source = next(file for file in (f"docs/{path}", path, path.upper()[:-2] + "md") if (ROOT / file).exists())
            stage.add(source)
        if name == "API":
            entries += [stage.add_api(*item) for item in op_index.public_names(PACKAGE).items()]
        elif name == "Decisions":
            entries += sorted(
                stage.add(f"docs/decisions/{p.name}") for p in (ROOT / "docs/decisions").glob("[0-9]*.md")
            )
    link = lambda name, module: f"{api_path(module)}#{name.anchor}"  # noqa: E731
    stage.write(site_path(op_index.PAGE), op_index.page(PACKAGE, op_index.coming_from(), link))
    shutil.copytree(ROOT / "tools/docs/assets", pages / "assets")
    unlisted = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} - stage.done
    if errors := stage.errors + [f"{page} is not in the navigation of mkdocs.yml" for page in sorted(unlisted)]:
        raise PluginError("\n".join(errors))
    return config


def label_cells(html: str) -> str:
    """Adds the names of columns to the cells of Markdown's tables, for extra.css."""

    def labeled(table):
        names = [re.sub(r"<[^>]*>", "", name) for name in re.findall(r"<th\b[^>]*>(.*?)</th>", table[0], re.S)]
        labels = [' data-label="{}"'.format(name.replace('"', "&quot;")) if name else "" for name in names]
        column = itertools.cycle(labels)  # Markdown's rows are complete
        return re.sub(r"<td\b", lambda _: f"<td{next(column)}", table[0])

    return re.sub(r"<table>.*?</table>", labeled, html, flags=re.S)


def on_page_content(html, **_):
    """Completes a page's tables."""
    return label_cells(html)


def on_post_build(config):
    """Checks the site."""
    if errors := check_site.check(pathlib.Path(config.site_dir)):
        raise PluginError("\n".join(errors))
