"""Reads the package's public names from its source, and creates the index of ops.

The index joins the tables of README.md (description) and docs/op_index.md (devices,
dtypes, equivalents) by their first column.
"""

import pathlib
import re
from collections.abc import Callable

import griffe


def public_names(package: griffe.Module) -> dict[str, dict[str, str]]:
    """Returns the public names of the package ("") and of each public module, in the order of __all__.

    Maps each name to its griffe path, which is its anchor in the reference.
    """
    names = {"": {}}
    for name in package.exports:
        # Does not use `package[name]`, because a function may have the name of its folder.
        path = package.imports.get(name, "")
        if path != f"{package.path}.{name}":
            if not name.startswith("__"):
                names[""][name] = path
            continue
        member = package[name]
        if not member.exports:
            raise SystemExit(f"{member.path} has no __all__, which lists its public names.")
        names[name] = {str(one): f"{path}.{one}" for one in member.exports}
    return names


def member_of(package: griffe.Module, anchor: str) -> griffe.Object | griffe.Alias:
    """Returns the object at a path from `public_names`."""
    return package[anchor.removeprefix(f"{package.path}.")]


def is_result(module: str, package: griffe.Module, anchor: str) -> bool:
    """Returns whether a path refers to a class that functions return or raise."""
    return module not in ("layers", "losses") and member_of(package, anchor).is_class


def summary(package: griffe.Module, anchor: str) -> str:
    """Returns the first line of a docstring."""
    member = member_of(package, anchor)
    if member.docstring is None:
        raise SystemExit(f"{member.path} has no docstring.")
    return member.docstring.value.strip().splitlines()[0].replace("|", "\\|")


def ops_table(page: pathlib.Path) -> list[list[str]]:
    """Returns the rows of a page's table of ops as cells. The first row is the header."""
    lines = page.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(r"\| *op *\|", line))
    stop = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    rows = [[cell.strip() for cell in line.strip("| ").split(" |")] for line in lines[start:stop]]
    width = len(rows[0])
    return [row + [""] * (width - len(row)) for i, row in enumerate(rows) if i != 1]


def joined(readme: pathlib.Path, index: pathlib.Path, relink: Callable[[str, str], str], errors: list[str]) -> list:
    """Returns README's rows in order, each extended by the index's cells for the same op."""

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
    """Returns the site's index: the joined tables, with names linked to the API reference.

    Adds to `errors` public names missing in README's table, names there that are not
    public, and rows that exist in only one of the tables.
    """
    paths = {
        ".".join(part for part in ("tfo", module, name) if part): f"api/{module or package.path}.md#{anchor}"
        for module, names in public_names(package).items()
        for name, anchor in names.items()
    }
    # Their functions describe the classes that they return and raise.
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
        # "`tfo.nn.softmax`, `softmax_entropy`": the first name determines the module of the others.
        for name in re.findall(r"`([\w.]+)`", op):
            if name.startswith("tfo."):
                prefix = name.rpartition(".")[0]
            names.append(link(name if name.startswith("tfo.") else f"{prefix}.{name}"))
        table.append([", ".join(names), *cells])
    missing = [path for path in paths if path not in seen and path not in not_ops]
    errors += [f"README.md's table of ops does not name {path}, which is public" for path in missing]
    lines = [f"| {' | '.join(row)} |" for row in table]
    return "# Index of ops\n\nEach name links to its reference.\n\n" + "\n".join(lines) + "\n"
