"""Reads a prototype, a NumPy function in a Python file, without running it."""

import ast
import dataclasses
import importlib.machinery
import pathlib
from typing import NamedTuple

import formula
import names

ATTR_TYPES = ("bool", "int", "float")


class BadPrototypeError(Exception):
    """Says what is wrong with it, and where."""


class Attr(NamedTuple):
    """A keyword-only argument: a setting, fixed when a graph is made."""

    name: str
    type: str  # one of ATTR_TYPES
    default: bool | int | float | None  # None: it has to be given


@dataclasses.dataclass
class Prototype:
    """A function of inputs and attrs that computes each element by itself."""

    path: pathlib.Path
    source: str
    function: str
    summary: str  # the docstring's first line, without its full stop
    is_python_op: bool
    has_gradient: bool
    op_name: ast.Constant | None  # a python_op's, "demo::mish", where it is a literal
    inputs: tuple[str, ...]
    attrs: tuple[Attr, ...]
    formula: formula.Formula


def find(argument, folder):
    """Returns (path, function) of "module:function" or "path/to/file.py:function", looked for from a folder."""
    module, colon, function = argument.rpartition(":")
    if not colon or not module or not function.isidentifier():
        raise BadPrototypeError(f"the prototype is {argument!r}, expected module:function or path/to/file.py:function")
    path = folder / module
    if not module.endswith(".py"):
        *packages, last = module.split(".")
        spec = importlib.machinery.PathFinder.find_spec(last, [str(folder.joinpath(*packages))])
        if spec is None or spec.origin is None:
            raise BadPrototypeError(f"there is no module {module!r} in {folder}")
        path = pathlib.Path(spec.origin)
    if not path.is_file():
        raise BadPrototypeError(f"there is no file {path}")
    return path, function


def read(path, name, source=None):
    """Returns the Prototype that function `name` of a file is; or raises BadPrototypeError."""
    source = path.read_text(encoding="utf-8") if source is None else source
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise BadPrototypeError(f"{path}:{error.lineno}: {error.msg}") from error
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not functions:
        raise BadPrototypeError(f"{path} defines no function {name!r}")
    function = functions[-1]
    where = f"{path}:{function.lineno}: {name}"
    decorators = [_called(d) for d in function.decorator_list]
    others = [d for d in decorators if d.split(".")[-1] != "python_op"]
    if others:
        raise BadPrototypeError(f"{where} is decorated by {others[0]}; new_op knows tfo.python_op and plain functions")
    inputs, attrs = _signature(function, where)
    try:
        found = formula.read(
            function,
            [*inputs, *(attr.name for attr in attrs if attr.type != "bool")],
            [attr.name for attr in attrs if attr.type == "bool"],
            _constants(tree),
        )
        for value in found.names:
            names.check_variable("a value", value)
    except (formula.NotElementwiseError, names.BadNameError) as error:
        raise BadPrototypeError(f"{where} is no formula that new_op can write in C++: {error}. {_HELP}") from error
    docstring = (ast.get_docstring(function) or "").strip().split("\n")[0].rstrip(".")
    return Prototype(
        path=path,
        source=source,
        function=name,
        summary=docstring or f"{name} of each element",
        is_python_op=bool(decorators),
        has_gradient=any(
            isinstance(node, ast.FunctionDef)
            and any(_called(d) == f"{name}.register_gradient" for d in node.decorator_list)
            for node in tree.body
        ),
        op_name=next(
            (d.args[0] for d in function.decorator_list if isinstance(d, ast.Call) and _is_text(d.args[:1])), None
        ),
        inputs=inputs,
        attrs=attrs,
        formula=found,
    )


def _called(decorator):
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _is_text(nodes):
    return bool(nodes) and isinstance(nodes[0], ast.Constant) and isinstance(nodes[0].value, str)


_HELP = "See `--help`: PROTOTYPES."


def _signature(function, where):
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        raise BadPrototypeError(f"{where} has *, ** or positional-only arguments; expected inputs and attrs by name")
    first_attr = len(arguments.args) - len(arguments.defaults)
    inputs = tuple(a.arg for a in arguments.args[:first_attr])
    if not inputs:
        raise BadPrototypeError(f"{where} has no inputs: arguments without a default, before a *")
    keywords = [*arguments.args[first_attr:], *arguments.kwonlyargs]
    defaults = [*arguments.defaults, *arguments.kw_defaults]
    attrs = tuple(_attr(a, default, where) for a, default in zip(keywords, defaults, strict=True))
    try:
        for name in inputs:
            names.check_variable("an input", name)
        for attr in attrs:
            names.check_variable("an attr", attr.name)
        # What the generated functions call their results.
        generated = ["d_output", *(f"d_{name}" for name in inputs)]
        for name in (*inputs, *(attr.name for attr in attrs)):
            if name in generated:
                raise names.BadNameError(f"{name!r} is what the generated functions call a gradient")
    except names.BadNameError as error:
        raise BadPrototypeError(f"{where}: {error}") from error
    return inputs, attrs


def _attr(argument, default, where):
    annotation = ast.unparse(argument.annotation) if argument.annotation else ""
    try:
        value = None if default is None else ast.literal_eval(default)
    except ValueError:
        raise BadPrototypeError(f"{where}: {argument.arg}'s default is no literal: {ast.unparse(default)}") from None
    kind = annotation or ("" if value is None else type(value).__name__)
    if kind not in ATTR_TYPES:
        got = f"is {kind}" if kind else "has neither an annotation nor a default"
        raise BadPrototypeError(f"{where}: {argument.arg} {got}; attrs are bool, int or float")
    if value is not None:
        fits = {"bool": bool, "int": int, "float": (int, float)}[kind]
        if not isinstance(value, fits) or (kind != "bool" and isinstance(value, bool)):
            raise BadPrototypeError(f"{where}: {argument.arg} is {kind}, its default {value!r} is not")
        if kind == "float" and not abs(value) <= 3e38:
            raise BadPrototypeError(f"{where}: {argument.arg}'s default {value!r} is no finite float32, as attrs are")
        if kind == "int" and not -(2**63) <= value < 2**63:
            raise BadPrototypeError(f"{where}: {argument.arg}'s default {value!r} does not fit 64 bits")
        value = float(value) if kind == "float" else value
    return Attr(argument.arg, kind, value)


def _constants(tree):
    """The module's names of numbers."""
    result = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                continue
            if type(value) in (int, float):
                result[node.targets[0].id] = value
    return result
