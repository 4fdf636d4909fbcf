"""The derivative of bins along a motion of boxes, for forward mode.

A box that moves also moves the bilinear samples of its bins. The derivative is composed of
TensorFlow's ops. It holds the four pixels around each sample, for all boxes, in memory.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf


class _Axis(NamedTuple):
    """The samples of one axis: [K, bins, samples of a bin], unless stated otherwise."""

    first: tf.Tensor  # pixel before the sample, int64
    second: tf.Tensor  # pixel behind it; equal to first for a sample that does not move
    fraction: tf.Tensor  # position between first and second, in [0, 1]
    speed: tf.Tensor  # derivative of fraction
    valid: tf.Tensor  # bool: a sample of its bin, and on the map
    share: tf.Tensor  # [K, 1, 1, 1]; 1 / samples of a bin
    complete: tf.Tensor  # bool [K, bins]: all of the bin's samples are on the map

    def weights(self):
        """Returns (pixel, its weight, the weight's derivative) of the two pixels."""
        return ((self.first, 1 - self.fraction, -self.speed), (self.second, self.fraction, self.speed))


def bins_derivative(maps, boxes, box_indices, bins, motion, selectors=(), **attrs):
    """Returns the derivative of bins along the motion of boxes.

    Args:
      maps: the features: a list of maps, with one map for an op without a pyramid.
      boxes: [K, 4].
      box_indices: [K].
      bins: int32 [2]; (height, width).
      motion: [K, 4], the direction, in the order of boxes.
      selectors: an empty list: bins are averages of samples. Or a list of one map: a bin
        is the sample that is largest in that map.
      attrs: of the op, by name.

    Returns:
      A tensor of the shape of the op's output, in boxes' dtype.
    """
    dtype = boxes.dtype
    shapes = tf.stack([tf.shape(m, tf.int64) for m in maps])
    level = _levels(boxes, attrs)
    # The dims of each box's map: [K].
    batch, height, width = (tf.gather(shapes[:, axis], level) for axis in range(3))
    scale = tf.gather(tf.constant(_scales(attrs), dtype), level)
    first_pixel = tf.gather(tf.cumsum(tf.reduce_prod(shapes[:, :3], 1), exclusive=True), level)
    image = tf.cast(box_indices, tf.int64)

    x1, y1, x2, y2 = (0, 1, 2, 3) if attrs["box_format"] == b"xyxy" else (1, 0, 3, 2)
    corners = boxes * scale[:, tf.newaxis]
    sizes = corners[:, 2:] - corners[:, :2]
    valid = (image >= 0) & (image < batch)
    valid &= tf.reduce_all((boxes[:, :2] <= boxes[:, 2:]) & tf.math.is_finite(sizes), 1)
    valid &= tf.reduce_all(tf.math.is_finite(corners), 1)
    corners = tf.where(valid[:, tf.newaxis], corners, tf.zeros_like(corners))

    def axis(low, high, limit, count):
        moves = motion[:, low] * scale, motion[:, high] * scale
        return _axis(corners[:, low], corners[:, high], moves, limit, count, attrs)

    y, x = axis(y1, y2, height, bins[0]), axis(x1, x2, width, bins[1])
    is_sample = _over_rows(y.valid) & _over_columns(x.valid & valid[:, tf.newaxis, tf.newaxis])
    # An index out of range reads no pixel.
    first_pixel = tf.where(valid, first_pixel + image * height * width, 0)

    def corners_of_samples():
        """Yields the four pixels of each sample, their weights, and the weights' derivatives."""
        for row, row_weight, row_slope in y.weights():
            for column, column_weight, column_slope in x.weights():
                pixel = _over_rows(row * width[:, tf.newaxis, tf.newaxis]) + _over_columns(column)
                pixel += first_pixel[:, tf.newaxis, tf.newaxis, tf.newaxis, tf.newaxis]
                slope = _over_rows(row_slope) * _over_columns(column_weight)
                slope += _over_rows(row_weight) * _over_columns(column_slope)
                yield pixel, _over_rows(row_weight) * _over_columns(column_weight), slope

    def lookup(maps):
        """Returns a function that reads pixels where a condition holds, and zeros elsewhere: a pixel may be NaN."""
        rows, bin_of_row = _table([tf.cast(m, dtype) for m in maps], bins, attrs)
        zeros = tf.shape(rows, tf.int64)[0] - 1
        return lambda pixel, where: tf.gather(rows, tf.where(where, bin_of_row(pixel), zeros))

    selected = None
    if selectors:
        value_at = lookup(selectors)
        samples = 0
        for pixel, weight, _ in corners_of_samples():
            samples += weight[..., tf.newaxis] * value_at(pixel, is_sample & (weight != 0))
        complete = y.complete[:, :, tf.newaxis] & x.complete[:, tf.newaxis]
        selected = _select_largest(samples, is_sample, complete)
    value_at = lookup(maps)
    derivative = 0
    for pixel, _, slope in corners_of_samples():
        value = value_at(pixel, is_sample)
        if selected is not None:
            value = tf.where(selected, value, tf.zeros_like(value))
        derivative += tf.einsum("kpiqj,kpiqjc->kpqc", slope, value)
    if selected is None:
        derivative *= y.share * x.share
    return derivative


def _select_largest(samples, valid, complete):
    """Selects each bin's largest sample, as the kernel does (roi_align_max.h).

    Args:
      samples: [K, p, i, q, j, C].
      valid: bool [K, p, i, q, j]: a sample of its bin, and on the map.
      complete: bool [K, p, q]: all of the bin's samples are on the map.

    Returns:
      bool, of the shape of samples: at most one of each bin and channel.
    """
    valid = valid[..., tf.newaxis]
    is_nan = valid & tf.math.is_nan(samples)
    some_nan = tf.reduce_any(is_nan, [2, 4], keepdims=True)
    lowest = tf.constant(-np.inf, samples.dtype)
    largest = tf.reduce_max(tf.where(valid & ~is_nan, samples, lowest), [2, 4], keepdims=True)
    # Samples outside of the map are zeros: one of them is larger than a negative maximum.
    on_map = some_nan | complete[:, :, tf.newaxis, :, tf.newaxis, tf.newaxis] | ~(largest < 0)
    candidates = tf.where(some_nan, is_nan, valid & on_map & (samples == largest))
    # The first of equal ones, in row-major order.
    first_row = candidates & (tf.cumsum(_to_int(tf.reduce_any(candidates, 4, keepdims=True)), 2) == 1)
    return first_row & (tf.cumsum(_to_int(first_row), 4) == 1)


def _to_int(t):
    return tf.cast(t, tf.int32)


def _over_rows(t):
    """Returns a tensor of the y axis, [K, p, i], as [K, p, i, 1, 1], to broadcast to [K, p, i, q, j]."""
    return t[:, :, :, tf.newaxis, tf.newaxis]


def _over_columns(t):
    """Returns a tensor of the x axis, [K, q, j], as [K, 1, 1, q, j]."""
    return t[:, tf.newaxis, tf.newaxis]


def _scales(attrs):
    """Returns feature pixels per image pixel, for each level."""
    return (
        [np.float32(1) / np.float32(stride) for stride in attrs["strides"]]
        if "strides" in attrs
        else [attrs["spatial_scale"]]
    )


def _levels(boxes, attrs):
    """Returns the level of each box, computed as the kernel does (roi_average.h)."""
    wide = tf.cast(boxes, tf.float64)
    area = (wide[:, 2] - wide[:, 0]) * (wide[:, 3] - wide[:, 1]) * 1.000002
    strides = np.float32(attrs.get("strides", [1]))
    level = tf.zeros_like(area, tf.int64)
    for stride in strides[1:]:
        smallest = np.float32(attrs["canonical_box_size"]) * (stride / np.float32(attrs["canonical_stride"]))
        level += tf.cast(area >= np.float64(smallest) ** 2, tf.int64)
    return level


def _axis(low, high, moves, limit, bins, attrs):
    """Returns the `_Axis` of samples from low to high, finite and in feature pixels, as in roi_axis.h."""
    dtype = low.dtype
    size, grown = high - low, tf.zeros_like(low, tf.bool)
    start = low - 0.5
    if not attrs.get("aligned", True):
        start, grown = low, size < 1
        size = tf.where(grown, tf.ones_like(size), size)
    size = size / tf.cast(bins, dtype)
    p = tf.range(bins)
    begin = start[:, tf.newaxis] + tf.cast(p, dtype) * size[:, tf.newaxis]
    ratio = attrs["sampling_ratio"]
    if ratio:
        grid = tf.fill(tf.shape(low), tf.cast(ratio, dtype))
        index = tf.range(ratio, dtype=tf.float64)[tf.newaxis, tf.newaxis]
        valid = tf.ones_like(index, tf.bool)
    else:
        grid = tf.math.ceil(size)
        index, valid = _adaptive_samples(begin, size, grid, limit)
    # In the order of roi_axis.h: another rounding may select another pixel. (Grappler may reorder the sum. Then a
    # sample on a pixel's centre, where the derivative has a kink, takes the derivative of the other side.)
    grid = tf.maximum(grid, 1)[:, tf.newaxis, tf.newaxis]
    index = tf.cast(index + 0.5, dtype)
    at = begin[..., tf.newaxis] + index * size[:, tf.newaxis, tf.newaxis] / grid
    place = (tf.cast(p, dtype)[:, tf.newaxis] + index / grid) / tf.cast(bins, dtype)

    last = limit[:, tf.newaxis, tf.newaxis] - 1
    valid &= (at >= -1) & (at <= tf.cast(last + 1, dtype)) & (last >= 0)
    first = tf.cast(tf.clip_by_value(at, 0, tf.cast(tf.maximum(last, 0), dtype)), tf.int64)
    moving = valid & (at > 0) & (first < last)
    of_high = tf.where(grown[:, tf.newaxis, tf.newaxis], tf.zeros_like(place), place)
    begins, ends = (m[:, tf.newaxis, tf.newaxis] for m in moves)
    zeros = tf.zeros_like(at)
    return _Axis(
        first=first,
        second=tf.where(moving, first + 1, first),
        fraction=tf.where(moving, at - tf.cast(first, dtype), zeros),
        speed=tf.where(moving, begins + (ends - begins) * of_high, zeros),
        valid=tf.broadcast_to(valid, tf.shape(at)),
        share=(1 / grid)[..., tf.newaxis],
        complete=tf.reduce_sum(tf.cast(tf.broadcast_to(valid, tf.shape(at)), dtype), 2) >= grid[..., 0],
    )


def _adaptive_samples(begin, size, grid, limit):
    """Returns (indices, which are valid) of samples [K, bins, n], for sampling_ratio 0.

    A bin may have any number of samples; the indices are those on the map, and few others.
    """
    begin, size, grid = (tf.cast(t, tf.float64) for t in (begin, size, grid))
    size, grid, limit = size[:, tf.newaxis], grid[:, tf.newaxis], tf.cast(limit, tf.float64)[:, tf.newaxis]
    step = tf.where(grid > 0, size / tf.maximum(grid, 1), tf.ones_like(grid))
    first = tf.maximum(tf.floor((-1 - begin) / step - 0.5) - 1, 0)
    last = tf.minimum(tf.math.ceil((limit - begin) / step - 0.5) + 1, grid - 1)
    last = tf.where(last > 9e15, -tf.ones_like(last), last)  # beyond float64's integers
    number = tf.maximum(tf.reduce_max(last - first) + 1, 0)
    index = first[..., tf.newaxis] + tf.range(number)
    return index, index <= last[..., tf.newaxis]


def _table(maps, bins, attrs):
    """Returns a table of pixels and a function of its rows.

    The table has the pixels of all maps, [N, channels of a bin], and a row of zeros last. The
    function maps pixels [K, p, i, q, j] to rows.
    """
    channels = tf.shape(maps[0])[3]
    pixels = tf.concat([tf.reshape(m, [-1, channels]) for m in maps], 0)
    order, number = attrs.get("channel_order"), bins[0] * bins[1]
    if order is None:
        return tf.pad(pixels, [[0, 1], [0, 0]]), lambda pixel: pixel
    # Each bin has channels of its own.
    if order == b"channel_major":
        pixels = tf.transpose(tf.reshape(pixels, [-1, channels // number, number]), [0, 2, 1])
    rows = tf.reshape(pixels, [-1, channels // number])
    wide = tf.cast(bins, tf.int64)
    of_bin = tf.reshape(tf.range(wide[0] * wide[1]), [1, wide[0], 1, wide[1], 1])
    return tf.pad(rows, [[0, 1], [0, 0]]), lambda pixel: pixel * wide[0] * wide[1] + of_bin
