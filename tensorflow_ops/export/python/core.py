"""Compositions of the ops of tensorflow_ops/core/."""

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition


@composition("CheckValues", [None, None])
def _check_values(values, valid, *, argument, expected, on_gpu):
    """Returns the values unchecked, as on a GPU without `on_gpu`: converters have no errors at run time."""
    del valid, argument, expected, on_gpu
    return values


@composition("RefuseGradient", [None, None])
def _refuse_gradient(x, upstream, *, reason):
    """Returns zeros or, where the op raises an error, NaN."""
    del reason
    exists = tf.reduce_any([tf.reduce_any(tf.not_equal(one, 0)) for one in upstream])
    return tf.where(exists, tf.fill(tf.shape(x), tf.constant(float("nan"), x.dtype)), tf.zeros_like(x))


@composition("BuildInfo", [])
def _build_info():
    raise ValueError("describes this package's build, which TensorFlow's ops do not have")
