"""Tests of values of roi_align's maximum, multiscale_roi_align's levels and ps_roi_pool.

The C++ tests compare averages with a loop over samples, those of exports each option with a composition.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo


class CoordinatesTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_coordinates_of_half_precision_features_are_float32(self, dtype):
        # Neighbouring pixels, and points between them, that coincide when rounded to float16 or bfloat16.
        features = tf.cast(tf.reshape(tf.range(4096) % 32, [1, 1, 4096, 1]), dtype)
        boxes = [[2049.25, 0, 2050.25, 1], [2050, 0, 2051, 1], [2051.5, 0, 2052.5, 1]]
        output = tfo.detection.roi_align(features, boxes, [0] * 3, 1)
        self.assertAllEqual(tf.reshape(tf.cast(output, tf.float32), [-1]), [1.25, 2, 3.5])
        output = tfo.detection.roi_pool(features, [[n, 0, n, 0] for n in (2049, 2050, 2051)], [0] * 3, 1)
        self.assertAllEqual(tf.reshape(tf.cast(output, tf.int32), [-1]), [1, 2, 3])


class MaximumTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(
        dtype=(tf.float16, tf.bfloat16, tf.float32, tf.float64),
        sampling_ratio=(1, 2, 3),
        aligned=(True, False),
        output_size=(2, (3, 1), "tensor"),
        data_format=("NHWC", "NCHW"),
        in_graph=(False, True),
    )
    def test_equals_averages_of_one_sample(self, dtype, sampling_ratio, aligned, output_size, data_format, in_graph):
        rng = np.random.default_rng(1)
        features = rng.normal(size=[2, 6, 7, 3])
        features[1, 3, 4, 2] = np.nan
        features = tf.cast(features, dtype)
        corners = rng.uniform(-6, 9, [8, 2])
        boxes = np.concatenate([corners, corners + rng.uniform(0, 9, [8, 2])], 1)
        at_nan, others = [5.3, 4, 6.7, 5.3], [[5, 1, 2, 4], [np.nan, 0, 3, 3], [0, 0, np.inf, 3], [2, 3, 2, 3]]
        boxes, indices = np.float32([*boxes, [30, 30, 40, 40], at_nan, *others]), [0, 1] * 7
        options, n = {"spatial_scale": 0.75, "aligned": aligned}, sampling_ratio
        ph, pw = {2: (2, 2), "tensor": (2, 3)}.get(output_size, output_size)
        samples = tfo.detection.roi_align(features, boxes, indices, (ph * n, pw * n), sampling_ratio=1, **options)
        expected = np.max(tf.cast(samples, tf.float64).numpy().reshape([-1, ph, n, pw, n, 3]), (2, 4))
        self.assertTrue(np.isnan(expected).any())

        def pool(features, boxes, size):
            size = size if output_size == "tensor" else output_size
            options.update(mode="max", sampling_ratio=n, data_format=data_format)
            return tfo.detection.roi_align(features, boxes, indices, size, **options)

        if in_graph:
            pool = tf.function(pool, [tf.TensorSpec(None, dtype), tf.TensorSpec(None), tf.TensorSpec(None, tf.int32)])
        if data_format == "NCHW":
            features, expected = tf.transpose(features, [0, 3, 1, 2]), expected.transpose(0, 3, 1, 2)
        output = pool(features, boxes, tf.constant([2, 3]))
        self.assertEqual(output.dtype, dtype)
        self.assertAllEqual(tf.cast(output, tf.float64), expected)


class MultiscaleTest(parameterized.TestCase, tf.test.TestCase):
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

    def test_side_at_the_limit_belongs_to_the_coarser_level(self):
        """Corners are rounded: a side up to one part in a million below the limit counts as at the limit."""
        for dtype, parts in ((tf.float32, (-2.2e-6, -0.5e-6, 0, 1e-6)), (tf.float64, (-1.1e-6, -0.9e-6, 0, 1e-9))):
            maps = [tf.fill([1, 200, 200, 1], tf.constant(stride, dtype)) for stride in (4, 8)]
            boxes = tf.constant([[0, 0, 112 * (1 + part), 112 * (1 + part)] for part in parts], dtype)
            output = tfo.detection.multiscale_roi_align(maps, boxes, [0] * 4, 1, strides=(4, 8))
            self.assertAllClose(output[:, 0, 0, 0], [4, 8, 8, 8])
        # The side is rounded, too: a difference of rounded corners.
        corners = np.float32(np.random.default_rng(1).uniform(0, 600, [1000, 2]))
        boxes = np.concatenate([corners, corners + np.float32(112)], 1)
        maps = [tf.fill([1, 200, 200, 1], 4.0), tf.fill([1, 100, 100, 1], 8.0)]
        output = tfo.detection.multiscale_roi_align(maps, boxes, [0] * 1000, 1, strides=(4, 8))
        self.assertAllClose(output[:, 0, 0, 0], np.full([1000], 8))

    def test_a_level_without_pixels_gives_zeros(self):
        maps, boxes = [tf.ones([1, 9, 9, 2]), tf.ones([1, 0, 5, 2])], [[1.0, 1, 5, 5], [1, 1, 99, 99]]
        options = {"strides": (1, 2), "canonical_box_size": 40.0, "canonical_stride": 2}
        with tf.GradientTape() as tape:
            tape.watch(maps)
            output = tfo.detection.multiscale_roi_align(maps, boxes, [0, 0], 2, **options)
        self.assertAllEqual(output, np.stack([np.ones([2, 2, 2]), np.zeros([2, 2, 2])]))
        self.assertEqual([d.shape for d in tape.gradient(output, maps)], [m.shape for m in maps])


class PositionSensitiveTest(parameterized.TestCase, tf.test.TestCase):
    def test_whole_image_includes_the_last_row_and_column(self):
        """Torchvision omits the last row and column."""
        features = np.random.default_rng(1).normal(size=[1, 6, 6, 9 * 2])
        output = tfo.detection.ps_roi_pool(features, [[0, 0, 6, 6]], [0], 3)
        by_bin = features.reshape([3, 2, 3, 2, 2, 3, 3]).mean(axis=(1, 3))  # [p, q, c, p', q']
        expected = np.stack([[by_bin[p, q, :, p, q] for q in range(3)] for p in range(3)])
        self.assertAllClose(output[0], expected)


if __name__ == "__main__":
    tf.test.main()
