"""Reference for tests: RoIAlign and related ops, sample by sample in float64."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
DATA_FORMATS = ("NHWC", "NCHW")
FORMATS = tuple(itertools.product(DATA_FORMATS, ("xyxy", "yxyx")))
NAN, INF = math.nan, math.inf

# For a map of 9 x 12 pixels at spatial scale 1/2, that is an image of 18 x 24.
BOXES = [
    [0, 0, 22, 16],
    [3, 2, 9.4, 11],
    [0, 0, 24, 18],
    [-5, -7, 6, 4],  # overlaps the upper left corner
    [-7.3, 11, 8, 30],  # overlaps the lower left corner
    [15, -9, 60, 7.7],  # overlaps the upper right corner
    [15, 9, 60, 40],  # overlaps the lower right corner
    [5, -40, 13, 55],  # crosses the upper and the lower edge
    [-40, -40, -20, -9],  # outside
    [26.5, 3, 40, 8],
    [100, 100, 140, 130],
    [-1e5, 3, -9e4, 8],  # far outside
    [7, 5, 7, 5],  # a point
    [-2, 5, -2, 5],  # a point at x = -1
    [24, 18, 24, 18],  # a point at x = 12, y = 9
    [3, 5, 21, 5],  # a line
    [6.4, 4.2, 6.9, 5.1],  # smaller than a pixel
    [4, 1, 5, 16],  # narrower than its bins
    [9, 4, 3, 8],  # inverted
    [3, 8, 9, 4],
    [9, 8, 3, 4],
    [NAN, 0, 5, 5],
    [0, 0, 5, NAN],
    [0, 0, INF, 5],
    [0, -INF, 5, 5],
    [-1e4, -1e4, 1e4, 1e4],
    [-1e9, 1, 1e9, 9],
    [-1e30, -1e30, 1e30, 1e30],
    [0, 0, 1e30, 1e30],
    [-3e38, 2, 3e38, 11],  # finite, but its width overflows float32
]
BOXES_WITHOUT_SAMPLES = [  # on a map of 4 x 4 pixels
    [9, 9, 12, 12],
    [-9, -9, -3, -3],
    [0, 5.5, 3, 7],
    [2, 0, 1, 3],
    [0, 2, 3, 1],
    [3, 3, 1, 1],
    [NAN] * 4,
    [0, 0, NAN, 3],
    [INF] * 4,
    [0, 0, 3, INF],
    [-INF, 0, 3, 3],
    [1e30, 1e30, 2e30, 2e30],
    [-INF, -INF, INF, INF],
    [-3e38, -3e38, 3e38, 3e38],
]


class Bin(NamedTuple):
    """The samples of a bin that lie in the map. Each is a weighted sum of pixels."""

    at: tuple  # (k, p, q)
    level: int  # index of the map
    samples: float  # their number, including those outside the map
    rows: np.ndarray  # [inside, pixels of a sample]
    columns: np.ndarray
    weights: np.ndarray
    slopes: np.ndarray  # [inside, pixels of a sample, 4]: derivatives of the weights to x1, y1, x2, y2


class _Points(NamedTuple):
    """The samples of a bin on one axis. A sample lies between pixels `low` and `high`; `fraction` is high's weight."""

    low: np.ndarray
    high: np.ndarray
    fraction: np.ndarray
    slope_begin: np.ndarray  # derivative of fraction to the box's first coordinate
    slope_end: np.ndarray
    samples: float


def _sample_points(begin, end, scale, p, bins, limit, sampling_ratio, aligned):
    """Returns the samples of bin p on one axis. Computes in the coordinates' dtype, in torchvision's order."""
    real = type(begin)
    with np.errstate(all="ignore"):
        low, high = begin * scale, end * scale
        start, size = low - real(0.5) if aligned else low, high - low
        grown = not aligned and size < 1
        size = real(1) if grown else size
        bin_size = size / real(bins)
        grid = real(sampling_ratio) if sampling_ratio else np.ceil(bin_size)
        first = start + real(p) * bin_size
        if not (np.isfinite(start) and np.isfinite(bin_size)) or limit == 0:
            bin_size = grid = real(0)
        index = (_candidates(first, bin_size, grid, limit) + 0.5).astype(real)
        at = first + index * bin_size / grid
        index, at = (a[(at >= -1) & (at <= limit)].astype(np.float64) for a in (index, at))
    below, beyond = at <= 0, np.floor(at) >= limit - 1
    at = np.where(below, 0, np.where(beyond, limit - 1, at))
    low = np.floor(at).astype(np.int64)
    place = np.ones_like(at) if not len(at) else (p + index / np.float64(grid)) / bins
    moves = np.where(below | beyond, 0, np.float64(scale))
    return _Points(
        low=low,
        high=np.minimum(low + 1, limit - 1),
        fraction=at - low,
        slope_begin=moves if grown else moves * (1 - place),
        slope_end=np.zeros_like(moves) if grown else moves * place,
        samples=float(grid),
    )


def _candidates(first, bin_size, grid, limit):
    """Returns the indices of samples in [0, grid): all if few, else those that may lie in the map."""
    if grid <= 1000:
        return np.arange(float(grid))
    first, step = float(first), float(bin_size) / float(grid)
    rounding = 4 * np.finfo(type(bin_size)).eps * abs(first)
    if rounding > 5000:
        return np.arange(0.0)  # the bin is so large that samples in the map do not change the result
    low = max(math.floor((-1 - rounding - first) / step) - 2, 0)
    high = min(math.ceil((limit + rounding - first) / step) + 2, float(grid))
    return np.arange(low, max(low, high))


def _round(value):
    """Rounds to the nearest integer and halves away from zero, like C's round."""
    return math.copysign(math.floor(abs(value) + 0.5), value)


def _pixels(begin, end, scale, p, bins, limit):
    """Returns the pixels of bin p on one axis of a box that excludes its end."""
    with np.errstate(over="ignore"):
        # Clamps coordinates far outside any map, so that integers are exact.
        low, high = (int(_round(min(max(float(c * scale), -(2**31)), 2**31))) for c in (begin, end))
    size = max(high - low, 1)
    first, last = low + p * size // bins, low - (-(p + 1) * size // bins)
    return np.arange(max(first, 0), max(min(last, limit), max(first, 0)))


@dataclasses.dataclass(frozen=True)
class Pooling:
    """An op that pools `boxes`: its values and gradients, NHWC in float64.

    Feature maps are a list: the levels of a pyramid, or a single map.
    """

    boxes: np.ndarray  # [K, 4], xyxy, float32 or float64
    box_indices: Sequence[int]
    output_size: tuple
    spatial_scale: float | tuple = 1.0  # a tuple has one per level
    sampling_ratio: int = 0
    aligned: bool = True
    pixels: bool = False  # bins of whole pixels instead of samples
    channel_order: str | None = None  # for position-sensitive ops
    level_sizes: tuple = (0.0,)  # smallest sqrt(area) of boxes on each level

    def _level(self, box):
        size = math.sqrt(max((float(box[2]) - float(box[0])) * (float(box[3]) - float(box[1])), 0))
        return max([0] + [i for i, smallest in enumerate(self.level_sizes) if size * (1 + 1e-6) >= smallest])

    def bins(self, maps):
        """Yields the bins of each finite box that is not inverted."""
        scales = self.spatial_scale if isinstance(self.spatial_scale, tuple) else (self.spatial_scale,)
        for k, box in enumerate(self.boxes):
            if not (np.isfinite(box).all() and box[0] <= box[2] and box[1] <= box[3]):
                continue
            level = self._level(box)
            height, width = maps[level].shape[1:3]
            scale = box.dtype.type(np.float32(scales[level]))
            ends = ((box[1], box[3], scale), (box[0], box[2], scale))
            ph, pw = self.output_size
            if self.pixels:
                ys = [_pixels(*ends[0], p, ph, height) for p in range(ph)]
                xs = [_pixels(*ends[1], q, pw, width) for q in range(pw)]
            else:
                sampling = (self.sampling_ratio, self.aligned)
                ys = [_sample_points(*ends[0], p, ph, height, *sampling) for p in range(ph)]
                xs = [_sample_points(*ends[1], q, pw, width, *sampling) for q in range(pw)]
            for p, q in np.ndindex(ph, pw):
                yield (_bin_of_pixels if self.pixels else _bin_of_samples)((k, p, q), level, ys[p], xs[q])

    def channels(self, bin_, count):
        """Returns the `count` channels of features that a bin pools."""
        (_, p, q), (ph, pw) = bin_.at, self.output_size
        c = np.arange(count)
        if self.channel_order is None:
            return c
        return (c * ph + p) * pw + q if self.channel_order == "channel_major" else (p * pw + q) * count + c

    def _values(self, bin_, maps):
        """Returns pixels [inside, pixels of a sample, channels]."""
        features = maps[bin_.level]
        pixels = features[self.box_indices[bin_.at[0]]][bin_.rows, bin_.columns].astype(np.float64)
        return pixels[:, :, self.channels(bin_, self._pooled_channels(features))]

    def _pooled_channels(self, features):
        return features.shape[3] // (1 if self.channel_order is None else self.output_size[0] * self.output_size[1])

    def _empty(self, maps):
        return np.zeros([len(self.boxes), *self.output_size, self._pooled_channels(maps[0])])

    def average(self, maps):
        output = self._empty(maps)
        for b in self.bins(maps):
            with np.errstate(invalid="ignore"):  # infinities of both signs
                output[b.at] = _weighted(b, self._values(b, maps)).sum(0) / max(b.samples, 1)
        return output

    def to_features(self, upstream, maps):
        """Returns the gradients of sum(upstream * average) to each map."""
        results = [np.zeros(features.shape) for features in maps]
        for b in self.bins(maps):
            shares = b.weights[..., np.newaxis] * upstream[b.at].astype(np.float64) / max(b.samples, 1)
            channels = self.channels(b, shares.shape[2])
            at = (b.rows[..., np.newaxis], b.columns[..., np.newaxis], channels)
            np.add.at(results[b.level][self.box_indices[b.at[0]]], at, shares)
        return results

    def to_boxes(self, upstream, maps):
        """Returns the gradient of sum(upstream * average) to boxes."""
        result = np.zeros([len(self.boxes), 4])
        for b in self.bins(maps):
            by_pixel = self._values(b, maps) @ upstream[b.at].astype(np.float64)
            result[b.at[0]] += np.einsum("sp,spe->e", by_pixel, b.slopes) / max(b.samples, 1)
        return result

    def _largest(self, b, maps):
        """Returns each channel's index of its first NaN or maximum, -1 for an outside sample, and its value."""
        values = _weighted(b, self._values(b, maps))
        if not len(values):
            return np.full(values.shape[1], -1), np.zeros(values.shape[1])
        best = values.max(0)
        outside = (best < 0) & (len(values) < b.samples)
        return np.where(outside, -1, values.argmax(0)), np.where(outside, 0, best)

    def maximum(self, maps):
        output = self._empty(maps)
        for b in self.bins(maps):
            output[b.at] = self._largest(b, maps)[1]
        return output

    def maximum_to_features(self, upstream, maps):
        result = np.zeros(maps[0].shape)
        for b in self.bins(maps):
            for c, s in enumerate(self._largest(b, maps)[0]):
                if s >= 0:
                    at = (self.box_indices[b.at[0]], b.rows[s], b.columns[s], c)
                    np.add.at(result, at, b.weights[s] * np.float64(upstream[(*b.at, c)]))
        return [result]

    def maximum_to_boxes(self, upstream, maps):
        result = np.zeros([len(self.boxes), 4])
        for b in self.bins(maps):
            values = self._values(b, maps)
            for c, s in enumerate(self._largest(b, maps)[0]):
                if s >= 0:
                    result[b.at[0]] += np.float64(upstream[(*b.at, c)]) * values[s, :, c] @ b.slopes[s]
        return result


def gradients_of(pooling, mode):
    """Returns the functions for the gradients of a Pooling's average or maximum: (to features, to boxes)."""
    if mode == "avg":
        return pooling.to_features, pooling.to_boxes
    return pooling.maximum_to_features, pooling.maximum_to_boxes


def _weighted(b, values):
    """Returns samples [inside, channels]. Pixels without weight are ignored, even if NaN."""
    with np.errstate(invalid="ignore"):
        return np.where(b.weights[..., np.newaxis] == 0, 0, b.weights[..., np.newaxis] * values).sum(1)


def _bin_of_samples(at, level, y, x):
    """Combines samples of both axes, row by row. Each has pixels low-low, low-high, high-low and high-high."""
    i, j = (a.ravel() for a in np.meshgrid(np.arange(len(y.low)), np.arange(len(x.low)), indexing="ij"))
    hy, ly, hx, lx = 1 - y.fraction[i], y.fraction[i], 1 - x.fraction[j], x.fraction[j]
    by_y, by_x = np.stack([-hx, -lx, hx, lx], 1), np.stack([-hy, hy, -ly, ly], 1)
    slopes = [by_x * x.slope_begin[j, np.newaxis], by_y * y.slope_begin[i, np.newaxis]]
    slopes += [by_x * x.slope_end[j, np.newaxis], by_y * y.slope_end[i, np.newaxis]]
    return Bin(
        at=at,
        level=level,
        samples=y.samples * x.samples,
        rows=np.stack([y.low[i], y.low[i], y.high[i], y.high[i]], 1),
        columns=np.stack([x.low[j], x.high[j], x.low[j], x.high[j]], 1),
        weights=np.stack([hy * hx, hy * lx, ly * hx, ly * lx], 1),
        slopes=np.stack(slopes, 2),
    )


def _bin_of_pixels(at, level, y, x):
    rows, columns = (a.reshape(-1, 1) for a in np.meshgrid(y, x, indexing="ij"))
    return Bin(at, level, rows.size, rows, columns, np.ones(rows.shape), np.zeros((*rows.shape, 4)))


def coordinates(boxes, dtype):
    """Returns boxes in the coordinate dtype for features of `dtype`."""
    with np.errstate(over="ignore"):
        return np.array(boxes, np.float64 if dtype == tf.float64 else np.float32).reshape(-1, 4)


def to_format(nhwc, data_format):
    return np.transpose(nhwc, [0, 3, 1, 2]) if data_format == "NCHW" else np.asarray(nhwc)


def in_formats(op, data_format="NHWC", box_format="xyxy", **options):
    """Returns the op as a function of NHWC features (a tensor or a list) and xyxy boxes with an NHWC result."""

    def convert(features):
        return tf.transpose(features, [0, 3, 1, 2]) if data_format == "NCHW" else tf.convert_to_tensor(features)

    def function(features, boxes, box_indices, output_size):
        features = [convert(m) for m in features] if isinstance(features, list) else convert(features)
        boxes = boxes if box_format == "xyxy" else tf.gather(boxes, [1, 0, 3, 2], axis=1)
        result = op(
            features, boxes, box_indices, output_size, data_format=data_format, box_format=box_format, **options
        )
        return tf.transpose(result, [0, 2, 3, 1]) if data_format == "NCHW" else result

    return function


def random(shape, dtype=tf.float64, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype.as_numpy_dtype)


def rounding(dtype):
    """Returns tolerances for values of magnitude 1, summed in float32 or float64 and rounded to the dtype once."""
    unit = {tf.float16: 2**-11, tf.bfloat16: 2**-8, tf.float32: 1e-6, tf.float64: 1e-14}[dtype]
    return {"rtol": unit, "atol": 1e-14 if dtype == tf.float64 else 1e-6}


def assert_rounded_sum(test, result, expected, magnitudes):
    """Asserts that result is a float32 or float64 sum of terms of these magnitudes, rounded to its dtype once."""
    relative, wide = rounding(result.dtype)["rtol"], result.dtype == tf.float64
    # Below 2^-14, float16 has a spacing of 2^-24.
    tolerance = relative * np.abs(expected) + (2e-14 if wide else 2e-6) * magnitudes + (1e-16 if wide else 2**-24)
    error = np.abs(tf.cast(result, tf.float64).numpy() - expected)
    test.assertLessEqual((error / tolerance).max(), 1)


# (box, output_size, options, values of the only channel). Pixel (y, x) of the 5 x 5 image is 5 y + x.
ARANGE = np.arange(25.0).reshape([1, 5, 5, 1])
ROI_ALIGN_EXAMPLES = (
    # From Detectron2: one sample per bin, at 0.75, 1.25, 1.75, 2.25, or half a pixel further.
    ([1, 1, 3, 3], 4, {}, [[4.5, 5, 5.5, 6], [7, 7.5, 8, 8.5], [9.5, 10, 10.5, 11], [12, 12.5, 13, 13.5]]),
    (
        [1, 1, 3, 3],
        4,
        {"aligned": False},
        [[7.5, 8, 8.5, 9], [10, 10.5, 11, 11.5], [12.5, 13, 13.5, 14], [15, 15.5, 16, 16.5]],
    ),
    # Samples at 0, 1, 2, 3 on both axes.
    ([0, 0, 4, 4], 1, {}, [[9]]),
    ([0, 0, 4, 4], 1, {"mode": "max"}, [[18]]),
    ([0, 0, 4, 4], (1, 2), {}, [[8, 10]]),
    ([0, 0, 4, 4], (1, 2), {"mode": "max"}, [[16, 18]]),
    ([0, 0, 4, 4], (1, 2), {"mode": "max", "sampling_ratio": 1}, [[7.5 + 0.5, 7.5 + 2.5]]),
    ([0, 0, 8, 8], 1, {"spatial_scale": 0.5}, [[9]]),
    # One sample at y = 2.5 and x = -1, -1.25, 5, 5.25: samples beyond -1 or 5 are outside.
    ([-1.5, 2, -0.5, 3], 1, {"aligned": False}, [[12.5]]),
    ([-1.75, 2, -0.75, 3], 1, {"aligned": False}, [[0]]),
    ([4.5, 2, 5.5, 3], 1, {"aligned": False}, [[16.5]]),
    ([4.75, 2, 5.75, 3], 1, {"aligned": False}, [[0]]),
    ([2, -1.5, 3, -0.5], 1, {"aligned": False}, [[2.5]]),
    ([2, 4.5, 3, 5.5], 1, {"aligned": False}, [[22.5]]),
    ([2, 4.75, 3, 5.75], 1, {"aligned": False}, [[0]]),
    # Samples at y = 2.25 and 2.75, x = -1.5 and 0.5. Outside samples count as zeros.
    ([-2.5, 2, 1.5, 3], 1, {"aligned": False, "sampling_ratio": 2}, [[(0 + 11.75 + 0 + 14.25) / 4]]),
    ([-2.5, 2, 1.5, 3], 1, {"aligned": False, "sampling_ratio": 2, "mode": "max"}, [[14.25]]),
    # A point: one pixel wide if not aligned; without samples and thus 0 if aligned.
    ([2, 2, 2, 2], 1, {"aligned": False}, [[15]]),
    ([2, 2, 2, 2], 1, {"sampling_ratio": 2}, [[9]]),
    ([2, 2, 2, 2], 1, {}, [[0]]),
)
# Pixel (y, x) of channel c of the 4 x 4 image is 100 c + 4 y + x.
PS_FEATURES = np.arange(16.0).reshape([1, 4, 4, 1]) + 100 * np.arange(8)
PS_ROI_POOL_EXAMPLES = (
    # Rows 0-1 and 2-3, the last included.
    ([0, 0, 4, 4], (2, 2), [[2.5, 104.5], [210.5, 312.5]], [[402.5, 504.5], [610.5, 712.5]]),
    # Two bins of three pixels overlap: 0-1, 1-2.
    ([0, 0, 3, 3], (2, 2), [[2.5, 103.5], [206.5, 307.5]], [[402.5, 503.5], [606.5, 707.5]]),
    # Corners round, halves away from zero, and boxes have at least one pixel: -1; 0; 2.
    ([-0.5, 0, 0.49, 1], (1, 4), [[0, 0, 0, 0]], [[0, 0, 0, 0]]),
    ([-0.49, 0, 0.5, 0.5], (1, 4), [[0, 100, 200, 300]], [[400, 500, 600, 700]]),
    ([1.5, 1.5, 1.5, 1.5], (1, 4), [[10, 110, 210, 310]], [[410, 510, 610, 710]]),
    # Clipped to the image: pixels 2-3 of 2-5; pixel 3 of 3-8, whose second half is outside.
    ([2, 2, 6, 6], (1, 4), [[10 + 2, 111 + 2, 0, 0]], [[410 + 2, 511 + 2, 0, 0]]),
    ([3, 3, 9, 9], (2, 2), [[15, 0], [0, 0]], [[415, 0], [0, 0]]),
)
