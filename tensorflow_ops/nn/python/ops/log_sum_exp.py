"""log sum e^x of rows from what the kernels of losses give of them, with its gradient."""

import tensorflow as tf

from tensorflow_ops.core.python.library import ops


def of_rows(logits, largest, rest):
    """[...], from logits [..., classes], each row's largest one and its sum of e^(x - largest) less 1."""

    @tf.custom_gradient
    def function(x):
        def gradient(d):
            p = tf.cast(ops.tensorflow_ops_softmax(x), d.dtype)
            return tf.cast(d[..., tf.newaxis] * p, x.dtype)

        return tf.stop_gradient(largest + tf.math.log1p(rest)), gradient

    return function(logits)
