"""Depthwise convolutions, and grouped ones, each call of which Keras compiles anew by XLA."""

import functools

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, library
from tensorflow_ops.layers.python.switch.served import Original, served
from tensorflow_ops.nn.python.ops.depthwise_conv import depthwise_conv2d


@functools.cache
def _has_grouped_gradients(dtype):
    """Returns whether gradients of grouped tf.nn.conv2d exist on this machine: they do in oneDNN only."""

    @tf.function(autograph=False)
    def gradients(images, kernel):
        return tf.gradients(tf.nn.conv2d(images, kernel, 1, "VALID", dilations=2), [images, kernel])

    with tf.init_scope(), tf.device("CPU:0"):
        try:
            gradients(tf.ones([1, 5, 5, 4], dtype), tf.ones([2, 2, 2, 4], dtype))
        except tf.errors.OpError:
            return False
    return True


def _output_size(size, reach, stride, padding):
    return -(-size // stride) if padding == "SAME" else max(0, (size - reach) // stride + 1)


def _is_all_read(size, taps, stride, dilation, padding):
    """Returns whether each tap of a kernel meets a pixel; else its gradient in bfloat16 is uninitialized memory."""
    reach = (taps - 1) * dilation + 1
    outputs = _output_size(size, reach, stride, padding)
    before = max(0, (outputs - 1) * stride + reach - size) // 2 if padding == "SAME" else 0
    starts = range(-before, outputs * stride - before, stride)
    return all(any(0 <= start + tap * dilation < size for start in starts) for tap in range(taps))


def _pair(value):
    """Returns an int, or a sequence of one or two, as two."""
    values = (value,) if arguments.is_int(value) else tuple(value)
    return values * 2 if len(values) == 1 else values


@served("conv", "backend.nn")
def conv(original, inputs, kernel, strides=1, padding="valid", data_format=None, dilation_rate=1):
    del original
    images, kernel = map(tf.convert_to_tensor, (inputs, kernel))
    rank = images.shape.rank
    if not kernel.shape.is_fully_defined():
        return Original("a kernel of unknown size")
    is_channels_last = (data_format or keras.config.image_data_format()) == "channels_last"
    channels, (in_group, filters) = images.shape[-1 if is_channels_last else 1], kernel.shape[-2:]
    if channels == in_group:
        return Original("")  # one group
    if library.is_compiled_by_xla():
        return Original("XLA")
    if rank not in (3, 4):
        return Original("a rank other than 3 and 4")
    if not is_channels_last:
        return Original("channels_first")
    if channels is None:
        return Original("unknown channels")
    if images.dtype != kernel.dtype or not images.dtype.is_floating:
        return Original("mixed dtypes, or integers")
    strides, dilations, padding = _pair(strides), _pair(dilation_rate or 1), padding.upper()
    if rank == 3:
        images, kernel = tf.expand_dims(images, 1), tf.expand_dims(kernel, 0)
    if max(strides) > 1 and max(dilations) > 1:
        return Original("strides with dilations")
    if not channels or not in_group or channels % in_group or filters % (channels // in_group):
        return Original("channels that the groups do not divide")  # an error
    along = list(zip(images.shape[1:3], kernel.shape[:2], strides, dilations, strict=True))
    sizes = [size and _output_size(size, (taps - 1) * d + 1, s, padding) for size, taps, s, d in along]
    if 0 in sizes:
        return Original("no output")  # an error
    if in_group == 1:
        kernel = tf.reshape(kernel, [*kernel.shape[:2], channels, filters // channels])
        outputs = depthwise_conv2d(images, kernel, [1, *strides, 1], padding, dilations=dilations)
        return tf.squeeze(outputs, 1) if rank == 3 else outputs
    dtype = images.dtype
    if dtype.size == 2 and not tf.config.list_logical_devices("GPU"):
        # Only oneDNN sums in float32.
        is_exact = _has_grouped_gradients(dtype) and all(a[0] and _is_all_read(*a, padding) for a in along)
        images, kernel = (x if is_exact else tf.cast(x, tf.float32) for x in (images, kernel))
    if not _has_grouped_gradients(images.dtype):
        return Original(f"groups of several channels, in {dtype.name} without oneDNN")
    # For no images, oneDNN's result has the shape of its inputs, and other gradients are uninitialized memory. To pad
    # and tf.slice by nothing do not copy. TensorFlow would merge a pad of zeros into a convolution with VALID.
    batch = tf.shape(images)[0]
    is_some = bool(images.shape[0])
    if not is_some:
        is_none = tf.cast(tf.equal(batch, 0), tf.int32)  # fits: a bool
        images = tf.pad(images, [[0, is_none], [0, 0], [0, 0], [0, 0]], constant_values=1)
    outputs = tf.nn.conv2d(images, kernel, strides, padding, dilations=dilations)
    if not is_some:
        outputs = tf.slice(outputs, [0, 0, 0, 0], [batch, -1, -1, -1])
    outputs = tf.cast(outputs, dtype)
    return tf.squeeze(outputs, 1) if rank == 3 else outputs


def _depthwise(inputs, kernel, strides, padding, data_format, dilation_rate):
    """Returns a depthwise convolution of rank 4, or an Original."""
    images, kernel = map(tf.convert_to_tensor, (inputs, kernel))
    rank = images.shape.rank
    if library.is_compiled_by_xla():
        return Original("XLA")
    if rank not in (3, 4):
        return Original("a rank other than 3 and 4")
    if (data_format or keras.config.image_data_format()) != "channels_last":
        return Original("channels_first")
    if not kernel.shape.is_fully_defined():
        return Original("a kernel of unknown size")
    if images.shape[-1] is None:
        return Original("unknown channels")
    if images.dtype != kernel.dtype or not images.dtype.is_floating:
        return Original("mixed dtypes, or integers")
    if images.shape[-1] != kernel.shape[-2]:
        return Original("channels that the kernel lacks")  # an error
    strides, dilations = _pair(strides), _pair(dilation_rate or 1)
    if rank == 3:
        images, kernel, dilations = tf.expand_dims(images, 1), tf.expand_dims(kernel, 0), (1, dilations[1])
    if strides[0] != strides[1] or (strides[0] > 1 and max(dilations) > 1):
        return Original("strides that differ, or with dilations")  # of most versions, an error
    return depthwise_conv2d(images, kernel, [1, *strides, 1], padding.upper(), dilations=dilations)


@served("depthwise_conv", "backend.nn")
def depthwise_conv(original, inputs, kernel, strides=1, padding="valid", data_format=None, dilation_rate=1):
    del original
    images = tf.convert_to_tensor(inputs)
    outputs = _depthwise(images, kernel, strides, padding, data_format, dilation_rate)
    return tf.squeeze(outputs, 1) if tf.is_tensor(outputs) and images.shape.rank == 3 else outputs


@served("depthwise_conv", "backend.nn")
def separable_conv(
    original,
    inputs,
    depthwise_kernel,
    pointwise_kernel,
    strides=1,
    padding="valid",
    data_format=None,
    dilation_rate=1,
):
    del original
    images, pointwise = map(tf.convert_to_tensor, (inputs, pointwise_kernel))
    outputs = _depthwise(images, depthwise_kernel, strides, padding, data_format, dilation_rate)
    if not tf.is_tensor(outputs):
        return outputs
    if pointwise.dtype != images.dtype or pointwise.shape[-2] != outputs.shape[-1]:
        return Original("a pointwise kernel of another dtype or other channels")  # an error
    if images.shape.rank == 4:
        return tf.nn.conv2d(outputs, pointwise, 1, "VALID")
    return tf.squeeze(tf.nn.conv2d(outputs, pointwise[tf.newaxis], 1, "VALID"), 1)
