"""The public names of the package, read from its source, and the index of ops made of README's table."""

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


def ops_table(readme: pathlib.Path) -> list[str]:
    """The lines of the table of ops in README.md."""
    lines = readme.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(r"\| *op *\|", line))
    stop = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    return lines[start:stop]


def page(readme: pathlib.Path, package: griffe.Module, relink: Callable[[str, str], str], errors: list[str]) -> str:
    """The index: README's table, with each name linked to the API reference.

    A public name that is not in the table, or a name there that is not public, is added
    to `errors`.
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

    header, rule, *rows = ops_table(readme)
    table = [header, rule]
    for row in rows:
        cells = relink(row, "README.md").split("|")
        prefix = ""
        names = []
        # "`tfo.nn.softmax`, `softmax_entropy`": the first says of which module.
        for name in re.findall(r"`([\w.]+)`", cells[1]):
            if name.startswith("tfo."):
                prefix = name.rpartition(".")[0]
            names.append(link(name if name.startswith("tfo.") else f"{prefix}.{name}"))
        cells[1] = f" {', '.join(names)} "
        table.append("|".join(cells))
    missing = [path for path in paths if path not in seen and path not in not_ops]
    errors += [f"README.md's table of ops does not name {path}, which is public" for path in missing]
    return "# Index of ops\n\nEach name leads to its reference.\n\n" + "\n".join(table) + "\n"
