"""Compositions of the ops of tensorflow_ops/core/. BuildInfo, which describes this package's build, has none."""

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition


@composition("CheckValues", [None, None, 0])
def _check_values(values, valid, after, *, argument, expected, on_gpu, decides_shape):
    """Returns the values unchecked, as on a GPU without `on_gpu`: converters have no errors at run time."""
    del valid, argument, expected, on_gpu, decides_shape
    return values, after


@composition("RefuseGradient", [None, None])
def _refuse_gradient(x, upstream, *, reason):
    """Returns zeros, or NaN where the op raises an error. SavedModels have it in gradients of functions, unused."""
    del reason
    is_used = tf.reduce_any([tf.reduce_any(tf.not_equal(one, 0)) for one in upstream])
    return tf.where(is_used, tf.constant(float("nan"), x.dtype), tf.zeros_like(x))
