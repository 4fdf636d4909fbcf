"""Keras's batch normalization, in training."""

import math

import keras
import tensorflow as tf

from tensorflow_ops.core.python import library
from tensorflow_ops.layers.python.switch.served import Original, served

# FusedBatchNormV3 takes 0.1 to 0.2 ms of its own with two threads: it loses below this many numbers.
_LEAST = 1 << 16
_BATCH = 32  # of unknown size: the default of `fit`


def _normalized(x, gamma, beta, epsilon):
    """Returns x [N, H, W, C] in the units of its channels, and their mean and variance."""

    @tf.custom_gradient
    def forward(x, gamma, beta):
        outputs, mean, variance, *saved = tf.raw_ops.FusedBatchNormV3(
            x=x, scale=gamma, offset=beta, mean=[], variance=[], epsilon=epsilon, is_training=True
        )
        reserved = {f"reserve_space_{i}": tensor for i, tensor in enumerate(saved, 1)}

        def gradients(to_outputs, *_):
            @tf.custom_gradient
            def backward(to_outputs, x, gamma):
                first = tf.raw_ops.FusedBatchNormGradV3(
                    y_backprop=to_outputs, x=x, scale=gamma, epsilon=epsilon, is_training=True, **reserved
                )

                def second(*upstream):
                    # TensorFlow's own second derivatives are wrong.
                    with tf.GradientTape() as outer:
                        outer.watch((to_outputs, x, gamma))
                        with tf.GradientTape() as inner:
                            inner.watch((x, gamma, beta))
                            wide = tf.cast(x, tf.float32)
                            moments = tf.nn.moments(wide, [0, 1, 2])
                            composed = tf.nn.batch_normalization(wide, *moments, beta, gamma, epsilon)
                        composed = inner.gradient(composed, (x, gamma, beta), tf.cast(to_outputs, tf.float32))
                    return outer.gradient(composed, (to_outputs, x, gamma), upstream)

                return first[:3], second

            return backward(to_outputs, x, gamma)

        return (outputs, mean, variance), gradients

    return forward(x, gamma, beta)


@served("batch_normalization", "layers.BatchNormalization", "call")
def batch_normalization(original, layer, inputs, training=None, mask=None):
    del original
    if tf.is_tensor(training):
        return Original("a tensor as training")
    if not (training and layer.trainable):
        return Original("")  # grappler folds it into convolutions
    if library.is_compiled_by_xla():
        return Original("XLA")
    if mask is not None:
        return Original("a mask")
    if layer.synchronized or getattr(layer, "renorm", False):
        return Original("synchronized=True" if layer.synchronized else "renorm=True")
    if type(layer)._moments is not keras.layers.BatchNormalization._moments:
        return Original("a subclass")
    x = tf.convert_to_tensor(inputs)
    rank = x.shape.rank
    if rank is None or layer.axis not in (-1, rank - 1):
        return Original("another axis")
    if x.dtype not in (tf.float16, tf.bfloat16, tf.float32):
        return Original(f"{x.dtype.name} inputs")
    if x.dtype != layer.compute_dtype:
        x = tf.cast(x, tf.float32)  # as the original
    channels = x.shape[-1]
    if channels is None:
        return Original("unknown channels")
    sizes = [x.shape[0] or _BATCH, *x.shape[1:]]
    if None not in sizes and math.prod(sizes) < _LEAST:
        return Original("few numbers")
    planes = x if rank == 4 else tf.reshape(x, [-1, 1, 1, channels])
    gamma = tf.ones([channels]) if layer.gamma is None else tf.cast(layer.gamma, tf.float32)
    beta = tf.zeros([channels]) if layer.beta is None else tf.cast(layer.beta, tf.float32)
    outputs, mean, variance = _normalized(planes, gamma, beta, layer.epsilon)
    # TensorFlow's is n / (n - 1) times that of Keras 3.
    count = tf.reduce_prod(tf.cast(tf.shape(planes)[:3], tf.float32))
    variance = tf.where(tf.equal(count, 1), tf.zeros_like(variance), variance * ((count - 1) / count))
    for moving, new in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        moving.assign(tf.cast(moving, tf.float32) * layer.momentum + new * (1 - layer.momentum))
    outputs = outputs if rank == 4 else tf.reshape(outputs, tf.shape(x))
    outputs.set_shape(x.shape)
    return tf.cast(outputs, layer.compute_dtype)
