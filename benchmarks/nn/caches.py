"""update_cache in loops, beside Keras's slice_update and TensorFlow's scatter, also compiled by XLA. 1 min."""

import keras
import numpy as np
import tensorflow as tf
from harness import PAUSE, Case, in_graph, normal, table

import tensorflow_ops as tfo

STEPS = 16


def in_keras(cache, row, i):
    return keras.ops.slice_update(cache, [0, i, 0, 0], row)


def in_tensorflow(cache, row, i):
    batch = tf.range(tf.shape(cache)[0])
    return tf.tensor_scatter_nd_update(cache, tf.stack([batch, tf.fill(tf.shape(batch), i)], -1), row[:, 0])


def loop(update):
    """Returns a function of a cache and rows [steps, batch, 1, ...]: the cache after all steps, which begin at 3."""

    def run(cache, rows):
        step = lambda i, cache: (i + 1, update(cache, rows[i], i + 3))  # noqa: E731
        # A sum, so that the loop owns its cache.
        return tf.while_loop(lambda i, _: i < STEPS, step, [0, cache + 1.0])[1]

    return run


@table(pause=PAUSE)
def update():
    """16 steps of a loop write a position each. The floor is TensorFlow's copy of the cache, before the loop."""
    for shape in ((1, 1024, 8, 64), (8, 1024, 8, 64)):
        inputs = normal(*shape), normal(STEPS, shape[0], 1, *shape[2:], seed=1)
        updates = {"Keras": in_keras, "tensor_scatter": in_tensorflow}
        rivals = {name: in_graph(loop(function), inputs) for name, function in updates.items()}
        for name, function in {"XLA": tfo.nn.update_cache, "Keras, XLA": in_keras}.items():
            rivals[name] = in_graph(loop(function), inputs, jit_compile=True)
        yield Case(
            {"cache": list(shape)},
            in_graph(loop(tfo.nn.update_cache), inputs),
            rivals,
            floor=(in_graph(lambda cache: cache + np.float32(1), inputs[:1]),),
        )
