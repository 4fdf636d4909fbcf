"""Compositions of the ops of tensorflow_ops/zero_out/."""

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition

# TensorFlow's ops do not take quantized integers.
_BITS = {tf.qint8: tf.int8, tf.quint8: tf.uint8, tf.qint16: tf.int16, tf.quint16: tf.uint16, tf.qint32: tf.int32}


@composition("ZeroOut", [None])
def _zero_out(x):
    return _with_only(x, 0)


@composition("ZeroOutWithIndex", [None])
def _zero_out_with_index(x, *, preserve_index):
    # An index out of range raises TensorFlow's error here.
    kept = tf.reshape(x, [-1])[preserve_index]
    with tf.control_dependencies([kept]):
        return _with_only(x, preserve_index), tf.constant([preserve_index])


def _with_only(x, index):
    bits = tf.bitcast(x, _BITS[x.dtype]) if x.dtype in _BITS else x
    places = tf.reshape(tf.range(tf.size(x, tf.int64)), tf.shape(x))
    return tf.bitcast(tf.where(tf.equal(places, index), bits, tf.zeros_like(bits)), x.dtype)
