"""Times the nn functions on the CPU, against TensorFlow's and these compiled by XLA, for the logits of real models.

usage: python benchmarks/nn/speed.py [--rows ROWS] [FUNCTION]...
with the wheel installed (benchmarks/README.md); default: all functions.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Adds the harness's folder, not the repository's root, whose package would hide the wheel's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import functions
import harness
import tensorflow as tf


def measure(name, rows, classes, dtype, rates, seconds):
    """Returns a table row per pass."""
    case = functions.Case(name, rows, classes, dtype)
    times = harness.interleave(case.calls(), seconds)
    table = []
    for which in ("forward", "forward+backward"):
        mine, theirs = times["ours", which], times["peer", which]
        floor = mine / rates.floor(*case.moved(which))
        row = {"logits": f"[{rows}, {classes}]", "dtype": dtype, "pass": which, "ms": f"{1e3 * mine:.1f}"}
        row |= {"TensorFlow ms": f"{1e3 * theirs:.1f}", "times as fast": f"{theirs / mine:.1f}"}
        compiled = times["XLA", which]
        row |= {"XLA ms": f"{1e3 * compiled:.1f}", "times XLA": f"{compiled / mine:.1f}"}
        row["x floor"] = f"{floor:.2f}"
        if which == "forward":
            row["off"], row["TensorFlow off"] = (f"{case.difference(whose):.1e}" for whose in ("ours", "peer"))
        table.append(row)
    return table


def main():
    """Prints a table per function, with a row per shape, dtype and pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("function", nargs="*", metavar="FUNCTION", help=", ".join(functions.FUNCTIONS))
    parser.add_argument("--rows", type=int, help="time only the shape with this many rows")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="duration of a measurement, at least 7 rounds (default: 4)"
    )
    args = parser.parse_args()
    for name in args.function:
        if name not in functions.FUNCTIONS:
            parser.error(f"{name!r} is not a function, expected one of {', '.join(functions.FUNCTIONS)}")
    tf.config.threading.set_intra_op_parallelism_threads(harness.THREADS)
    rates = harness.memory_rates()
    print(f"{harness.machine()}; {harness.THREADS} threads; {rates}.")
    for name in args.function or functions.FUNCTIONS:
        table = []
        for rows, classes in functions.SHAPES:
            if args.rows in (None, rows):
                for dtype in functions.DTYPES:
                    print(name, rows, classes, dtype, file=sys.stderr, flush=True)
                    table += measure(name, rows, classes, dtype, rates, args.seconds)
        print(f"\n## {name} against {functions.FUNCTIONS[name].peer_name}\n", flush=True)
        columns = ["logits", "dtype", "pass", "ms", "x floor", "TensorFlow ms", "times as fast", "XLA ms", "times XLA"]
        harness.table(table, [*columns, "off", "TensorFlow off"])


if __name__ == "__main__":
    main()
