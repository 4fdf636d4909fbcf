"""Compares the cost of a python_op call with tf.numpy_function, on the same NumPy functions.

    python benchmarks/prototyping/overhead.py [--seconds 20]

Prints a Markdown table: medians of interleaved calls, and their ratio. The relu has one input; the clip
has three inputs, an attribute and two outputs. The graphs are tf.functions with a chain of ten calls,
so that the callbacks outweigh the call of the graph.
"""

import argparse
import pathlib
import sys

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

# Adds the harness's folder, not the repository's root, whose package would hide the wheel's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import harness

IN_A_ROW = 10


@tfo.python_op("benchmark::relu", out=lambda x: tf.TensorSpec(x.shape, x.dtype))
def relu(x):
    return np.maximum(x, 0)


@tfo.python_op("benchmark::clip", out=lambda x, low, high: (tf.TensorSpec(x.shape, x.dtype),) * 2)
def clip(x, low, high, *, scale=1.0):
    clipped = np.clip(x, low, high) * np.float32(scale)
    return clipped, x - clipped


def _relu(x):
    return np.maximum(x, 0)


def _clip(x, low, high):
    clipped = np.clip(x, low, high) * np.float32(0.5)
    return clipped, x - clipped


def numpy_relu(x):
    """Relu by tf.numpy_function, with the static shape that a python_op keeps."""
    y = tf.numpy_function(_relu, [x], tf.float32)
    y.set_shape(x.shape)
    return y


def numpy_clip(x, low, high):
    """Clip by tf.numpy_function."""
    clipped, rest = tf.numpy_function(_clip, [x, low, high], [tf.float32, tf.float32])
    clipped.set_shape(x.shape)
    rest.set_shape(x.shape)
    return clipped, rest


def _chained(function):
    @tf.function
    def calls(x, *others):
        for _ in range(IN_A_ROW):
            x = function(x, *others)
            x = x[0] if isinstance(x, (tuple, list)) else x
        return x

    return calls


def _rows(seconds):
    generator = np.random.default_rng(0)
    for name, ours, theirs, others in (
        ("relu", relu, numpy_relu, ()),
        ("clip", lambda *args: clip(*args, scale=0.5), numpy_clip, (tf.constant(-1.0), tf.constant(1.0))),
    ):
        for shape in ((8,), (256, 256), (1024, 1024)):
            x = tf.constant(generator.normal(size=shape), tf.float32)
            for mode, wrap, count in (("eager", lambda f: f, 1), ("tf.function", _chained, IN_A_ROW)):
                a, b = wrap(ours), wrap(theirs)
                for one, other in zip(tf.nest.flatten(a(x, *others)), tf.nest.flatten(b(x, *others)), strict=True):
                    np.testing.assert_array_equal(one, other)
                times = harness.interleave(
                    {
                        "python_op": lambda a=a, x=x, others=others: tf.nest.flatten(a(x, *others))[0].numpy(),
                        "numpy_function": lambda b=b, x=x, others=others: tf.nest.flatten(b(x, *others))[0].numpy(),
                    },
                    seconds=seconds / 12,
                    min_rounds=100,
                )
                yield {
                    "function": name,
                    "input": "x".join(map(str, shape)),
                    "mode": mode,
                    "python_op": f"{times['python_op'] / count * 1e6:.1f} us",
                    "numpy_function": f"{times['numpy_function'] / count * 1e6:.1f} us",
                    "ratio": f"{times['python_op'] / times['numpy_function']:.2f}",
                }


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of all measurements together")
    rows = list(_rows(parser.parse_args().seconds))
    print(f"{harness.machine()}\n")
    harness.table(rows, ["function", "input", "mode", "python_op", "numpy_function", "ratio"])


if __name__ == "__main__":
    main()
