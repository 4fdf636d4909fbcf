"""Tests of roi_align's values.

roi_align_grad_test.py tests gradients, roi_average_arguments_test.py shapes and bad input.
"""

import functools
import itertools
import resource

import numpy as np
import roi_reference_testing as reference
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise
from roi_reference_testing import (
    BOXES,
    DTYPES,
    FORMATS,
    INF,
    NAN,
    Pooling,
    coordinates,
    in_formats,
)

import tensorflow_ops as tfo

_MODES = ("avg", "max")


def _expected(mode, features, boxes, box_indices, output_size, *options):
    pooling = Pooling(coordinates(boxes, tf.as_dtype(features.dtype)), box_indices, output_size, *options)
    return (pooling.average if mode == "avg" else pooling.maximum)([features])


class RoiAlignTest(parameterized.TestCase, tf.test.TestCase):
    def _check(self, features, boxes, box_indices, output_size, formats=("NHWC", "xyxy"), spatial_scale=1.0, **options):
        """Asserts that roi_align equals the reference."""
        dtype = tf.as_dtype(features.dtype)
        mode, sampling_ratio, aligned = (
            options.get(name, default) for name, default in (("mode", "avg"), ("sampling_ratio", 0), ("aligned", True))
        )
        expected = _expected(mode, features, boxes, box_indices, output_size, spatial_scale, sampling_ratio, aligned)
        pool = in_formats(tfo.detection.roi_align, *formats, spatial_scale=spatial_scale, **options)
        output = pool(features, coordinates(boxes, dtype), box_indices, output_size)
        self.assertEqual(output.dtype, dtype)
        self.assertAllClose(tf.cast(output, tf.float64), expected, **reference.rounding(dtype))
        return expected

    @pairwise(dtype=DTYPES, mode=_MODES, aligned=(True, False), sampling_ratio=(0, 1, 2, 3), formats=FORMATS)
    def test_equals_the_definition(self, dtype, mode, aligned, sampling_ratio, formats):
        # 37 channels: whole vectors of every width and a remainder.
        features = reference.random([2, 9, 12, 37], dtype)
        expected = self._check(
            *(features, BOXES, [k % 2 for k in range(len(BOXES))], (3, 5), formats),
            **{"spatial_scale": 0.5, "mode": mode, "aligned": aligned, "sampling_ratio": sampling_ratio},
        )
        self.assertGreater(np.count_nonzero(expected.any(axis=(1, 2, 3))), 12)

    @parameterized.parameters(*reference.ROI_ALIGN_EXAMPLES)
    def test_examples_by_hand(self, box, output_size, options, expected):
        output = tfo.detection.roi_align(reference.ARANGE, [box], [0], output_size, **options)
        self.assertAllEqual(output[0, :, :, 0], expected)

    @pairwise(aligned=(True, False), sampling_ratio=(0, 1024))
    def test_linear_map_gives_its_values_at_bin_centres(self, aligned, sampling_ratio):
        y, x = np.meshgrid(np.arange(30.0), np.arange(40.0), indexing="ij")
        features = np.stack([y, x, 2 * y - 3 * x], -1)[np.newaxis]
        boxes = np.array([[3.3, 4.1, 30.7, 25.9], [12.2, 7.4, 17.9, 21.3], [1.5, 1.5, 38.5, 28.5]])
        output = tfo.detection.roi_align(
            features, boxes, [0] * 3, (4, 6), aligned=aligned, sampling_ratio=sampling_ratio
        )
        offset = 0.5 if aligned else 0
        for k, (x1, y1, x2, y2) in enumerate(boxes):
            at_y = y1 + (np.arange(4) + 0.5) / 4 * (y2 - y1) - offset
            at_x = x1 + (np.arange(6) + 0.5) / 6 * (x2 - x1) - offset
            y, x = np.meshgrid(at_y, at_x, indexing="ij")
            self.assertAllClose(output[k], np.stack([y, x, 2 * y - 3 * x], -1), rtol=1e-12)

    @parameterized.product(output_size=((1, 300), (300, 1), (64, 48)), mode=_MODES)
    def test_any_number_of_bins(self, output_size, mode):
        features = reference.random([1, 11, 13, 3], tf.float32)
        boxes = [[0, 0, 13, 11], [-4.4, 2.2, 25.9, 3.7]]
        self._check(features, boxes, [0, 0], output_size, mode=mode)

    @parameterized.parameters((0, tf.float32), (16, tf.float64), (17, tf.float32), (100, tf.float64))
    def test_any_number_of_samples(self, sampling_ratio, dtype):
        features = reference.random([1, 40, 60, 3], dtype)
        boxes = [
            [0, 0, 60, 40],
            [-200, 5, 9, 300],
            [50, -900, 70, 900],
            [10, 10, 12, 200],
            [3, 3, 3, 3],
            [61, 9, 80, 9],
        ]
        for mode, aligned in itertools.product(_MODES, (True, False)):
            options = {"mode": mode, "aligned": aligned, "sampling_ratio": sampling_ratio}
            self._check(features, boxes, [0] * len(boxes), (2, 1), **options)

    @parameterized.parameters(*_MODES)
    def test_wide_and_high_maps(self, mode):
        for shape in ([1, 3, 5000, 2], [1, 5000, 3, 2], [1, 1, 700, 2], [1, 700, 1, 2], [1, 1, 1, 2]):
            _, height, width, _ = shape
            boxes = [
                [0, 0, width, height],
                [width * 0.9, height * 0.8, width * 1.5, height * 1.7],
                [width - 1.3, height - 1.2, width + 0.4, height + 0.3],
            ]
            self._check(reference.random(shape, tf.float32), boxes, [0] * 3, (3, 2), mode=mode)

    @parameterized.parameters(*_MODES)
    def test_many_boxes_in_any_order(self, mode):
        rng = np.random.default_rng(3)
        features = reference.random([4, 40, 50, 9], tf.float32)
        corners, sizes = rng.uniform(-10, 210, [600, 2]), rng.exponential(30, [600, 2])
        boxes, box_indices = np.concatenate([corners, corners + sizes], 1), rng.integers(0, 4, 600)
        box_indices[200:400] = 2
        self._check(
            features,
            boxes,
            box_indices.tolist(),
            (2, 2),
            **{"spatial_scale": 0.25, "mode": mode, "sampling_ratio": 2},
        )

    @parameterized.parameters(tf.float16, tf.float32)
    def test_large_result_equals_its_parts(self, dtype):
        """The whole result exceeds 16 MiB and is written past the caches; its parts are smaller."""
        rng = np.random.default_rng(8)
        features = tf.constant(reference.random([2, 20, 30, 64], dtype))
        corners = rng.uniform(-5, 30, [2800, 2])
        boxes = coordinates(np.concatenate([corners, corners + rng.exponential(9, [2800, 2])], 1), dtype)
        indices = rng.integers(0, 2, 2800).astype(np.int32)
        pool = functools.partial(tfo.detection.roi_align, sampling_ratio=1)
        parts = [pool(features, boxes[i : i + 700], indices[i : i + 700], 7) for i in range(0, 2800, 700)]
        self.assertAllEqual(pool(features, boxes, indices, 7), tf.concat(parts, 0))

    @pairwise(dtype=DTYPES, mode=_MODES, sampling_ratio=(0, 3))
    def test_nan_and_infinite_pixels(self, dtype, mode, sampling_ratio):
        features = np.asarray(reference.random([2, 9, 12, 18]))
        rng = np.random.default_rng(4)
        for value in (NAN, INF, -INF):
            features[rng.random(features.shape) < 0.02] = value
        boxes = [box for box in BOXES if not max(map(abs, box)) > 1e5]
        box_indices = [k % 2 for k in range(len(boxes))]
        options = {"mode": mode, "sampling_ratio": sampling_ratio, "spatial_scale": 0.5}
        expected = self._check(features.astype(dtype.as_numpy_dtype), boxes, box_indices, (3, 5), **options)
        for kind in (np.isnan, np.isposinf, np.isneginf, np.isfinite):
            self.assertGreater(np.count_nonzero(kind(expected)), 10)

    @parameterized.product(mode=_MODES, dtype=(tf.float16, tf.float64))
    def test_enormous_boxes_take_no_more_time_and_memory(self, mode, dtype):
        """There are up to 10^18 adaptive samples; only those in the map are computed."""
        features = np.abs(reference.random([1, 30, 40, 16], dtype)) + np.array(1, dtype.as_numpy_dtype)
        boxes = np.array([[-1e9, -1e9, 1e9, 1e9], [0, 0, 1e9, 1e9], [-1e30, -1e30, 1e30, 1e30], [0, 0, 1e12, 40]] * 50)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        output = tfo.detection.roi_align(features, coordinates(boxes, dtype), [0] * len(boxes), (2, 3), mode=mode)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 100e3)  # in KiB
        if mode == "avg":
            self.assertAllClose(output, np.zeros(output.shape), atol=1e-6)
        else:
            output = tf.cast(output, tf.float64)
            self.assertAllClose(output[0, 0, 0], features[0, 0, 0] * 0)  # lies outside the map
            self.assertAllClose(output[1, 0, 0], features[0].max((0, 1)))

    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_coordinates_of_half_precision_features_are_float32(self, dtype):
        # Neighbouring pixels, and points between them, that coincide when rounded to float16 or bfloat16.
        features = tf.cast(tf.reshape(tf.range(4096) % 32, [1, 1, 4096, 1]), dtype)
        boxes = [[2049.25, 0, 2050.25, 1], [2050, 0, 2051, 1], [2051.5, 0, 2052.5, 1]]
        output = tfo.detection.roi_align(features, boxes, [0] * 3, 1)
        self.assertAllEqual(tf.reshape(tf.cast(output, tf.float32), [-1]), [1.25, 2, 3.5])

    def test_sums_of_half_precision_features_are_float32(self):
        """The mean of 4096 ones is 1; a bfloat16 sum would stop at 256, a float16 sum at 2048."""
        for dtype, mode in itertools.product((tf.float16, tf.bfloat16), _MODES):
            output = tfo.detection.roi_align(tf.ones([1, 64, 64, 3], dtype), [[0, 0, 64, 64]], [0], 1, mode=mode)
            self.assertAllEqual(output, tf.ones([1, 1, 1, 3], dtype))

    @parameterized.parameters(*DTYPES)
    def test_maximum_of_nan_infinity_and_outside_samples(self, dtype):
        # (pixels, maximum of samples on them, maximum of these samples and one outside the map)
        rows = [
            ([1, 3, 3, 2], 3, 3),
            ([-1, -2, -3, -4], -1, 0),
            ([-INF] * 4, -INF, 0),
            ([-INF, -5, -INF, -5], -5, 0),
            ([1, NAN, 9, NAN], NAN, NAN),
            ([NAN, INF, 9, 1], NAN, NAN),
            ([1, INF, INF, 1], INF, INF),
            ([-1, NAN, -1, -1], NAN, NAN),
        ]
        for shape, inside, partly in (
            ([1, 1, 4, 1], [0, 0, 4, 1], [-2, 0, 4, 1]),
            ([1, 4, 1, 1], [0, 0, 1, 4], [0, -2, 1, 4]),
            ([1, 2, 2, 1], [0, 0, 2, 2], [0, 0, 2, 4]),
        ):
            features = np.concatenate([np.reshape(row[0], shape) for row in rows], -1).astype(dtype.as_numpy_dtype)
            boxes = coordinates([inside, partly], dtype)
            output = tf.cast(tfo.detection.roi_align(features, boxes, [0, 0], 1, mode="max"), tf.float64)
            self.assertAllEqual(output[0, 0, 0], [row[1] for row in rows])
            self.assertAllEqual(output[1, 0, 0], [row[2] for row in rows])


if __name__ == "__main__":
    tf.test.main()
