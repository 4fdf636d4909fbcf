"""Writes the files of a new op, which builds, passes its tests and is in the wheel at once.

usage: bazel run //tools/new_op -- --family FAMILY --name NAME --kind map|reduction|gather
"""

import argparse
import builtins
import keyword
import os
import pathlib
import re
import string
import subprocess
import sys

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
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])", "_", op_name).lower()


def _read(path):
    return path.read_text(encoding="utf-8")


def check_free(root, family, op):
    """Raises if the family or the op has a bad name or exists already."""
    python, package = snake_case(op), root / "tensorflow_ops"
    folder, public = package / family, package / "__init__.py"
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", op) or op.endswith("Grad"):
        raise CannotWriteError(f"the op's name is {op!r}, expected CamelCase such as CropPool, without Grad at its end")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", family):
        raise CannotWriteError(f"the family is {family!r}, expected small letters, digits and _, such as detection")
    for name in (python, family):
        if keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in dir(builtins) or name in _RESERVED:
            raise CannotWriteError(f"{name!r} has another meaning in Python, or in the generated files")
    if not public.is_file():
        raise CannotWriteError(f"{root} is no clone of tensorflow_ops: it has no tensorflow_ops/__init__.py")
    if folder.exists() or f'"{family}"' in _read(public):
        build = _read(folder / "BUILD") if (folder / "BUILD").is_file() else ""
        if "tfo_namespace(" not in build:
            raise CannotWriteError(f"tensorflow_ops has {family!r} already, and it is no family with a tfo_namespace")
        if f'"{python}"' in _read(folder / "__init__.py") or f'name = "{python}"' in build:
            raise CannotWriteError(f"tfo.{family}.{python} exists already, or a target of that name")
    taken = re.compile(rf'TensorflowOps>{op}(Grad)?"|\b{op}(Grad)?(Args|Value|Slope|Curvature|Row)?\s*[({{:<]')
    for path in [*package.rglob("*.cc"), *package.rglob("*.h")]:
        # The functions of core's *_simd.h are in namespaces of their own.
        if not path.match("core/cc/*_simd.h") and (found := taken.search(_read(path))):
            raise CannotWriteError(f"C++ has {found[0][:-1].strip()} already: {path.relative_to(root)}")
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
        insert("tensorflow_ops/__init__.py", r"^from tensorflow_ops import \(\s*", f"{family}, ")
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


_EPILOG = """
KINDS
  map        output[i] = value(x[i]). At first the value is x[i].
  reduction  output[r] = the sum over an axis of value(x[r, c]). At first the sum of x.
  gather     output[k] = params[row(indices[k])]. At first the row is indices[k].

Writes the header, CPU loops, CUDA kernels, OpKernels, op definitions, the Python function with gradients of two
orders, both tests, and a benchmark; then lists the op in the family's BUILD and __init__.py and in
testing/python/op_samples_test.py, and writes docs/op_index.md anew. A new family is also listed in tensorflow_ops/BUILD
and __init__.py. If a name is taken or a list is not as expected, nothing is written.

The comments FILL IN mark what is yours to write: the definition (NAME.h), the docstring (NAME.py), the NumPy reference
(NAME_test.py). If only one of definition and reference changes, the test fails.
"""


def main():
    """Writes the op, or prints an error and exits with 1."""
    root = pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY") or pathlib.Path(__file__).resolve().parents[2])
    parser = argparse.ArgumentParser(
        prog="new_op", description=__doc__, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", required=True, help="a folder of tensorflow_ops/, or a new one")
    parser.add_argument("--name", required=True, help="the op's name in CamelCase, such as CropPool")
    parser.add_argument("--kind", required=True, choices=KINDS, help="the shape of its loops, see below")
    options = parser.parse_args()
    family, name = options.family, options.name
    try:
        new, changed = generate(root, family, name, options.kind)
    except CannotWriteError as error:
        sys.exit(f"ERROR: {error}\nNothing is written.")
    python = snake_case(name)
    print(f"TensorflowOps>{name} is tfo.{family}.{python}.", "New:", *(f"  {path}" for path in new), sep="\n")
    print(
        "Changed, or new with the family:",
        *(f"  {path}" for path in [*changed, "docs/op_index.md"]),
        sep="\n",
        flush=True,
    )
    done = subprocess.run(["bash", "tools/lint.sh", "--fix", *new, *changed], cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"Not all files are formatted: bash tools/lint.sh --fix prints\n{done.stdout}{done.stderr}")
    subprocess.run([sys.executable, "tools/docs/op_index.py"], cwd=root, check=True)
    print("Next, search the new files for FILL IN and write the definition. Then run")
    print(f"  bash tools/test.sh //tensorflow_ops/{family}:{python}_test")
    print(f"  bash tools/test.sh //tensorflow_ops/{family}:ops_test --test_filter={python}_test")


if __name__ == "__main__":
    main()
