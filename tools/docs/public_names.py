"""Reads the public names of the package from its source: __all__, imports, docstrings. Needs only Python."""

import ast
import functools
import pathlib
from typing import NamedTuple


class Name(NamedTuple):
    """A public name and its definition: a function, a class, or a module."""

    public: str  # such as "tfo.nn.softmax"
    file: pathlib.Path
    name: str  # in the file; "" for a module
    node: ast.AST
    is_result: bool  # a class that functions return or raise: they describe it

    @property
    def anchor(self) -> str:
        """The path in the package, which is the anchor in the API reference."""
        parts = self.file.relative_to(package_root(self.file).parent).with_suffix("").parts
        return ".".join((*(part for part in parts if part != "__init__"), *filter(None, [self.name])))

    @property
    def doc(self) -> str:
        """The docstring."""
        text = ast.get_docstring(self.node)
        if not text:
            raise SystemExit(f"{self.public} has no docstring ({self.file}).")
        return text

    @property
    def summary(self) -> str:
        """The first line of the docstring, for a table."""
        return self.doc.splitlines()[0].replace("|", "\\|")


def package_root(file: pathlib.Path) -> pathlib.Path:
    """Returns the folder of the package that has a file."""
    return next(folder for folder in reversed(file.parents) if (folder / "__init__.py").exists())


@functools.cache
def tree(file: pathlib.Path) -> ast.Module:
    """Returns the syntax tree of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


def module_file(file: pathlib.Path, dotted: str) -> pathlib.Path | None:
    """Returns the file of a module such as "tensorflow_ops.nn" of a file's package; None for others."""
    package = package_root(file)
    if dotted.partition(".")[0] != package.name:
        return None
    path = package.parent.joinpath(*dotted.split("."))
    return next((f for f in (path.with_suffix(".py"), path / "__init__.py") if f.exists()), None)


@functools.cache
def members(file: pathlib.Path) -> dict[str, tuple[str, str] | None]:
    """Returns a file's top-level names: None for what it defines, (module, name) for what it imports."""
    found = {}
    for node in tree(file).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = None
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: (node.module or "", alias.name) for alias in node.names}
    return found


@functools.cache
def resolve(file: pathlib.Path, name: str) -> tuple[pathlib.Path, str] | None:
    """Returns the file that defines a name of a file, and the name there, "" for a module; None for other packages."""
    imported = members(file).get(name, ("", ""))
    if imported is None:
        return file, name
    source, module = (module_file(file, dotted) for dotted in (imported[0], ".".join(imported)))
    # A function may have the name of its folder: what a module defines goes first.
    return (source and source != file and resolve(source, imported[1])) or (module and (module, "")) or None


def exports(file: pathlib.Path) -> list[str]:
    """Returns the names in a file's __all__."""
    for node in tree(file).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    raise SystemExit(f"{file} has no __all__, which lists its public names.")


def definition(file: pathlib.Path, name: str) -> ast.AST:
    """Returns the node that defines a name of a file; of the file itself without a name."""
    if not name:
        return tree(file)
    # The last one: overloads come before the function.
    return [node for node in tree(file).body if getattr(node, "name", "") == name][-1]


def public_names(package: pathlib.Path) -> dict[str, list[Name]]:
    """Returns the public names of the package ("") and of each public module, in the order of __all__."""

    def name_of(file, module, name):
        there, inner = resolve(file, name)
        node = definition(there, inner)
        is_result = isinstance(node, ast.ClassDef) and module not in ("layers", "losses", "metrics", "optimizers")
        return Name(".".join(filter(None, ("tfo", module, name))), there, inner, node, is_result)

    top = package / "__init__.py"
    modules = {"": []}
    for name in exports(top):
        file, inner = resolve(top, name) or (None, None)
        if inner:
            modules[""].append(name_of(top, "", name))
        elif file:
            modules[name] = [name_of(file, name, one) for one in exports(file)]
    return modules
