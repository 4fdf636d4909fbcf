"""A python_op call, compared with tf.numpy_function, on the same NumPy functions. 1 min."""

import numpy as np
import tensorflow as tf
from harness import Case, in_graph, normal, table

import tensorflow_ops as tfo

IN_A_ROW = 10


def _relu(x):
    return np.maximum(x, 0)


def _clip(x, low, high, *, scale=0.5):
    clipped = np.clip(x, low, high) * np.float32(scale)
    return clipped, x - clipped


relu = tfo.python_op("benchmark::relu", out=lambda x: tf.TensorSpec(x.shape, x.dtype))(_relu)
clip = tfo.python_op("benchmark::clip", out=lambda x, low, high: (tf.TensorSpec(x.shape, x.dtype),) * 2)(_clip)


def numpy_function(function, outputs):
    """Returns a function by tf.numpy_function, with the static shapes that a python_op keeps."""

    def call(x, *others):
        results = tf.numpy_function(function, [x, *others], [tf.float32] * outputs)
        for result in tf.nest.flatten(results):
            result.set_shape(x.shape)
        return results

    return call


def chained(function):
    """Returns ten calls in a row, which outweigh the call of their graph."""

    def calls(x, *others):
        for _ in range(IN_A_ROW):
            x = tf.nest.flatten(function(x, *others))[0]
        return x

    return calls


@table()
def overhead():
    """The relu has one input; the clip has three inputs, an attribute and two outputs."""
    limits = tf.constant(-1.0), tf.constant(1.0)
    for name, ours, theirs, others in (
        ("relu", relu, numpy_function(_relu, 1), ()),
        ("clip", clip, numpy_function(_clip, 2), limits),
    ):
        for shape in ((8,), (256, 256), (1024, 1024)):
            inputs = (normal(*shape), *others)
            where = {"function": name, "input": "x".join(map(str, shape))}
            yield Case(
                where | {"mode": "eager"},
                lambda f=ours, x=inputs: f(*x),
                {"numpy_function": lambda f=theirs, x=inputs: f(*x)},
            )
            yield Case(
                where | {"mode": f"{IN_A_ROW} calls in a graph"},
                in_graph(chained(ours), inputs),
                {"numpy_function": in_graph(chained(theirs), inputs)},
            )
