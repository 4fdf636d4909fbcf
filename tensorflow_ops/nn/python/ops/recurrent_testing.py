"""Masks, activations and gradients for the tests of recurrent layers."""

import numpy as np
import tensorflow as tf

MASK = np.array([[1, 1, 0, 1, 1], [0, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
LENGTHS = [3, 0, 5, 2]
ACTIVATIONS = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "linear": lambda x: x,
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
}


def gradients(function, tensors):
    """Returns results, and gradients of a loss of them."""
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        results = function(*tensors)
        # Each result counts, and differently.
        loss = sum(tf.reduce_sum(tf.cast(y, tf.float64) * tf.cos(tf.cast(y, tf.float64) + i))
                   for i, y in enumerate(results))  # fmt: skip
    return results, tape.gradient(loss, tensors)
