"""Stages the site's pages in a folder: docs/, linked files, the API reference, the index of ops.

    python tools/docs/stage.py FOLDER

writes FOLDER/pages and FOLDER/mkdocs.yml. Pages in the repository have links for GitHub;
this script redirects links to files outside docs/ to pages with the content of these files.
"""

import ast
import pathlib
import re
import shutil
import sys

import op_index
import yaml
from run_examples import COLUMNS

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent

# The navigation: sections of pages in order, by their paths in the repository. Missing
# pages are skipped; pages of docs/ that are not listed go to "More".
SECTIONS = {
    "Start": ["docs/index.md", "docs/how_it_works.md", "docs/performance.md", "docs/coming_from.md"],
    "Ops": [
        "docs/op_index.md",
        "docs/roi_pool.md",
        "docs/roi_align.md",
        "docs/multiscale_roi_align.md",
        "docs/ps_roi.md",
        "docs/boxes.md",
        "docs/nn.md",
        "docs/seq2seq.md",
        "docs/masks.md",
        "docs/sampling.md",
        "docs/deformable.md",
        "docs/sequence.md",
        "docs/xla.md",
    ],
    "Training": [
        "docs/building_blocks.md",
        "examples/basics/README.md",
        "examples/seq2seq/README.md",
        "examples/digit_lines/README.md",
        "examples/tagger/README.md",
        "examples/image_classifier/README.md",
        "examples/spatial_transformer/README.md",
        "examples/optical_flow/README.md",
        "examples/detection/README.md",
    ],
    "Writing an op": [
        "docs/python_op.md",
        "docs/opcheck.md",
        "docs/from_prototype_to_kernel.md",
        "docs/writing_an_op.md",
        "docs/building.md",
        "docs/releasing.md",
    ],
    "More": [],
    "API": [],
    "Project": [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/stability.md",
        "SECURITY.md",
        "benchmarks/README.md",
    ],
    "Decisions": ["docs/decisions/README.md"],
}

OP_INDEX = "docs/op_index.md"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
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
    """Returns the site's path of a file of the repository. docs/ is the site's root."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return "readme.md"  # MkDocs would use it as the home page
    return path


def long_code(text: str) -> list[int]:
    """Returns the numbers of lines in fenced code that are too wide for the site."""
    numbers, inside = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r" *```", line):
            inside = not inside
        elif inside and len(line) > COLUMNS:
            numbers.append(number)
    return numbers


class Stage:
    """The staged pages and the files that they link to."""

    def __init__(self, pages: pathlib.Path):
        self.pages = pages
        self.done = {}  # path in the repository -> path of the page or file on the site
        self.errors = []

    def add(self, path: str) -> str:
        """Stages a file or folder of the repository, once; returns its path on the site."""
        if path in self.done:
            return self.done[path]
        source = ROOT / path
        if source.suffix in (".md", ".png", ".jpg", ".svg"):
            target = site_path(path)
        else:
            target = f"source/{path.rstrip('/')}.md"
        self.done[path] = target
        if source.suffix == ".md":
            text = source.read_text()
            if path == "README.md" or path.startswith("docs/"):
                self.errors += [
                    f"{path}:{number}: a line of code has more than {COLUMNS} columns" for number in long_code(text)
                ]
            self.write(target, self.include(self.relink(text, path), path))
        elif source.is_dir():
            names = sorted(p.name for p in source.iterdir() if not p.name.startswith((".", "__pycache__")))
            links = "".join(f"- [{name}]({source.name}/{name})\n" for name in names)
            self.write(target, self.relink(f"# {path}\n\n{links}", path))
        elif target.endswith(".md"):
            language = LANGUAGES.get(source.suffix, "text")
            self.write(target, f"# {path}\n\n````{language}\n{source.read_text()}\n````\n")
        else:
            destination = self.pages / target
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, destination)
        return target

    def write(self, target: str, text: str) -> None:
        """Writes a page."""
        destination = self.pages / target
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_text(text)

    def include(self, text: str, path: str) -> str:
        """Replaces comments such as <!-- include FILE --> by the results of benchmarks."""

        def included(match):
            file = str((ROOT / path).parent.joinpath(match[1]).resolve().relative_to(ROOT))
            _, body = (ROOT / file).read_text().split("\n", 1)  # drops the title
            body = re.sub(r"^#", "##", body, flags=re.M)
            return self.relink(body, file, onto=path)

        return re.sub(r"^<!-- include (\S+) -->$", included, text, flags=re.M)

    def relink(self, text: str, path: str, onto: str = "") -> str:
        """Redirects links in a file's text, on its page or `onto`, to pages of the site, and stages these."""
        folder = (ROOT / path).parent
        onto = onto or path

        def lead(match):
            mark, label, target = match.groups()
            file, hash_, anchor = target.partition("#")
            if re.match(r"\w+:", target) or not file:
                return match[0]
            linked = (folder / file).resolve()
            if not linked.is_relative_to(ROOT) or not linked.exists():
                self.errors.append(f"{path}: the link to {target} leads nowhere")
                return match[0]
            there = self.add(str(linked.relative_to(ROOT)))
            here = pathlib.PurePosixPath(self.done.get(onto, onto)).parent
            address = f"{relative(there, here)}{hash_}{anchor}"
            if mark:  # an image links to itself at full size
                return f"[![{label}]({address})]({address})"
            return f"[{label}]({address})"

        # Fenced code is not changed.
        parts = re.split(r"(^ *```.*?^ *``` *$)", text, flags=re.M | re.S)
        parts[::2] = [LINK.sub(lead, part) for part in parts[::2]]
        return "".join(parts)


def relative(target: str, folder: pathlib.PurePosixPath) -> str:
    """Returns the relative path from a folder of the site to a file."""
    return pathlib.PurePosixPath(*([".."] * len(folder.parts))).joinpath(target).as_posix()


def title(page: pathlib.Path) -> str:
    """Returns a page's first heading."""
    match = re.search(r"^# (.+)$", page.read_text(), flags=re.M)
    return match[1].replace("`", "") if match else page.stem


def api_path(module: str) -> str:
    """Returns the path of a public module's page of the API reference."""
    return f"api/{module or 'tensorflow_ops'}.md"


def stage_api(stage: Stage, package: pathlib.Path) -> list[str]:
    """Writes a page for each public module; returns their paths."""
    pages = []
    for module, names in op_index.public_names(package).items():
        path = api_path(module)
        lines = [f"# tfo.{module}\n" if module else "# tfo\n"]
        if module:
            lines.append(ast.get_docstring(op_index.tree(package / module / "__init__.py")) + "\n")
        lines += ["| | |", "|---|---|"]
        reference = []
        # Functions come first. Result classes show their source, which documents their fields best.
        for name in sorted(names, key=lambda name: name.is_result):
            lines.append(f"| [`{name.public.rpartition('.')[2]}`](#{name.anchor}) | {name.summary} |")
            options = "\n    options:\n      show_source: true" if name.is_result else ""
            if not name.name:
                options = f"\n    options:\n      members: [{', '.join(op_index.exports(name.file))}]"
            reference.append(f"\n::: {name.anchor}{options}")
        lines += reference
        stage.write(path, "\n".join(lines) + "\n")
        pages.append(path)
    return pages


def main() -> None:
    """Stages all pages and writes the configuration."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = pathlib.Path(sys.argv[1]).resolve()
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    stage = Stage(pages)
    package = ROOT / "tensorflow_ops"

    sections = {name: list(paths) for name, paths in SECTIONS.items()}
    listed = [path for paths in sections.values() for path in paths]
    found = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
    sections["More"] += [path for path in found if path not in listed]
    records = (ROOT / "docs/decisions").glob("[0-9]*.md")
    sections["Decisions"] += sorted(str(path.relative_to(ROOT)) for path in records)
    nav = []
    for section, paths in sections.items():
        entries = []
        for path in paths:
            if path == OP_INDEX:
                # Names link to the reference instead of the source. Marks it as done, for links from other pages.
                target = stage.done[path] = site_path(path)
                link = lambda name, module: f"{api_path(module)}#{name.anchor}"  # noqa: E731
                stage.write(target, op_index.page(package, (ROOT / "docs/coming_from.md").read_text(), link))
                entries.append({"Index": target})
            elif (ROOT / path).exists():
                target = stage.add(path)
                # README has the same title as the home page.
                entries.append({"README" if path == "README.md" else title(pages / target): target})
        if section == "API":
            entries = [{title(pages / path): path} for path in stage_api(stage, package)]
        if entries:
            nav.append({section: entries})
    shutil.copytree(HERE / "assets", pages / "assets")
    config = {
        "INHERIT": str(HERE / "mkdocs.yml"),
        "docs_dir": str(pages),
        "site_dir": str(folder / "site"),
        # Pages of linked sources are not part of the navigation.
        "not_in_nav": "/source/\n/benchmarks/results/\n",
        "nav": nav,
        "plugins": {
            "mkdocstrings": {
                "handlers": {
                    "python": {
                        "paths": [str(ROOT)],
                        "options": {"extensions": [str(HERE / "doctest_fences.py")]},
                    }
                }
            }
        },
    }
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False))
    if stage.errors:
        raise SystemExit("\n".join(stage.errors))
    print(f"{len(list(pages.rglob('*.md')))} pages staged")


if __name__ == "__main__":
    main()
