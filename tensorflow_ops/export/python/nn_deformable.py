"""Compositions of deformable and depthwise convolution and deformable attention."""

import numpy as np
import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import NAN, expand, widened, zero_if


def _samples(values, y, x, height, width, first=0):
    """Returns bilinear samples [N, Q, heads, points, D] of maps whose pixels outside are zero; NaN at places of NaN.

    Args:
      values: [N, S, heads, D], the pixels of all maps.
      y: [N, Q, heads, points], in pixels.
      x: the same.
      height: of each point's map; a scalar or [points].
      width: the same.
      first: the map's first pixel; the same.
    """
    shape = tf.shape(values)
    batch, pixels, heads = shape[0], shape[1], shape[2]
    rows = tf.reshape(values, tf.stack([batch * pixels * heads, shape[3]]))
    head = expand(tf.range(heads), 1)
    start = expand(tf.range(batch), 1, 2, 3) * pixels + first
    is_nan = tf.math.is_nan(y) | tf.math.is_nan(x)

    def corners(place, size):
        """Returns the two pixels beside a place and their weights, zero outside."""
        # Fits in an int, and is still outside.
        place = tf.clip_by_value(zero_if(is_nan, place), -2.0, tf.cast(size + 1, place.dtype))
        low = tf.floor(place)
        for pixel, weight in ((low, low + 1 - place), (low + 1, place - low)):
            pixel = tf.cast(pixel, tf.int32)
            is_outside = (pixel < 0) | (pixel >= size)
            yield pixel, zero_if(is_outside, weight)

    total = 0.0
    for row, row_weight in corners(y, height):
        for column, column_weight in corners(x, width):
            weight = row_weight * column_weight
            # A pixel of weight 0 may be outside, or NaN.
            is_unread = tf.equal(weight, 0)
            pixel = start + zero_if(is_unread, row * width + column)
            pixel = tf.gather(rows, pixel * heads + head)
            total += zero_if(expand(is_unread, -1), expand(weight, -1) * pixel)
    return tf.where(expand(is_nan, -1), tf.constant(NAN, total.dtype), total)


@composition("MultiscaleDeformableAttention", [4, 2, None, None])
def _multiscale_deformable_attention(values, spatial_shapes, sampling_locations, attention_weights, *, num_points):
    sizes = tf.cast(spatial_shapes, tf.int32)
    shape = tf.shape(attention_weights)
    if num_points:
        level = tf.constant(np.repeat(np.arange(len(num_points)), num_points), tf.int32)
        points = shape[3]
    else:
        level = tf.repeat(tf.range(shape[3]), shape[4])
        points = shape[3] * shape[4]
    places = tf.reshape(sampling_locations, tf.concat([shape[:3], [points, 2]], 0))
    weights = tf.reshape(attention_weights, tf.concat([shape[:3], [points]], 0))
    height, width = (tf.gather(sizes[:, axis], level) for axis in (0, 1))
    first = tf.gather(tf.cumsum(sizes[:, 0] * sizes[:, 1], exclusive=True), level)
    y = places[..., 1] * tf.cast(height, places.dtype) - 0.5
    x = places[..., 0] * tf.cast(width, places.dtype) - 0.5
    samples = _samples(widened(values), y, x, height, width, first)
    output = tf.reduce_sum(expand(weights, -1) * samples, 3)
    return tf.cast(tf.reshape(output, tf.stack([shape[0], shape[1], shape[2] * tf.shape(values)[3]])), values.dtype)


@composition("DeformConv2d", [4, 4, 4, 4, 1])
def _deform_conv2d(features, offsets, filters, mask, bias, *, strides, dilations, padding, paddings):
    """Multiplies filters with samples, as many for each place of the output as the filters have taps."""
    shape, filter_shape, places = tf.shape(features), tf.shape(filters), tf.shape(offsets)[1:3]
    batch, channels, taps = shape[0], shape[3], filter_shape[0] * filter_shape[1]
    num_places = places[0] * places[1]
    offset_groups = tf.shape(offsets)[3] // (2 * taps)

    def pixels(axis):
        """Returns the pixel on an axis of each place and tap [places, taps], without offsets."""
        size, kernel = shape[1 + axis], filter_shape[axis]
        start = paddings[2 * axis] if padding == "EXPLICIT" else 0
        if padding == "SAME":
            reach = (places[axis] - 1) * strides[axis] + (kernel - 1) * dilations[axis] + 1
            start = tf.where(tf.equal(places[axis], 0), 0, tf.maximum(reach - size, 0) // 2)
        return expand(tf.range(places[axis]), 1) * strides[axis] + tf.range(kernel) * dilations[axis] - start

    def at_taps(on_axis, axis):
        """Adds offsets to the pixels on an axis: [N, places, offset groups, taps]."""
        as_grid = expand(on_axis, 1, 3) if axis == 0 else expand(on_axis, 0, 2)
        grid = tf.broadcast_to(as_grid, tf.concat([places, filter_shape[:2]], 0))
        grid = tf.reshape(grid, tf.stack([num_places, 1, taps]))
        return tf.cast(grid, offsets.dtype) + moved[..., axis]

    moved = tf.reshape(offsets, tf.stack([batch, num_places, offset_groups, taps, 2]))
    by_groups = tf.stack([batch, shape[1] * shape[2], offset_groups, channels // offset_groups])
    # A pixel more: features without pixels have outputs, too.
    values = tf.pad(tf.reshape(widened(features), by_groups), [[0, 0], [0, 1], [0, 0], [0, 0]])
    samples = _samples(values, at_taps(pixels(0), 0), at_taps(pixels(1), 1), shape[1], shape[2])
    if mask:
        samples *= tf.reshape(widened(mask[0]), tf.stack([batch, num_places, offset_groups, taps, 1]))

    # [groups, N * places, taps * channels] x [groups, taps * channels, outputs]
    groups = channels // filter_shape[2]
    samples = tf.transpose(samples, [0, 1, 3, 2, 4])
    samples = tf.reshape(samples, tf.stack([batch * num_places, taps, groups, filter_shape[2]]))
    samples = tf.transpose(samples, [2, 0, 1, 3])
    samples = tf.reshape(samples, tf.stack([groups, batch * num_places, taps * filter_shape[2]]))
    matrices = tf.reshape(widened(filters), tf.stack([taps * filter_shape[2], groups, filter_shape[3] // groups]))
    output = tf.transpose(tf.matmul(samples, tf.transpose(matrices, [1, 0, 2])), [1, 0, 2])
    output = tf.reshape(output, tf.stack([batch, places[0], places[1], filter_shape[3]]))
    return tf.cast(output + widened(bias[0]) if bias else output, features.dtype)


@composition("DepthwiseConv2d", [4, 3])
def _depthwise_conv2d(input, filter, *, strides, dilations, padding, paddings):
    """Calls TensorFlow's op; where that lacks the strides, at stride 1, and omits outputs."""
    dtype, shape = input.dtype, tf.shape(input)
    input, filter = widened(input), tf.expand_dims(widened(filter), 3)
    is_native = strides[0] == strides[1] and (max(strides) == 1 or max(dilations) == 1)
    sizes, reach = shape[1:3], (tf.shape(filter)[:2] - 1) * dilations + 1
    sides = tf.constant([paddings[:2], paddings[2:]])
    places = (sizes + tf.reduce_sum(sides, 1) - reach) // strides + 1
    if padding == "SAME":
        places = -(-sizes // strides)
        total = tf.maximum((tf.maximum(places, 1) - 1) * strides + reach - sizes, 0)
        sides = tf.stack([total // 2, total - total // 2], 1)
    if padding == "EXPLICIT" or not is_native:
        input = tf.pad(input, tf.concat([[[0, 0]], sides, [[0, 0]]], 0))
        padding = "VALID"
    step = strides[0] if is_native else 1
    output = tf.nn.depthwise_conv2d(input, filter, [1, step, step, 1], padding, dilations=dilations)
    if not is_native:
        output = output[:, :: strides[0], :: strides[1]][:, : places[0], : places[1]]
    # Of no images, TensorFlow's output has another shape.
    return tf.cast(tf.reshape(output, tf.concat([shape[:1], places, shape[3:]], 0)), dtype)
