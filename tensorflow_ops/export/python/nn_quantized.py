"""Composition of quantized_matmul, whose float weights [depth, columns] are in memory."""

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import NAN, expand, finite, widened, zero_if


def _numbers(kernel, pairs, transposed, count):
    """Returns the numbers of a kernel as int32, of which an axis has `count`."""
    numbers = tf.cast(kernel, tf.int32)
    if pairs == "none":
        return numbers
    axis = 0 if (pairs == "columns") == transposed else 1
    # ONNX's division of negative integers rounds to zero.
    numbers = tf.where(numbers < 0, numbers + 256, numbers)
    low, high = numbers % 16, numbers // 16
    if kernel.dtype == tf.int8:
        low, high = (tf.where(half >= 8, half - 16, half) for half in (low, high))
    both = tf.stack([low, high], axis + 1)
    shape = tf.shape(kernel)
    if axis == 0:
        return tf.reshape(both, tf.stack([2 * shape[0], shape[1]]))[:count]
    return tf.reshape(both, tf.stack([shape[0], 2 * shape[1]]))[:, :count]


def _quantized(inputs):
    """Returns rows rounded to integers, and the factors [.., 1] of results."""
    greatest = tf.reduce_max(tf.abs(inputs), -1, keepdims=True)
    is_finite = tf.reduce_all(finite(inputs), -1, keepdims=True)
    scale = 127 / (tf.maximum(zero_if(~is_finite, greatest), 0) + tf.constant(1e-7, inputs.dtype))
    scaled = zero_if(~is_finite, inputs) * scale
    # A scale that overflows makes zeros NaN.
    scaled = tf.where(tf.math.is_nan(scaled), tf.zeros_like(scaled), scaled)
    factor = 1 / widened(scale)
    integers = widened(tf.clip_by_value(tf.round(scaled), -127, 127))
    return integers, tf.where(is_finite, factor, tf.constant(NAN, factor.dtype))


@composition("QuantizedMatmul", [None, 2, None, None, 1])
def _quantized_matmul(inputs, kernel, scale, zero, group_index, *, block_size, transposed, pairs, quantize_inputs):
    """Gives weights whose group is out of range 0, as a GPU does."""
    axis = 1 if transposed else 0  # of groups
    # Inputs of a loop have no static depth: weights of the kernel's become constants in LiteRT.
    depth = tf.shape(inputs)[-1] if pairs == "depth" else tf.shape(kernel)[axis]
    if not group_index and not block_size:
        # One group, whose dim scale may lack.
        shape = [-1, 1] if transposed else [1, -1]
        scale, zero = tf.reshape(scale, shape), [tf.reshape(z, shape) for z in zero]
    columns, groups = tf.shape(scale)[1 - axis], tf.shape(scale)[axis]
    weights = _numbers(kernel, pairs, transposed, depth if pairs == "depth" else columns)
    group = group_index[0] if group_index else tf.range(depth) // (block_size or 2**31 - 1)
    is_group = (group >= 0) & (group < groups)
    group = zero_if(~is_group, group)
    weights = tf.cast(weights, scale.dtype)
    for z in zero:  # one, or none
        weights -= tf.gather(tf.cast(z, scale.dtype), group, axis=axis)
    weights *= tf.gather(scale, group, axis=axis)
    weights = zero_if(~expand(is_group, 1 - axis), weights)
    x, factor = _quantized(inputs) if quantize_inputs else (widened(inputs), 1)
    batch = tf.shape(x)[:-1]
    # One matrix, as tf2onnx has no products of any rank, with a batch dim: without it, LiteRT's converter drops relu
    # and its like behind products with weights that are no constants.
    rows = tf.reshape(x, tf.stack([1, tf.reduce_prod(batch), depth]))
    result = tf.matmul(rows, weights, transpose_b=transposed)
    result = tf.reshape(result, tf.concat([batch, [columns]], 0)) * factor
    return tf.cast(result, inputs.dtype)
