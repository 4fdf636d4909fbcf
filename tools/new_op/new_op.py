"""Writes the files of a new op: it builds, passes its tests and is in the wheel at once.

usage: bazel run //tools/new_op -- --family FAMILY --name NAME [--prototype MODULE:FUNCTION]
Without arguments it asks.
"""

import argparse
import os
import pathlib
import sys

import generator
import names
import prototype
import writing

_EPILOG = """
WHAT IS WRITTEN
  tensorflow_ops/FAMILY/cc/kernels/   NAME.h, NAME_formula.h, NAME_simd.h, NAME_simd.cc, NAME_cpu.cc,
                                      NAME_gpu.cu.cc, NAME_op.cc, NAME_test.cc
  tensorflow_ops/FAMILY/cc/ops/       NAME_ops.cc: op definitions with shape functions
  tensorflow_ops/FAMILY/python/ops/   NAME.py, NAME_grad.py, NAME_pfor.py, NAME_prototype.py, NAME_test.py
  benchmarks/FAMILY/                  NAME.py
and lines in the family's BUILD and __init__.py, in tensorflow_ops/BUILD and in the two tests that name all ops
(core/python/library_test.py, testing/python/op_samples_test.py). A family that does not exist is made, and exported by
tensorflow_ops/__init__.py. All is written or, after an error, nothing.

PROTOTYPES
  A prototype is a Python function of NumPy, plain or a tfo.python_op, that computes each element by itself:

    def mish(x, *, beta: float = 1.0):
        "Mish, x tanh(log(1 + e^(beta x)))."
        softplus = np.log1p(np.exp(beta * x))
        return x * np.tanh(softplus)

  Arguments are inputs, all of one shape and dtype; those after the * or with a default are attrs: bool, int or float,
  by annotation or default. new_op knows
    + - * / **, comparisons, & | ~ and logical_and, _or, _not of them, np.where, `a if condition else b`, abs;
    of np: abs arctan clip cos cosh exp expm1 isnan log log1p maximum minimum negative power reciprocal sign sin sinh
    sqrt square tanh, pi, e; x.dtype.type(2), a.astype(x.dtype); the module's names of numbers; values with a name.
  The file is read, not run. new_op writes the formula in C++, and its derivative, once for CPU and CUDA. The file is
  copied into the family, where it stays as the reference of the op's test.

  Other functions (that move data, sum, loop) need kernels that no program could write: new_op says which line it is.
  Leave --prototype out for such an op. It is then the square of each element, scaled: kernels and a prototype that
  agree, whose test fails as soon as you change one of them, until the other does the same.
"""


def _ask(question, check, default=None):
    """Asks until the answer passes check, which raises what is wrong."""
    while True:
        try:
            answer = input(f"{question}{f' [{default}]' if default is not None else ''}: ").strip() or default
        except EOFError:
            sys.exit("\nERROR: no answer; nothing is written. See --help for the options.")
        try:
            check(answer or "")
            return answer
        except (names.BadNameError, prototype.BadPrototypeError, writing.CannotWriteError) as error:
            print(f"  {error}")


def main():
    """Writes the op, or says why not and exits with 1."""
    root = pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY") or pathlib.Path(__file__).resolve().parents[2])
    here = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY") or os.getcwd())
    parser = argparse.ArgumentParser(
        prog="new_op", description=__doc__, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", help="a folder of tensorflow_ops/, such as detection; a new one is made")
    parser.add_argument("--name", help="the op's name in CamelCase, such as CropPool")
    parser.add_argument("--prototype", help="module:function or path/to/file.py:function, from the current folder")
    parser.add_argument("--root", type=pathlib.Path, default=root, help="the repository (default: this one)")
    options = parser.parse_args()

    def check_prototype(answer):
        if answer:
            prototype.read(*prototype.find(answer, here))

    try:
        if len(sys.argv) == 1:
            families = ", ".join(generator.families(options.root))
            options.family = _ask(f"Family (there are: {families}; another one is made)", names.check_family)
            options.name = _ask(
                "The op's name, such as CropPool",
                lambda answer: generator.check_free(options.root, options.family, answer),
            )
            options.prototype = _ask("Prototype as module:function or file.py:function; none", check_prototype, "")
        elif not (options.family and options.name):
            parser.error("--family and --name are needed, or no argument at all")
        written = generator.generate(options.root, options.family, options.name, options.prototype, here)
    except (names.BadNameError, prototype.BadPrototypeError, writing.CannotWriteError) as error:
        sys.exit(f"ERROR: {error}\nNothing is written.")
    except KeyboardInterrupt:
        sys.exit("\nNothing is written.")
    print(written)


if __name__ == "__main__":
    main()
