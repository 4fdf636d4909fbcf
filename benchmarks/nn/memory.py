"""Measures the nn functions' peak memory beyond inputs and results.

usage: python benchmarks/nn/memory.py
with the wheel installed (benchmarks/README.md), on Linux with glibc, and gcc.

Each row is measured in its own process (malloc_peak.py). The linear cross entropy is measured on sizes that fit and
extrapolated to larger ones: its memory grows with the chunk and the weights, not with the rows.
"""

import argparse
import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Adds the harness's folder, not the repository's root, whose package would hide the wheel's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import functions
import harness
import malloc_peak
import tensorflow as tf

import tensorflow_ops as tfo

SHAPE = (4096, 8000)
# (rows, features, classes)
LINEAR = ((2048, 256, 32000), (4096, 256, 32000), (8192, 256, 32000), (2048, 256, 128000))
LARGE = (16384, 256, 128000)


def measure_function(name, whose, dtype):
    """Returns {pass: bytes beyond inputs and results}."""
    malloc_peak.check_method()
    case, extra = functions.Case(name, *SHAPE, dtype), {}
    for (who, which), call in case.calls().items():
        if who == whose:
            call()  # starts threads, traces
            written = sum(t.shape.num_elements() * t.dtype.size for t in tf.nest.flatten(call()))
            extra[which] = max(malloc_peak.extra_bytes(call, written) for _ in range(3))
    return extra


def measure_linear(whose, rows, features, classes):
    """Returns {pass: bytes beyond inputs and results}."""
    malloc_peak.check_method()
    generator = tf.random.Generator.from_seed(1)
    x, w = generator.normal([rows, features]), generator.normal([features, classes])
    labels, extra = generator.uniform([rows], 0, classes, tf.int64), {}

    def loss(x, w):
        if whose == "ours":
            return tfo.nn.linear_cross_entropy(x, w, labels)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x @ w)

    def both(x, w):
        with tf.GradientTape() as tape:
            tape.watch((x, w))
            result = loss(x, w)
        return result, tape.gradient(result, (x, w))

    for which, function in (("forward", tf.function(loss)), ("forward+backward", tf.function(both))):
        written = sum(t.shape.num_elements() * t.dtype.size for t in tf.nest.flatten(function(x, w)))
        extra[which] = malloc_peak.extra_bytes(lambda f=function: f(x, w), written)
    return extra


def function_rows(counter):
    """Yields a row per function, dtype and pass."""
    logits = SHAPE[0] * SHAPE[1]
    for name in functions.FUNCTIONS:
        for dtype in functions.DTYPES:
            print(name, dtype, file=sys.stderr, flush=True)
            ours, theirs = (counter.run(__file__, "--worker", name, whose, dtype) for whose in ("ours", "peer"))
            for which, extra in ours.items():
                size = logits * tf.as_dtype(dtype).size
                row = {"function": name, "dtype": dtype, "pass": which, "% of logits": f"{100 * extra / size:.2f}"}
                row["TensorFlow, %"] = f"{100 * theirs[which] / size:.0f}"
                yield row


def linear_rows(counter):
    """Yields a row per size of the linear cross entropy, and one for the size that does not fit."""
    for rows, dims, classes in LINEAR:
        print("linear_cross_entropy", rows, classes, file=sys.stderr, flush=True)
        ours = counter.run(__file__, "--worker", "linear", "ours", rows, dims, classes)
        # TensorFlow's composition holds the logits, their gradient and a temporary.
        fits = rows * classes <= 2048 * 128000
        theirs = counter.run(__file__, "--worker", "linear", "peer", rows, dims, classes) if fits else {}
        for which, extra in ours.items():
            yield {
                "rows": rows,
                "classes": classes,
                "logits, MB": f"{rows * classes * 4 / 1e6:.0f}",
                "weights, MB": f"{dims * classes * 4 / 1e6:.0f}",
                "pass": which,
                "beyond inputs and results, MB": f"{extra / 1e6:.0f}",
                "TensorFlow, MB": f"{theirs[which] / 1e6:.0f}" if theirs else "",
            }


def main():
    """Prints two tables: the functions, and the linear cross entropy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(harness.THREADS)
    if args.worker and args.worker[0] == "linear":
        print(json.dumps(measure_linear(args.worker[1], *map(int, args.worker[2:]))))
    elif args.worker:
        print(json.dumps(measure_function(*args.worker)))
    else:
        with malloc_peak.counter() as counter:
            print(f"{harness.machine()}; {harness.THREADS} threads.\n\n## Logits {list(SHAPE)}\n")
            table = list(function_rows(counter))
            harness.table(table, list(table[0]))
            print("\n## linear_cross_entropy, float32, 256 features\n")
            table = list(linear_rows(counter))
            harness.table(table, list(table[0]))
            rows, dims, classes = LARGE
            print(
                f"\nLogits of {rows} rows and {classes} classes take {rows * classes * 4 / 1e9:.1f} GB, and their "
                f"gradient as much. linear_cross_entropy's memory does not grow with rows: it needs as much as for "
                f"{LINEAR[-1][0]} rows and {classes} classes, plus {rows * dims * 4 / 1e6:.0f} MB for dx."
            )


if __name__ == "__main__":
    main()
