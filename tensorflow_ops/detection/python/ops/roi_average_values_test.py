"""Tests of the values of roi_align, multiscale_roi_align, ps_roi_align and ps_roi_pool, by hand.

roi_grad_test.py tests gradients, roi_average_arguments_test.py formats, shapes and bad input. The C++ tests compare
averages with a loop over samples.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo

# (box, output_size, options, values of the only channel). Pixel (y, x) of the 5 x 5 image is 5 y + x.
_ARANGE = np.arange(25.0).reshape([1, 5, 5, 1])
_ROI_ALIGN_EXAMPLES = (
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
    ([0, 0, 4, 4], 1, {"mode": "max", "sampling_ratio": 4}, [[18]]),
    ([0, 0, 4, 4], (1, 2), {}, [[8, 10]]),
    ([0, 0, 4, 4], (1, 2), {"mode": "max", "sampling_ratio": 4}, [[15 + 1.25, 15 + 3.25]]),
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
_PS_FEATURES = np.arange(16.0).reshape([1, 4, 4, 1]) + 100 * np.arange(8)
_PS_ROI_POOL_EXAMPLES = (
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


class RoiAlignTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_ROI_ALIGN_EXAMPLES)
    def test_examples_by_hand(self, box, output_size, options, expected):
        output = tfo.detection.roi_align(_ARANGE, [box], [0], output_size, **options)
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

    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_coordinates_of_half_precision_features_are_float32(self, dtype):
        # Neighbouring pixels, and points between them, that coincide when rounded to float16 or bfloat16.
        features = tf.cast(tf.reshape(tf.range(4096) % 32, [1, 1, 4096, 1]), dtype)
        boxes = [[2049.25, 0, 2050.25, 1], [2050, 0, 2051, 1], [2051.5, 0, 2052.5, 1]]
        output = tfo.detection.roi_align(features, boxes, [0] * 3, 1)
        self.assertAllEqual(tf.reshape(tf.cast(output, tf.float32), [-1]), [1.25, 2, 3.5])


def _sample(image, y, x):
    """Returns the sample of an image [H, W, C] at (y, x). A pixel without weight is not read."""
    height, width = image.shape[:2]
    value = np.zeros(image.shape[2])
    if not (-1 <= y <= height and -1 <= x <= width):
        return value
    y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
    for row, row_weight in ((int(y), 1 - y % 1), (int(y) + 1, y % 1)):
        for column, column_weight in ((int(x), 1 - x % 1), (int(x) + 1, x % 1)):
            if row_weight * column_weight != 0:
                value += row_weight * column_weight * image[row, column]
    return value


def _maxima(features, boxes, box_indices, output_size, n, aligned, spatial_scale):
    """Returns each bin's largest sample, NaN if one is NaN. Boxes that are inverted or not finite give zeros."""
    result = np.zeros([len(boxes), *output_size, features.shape[3]])
    for k, box in enumerate(boxes):
        if not np.isfinite(box).all() or (box[:2] > box[2:]).any():
            continue
        low, size = box[1::-1] * spatial_scale, (box[3:1:-1] - box[1::-1]) * spatial_scale
        if not aligned:
            size = np.maximum(size, 1)
        for p, q in np.ndindex(*output_size):
            samples = []
            for i, j in np.ndindex(n, n):
                at = low + size * (np.array([p, q]) + (np.array([i, j]) + 0.5) / n) / output_size
                samples.append(_sample(features[box_indices[k]], *(at - 0.5 if aligned else at)))
            result[k, p, q] = np.max(samples, 0)
    return result


class MaximumTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(
        dtype=(tf.float16, tf.bfloat16, tf.float32, tf.float64),
        sampling_ratio=(1, 2, 3),
        aligned=(True, False),
        output_size=(2, (3, 1), "tensor"),
        data_format=("NHWC", "NCHW"),
        in_graph=(False, True),
    )
    def test_equals_a_loop_over_samples(self, dtype, output_size, data_format, in_graph, **options):
        rng = np.random.default_rng(1)
        features = rng.normal(size=[2, 6, 7, 3])
        features[1, 3, 4, 2] = np.nan
        features = tf.cast(features, dtype)
        corners = rng.uniform(-6, 9, [8, 2])
        boxes = np.concatenate([corners, corners + rng.uniform(0, 9, [8, 2])], 1)
        at_nan, others = [5.3, 4, 6.7, 5.3], [[5, 1, 2, 4], [np.nan, 0, 3, 3], [0, 0, np.inf, 3], [2, 3, 2, 3]]
        boxes, indices = np.float32([*boxes, [30, 30, 40, 40], at_nan, *others]), [0, 1] * 7
        expected = _maxima(
            tf.cast(features, tf.float64).numpy(),
            boxes.astype(np.float64),
            indices,
            {2: (2, 2), "tensor": (2, 3)}.get(output_size, output_size),
            options["sampling_ratio"],
            options["aligned"],
            0.75,
        )
        self.assertTrue(np.isnan(expected).any())

        def pool(features, boxes, size):
            size = size if output_size == "tensor" else output_size
            return tfo.detection.roi_align(
                features, boxes, indices, size, spatial_scale=0.75, mode="max", data_format=data_format, **options
            )

        if in_graph:
            pool = tf.function(pool, [tf.TensorSpec(None, dtype), tf.TensorSpec(None), tf.TensorSpec(None, tf.int32)])
        if data_format == "NCHW":
            features, expected = tf.transpose(features, [0, 3, 1, 2]), expected.transpose(0, 3, 1, 2)
        output = pool(features, boxes, tf.constant([2, 3]))
        self.assertEqual(output.dtype, dtype)
        tolerance = {tf.float16: 2e-3, tf.bfloat16: 1e-2}.get(dtype, 1e-5)
        self.assertAllClose(tf.cast(output, tf.float64), expected, rtol=tolerance, atol=tolerance)

    @parameterized.parameters(tf.float16, tf.bfloat16, tf.float32, tf.float64)
    def test_no_boxes_no_channels(self, dtype):
        for boxes, channels in ((0, 3), (2, 0)):
            features, corners = tf.ones([1, 4, 5, channels], dtype), tf.zeros([boxes, 4])
            with tf.GradientTape() as tape:
                tape.watch(features)
                y = tfo.detection.roi_align(
                    features, corners, tf.zeros([boxes], tf.int32), (2, 3), sampling_ratio=2, mode="max"
                )
            self.assertEqual(y.shape, [boxes, 2, 3, channels])
            self.assertAllEqual(tape.gradient(y, features), tf.zeros_like(features))

    def test_static_shapes(self):
        for features, boxes, expected in (
            ([2, 4, 5, 3], [7, 4], [7, 2, 3, 3]),
            ([None] * 4, [None, 4], [None, 2, 3, None]),
            (None, None, [None, 2, 3, None]),
        ):

            @tf.function(input_signature=[tf.TensorSpec(features), tf.TensorSpec(boxes)])
            def pool(features, boxes):
                indices = tf.zeros(tf.shape(boxes)[:1], tf.int32)
                return tfo.detection.roi_align(features, boxes, indices, (2, 3), sampling_ratio=2, mode="max")

            self.assertEqual(pool.get_concrete_function().output_shapes.as_list(), expected)


class MultiscaleTest(parameterized.TestCase, tf.test.TestCase):
    def test_equals_roi_align_on_the_level_of_each_box(self):
        """Boxes of sides 19, 31, 32, 63, 64, and 8 x 80; outside, a point, inverted, NaN, enormous."""
        rng = np.random.default_rng(1)
        maps = [tf.constant(rng.normal(size=[2, 96 // s, 128 // s, 5]), tf.float32) for s in (4, 8, 16)]
        boxes = [[3, 5, 22, 24], [3, 5, 34, 36], [3, 5, 35, 37], [3.3, 5.3, 66, 68], [3, 5, 67, 69], [0, 10, 8, 90]]
        boxes += [[200, 200, 220, 230], [7, 5, 7, 5], [60, 50, 10, 20], [np.nan, 0, 50, 50], [0, 0, 1e9, 1e9]]
        options = {"strides": (4, 8, 16), "canonical_box_size": 32.0, "canonical_stride": 8, "sampling_ratio": 2}
        indices = [k % 2 for k in range(len(boxes))]
        output = tfo.detection.multiscale_roi_align(maps, boxes, indices, 3, **options)
        for k, level in enumerate([0, 0, 1, 1, 2, 0, 0, 0, 0, 0, 2]):
            expected = tfo.detection.roi_align(
                maps[level], boxes[k : k + 1], [k % 2], 3, spatial_scale=1 / (4 << level), sampling_ratio=2
            )
            self.assertAllEqual(output[k : k + 1], expected)

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

    def test_a_level_without_pixels_gives_zeros(self):
        maps, boxes = [tf.ones([1, 9, 9, 2]), tf.ones([1, 0, 5, 2])], [[1.0, 1, 5, 5], [1, 1, 99, 99]]
        options = {"strides": (1, 2), "canonical_box_size": 40.0, "canonical_stride": 2}
        with tf.GradientTape() as tape:
            tape.watch(maps)
            output = tfo.detection.multiscale_roi_align(maps, boxes, [0, 0], 2, **options)
        self.assertAllEqual(output, np.stack([np.ones([2, 2, 2]), np.zeros([2, 2, 2])]))
        self.assertEqual([d.shape for d in tape.gradient(output, maps)], [m.shape for m in maps])


class PositionSensitiveTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_PS_ROI_POOL_EXAMPLES)
    def test_ps_roi_pool_by_hand(self, box, output_size, first, second):
        features = tf.constant(_PS_FEATURES)
        by_bin = tf.gather(features, [0, 4, 1, 5, 2, 6, 3, 7], axis=3)
        for channel_order, x in (("channel_major", features), ("bin_major", by_bin)):
            output = tfo.detection.ps_roi_pool(x, [box], [0], output_size, channel_order=channel_order)
            self.assertAllClose(output, np.stack([first, second], -1)[np.newaxis], rtol=2e-14)

    def test_whole_image_includes_the_last_row_and_column(self):
        """Torchvision omits the last row and column."""
        features = np.random.default_rng(1).normal(size=[1, 6, 6, 9 * 2])
        output = tfo.detection.ps_roi_pool(features, [[0, 0, 6, 6]], [0], 3)
        by_bin = features.reshape([3, 2, 3, 2, 2, 3, 3]).mean(axis=(1, 3))  # [p, q, c, p', q']
        expected = np.stack([[by_bin[p, q, :, p, q] for q in range(3)] for p in range(3)])
        self.assertAllClose(output[0], expected)

    @parameterized.parameters(("channel_major", 0), ("bin_major", 3))
    def test_ps_roi_align_equals_roi_align_of_the_bins_channels(self, channel_order, sampling_ratio):
        features = tf.constant(np.random.default_rng(1).normal(size=[2, 6, 7, 3 * 6]))
        boxes, indices = [[1.2, 0.8, 5.4, 4.6], [-2.4, -1.7, 3.1, 9.9], [4.3, 3.2, 11.9, 7.9]], [0, 1, 0]
        options = {"sampling_ratio": sampling_ratio, "spatial_scale": 0.8}
        output = tfo.detection.ps_roi_align(features, boxes, indices, (2, 3), channel_order=channel_order, **options)
        every = tfo.detection.roi_align(features, boxes, indices, (2, 3), **options)
        for p, q, c in np.ndindex(2, 3, 3):
            channel = (c * 2 + p) * 3 + q if channel_order == "channel_major" else (p * 3 + q) * 3 + c
            self.assertAllClose(output[:, p, q, c], every[:, p, q, channel], rtol=1e-12)

    def test_empty_box_with_adaptive_samples_gives_zeros(self):
        """Torchvision returns NaN."""
        for box in ([2, 2, 2, 2], [1, 2, 3, 2]):
            output = tfo.detection.ps_roi_align(tf.ones([1, 4, 4, 4]), [box], [0], 2)
            self.assertAllEqual(output, np.zeros([1, 2, 2, 1]))


class FormatsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        (tfo.detection.roi_pool_with_argmax, {}),
        (tfo.detection.roi_align, {}),
        (tfo.detection.roi_align, {"sampling_ratio": 2, "mode": "max"}),
        (tfo.detection.ps_roi_pool, {"channel_order": "bin_major"}),
        (tfo.detection.ps_roi_align, {}),
        (tfo.detection.multiscale_roi_align, {"strides": (1, 2), "canonical_box_size": 40.0}),
    )
    def test_channels_and_corners_in_another_order(self, fn, options):
        rng = np.random.default_rng(1)
        maps = [rng.normal(size=[2, 6 // s, 8 // s, 6]) for s in (1, 2)]
        maps = maps if fn is tfo.detection.multiscale_roi_align else maps[0]
        boxes = np.array([[0.3, 1.4, 5.2, 4.6], [1.2, 0.7, 3.1, 9.9], [2, 1, 7, 2]])
        expected = fn(maps, boxes, [0, 1, 1], (2, 3), **options)
        first = tf.nest.map_structure(lambda m: np.transpose(m, [0, 3, 1, 2]), maps)
        swapped = boxes[:, [1, 0, 3, 2]]
        found = fn(first, swapped, [0, 1, 1], (2, 3), data_format="NCHW", box_format="yxyx", **options)
        for y, e in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
            self.assertAllEqual(tf.transpose(y, [0, 2, 3, 1]), e)


if __name__ == "__main__":
    tf.test.main()
