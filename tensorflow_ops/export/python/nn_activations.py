"""Composition of gelu and silu."""

import math

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import widened


@composition("BiasActivation", [None, 1])
def _bias_activation(features, bias, *, activation):
    x = widened(features)
    for b in bias:
        x += widened(b)
    # At -inf, the limit.
    lowest = tf.constant(-800, x.dtype)
    x = tf.where(x < lowest, lowest, x)
    if tf.compat.as_bytes(activation) == b"silu":
        y = x * tf.sigmoid(x)
    elif tf.compat.as_bytes(activation) == b"gelu":
        # TensorFlow's erf of infinity is NaN in float64.
        most = tf.constant(40, x.dtype)
        y = 0.5 * x * (1 + tf.math.erf(tf.where(x > most, most, x) * math.sqrt(0.5)))
    else:
        y = 0.5 * x * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return tf.cast(y, features.dtype)
