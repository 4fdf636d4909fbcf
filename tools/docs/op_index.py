"""The public names of the package, read from its source, and the index of ops.

The index joins the table of README.md (what an op does) and that of docs/op_index.md
(devices, dtypes, equivalents) by their first column.
"""

import pathlib
import re
from collections.abc import Callable

import griffe


def public_names(package: griffe.Module) -> dict[str, dict[str, str]]:
    """The public names of the package ("") and of each public module, in the order of __all__.

    Each has the path by which griffe finds it, which is its anchor in the reference.
    """
    names = {"": {}}
    for name in package.exports:
        # Not by `package[name]`: a function may be called as the folder it comes from.
        path = package.imports.get(name, "")
        if path != f"{package.path}.{name}":
            if not name.startswith("__"):
                names[""][name] = path
            continue
        member = package[name]
        if not member.exports:
            raise SystemExit(f"{member.path} has no __all__, which says what is public.")
        names[name] = {str(one): f"{path}.{one}" for one in member.exports}
    return names


def member_of(package: griffe.Module, anchor: str) -> griffe.Object | griffe.Alias:
    """What a path of `public_names` leads to."""
    return package[anchor.removeprefix(f"{package.path}.")]


def is_result(module: str, package: griffe.Module, anchor: str) -> bool:
    """Whether a path leads to a class that functions return or raise."""
    return module not in ("layers", "losses") and member_of(package, anchor).is_class


def summary(package: griffe.Module, anchor: str) -> str:
    """The first line of a docstring."""
    member = member_of(package, anchor)
    if member.docstring is None:
        raise SystemExit(f"{member.path} has no docstring.")
    return member.docstring.value.strip().splitlines()[0].replace("|", "\\|")


def ops_table(page: pathlib.Path) -> list[list[str]]:
    """The rows of the table of ops on a page, as cells; the first row is the header."""
    lines = page.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(r"\| *op *\|", line))
    stop = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    rows = [[cell.strip() for cell in line.strip("| ").split(" |")] for line in lines[start:stop]]
    width = len(rows[0])
    return [row + [""] * (width - len(row)) for i, row in enumerate(rows) if i != 1]


def joined(readme: pathlib.Path, index: pathlib.Path, relink: Callable[[str, str], str], errors: list[str]) -> list:
    """README's rows, each with the index's cells of the same op; README decides the order."""

    def linked(page, path):
        return [[row[0], *(relink(cell, path) for cell in row[1:])] for row in ops_table(page)]

    rows = linked(readme, "README.md")
    details = {row[0]: row[1:] for row in linked(index, "docs/op_index.md")}
    table = []
    for row in rows:
        if row[0] not in details:
            errors.append(f"docs/op_index.md's table has no row {row[0]}, which README.md's table of ops has")
        table.append(row + details.pop(row[0], []))
    errors += [f"README.md's table of ops has no row {op}, which docs/op_index.md's table has" for op in details]
    return table


def page(
    readme: pathlib.Path,
    index: pathlib.Path,
    package: griffe.Module,
    relink: Callable[[str, str], str],
    errors: list[str],
) -> str:
    """The index for the site: both tables as one, with each name linked to the API reference.

    Adds to `errors` each public name that is not in README's table, each name there that is
    not public, and each row that only one of the tables has.
    """
    paths = {
        ".".join(part for part in ("tfo", module, name) if part): f"api/{module or package.path}.md#{anchor}"
        for module, names in public_names(package).items()
        for name, anchor in names.items()
    }
    # What functions return and raise is described there.
    not_ops = {"tfo.show_versions"} | {
        f"tfo.{module}.{name}"
        for module, names in public_names(package).items()
        for name, anchor in names.items()
        if module and is_result(module, package, anchor)
    }
    seen = set()

    def link(path):
        if path not in paths:
            errors.append(f"README.md's table of ops names {path}, which is not public")
            return f"`{path}`"
        seen.add(path)
        return f"[`{path}`]({paths[path]})"

    header, *rows = joined(readme, index, relink, errors)
    table = [header, ["---"] * len(header)]
    for op, *cells in rows:
        prefix = ""
        names = []
        # "`tfo.nn.softmax`, `softmax_entropy`": the first name gives the module of the others.
        for name in re.findall(r"`([\w.]+)`", op):
            if name.startswith("tfo."):
                prefix = name.rpartition(".")[0]
            names.append(link(name if name.startswith("tfo.") else f"{prefix}.{name}"))
        table.append([", ".join(names), *cells])
    missing = [path for path in paths if path not in seen and path not in not_ops]
    errors += [f"README.md's table of ops does not name {path}, which is public" for path in missing]
    lines = [f"| {' | '.join(row)} |" for row in table]
    return "# Index of ops\n\nEach name links to its reference.\n\n" + "\n".join(lines) + "\n"
