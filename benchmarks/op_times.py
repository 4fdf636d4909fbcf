"""The main program of benchmarks/FAMILY/OP.py: times of one op with one differentiable input, its first."""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import harness
import tensorflow as tf

DTYPES = ("float32", "bfloat16", "float16", "float64")


def _gradient(function, args):
    with tf.GradientTape() as tape:
        tape.watch(args[0])
        output = function(*args)
    return tape.gradient(output, args[0])


def _bytes(*tensors):
    return sum(x.dtype.size * int(tf.size(x)) for x in tensors)


def _rows(op, args, peers, seconds, rates):
    """Yields a row for the op alone and for the op with its gradient."""
    functions = {"ours": op, **peers}
    calls = {(name, "forward"): lambda f=f: f(*args) for name, f in functions.items()}
    calls |= {(name, "forward+backward"): lambda f=f: _gradient(f, args) for name, f in functions.items()}
    times = harness.interleave(calls, seconds)
    read, written = _bytes(*args), _bytes(op(*args))
    moved = {"forward": (read, written), "forward+backward": (2 * read + written, written + _bytes(args[0]))}
    for which, bytes_moved in moved.items():
        ours = times["ours", which]
        row = {"pass": which, "ms": f"{1e3 * ours:.3f}", "x floor": f"{ours / rates.floor(*bytes_moved):.1f}"}
        yield row | {f"{name} / ours": f"{times[name, which] / ours:.1f}" for name in peers}


def main(op, arguments, peers):
    """Prints a table with a row for each size, dtype and pass.

    Args:
      op: the op's function.
      arguments: a function (elements, dtype) that returns the op's arguments.
      peers: other implementations, as {name: function of the same arguments}.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--elements", type=int, nargs="+", default=[10_000, 10_000_000])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each size and dtype")
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(harness.THREADS)
    rates = harness.memory_rates()
    rows = [
        {"elements": elements, "dtype": dtype} | row
        for elements in options.elements
        for dtype in DTYPES
        for row in _rows(op, arguments(elements, dtype), peers, options.seconds, rates)
    ]
    print(f"{harness.machine()}; {harness.THREADS} threads; {rates}.\n")
    harness.table(rows, list(rows[0]))
