"""Compositions of region pooling, the ops of tensorflow_ops/detection/cc/kernels/roi*.

Where the features of all images and levels together have 2^31 pixels or more, indices overflow. A box whose index of an
image is out of range pools zeros. In a box of a million pixels, places of float32 samples are rounded by a tenth of a
pixel, not always as the op rounds them, so maxima differ.
"""

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import finite


class _Boxes(NamedTuple):
    """Boxes in feature pixels; each is [K] or a scalar. Invalid boxes are zero."""

    valid: tf.Tensor
    y1: tf.Tensor
    x1: tf.Tensor
    y2: tf.Tensor
    x2: tf.Tensor


class _Map(NamedTuple):
    """The feature map of each box: its sizes, and its first pixel among those of all maps. [K], or scalars."""

    height: tf.Tensor
    width: tf.Tensor
    first: tf.Tensor


def _read_boxes(boxes, box_indices, images, scale, box_format):
    on_x, on_y = (1, 0) if box_format == "yxyx" else (0, 1)
    corners = [boxes[:, i] for i in (on_y, on_x, on_y + 2, on_x + 2)]
    y1, x1, y2, x2 = corners
    valid = (box_indices >= 0) & (box_indices < images) & (x1 <= x2) & (y1 <= y2)
    for corner in corners:
        valid &= finite(corner)
    return _Boxes(valid, *(tf.where(valid, corner, tf.zeros_like(corner)) * scale for corner in corners))


def _per_bin(bins, dtype):
    return tf.cast(tf.range(bins), dtype)[tf.newaxis]


class _Samples:
    """Bilinear samples of bins on one axis."""

    def __init__(self, low, high, limit, bins, sampling_ratio, aligned):
        self._limit = tf.cast(limit, low.dtype)
        self._last = limit - 1
        start = low - 0.5 if aligned else low
        size = high - low if aligned else tf.maximum(high - low, 1)
        bin_size = size / tf.cast(bins, low.dtype)
        usable = finite(bin_size) & finite(start)
        self._bin = tf.where(usable, bin_size, tf.zeros_like(bin_size))
        grid = tf.cast(sampling_ratio, low.dtype) + tf.zeros_like(low) if sampling_ratio else tf.math.ceil(self._bin)
        # Samples of each bin.
        self.grid = tf.where(usable, grid, tf.zeros_like(grid))
        self._divisor = tf.maximum(self.grid, 1)
        self._begin = tf.where(usable, start, tf.zeros_like(start))[:, tf.newaxis]
        self._begin += _per_bin(bins, low.dtype) * self._bin[:, tf.newaxis]
        if sampling_ratio:
            self._first, self.steps = tf.zeros_like(self._begin), tf.constant(sampling_ratio)
        else:
            # Skips most samples before the map.
            step = tf.maximum(self._bin / self._divisor, 0.5)[:, tf.newaxis]
            self._first = tf.maximum(tf.floor((-1 - self._begin) / step - 0.5) - 1, 0)
            most = 2 * tf.reduce_max(tf.reshape(limit, [-1])) + 6
            needed = tf.reduce_max(tf.concat([self.grid, tf.zeros([1], low.dtype)], 0))
            self.steps = tf.cast(tf.minimum(needed, tf.cast(most, low.dtype)), tf.int32)

    def taps(self, i):
        """Returns pixels and weights of sample i of each bin, [K, bins], and which samples are on the map."""
        index = self._first + tf.cast(i, self._first.dtype)
        at = self._begin + (index + 0.5) * self._bin[:, tf.newaxis] / self._divisor[:, tf.newaxis]
        limit, last = self._limit, self._last
        if limit.shape.rank == 1:
            limit, last = limit[:, tf.newaxis], last[:, tf.newaxis]
        inside = (index < self.grid[:, tf.newaxis]) & (at >= -1) & (at <= limit)
        at = tf.where(inside & (at > 0), at, tf.zeros_like(at))
        low = tf.minimum(tf.cast(at, tf.int32), last)
        fraction = tf.where(low < last, at - tf.cast(low, at.dtype), tf.zeros_like(at))
        return [(low, 1 - fraction), (tf.minimum(low + 1, last), fraction)], inside


class _Pixels:
    """The pixels that bins cover, on one axis."""

    def __init__(self, low, high, limit, bins, inclusive):
        start = self._rounded(low)[:, tf.newaxis]
        size = tf.maximum(self._rounded(high)[:, tf.newaxis] - start + int(inclusive), 1)
        p, count, limit = _per_bin(bins, tf.int64), tf.cast(bins, tf.int64), tf.cast(limit, tf.int64)
        ends = [start + p * size // count, start + ((p + 1) * size + count - 1) // count]
        self._begin, self._end = (tf.cast(tf.clip_by_value(end, tf.zeros_like(limit), limit), tf.int32) for end in ends)
        self.count = self._end - self._begin
        self.steps = tf.reduce_max(tf.concat([tf.reshape(self.count, [-1]), [0]], 0))

    @staticmethod
    def _rounded(x):
        """Rounds halves away from zero."""
        size = tf.minimum(tf.abs(x), 2.0**31)
        whole = tf.floor(size)
        return tf.cast(tf.sign(x) * (whole + tf.cast(size - whole >= 0.5, x.dtype)), tf.int64)

    def taps(self, i):
        pixel = self._begin + i
        inside = pixel < self._end
        return [(tf.where(inside, pixel, tf.zeros_like(pixel)), None)], inside


def _visit(rows, first_row, width, bin_rows, y_axis, x_axis, add, state):
    """Calls state = add(values, inside, pixel, *state) for each sample or pixel of all bins.

    Args:
      rows: [pixels, C].
      first_row: [K], the row of each box's first pixel.
      width: of each box's map, [K] or a scalar.
      bin_rows: (rows for each pixel, the row of each bin [ph, pw]).
      y_axis: the samples or pixels on each axis.
      x_axis: the same.
      add: takes values [K, ph, pw, C], unspecified outside of the map; whether they are inside, [K, ph, pw, 1]; and
        y * width + x.
      state: tensors.
    """
    rows_of_pixel, bin_row = bin_rows
    width = tf.reshape(width, [-1, 1, 1])
    # Maps without pixels have no row to read.
    steps = y_axis.steps * x_axis.steps * tf.cast(tf.size(rows) > 0, tf.int32)

    def visit(i, *state):
        y_taps, y_inside = y_axis.taps(i // x_axis.steps)
        x_taps, x_inside = x_axis.taps(i % x_axis.steps)
        inside = (y_inside[:, :, tf.newaxis] & x_inside[:, tf.newaxis])[..., tf.newaxis]
        values = 0
        for y, y_weight in y_taps:
            for x, x_weight in x_taps:
                pixel = y[:, :, tf.newaxis] * width + x[:, tf.newaxis]
                value = tf.gather(rows, (first_row[:, tf.newaxis, tf.newaxis] + pixel) * rows_of_pixel + bin_row)
                if y_weight is not None:
                    weight = (y_weight[:, :, tf.newaxis] * x_weight[:, tf.newaxis])[..., tf.newaxis]
                    value = tf.cast(value, weight.dtype)
                    # A pixel of weight 0 is not read: it may be NaN.
                    value = tf.where(tf.equal(weight, 0), tf.zeros_like(value), weight * value)
                values += value
        return i + 1, *add(values, inside, pixel[..., tf.newaxis], *state)

    i = tf.constant(0)
    shapes = i.shape, *(tf.TensorShape([None] * 4) for _ in state)
    return tf.while_loop(lambda i, *_: i < steps, visit, (i, *state), shape_invariants=shapes)[1:]


def _average(values, inside, _, total):
    return (total + tf.where(inside, tf.cast(values, total.dtype), tf.zeros_like(total)),)


def _replaces(values, best):
    """Returns where a value replaces the maximum so far: NaN replaces all others and stays; of equal ones the first."""
    return ((values > best) | tf.math.is_nan(values)) & ~tf.math.is_nan(best)


def _no_bins(boxes, output_size, channels, dtype, value=0):
    return tf.fill(tf.stack([tf.shape(boxes)[0], output_size[0], output_size[1], channels]), tf.constant(value, dtype))


def _first_rows(maps, boxes, box_indices):
    """Returns the row of the first pixel of each box's image."""
    return tf.where(boxes.valid, box_indices, tf.zeros_like(box_indices)) * maps.height * maps.width + maps.first


def _masked(valid, pooled):
    return tf.where(valid[:, tf.newaxis, tf.newaxis, tf.newaxis], pooled, tf.zeros_like(pooled))


_WHOLE_PIXELS = (1, 0)


def _rows(features):
    """Returns features' pixels in rows, [N * H * W, C]."""
    shape = tf.shape(features)
    return tf.reshape(features, tf.stack([shape[0] * shape[1] * shape[2], shape[3]]))


def _map_of(features):
    shape = tf.shape(features)
    return _Map(shape[1], shape[2], tf.constant(0))


def _average_of_samples(
    rows, maps, boxes, box_indices, output_size, dtype, sampling_ratio, aligned, bin_rows=_WHOLE_PIXELS
):
    axis = functools.partial(_Samples, sampling_ratio=sampling_ratio, aligned=aligned)
    y = axis(boxes.y1, boxes.y2, maps.height, output_size[0])
    x = axis(boxes.x1, boxes.x2, maps.width, output_size[1])
    empty = _no_bins(boxes.valid, output_size, tf.shape(rows)[1], boxes.y1.dtype)
    first = _first_rows(maps, boxes, box_indices)
    (total,) = _visit(rows, first, maps.width, bin_rows, y, x, _average, (empty,))
    count = tf.maximum(y.grid, 1) * tf.maximum(x.grid, 1)
    return tf.cast(_masked(boxes.valid, total / tf.reshape(count, [-1, 1, 1, 1])), dtype)


@composition("RoiAlign", [4, 2, 1, 1])
def _roi_align(features, boxes, box_indices, output_size, *, spatial_scale, sampling_ratio, aligned, box_format):
    boxes = _read_boxes(boxes, box_indices, tf.shape(features)[0], spatial_scale, box_format)
    return _average_of_samples(
        _rows(features), _map_of(features), boxes, box_indices, output_size, features.dtype, sampling_ratio, aligned
    )


@composition("MultiscaleRoiAlign", [4, 2, 1, 1])
def _multiscale_roi_align(
    features,
    boxes,
    box_indices,
    output_size,
    *,
    strides,
    sampling_ratio,
    aligned,
    canonical_box_size,
    canonical_stride,
    box_format,
):
    """The pixels of all levels in one array, in which each box finds those of its level."""
    # The tolerance of the op.
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) * 1.000002
    scale, maps, first = (
        tf.fill(tf.shape(area), tf.constant(np.float32(1 / strides[0]), area.dtype)),
        _map_of(features[0]),
        tf.constant(0),
    )
    maps = _Map(*(tf.broadcast_to(x, tf.shape(area)) for x in maps))
    for stride, of_level in zip(strides, features, strict=True):
        level = _map_of(of_level)._replace(first=first)
        first += tf.shape(of_level)[0] * level.height * level.width
        if stride == strides[0]:
            continue
        fits = area >= (canonical_box_size * (stride / canonical_stride)) ** 2
        scale = tf.where(fits, tf.constant(np.float32(1 / stride), scale.dtype), scale)
        maps = _Map(*(tf.where(fits, one, other) for one, other in zip(level, maps, strict=True)))
    rows = tf.concat([_rows(x) for x in features], 0)
    read = _read_boxes(boxes, box_indices, tf.shape(features[0])[0], scale, box_format)
    # A level may have no pixels.
    read = read._replace(valid=read.valid & (maps.height > 0) & (maps.width > 0))
    maps = _Map(*(tf.where(read.valid, x, of_invalid) for x, of_invalid in zip(maps, (1, 1, 0), strict=True)))
    return _average_of_samples(rows, maps, read, box_indices, output_size, features[0].dtype, sampling_ratio, aligned)


def _bins_apart(features, output_size, channel_order):
    """Returns the rows of features that have channels for each bin: a row for each bin of each pixel."""
    shape = tf.shape(features)
    bins = output_size[0] * output_size[1]
    pixels, channels = shape[0] * shape[1] * shape[2], shape[3] // bins
    if channel_order == "channel_major":
        features = tf.transpose(tf.reshape(features, tf.stack([pixels, channels, bins])), [0, 2, 1])
    rows = tf.reshape(features, tf.stack([pixels * bins, channels]))
    return rows, (bins, tf.reshape(tf.range(bins), tf.stack([1, output_size[0], output_size[1]])))


@composition("PsRoiAlign", [4, 2, 1, 1])
def _ps_roi_align(
    features, boxes, box_indices, output_size, *, spatial_scale, sampling_ratio, channel_order, box_format
):
    rows, bin_rows = _bins_apart(features, output_size, channel_order)
    boxes = _read_boxes(boxes, box_indices, tf.shape(features)[0], spatial_scale, box_format)
    return _average_of_samples(
        rows, _map_of(features), boxes, box_indices, output_size, features.dtype, sampling_ratio, True, bin_rows
    )


@composition("PsRoiPool", [4, 2, 1, 1])
def _ps_roi_pool(features, boxes, box_indices, output_size, *, spatial_scale, channel_order, box_format):
    rows, bin_rows = _bins_apart(features, output_size, channel_order)
    boxes = _read_boxes(boxes, box_indices, tf.shape(features)[0], spatial_scale, box_format)
    maps = _map_of(features)
    y = _Pixels(boxes.y1, boxes.y2, maps.height, output_size[0], inclusive=False)
    x = _Pixels(boxes.x1, boxes.x2, maps.width, output_size[1], inclusive=False)
    empty = _no_bins(boxes.valid, output_size, tf.shape(rows)[1], boxes.y1.dtype)
    first = _first_rows(maps, boxes, box_indices)
    (total,) = _visit(rows, first, maps.width, bin_rows, y, x, _average, (empty,))
    count = tf.maximum(y.count[:, :, tf.newaxis] * x.count[:, tf.newaxis], 1)[..., tf.newaxis]
    return tf.cast(_masked(boxes.valid, total / tf.cast(count, total.dtype)), features.dtype)


@composition("RoiPool", [4, 2, 1, 1])
def _roi_pool(features, boxes, box_indices, output_size, *, spatial_scale, box_format):
    boxes = _read_boxes(boxes, box_indices, tf.shape(features)[0], spatial_scale, box_format)
    maps, rows = _map_of(features), _rows(features)
    y = _Pixels(boxes.y1, boxes.y2, maps.height, output_size[0], inclusive=True)
    x = _Pixels(boxes.x1, boxes.x2, maps.width, output_size[1], inclusive=True)
    channels = tf.shape(rows)[1]
    best = _no_bins(boxes.valid, output_size, channels, features.dtype)
    argmax = _no_bins(boxes.valid, output_size, channels, tf.int32, -1)

    def larger(values, inside, pixel, best, argmax):
        replaces = inside & (_replaces(values, best) | (argmax < 0))
        return tf.where(replaces, values, best), tf.where(replaces, pixel, argmax)

    first = _first_rows(maps, boxes, box_indices)
    best, argmax = _visit(rows, first, maps.width, _WHOLE_PIXELS, y, x, larger, (best, argmax))
    valid = boxes.valid[:, tf.newaxis, tf.newaxis, tf.newaxis]
    return _masked(boxes.valid, best), tf.where(valid, argmax, tf.fill(tf.shape(argmax), -1))
