"""Writes the files of a new op, a copy of a living one: it builds, passes its tests and is in the wheel at once.

usage: bazel run //tools/new_op -- NAMESPACE.Name [--like hinge_loss|zero_out] [--cpu_only]

    nn.FocalLoss     the op TensorflowOps>FocalLoss, tfo.nn.focal_loss; the namespace may be new
    --like           hinge_loss: two inputs, an int attr, two outputs, SIMD loops, a gradient; float dtypes
                     zero_out: one input of any dtype, as bytes; a gradient in C++
    --cpu_only       no CUDA kernels

docs/writing_an_op.md says what is left to write. If a name is taken or a list is not as expected, nothing is written.
"""

import argparse
import builtins
import keyword
import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple


class Living(NamedTuple):
    """An op to copy: its folder in tensorflow_ops/, and where its public functions and results are defined."""

    folder: str
    module: str
    public: tuple[str, ...]


LIVING = {
    "hinge_loss": Living("tutorial", "hinge_loss", ("HingeLoss", "hinge_loss")),
    "zero_out": Living("zero_out", "zero_out_ops", ("zero_out", "zero_out_with_index")),
}
# What --cpu_only changes in C++: pattern, replacement.
_CPU_ONLY = (
    (r" or the\W+launch's error; the Gpu overloads? only enqueues?", ""),
    (r"(template <typename T>\n)?Error \w+\(const Gpu&[^;]*;\n", ""),
    (r"TFO_CUDA_TEST\(.*?\n}\n\n", ""),
    (r" *testing::TimeOnGpu\([^;]*;\n", ""),
    (r"TFO_(OP|REGISTER_ANY_DTYPE)_KERNELS", r"TFO_\1_CPU_KERNELS"),
)
# Names that the generated Python files already use.
_RESERVED = frozenset("arguments autograph composition gradients harness np ops sample tf tfo tutorial".split())
_NEW_NAMESPACE = '''"""The ops of tfo.{0}."""

load("//tools/build_defs:namespace.bzl", "tfo_namespace")

package(default_visibility = ["//:__subpackages__"])

tfo_namespace(
    name = "{0}",
    deps = ["//tensorflow_ops/core"],
)
'''


class CannotWriteError(Exception):
    """Says why the op cannot be written."""


def snake_case(op_name):
    """The Python name that TensorFlow makes of an op's: CropPool, crop_pool."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])", "_", op_name).lower()


def _read(path):
    return path.read_text(encoding="utf-8")


def check_free(root, family, op):
    """Raises if the namespace or the op has a bad name or exists already."""
    python, package = snake_case(op), root / "tensorflow_ops"
    folder, public = package / family, package / "__init__.py"
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", op) or op.endswith("Grad"):
        raise CannotWriteError(f"the op's name is {op!r}, expected CamelCase such as CropPool, without Grad at its end")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", family):
        raise CannotWriteError(f"the namespace is {family!r}, expected small letters, digits and _, such as detection")
    for name in (python, family):
        if keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in dir(builtins) or name in _RESERVED:
            raise CannotWriteError(f"{name!r} has another meaning in Python, or in the generated files")
    if not public.is_file():
        raise CannotWriteError(f"{root} is no clone of tensorflow_ops: it has no tensorflow_ops/__init__.py")
    if folder.exists() or f'"{family}"' in _read(public):
        build = _read(folder / "BUILD") if (folder / "BUILD").is_file() else ""
        if "tfo_namespace(" not in build:
            raise CannotWriteError(f"tensorflow_ops has {family!r} already, which has no kernels")
        if f'"{python}"' in _read(folder / "__init__.py") or (folder / "cc/kernels" / python).exists():
            raise CannotWriteError(f"tfo.{family}.{python} exists already, or a folder of kernels of that name")
    taken = re.compile(rf'TensorflowOps>{op}(Grad)?"|\b{op}(Grad)?(Args|Op|Row|Slope|Term)?\s*[({{:<]')
    for path in [*package.rglob("*.cc"), *package.rglob("*.h")]:
        if found := taken.search(_read(path)):
            raise CannotWriteError(f"C++ has {found[0][:-1].strip()} already: {path.relative_to(root)}")


def _renamer(like, family, op):
    """Returns a function that renames the living op in a text, or in a path."""
    old, folder, new = "".join(word.title() for word in like.split("_")), LIVING[like].folder, snake_case(op)
    names = {
        # zero_out has its namespace for itself.
        "tensorflow_ops/zero_out/cc/kernels/zero_out": f"tensorflow_ops/{family}/cc/kernels/{new}/{new}",
        "TENSORFLOW_OPS_ZERO_OUT_CC_KERNELS_ZERO_OUT": f"TENSORFLOW_OPS_{family}_CC_KERNELS_{new}_{new}".upper(),
        "tfo.zero_out": f"tfo.{family}.{new}",
        '    "zero_out': f'    "{family}.{new}',
        f"tensorflow_ops/{folder}/": f"tensorflow_ops/{family}/",
        f"tensorflow_ops.{folder}.": f"tensorflow_ops.{family}.",
        "tutorial": family,
        "TUTORIAL": family.upper(),
        like: new,
        like.upper(): new.upper(),
        old: op,
    }
    pattern = re.compile("|".join(map(re.escape, names)))
    return lambda text: pattern.sub(lambda found: names[found[0]], text)


def _new_files(root, like, rename, cpu_only):
    """{path: text} of the op's own files."""
    folder, files = LIVING[like].folder, {}
    paths = [
        p for p in sorted((root / "tensorflow_ops" / folder).rglob(f"{like}*")) if p.suffix in (".h", ".cc", ".py")
    ]
    paths += [root / "tensorflow_ops/export/python" / f"{like}.py", root / "benchmarks" / folder / f"{like}.py"]
    for path in paths:
        if not path.exists() or (cpu_only and path.name.endswith(".cu.cc")):
            continue
        text = _read(path)
        if cpu_only and path.suffix != ".py":
            for old, new in _CPU_ONLY:
                text = re.sub(old, new, text, flags=re.DOTALL)
        files[rename(str(path.relative_to(root)))] = rename(text)
    return files


def _changed_files(root, family, module, public):
    """{path: text} of the file that names the op, and of those that a new namespace needs."""
    folder, files = f"tensorflow_ops/{family}", {}

    def insert(path, after, text):
        """Inserts text at the end of the first match of a pattern; formatters sort and wrap the list."""
        content = files.get(path) or _read(root / path)
        found = re.search(after, content, re.MULTILINE)
        if not found:
            raise CannotWriteError(f"a file is not as expected: {path} has no match of {after!r}")
        files[path] = content[: found.end()] + text + content[found.end() :]

    if not (root / folder).exists():
        files[f"{folder}/BUILD"] = _NEW_NAMESPACE.format(family)
        files[f"{folder}/__init__.py"] = f'"""The ops of tfo.{family}."""\n\n__all__ = []\n'
        files |= {f"{folder}/{package}/__init__.py": "" for package in ("python", "python/ops")}
        insert("tensorflow_ops/BUILD", r"^OP_FAMILIES = \[\n", f'    "{family}",\n')
        insert("tensorflow_ops/__init__.py", r"^from tensorflow_ops import \(\s*", f"{family}, ")
        insert("tensorflow_ops/__init__.py", r"^__all__ = \[", f'"{family}", ')
    import_line = f"from tensorflow_ops.{family}.python.ops.{module} import {', '.join(public)}\n"
    insert(f"{folder}/__init__.py", r'^"""(.|\n)*?"""\n\n', import_line)
    insert(f"{folder}/__init__.py", r"^__all__ = \[", "".join(f'"{name}", ' for name in public))
    return files


def generate(root, family, op, like="hinge_loss", cpu_only=False):
    """Writes the op, not formatted yet. Returns the paths of its files, and of those that are changed or a namespace's.

    Raises CannotWriteError before it writes.
    """
    check_free(root, family, op)
    rename = _renamer(like, family, op)
    new = _new_files(root, like, rename, cpu_only)
    module, public = rename(LIVING[like].module), list(map(rename, LIVING[like].public))
    changed = _changed_files(root, family, module, public)
    for path in new:
        # tools/test_wheel.sh copies all tests to one folder.
        name = pathlib.Path(path).name
        same = (root / "tensorflow_ops").rglob(name) if "_test" in name else [root / path]
        if any(other.exists() for other in same):
            raise CannotWriteError(f"{name} exists already")
    for path, text in {**new, **changed}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return list(new), list(changed)


def main():
    """Writes the op, or prints an error and exits with 1."""
    root = pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY") or pathlib.Path(__file__).resolve().parents[2])
    parser = argparse.ArgumentParser(
        prog="new_op", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", metavar="NAMESPACE.Name")
    parser.add_argument("--like", choices=LIVING, default="hinge_loss")
    parser.add_argument("--cpu_only", action="store_true")
    options = parser.parse_args()
    family, _, op = options.name.rpartition(".")
    try:
        new, changed = generate(root, family, op, options.like, options.cpu_only)
    except CannotWriteError as error:
        sys.exit(f"ERROR: {error}\nNothing is written.")
    python = snake_case(op)
    print(f"TensorflowOps>{op} is tfo.{family}.{python}.", "New:", *(f"  {path}" for path in new), sep="\n")
    print("Changed, or new with the namespace:", *(f"  {path}" for path in changed), sep="\n", flush=True)
    done = subprocess.run(["bash", "tools/lint.sh", "--fix", *new, *changed], cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"Not all files are formatted: bash tools/lint.sh --fix prints\n{done.stdout}{done.stderr}")
    print("What is left to write is in docs/writing_an_op.md. The tests pass as they are:")
    print(f"  bash tools/test.sh //tensorflow_ops/{family}:{python}_test")
    print(f"  bash tools/test.sh //tensorflow_ops/{family}:ops_test --test_filter={python}")


if __name__ == "__main__":
    main()
