"""Tests of multiscale_roi_align: values and gradients.

roi_average_arguments_test.py tests shapes and bad input.
"""

import numpy as np
import roi_reference_testing as reference
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise
from roi_reference_testing import DTYPES, FORMATS, INF, NAN, Pooling, coordinates, in_formats

import tensorflow_ops as tfo

# The image has 96 x 128 pixels, the levels have strides 4, 8 and 16. A box of side 32 is pooled at stride 8.
_STRIDES = (4, 8, 16)
_CANONICAL = {"canonical_box_size": 32.0, "canonical_stride": 8}
_LEVEL_SIZES = (0, 32, 64)
_BOXES = [
    [3, 5, 20, 24],
    [3, 5, 34, 36],  # side 31
    [3, 5, 35, 37],
    [3.3, 5.3, 66, 68],
    [3, 5, 67, 69],  # side 64
    [0, 0, 128, 96],
    [0, 10, 8, 90],  # 8 x 80
    [-60, -50, 30, 40],  # overlap the image's corners
    [110, 80, 150, 140],
    [120, -30, 127, 30],
    [200, 200, 220, 230],  # outside
    [-300, 10, -200, 100],
    [7, 5, 7, 5],  # a point
    [3, 5, 60, 5],  # a line
    [60, 50, 10, 20],  # inverted
    [60, 20, 10, 50],
    [10, 50, 60, 20],
    [NAN, 0, 50, 50],
    [0, 0, 50, INF],
    [-INF, -INF, INF, INF],
    [-1e30, -1e30, 1e30, 1e30],
    [0, 0, 1e9, 1e9],
]
_INDICES = [k % 2 for k in range(len(_BOXES))]

# No sample lies on a pixel's centre or an edge, where derivatives jump.
_SMOOTH_BOXES = np.array(
    [
        [3.17, 5.31, 20.43, 24.97],
        [-3.71, 5.23, 34.91, 36.37],
        [13.3, 25.3, 96.2, 98.1],
        [110.3, 80.1, 150.7, 140.9],
        [4.3, 10.7, 8.1, 10.9],
    ]
)


def _maps(channels, dtype, seed=1):
    """Returns NHWC maps of three levels."""
    return [reference.random([2, 96 // s, 128 // s, channels], dtype, seed + s) for s in _STRIDES]


def _pooling(boxes, box_indices, output_size, sampling_ratio=2, aligned=True):
    scales = tuple(1 / s for s in _STRIDES)
    return Pooling(boxes, box_indices, output_size, scales, sampling_ratio, aligned, level_sizes=_LEVEL_SIZES)


def _align(data_format="NHWC", box_format="xyxy", **options):
    return in_formats(
        tfo.detection.multiscale_roi_align,
        data_format,
        box_format,
        **{"strides": _STRIDES, **_CANONICAL, **options},
    )


def _gradients(function, maps, boxes, upstream=None):
    """Returns the gradients of function(maps, boxes) to each map and to boxes."""
    maps, boxes = [tf.convert_to_tensor(m) for m in maps], tf.convert_to_tensor(boxes)
    with tf.GradientTape() as tape:
        tape.watch([maps, boxes])
        y = function(maps, boxes)
    return tape.gradient(y, [maps, boxes], output_gradients=upstream)


class ForwardTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(dtype=DTYPES, aligned=(True, False), sampling_ratio=(0, 1, 2), formats=FORMATS)
    def test_equals_the_definition(self, dtype, aligned, sampling_ratio, formats):
        maps, boxes = _maps(19, dtype), coordinates(_BOXES, dtype)
        expected = _pooling(boxes, _INDICES, (3, 2), sampling_ratio, aligned).average(maps)
        align = _align(*formats, aligned=aligned, sampling_ratio=sampling_ratio)
        output = align(maps, boxes, _INDICES, (3, 2))
        self.assertEqual(output.dtype, dtype)
        self.assertAllClose(tf.cast(output, tf.float64), expected, **reference.rounding(dtype))

    @parameterized.parameters(("NHWC", 0), ("NCHW", 2))
    def test_equals_roi_align_on_the_level_of_each_box(self, data_format, sampling_ratio):
        maps, boxes = _maps(5, tf.float32), coordinates(_BOXES, tf.float32)
        output = _align(data_format, sampling_ratio=sampling_ratio)(maps, boxes, _INDICES, 3)
        levels = [0, 0, 1, 1, 2, 2, 0, 2, 1, 0, 0, 2, *[0] * 8, 2, 2]
        for k, level in enumerate(levels):
            roi_align = in_formats(
                tfo.detection.roi_align,
                data_format,
                spatial_scale=1 / _STRIDES[level],
                sampling_ratio=sampling_ratio,
            )
            self.assertAllEqual(output[k : k + 1], roi_align(maps[level], boxes[k : k + 1], [_INDICES[k]], 3))

    def test_levels_follow_the_fpn_paper(self):
        """Equation (1) of FPN: a box of side 224 is pooled at stride 16, one of half that side at stride 8."""
        maps = [tf.fill([1, 512 // s, 512 // s, 1], float(s)) for s in (4, 8, 16, 32)]
        sides = [1, 56, 111.9, 112, 113, 223, 223.9, 224, 225, 447, 447.9, 448, 449, 500]
        boxes = [[3, 5, 3 + side, 5 + side] for side in sides]
        # The same areas with another aspect ratio.
        boxes += [[3, 5, 3 + side / 2, 5 + side * 2] for side in sides[:7]]
        output = tfo.detection.multiscale_roi_align(maps, boxes, [0] * len(boxes), 1, strides=(4, 8, 16, 32))
        expected = [4, 4, 4, 8, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32]
        self.assertAllClose(output[:, 0, 0, 0], expected + expected[:7])

    @parameterized.parameters("xyxy", "yxyx")
    def test_side_at_the_limit_belongs_to_the_coarser_level(self, box_format):
        """Corners are rounded: a side up to one part in a million below the limit counts as at the limit."""
        maps = [np.full([1, 200, 200, 1], float(s), np.float32) for s in (4, 8)]
        limit = np.float64(112)
        for dtype, parts in ((tf.float32, (-2.2e-6, -0.5e-6, 0, 1e-6)), (tf.float64, (-1.1e-6, -0.9e-6, 0, 1e-9))):
            boxes = coordinates([[0, 0, limit * (1 + part), limit * (1 + part)] for part in parts], dtype)
            align = in_formats(tfo.detection.multiscale_roi_align, box_format=box_format, strides=(4, 8))
            output = align([tf.cast(m, dtype) for m in maps], boxes, [0] * 4, 1)
            self.assertAllClose(output[:, 0, 0, 0], [4, 8, 8, 8])
        # The side is rounded, too: a difference of rounded corners.
        corners = np.float32(np.random.default_rng(1).uniform(0, 600, [1000, 2]))
        boxes = np.concatenate([corners, corners + np.float32(112)], 1)
        output = tfo.detection.multiscale_roi_align(
            [tf.fill([1, 200, 200, 1], 4.0), tf.fill([1, 100, 100, 1], 8.0)], boxes, [0] * 1000, 1, strides=(4, 8)
        )
        self.assertAllClose(output[:, 0, 0, 0], np.full([1000], 8))

    @parameterized.parameters(
        ((4,), {}, [4, 4, 4, 4, 4]),
        ((8, 32), {}, [8, 8, 8, 8, 32]),
        ((4, 8, 16, 32, 64), {}, [4, 4, 8, 16, 32]),
        ((3, 5, 7.5), {}, [3, 3, 7.5, 7.5, 7.5]),
        # The levels begin at sides 7 and 14.
        ((4, 8), {"canonical_box_size": 28.0}, [4, 8, 8, 8, 8]),
        ((4, 8), {"canonical_stride": 4}, [4, 4, 4, 4, 8]),
        ((4, 8), {"canonical_stride": 2.0}, [4, 4, 4, 4, 4]),
    )
    def test_levels_of_any_strides(self, strides, options, expected):
        maps = [tf.fill([1, 512, 512, 1], float(s)) for s in strides]
        boxes = [[5, 5, 5 + side, 5 + side] for side in (10, 40, 112, 224, 448)]
        output = tfo.detection.multiscale_roi_align(maps, boxes, [0] * 5, 1, strides=strides, **options)
        self.assertAllClose(output[:, 0, 0, 0], expected)

    def test_empty_levels(self):
        """A level without pixels gives zeros; levels without boxes are not read."""
        maps = _maps(3, tf.float32)
        maps[1] = np.zeros([2, 0, 16, 3], np.float32)
        boxes = coordinates([[10, 10, 30, 30], [10, 10, 50, 50], [10, 10, 90, 90]], tf.float32)
        expected = _pooling(boxes, [0, 1, 1], (2, 2)).average(maps)
        self.assertAllClose(_align()(maps, boxes, [0, 1, 1], 2), expected, **reference.rounding(tf.float32))
        gradients = _gradients(lambda m, b: _align()(m, b, [0, 1, 1], 2), maps, boxes)
        self.assertEqual([d.shape for d in gradients[0]], [m.shape for m in maps])
        self.assertAllEqual(gradients[1][1], [0, 0, 0, 0])


class GradientTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(dtype=DTYPES, aligned=(True, False), sampling_ratio=(0, 2), formats=FORMATS)
    def test_equals_the_definition(self, dtype, aligned, sampling_ratio, formats):
        maps, boxes = _maps(7, dtype), coordinates(_BOXES, dtype)
        upstream = reference.random([len(_BOXES), 3, 2, 7], dtype, 2)
        pooling = _pooling(boxes, _INDICES, (3, 2), sampling_ratio, aligned)
        expected, expected_boxes = pooling.to_features(upstream, maps), pooling.to_boxes(upstream, maps)
        magnitudes = pooling.to_features(np.abs(upstream), maps)
        unit = 1e-13 if dtype == tf.float64 else 3e-6
        self.assertGreater(np.count_nonzero(expected_boxes), 25)
        align = _align(*formats, aligned=aligned, sampling_ratio=sampling_ratio)
        d_maps, d_boxes = _gradients(lambda m, b: align(m, b, _INDICES, (3, 2)), maps, boxes, upstream)
        for result, one_expected, magnitude in zip(d_maps, expected, magnitudes, strict=True):
            self.assertEqual(result.dtype, dtype)
            reference.assert_rounded_sum(self, result, one_expected, magnitude)
        self.assertAllClose(d_boxes, expected_boxes, rtol=unit, atol=unit * np.abs(expected_boxes).max())

    @parameterized.parameters(("NHWC", "yxyx", False), ("NCHW", "xyxy", True))
    def test_numeric_gradient(self, data_format, box_format, graph):
        align, maps = _align(data_format, box_format), _maps(1, tf.float64)
        weights = reference.random([5, 2, 2, 1], seed=2)

        def loss(boxes, coarse):
            return tf.reduce_sum(weights * align([*maps[:2], coarse], boxes, [0, 1, 0, 1, 0], 2))

        function = tf.function(loss) if graph else loss
        theoretical, numeric = tf.test.compute_gradient(function, [_SMOOTH_BOXES, maps[2]], 1e-5)
        for analytic, expected in zip(theoretical, numeric, strict=True):
            self.assertAllClose(analytic, expected, rtol=1e-7, atol=1e-7)
            self.assertGreater(np.count_nonzero(analytic), 15)

    def test_second_order(self):
        """Second derivatives of sum(align^3), first to maps, then to maps or boxes."""
        align, maps, indices = _align(sampling_ratio=1), _maps(1, tf.float64), [0, 1, 0, 1, 0]

        def to_maps(coarse, boxes):
            maps_gradients, _ = _gradients(lambda m, b: align(m, b, indices, 2) ** 3, [*maps[:2], coarse], boxes)
            # Few pixels have a gradient: compares only the region that contains them.
            return tf.concat([tf.reshape(d[:, 1:4, 1:4], [-1]) for d in maps_gradients], 0)

        theoretical, numeric = tf.test.compute_gradient(to_maps, [maps[2], _SMOOTH_BOXES], 1e-5)
        for analytic, expected in zip(theoretical, numeric, strict=True):
            self.assertAllClose(analytic, expected, rtol=1e-6, atol=1e-6)
            self.assertGreater(np.count_nonzero(analytic), 15)

    def test_forward_mode_to_boxes(self):
        align, maps, indices = _align(sampling_ratio=2), _maps(1, tf.float64), [0, 1, 0, 1, 0]
        boxes, motion = tf.constant(_SMOOTH_BOXES), reference.random(_SMOOTH_BOXES.shape, seed=3)
        with tf.autodiff.ForwardAccumulator(boxes, tf.constant(motion)) as accumulator:
            y = align(maps, boxes, indices, 2)
        above, below = (align(maps, _SMOOTH_BOXES + step * motion, indices, 2) for step in (1e-6, -1e-6))
        self.assertAllClose(accumulator.jvp(y), (above - below) / 2e-6, rtol=1e-6, atol=1e-6)
        self.assertGreater(np.count_nonzero(accumulator.jvp(y)), 15)


if __name__ == "__main__":
    tf.test.main()
