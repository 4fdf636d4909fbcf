"""Composition of Normalization."""

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import widened


@composition("Normalization", [3, 1, 1])
def _normalization(x, gamma, beta, *, epsilon, groups, centered):
    shape = tf.shape(x)
    # ONNX Runtime and LiteRT have few kernels of five dims.
    wide = tf.reshape(widened(x), tf.stack([shape[0], shape[1], groups, shape[2] // groups]))
    mean = tf.reduce_mean(wide, [1, 3], keepdims=True) if centered else tf.zeros_like(wide[:, :1, :, :1])
    if centered:
        wide -= mean
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(wide), [1, 3], keepdims=True) + sum(epsilon))
    y = tf.reshape(wide * inverse, shape) * gamma
    for offset in beta:  # one, or none
        y += offset
    statistics = tf.concat([mean, inverse], 3)[:, 0]
    return tf.cast(y, x.dtype), statistics
