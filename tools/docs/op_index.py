"""Writes docs/op_index.md from the source: __all__, docstrings, op definitions, kernels, and docs/coming_from_*.md.

    python tools/docs/op_index.py [--check]

--check changes nothing, and fails if the page is not up to date. Needs only Python.
"""

import ast
import functools
import pathlib
import re
import sys
from collections.abc import Callable
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/op_index.md"
_DTYPES = {"half": "float16", "float": "float32", "double": "float64", "numbertype": "all numeric ones"}
_INTRO = """# Index of ops

Every public function, layer, loss and metric. This page is generated from the source (`tools/docs/op_index.py`): the
first lines and the gradients from docstrings, devices and dtypes from the registrations of the ops that a function
calls. Where these are float32 and float64 only, 16-bit floats are cast to float32. Without an entry, a function is
composed of TensorFlow's ops and runs where they do. CUDA needs a wheel that was built with `--cuda`.

"Elsewhere" lists the calls of other libraries that [Coming from other libraries](coming_from.md) translates, argument
by argument.
"""


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
        is_result = isinstance(node, ast.ClassDef) and module not in ("layers", "losses", "metrics")
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


def raw_ops(file: pathlib.Path, name: str, seen: set) -> set[str]:
    """Returns the ops of the library that a function or class of the package calls, also through others."""
    if (file, name) in seen or "core" in file.parts:
        return set()
    seen.add((file, name))
    found = set()
    for node in ast.walk(definition(file, name)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = resolve(file, node.value.id)
            if node.value.id == "ops" and node.attr.startswith("tensorflow_ops_"):
                found.add(node.attr.removeprefix("tensorflow_ops_"))
                continue
            called = module and not module[1] and resolve(module[0], node.attr)
        else:
            called = isinstance(node, ast.Name) and resolve(file, node.id)
        if called and called[1]:
            found |= raw_ops(*called, seen)
    return found


def _key(op: str) -> str:
    """Returns what TensorflowOps>RoiPool and tensorflow_ops_roi_pool have in common."""
    return op.replace("_", "").lower()


@functools.cache
def kernels(package: pathlib.Path) -> dict[str, tuple[list[str], list[str]]]:
    """Returns {key of an op: (dtypes, devices)} from REGISTER_OP and the registrations of kernels.

    The dtypes are those of the op's widest type attr, T first.
    """
    dtypes, devices = {}, {}
    for file in sorted(package.rglob("*_ops.cc")):
        # Joins lines, and parts of strings.
        text = re.sub(r'"\s*"', "", file.read_text(encoding="utf-8").replace("\\\n", ""))
        macros = dict(re.findall(r"^#define (TFO_\w+)(?:\(\w*\))?(.*)$", text, re.M))
        for op, body in re.findall(r'REGISTER_OP\(\s*"TensorflowOps>(\w+)"\)(.*?);', text, re.S):
            while macro := re.search(r"TFO_\w+", body):
                body = body.replace(macro[0], macros.get(macro[0], ""))
            attrs = re.findall(r'Attr\(\s*"(T\w*): (?:\{([\w, ]+)\}|(numbertype))', body)
            values = {name: (one or many).split(", ") for name, many, one in attrs}
            widest = max(values, key=lambda name, of=values: (len(of[name]), name == "T"), default="")
            dtypes[_key(op)] = [_DTYPES.get(value, value) for value in values.get(widest, [])]
    for file in sorted(package.rglob("*_op.cc")):
        text = file.read_text(encoding="utf-8")
        # The macros register kernels of both devices.
        for macro, op in re.findall(r'(TFO_REGISTER\w*\(\s*"|Name\("TensorflowOps>)(\w+)"', text):
            devices[_key(op)] = (
                ["CPU", "CUDA"] if "TFO" in macro or "DEVICE_GPU" in text or "GpuDeviceType" in text else ["CPU"]
            )
    return {op: (dtypes[op], devices[op]) for op in dtypes if op in devices}


def differentiable(name: Name, compiled: bool) -> str:
    """Returns in which arguments: what the docstring's Returns says, or which function says it."""
    if name.public.startswith("tfo.metrics."):
        return "no"
    text = re.sub(r"\s+", " ", name.doc.partition("Returns:")[2])
    found = re.search(r"\b(?:[Dd]ifferentiable((?: (?:`[^`]*`|[^`\s.;:(]+))+)|No gradient\b)", text)
    if found:
        return (found[1] or "no").strip(" ,")
    same = re.search(r"`([\w.]+)`", name.summary) or re.search(r"`(tfo\.[\w.]+)`", name.doc)
    if same and compiled:
        return f"as `{same[1]}`"
    if compiled:
        raise SystemExit(f"{name.public}: Returns says neither 'Differentiable in ...' nor 'No gradient'.")
    return ""


def coming_from() -> str:
    """Returns the pages with the calls of other libraries, in the order of docs/coming_from.md."""
    order = (ROOT / "docs/coming_from.md").read_text(encoding="utf-8").find
    pages = sorted(ROOT.glob("docs/coming_from_*.md"), key=lambda page: order(page.name))
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


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


def page(package: pathlib.Path, others: str, link: Callable[[Name, str], str]) -> str:
    """Returns the index, with the address of each name by `link`, and the calls in the pages `others`."""
    elsewhere = equivalents(others)
    sections = [_INTRO]
    for module, names in sorted(public_names(package).items(), key=lambda item: not item[0]):
        lines = ["| op | what it does | differentiable | devices | dtypes | elsewhere |", "|---|---|---|---|---|---|"]
        for name in names:
            if name.is_result:  # the functions' docstrings describe it
                continue
            found = [
                kernels(package).get(_key(op)) or sys.exit(f"{name.public} calls {op}, which no *_op.cc registers.")
                for op in sorted(raw_ops(name.file, name.name, set()))
            ]
            dtypes, devices = max(found, key=lambda entry: len(entry[0]), default=([], []))
            cells = [
                f"[`{name.public}`]({link(name, module)})",
                name.summary.removesuffix("."),
                differentiable(name, bool(found)),
                ", ".join(devices),
                ", ".join(dtypes),
                ", ".join(elsewhere.get(name.public, [])),
            ]
            lines.append("|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|")
        if len(lines) > 2:
            sections.append(f"## tfo.{module}\n" if module else "## tfo\n")
            sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)


def main() -> None:
    """Writes or checks the page."""
    text = page(ROOT / "tensorflow_ops", coming_from(), lambda name, module: f"../{name.file.relative_to(ROOT)}")
    if sys.argv[1:] == ["--check"]:
        if (ROOT / PAGE).read_text(encoding="utf-8") != text:
            raise SystemExit(f"{PAGE} is not up to date: run python tools/docs/op_index.py")
    elif sys.argv[1:]:
        raise SystemExit(__doc__)
    else:
        (ROOT / PAGE).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
