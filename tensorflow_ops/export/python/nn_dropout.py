"""Composition of Dropout."""

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition

_PHILOX = 1


@composition("Dropout", [None, 1, 1])
def _dropout(inputs, key, counter, *, least, scale):
    size = tf.size(inputs, tf.int64)
    bits = {tf.float64: 52, tf.float32: 23, tf.float16: 10, tf.bfloat16: 7}[inputs.dtype]
    drawn = tf.raw_ops.StatelessRandomUniformV2(shape=[size], key=key, counter=counter, alg=_PHILOX, dtype=inputs.dtype)
    is_kept = tf.cast(drawn, tf.float64) >= least / 2**bits
    padded = tf.reshape(tf.pad(tf.cast(is_kept, tf.int32), [[0, -size % 8]]), [-1, 8])
    mask = tf.cast(tf.reduce_sum(padded * [1 << i for i in range(8)], 1), tf.uint8)
    scaled = inputs * tf.constant(sum(scale), inputs.dtype)
    return tf.where(tf.reshape(is_kept, tf.shape(inputs)), scaled, tf.zeros_like(inputs)), mask
