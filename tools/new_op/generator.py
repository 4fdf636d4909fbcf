"""Makes an op's files from templates, adds it to the lists of its family."""

import builtins
import keyword
import pathlib
import re
import string

KINDS = ("map", "reduction", "gather")
_TEMPLATES = pathlib.Path(__file__).parent / "templates"
_SAMPLES_TEST = "tensorflow_ops/testing/python/op_samples_test.py"
# Per kind, the texts that several templates share.
_MAP = {
    "inputs": "const T* x",
    "op_inputs": '.Input("x: T")',
    "grad": "d_x",
    "grad_size": "args.num_elements",
    "output_size": "args.num_elements",
    "blocks": "(args.num_elements + kThreads - 1) / kThreads",
    "row": "i",
}
_REDUCTION = _MAP | {
    "grad_size": "args.rows * args.columns",
    "output_size": "args.rows",
    "blocks": "args.rows",
    "row": "i / args.columns",
}
_GATHER = {
    "inputs": "const T* params, const int64_t* indices",
    "op_inputs": '.Input("params: T")\n.Input("indices: int64")',
    "grad": "d_params",
    "grad_size": "args.rows * args.columns",
    "output_size": "args.num_indices * args.columns",
    "blocks": "(args.num_indices * args.columns + kThreads - 1) / kThreads",
}
_VALUES = {"map": _MAP, "reduction": _REDUCTION, "gather": _GATHER}


# Names that the generated Python files already use.
_RESERVED = frozenset("arguments autograph axes gradients np ops pfor tensorflow tensorflow_ops tf tfo".split())


class CannotWriteError(Exception):
    """Says why the op cannot be written."""


def snake_case(op_name):
    """The Python name that TensorFlow makes of an op's: CropPool, crop_pool."""
    result = ""
    for i, c in enumerate(op_name):
        before, after = op_name[i - 1 : i], op_name[i + 1 : i + 2]
        if c.isupper() and i > 0 and (before.islower() or after.islower()):
            result += "_"
        result += c.lower()
    return result


def check_op(op_name):
    """Raises where an op cannot be called that."""
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", op_name):
        raise CannotWriteError(
            f"the op's name is {op_name!r}, expected letters and digits in CamelCase, such as CropPool"
        )
    if op_name.endswith("Grad"):
        raise CannotWriteError(f"the op's name is {op_name!r}; a name that ends in Grad is a gradient's")
    python = snake_case(op_name)
    if keyword.iskeyword(python) or keyword.issoftkeyword(python):
        raise CannotWriteError(f"{op_name!r} would be {python!r} in Python, a keyword there")
    if python in dir(builtins):
        raise CannotWriteError(f"{op_name!r} would be {python!r} in Python, and hide the builtin of that name")
    if python in _RESERVED:
        raise CannotWriteError(f"{op_name!r} would be {python!r}, which the generated files use for something else")


def check_family(family):
    """Raises where no family can be called that."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", family):
        raise CannotWriteError(f"the family is {family!r}, expected small letters, digits and _, such as detection")
    if keyword.iskeyword(family) or keyword.issoftkeyword(family):
        raise CannotWriteError(f"the family is {family!r}, a keyword of Python")


def _read(path):
    return path.read_text(encoding="utf-8")


def check_free(root, family, op):
    """Raises if the family or the op has a bad name or exists already."""
    check_family(family)
    check_op(op)
    package, python = root / "tensorflow_ops", snake_case(op)
    if not (package / "__init__.py").is_file():
        raise CannotWriteError(f"{root} is no clone of tensorflow_ops: it has no tensorflow_ops/__init__.py")
    folder, public = package / family, _read(package / "__init__.py")
    if not folder.exists():
        if f'"{family}"' in public or (package / f"{family}.py").exists():
            raise CannotWriteError(f"tensorflow_ops has {family!r} already, and it is no family")
    elif not (folder / "BUILD").is_file() or "tfo_namespace(" not in _read(folder / "BUILD"):
        raise CannotWriteError(f"tensorflow_ops/{family} is no op family: its BUILD has no tfo_namespace")
    elif f'"{python}"' in _read(folder / "__init__.py"):
        raise CannotWriteError(f"tfo.{family}.{python} exists already")
    else:
        if f'name = "{python}"' in _read(folder / "BUILD"):
            raise CannotWriteError(f"tensorflow_ops/{family}/BUILD has a target {python!r} already")
    registered = re.compile(rf'REGISTER_OP\(\s*"TensorflowOps>({op}(?:Grad)?)"')
    declared = re.compile(rf"\b({op}(?:Grad)?(?:Args|Value|Slope|Curvature|Row)?)\s*[({{:<]")
    for path in [*package.rglob("*.cc"), *package.rglob("*.h")]:
        text = _read(path)
        found = registered.search(text)
        if found:
            raise CannotWriteError(f"the op TensorflowOps>{found[1]} exists already: {path.relative_to(root)}")
        # The functions of core's *_simd.h are in namespaces of their own.
        found = None if path.match("core/cc/*_simd.h") else declared.search(text)
        if found:
            raise CannotWriteError(f"C++ has a {found[1]} already: {path.relative_to(root)}")
    # tools/test_wheel.sh copies all tests to one folder.
    for path in package.rglob(f"{python}_test.py"):
        raise CannotWriteError(f"there is a test of that name already: {path.relative_to(root)}")


def _template(name, kind, values):
    """Fills in a template: lines after `@@ KIND...` are for these kinds, lines after `@@` for all."""
    kept, kinds = [], KINDS
    for line in _read(_TEMPLATES / f"{name}.in").splitlines(keepends=True):
        if line.startswith("@@"):
            kinds = line.split()[1:] or KINDS
        elif kind in kinds:
            kept.append(line)
    return string.Template("".join(kept)).substitute(values)


def _new_files(family, op, kind):
    """{path: text} of the op's own files."""
    python, shared = snake_case(op), _VALUES[kind]
    folder = f"tensorflow_ops/{family}"
    cc, py = f"{folder}/cc/kernels/{python}/{python}", f"{folder}/python/ops/{python}"
    inputs = shared["inputs"].split(", ")
    # The gradient's algorithm does not read params.
    grad_inputs = ["const T* d_output", *(i for i in inputs if not i.endswith("params"))]

    def joined(pattern, declarations):
        """Fills in @P, @T, @N for each of "const T* x": "const T*", "T", "x"."""
        parts = [(d.partition("*")[0] + "*", d.split()[1].rstrip("*"), d.split()[2]) for d in declarations]
        return ", ".join(pattern.replace("@P", p).replace("@T", t).replace("@N", n) for p, t, n in parts)

    values = {"family": family, "Op": op, "op": python, **shared}
    values["guard"] = re.sub(r"\W", "_", f"{cc}.h").upper() + "_"
    for prefix, declarations in {"input": inputs, "grad_input": grad_inputs}.items():
        values[f"{prefix}s"] = ", ".join(declarations)
        values[f"{prefix}_names"] = joined("@N", declarations)
        values[f"{prefix}_types"] = joined("@P", declarations)
        values[f"{prefix}_data"] = joined("Data<@T>(@N)", declarations)
        values[f"{prefix}_pointers"] = joined("@N.data()", declarations)
    paths = {
        f"{cc}.h": "algorithm.h",
        f"{cc}_cpu.cc": "cpu.cc",
        f"{cc}_gpu.cu.cc": "gpu.cu.cc",
        f"{cc}_op.cc": "op.cc",
        f"{cc}_test.cc": "test.cc",
        f"{folder}/cc/ops/{python}_ops.cc": "ops.cc",
        f"{py}.py": "wrapper.py",
        f"{py}_test.py": "test.py",
        f"benchmarks/{family}/{python}.py": "benchmark.py",
    }
    return {path: _template(name, kind, values) for path, name in paths.items()}


def _changed_files(root, family, python):
    """{path: text} of the files that list the op, and of those that a new family needs."""
    folder = f"tensorflow_ops/{family}"
    files = {}

    def insert(path, after, text):
        """Inserts text at the end of the first match of a pattern; formatters sort and wrap the list."""
        content = files.get(path) or _read(root / path)
        found = re.search(after, content, re.MULTILINE)
        if not found:
            raise CannotWriteError(f"a file is not as expected: {path} has no match of {after!r}")
        files[path] = content[: found.end()] + text + content[found.end() :]

    if not (root / folder).exists():
        values = {"family": family}
        files[f"{folder}/BUILD"] = _template("family_build", KINDS[0], values)
        files[f"{folder}/__init__.py"] = _template("family_init.py", KINDS[0], values)
        files |= {f"{folder}/{package}/__init__.py": "" for package in ("python", "python/ops")}
        insert("tensorflow_ops/BUILD", r"^OP_FAMILIES = \[\n", f'    "{family}",\n')
        insert("tensorflow_ops/__init__.py", "^from tensorflow_ops import ", f"{family}, ")
        insert("tensorflow_ops/__init__.py", r"^__all__ = \[", f'"{family}", ')
    insert(f"{folder}/BUILD", r"(?=^tfo_namespace\()", f'tfo_op(name = "{python}")\n\n')
    module = f"tensorflow_ops.{family}.python.ops.{python}"
    insert(f"{folder}/__init__.py", r'^"""(.|\n)*?"""\n\n', f"from {module} import {python}\n")
    insert(f"{folder}/__init__.py", r"^__all__ = \[", f'"{python}", ')
    insert(_SAMPLES_TEST, r"^_OWN_TESTS = \[", f'"{family}.{python}", ')
    return files


def generate(root, family, op, kind):
    """Writes the op, not formatted yet. Returns the paths of new files, and of changed ones and those of a new family.

    Raises CannotWriteError before it writes.
    """
    check_free(root, family, op)
    new, changed = _new_files(family, op, kind), _changed_files(root, family, snake_case(op))
    for path in new:
        if (root / path).exists():
            raise CannotWriteError(f"{path} exists already")
    for path, text in {**new, **changed}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return list(new), list(changed)
