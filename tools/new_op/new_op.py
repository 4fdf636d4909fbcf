"""Writes the files of a new op, which builds, passes its tests and is in the wheel at once.

usage: bazel run //tools/new_op -- --family FAMILY --name NAME --kind map|reduction|gather
"""

import argparse
import os
import pathlib
import subprocess
import sys

import generator

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
    parser.add_argument("--kind", required=True, choices=generator.KINDS, help="the shape of its loops, see below")
    options = parser.parse_args()
    family, name = options.family, options.name
    try:
        new, changed = generator.generate(root, family, name, options.kind)
    except generator.CannotWriteError as error:
        sys.exit(f"ERROR: {error}\nNothing is written.")
    python = generator.snake_case(name)
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
