"""Compositions of the ops of tensorflow_ops/zero_out/."""

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition

# TensorFlow's ops do not take quantized integers.
_BITS = {tf.qint8: tf.int8, tf.quint8: tf.uint8, tf.qint16: tf.int16, tf.quint16: tf.uint16, tf.qint32: tf.int32}


@composition("ZeroOut", [None])
def _zero_out(x):
    return _with_only(x, _places(x), 0)


@composition("ZeroOutWithIndex", [None])
def _zero_out_with_index(x, *, preserve_index):
    places = _places(x)
    # TensorFlow's error for an index out of range.
    index = tf.gather(places, [preserve_index])
    return _with_only(x, places, index), tf.cast(index, tf.int32)


def _places(x):
    return tf.range(tf.size(x, tf.int64))


def _with_only(x, places, index):
    if x.dtype in _BITS:
        return tf.bitcast(_with_only(tf.bitcast(x, _BITS[x.dtype]), places, index), x.dtype)
    is_kept = tf.reshape(tf.equal(places, index), tf.shape(x))
    return tf.where(is_kept, x, tf.zeros_like(x))
