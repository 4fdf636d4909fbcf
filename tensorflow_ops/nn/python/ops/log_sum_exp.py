"""log sum e^x of rows, with its gradient, from the rows' numbers that the loss kernels return."""

import tensorflow as tf

from tensorflow_ops.core.python.library import ops


def of_rows(logits, largest, rest):
    """Returns log sum e^x of each row, [...].

    Args:
      logits: [..., classes].
      largest: [...], each row's largest logit.
      rest: [...], each row's sum of e^(x - largest), less 1.
    """

    @tf.custom_gradient
    def function(x):
        def gradient(d):
            p = tf.cast(ops.tensorflow_ops_softmax(x), d.dtype)
            return tf.cast(d[..., tf.newaxis] * p, x.dtype)

        return tf.stop_gradient(largest + tf.math.log1p(rest)), gradient

    return function(logits)
