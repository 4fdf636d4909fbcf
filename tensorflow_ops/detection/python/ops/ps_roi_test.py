"""Tests of ps_roi_pool and ps_roi_align: values and gradients.

roi_average_arguments_test.py tests shapes and bad input.
"""

import numpy as np
import roi_reference_testing as reference
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise
from roi_reference_testing import (
    BOXES,
    DATA_FORMATS,
    DTYPES,
    FORMATS,
    Pooling,
    coordinates,
    in_formats,
)

import tensorflow_ops as tfo

_ORDERS = ("channel_major", "bin_major")
_INDICES = [k % 2 for k in range(len(BOXES))]

# (op, options)
_OPS = (
    (tfo.detection.ps_roi_pool, {}),
    (tfo.detection.ps_roi_align, {}),
    (tfo.detection.ps_roi_align, {"sampling_ratio": 1}),
    (tfo.detection.ps_roi_align, {"sampling_ratio": 3}),
)

# For images of 6 x 7 pixels. No sample lies on a pixel's centre or an edge, where derivatives jump.
_SMOOTH_BOXES = np.array(
    [[1.17, 0.83, 5.39, 4.61], [-2.43, -1.71, 3.13, 9.87], [4.31, 3.17, 11.9, 7.93], [2.11, 3.43, 2.31, 3.53]]
)


def _pooling(op, boxes, box_indices, output_size, channel_order="channel_major", spatial_scale=1.0, sampling_ratio=0):
    """Returns the op's reference."""
    pixels = op is tfo.detection.ps_roi_pool
    return Pooling(
        boxes, box_indices, output_size, spatial_scale, sampling_ratio, pixels=pixels, channel_order=channel_order
    )


def _gradients(function, *inputs, upstream=None):
    inputs = [tf.convert_to_tensor(x) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = function(*inputs)
    return tape.gradient(y, inputs, output_gradients=upstream)


class ForwardTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(op=_OPS, dtype=DTYPES, channel_order=_ORDERS, formats=FORMATS)
    def test_equals_the_definition(self, op, dtype, channel_order, formats):
        op, options = op[0], {**op[1], "channel_order": channel_order, "spatial_scale": 0.5}
        # 17 channels per bin: whole vectors of most widths and a remainder.
        features, boxes = reference.random([2, 9, 12, 15 * 17], dtype), coordinates(BOXES, dtype)
        expected = _pooling(op, boxes, _INDICES, (3, 5), **options).average([features])
        self.assertGreater(np.count_nonzero(expected.any(axis=(1, 2, 3))), 12)
        output = in_formats(op, *formats, **options)(features, boxes, _INDICES, (3, 5))
        self.assertEqual(output.dtype, dtype)
        self.assertAllClose(tf.cast(output, tf.float64), expected, **reference.rounding(dtype))

    @parameterized.parameters(*reference.PS_ROI_POOL_EXAMPLES)
    def test_ps_roi_pool_by_hand(self, box, output_size, first, second):
        features = tf.constant(reference.PS_FEATURES)
        by_bin = tf.gather(features, [0, 4, 1, 5, 2, 6, 3, 7], axis=3)
        for channel_order, x in (("channel_major", features), ("bin_major", by_bin)):
            output = tfo.detection.ps_roi_pool(x, [box], [0], output_size, channel_order=channel_order)
            self.assertAllClose(output, np.stack([first, second], -1)[np.newaxis], rtol=2e-14)

    def test_whole_image_includes_the_last_row_and_column(self):
        """Torchvision omits the last row and column."""
        features = reference.random([1, 6, 6, 9 * 2], tf.float32)
        output = tfo.detection.ps_roi_pool(features, [[0, 0, 6, 6]], [0], 3)
        by_bin = features.reshape([3, 2, 3, 2, 2, 3, 3]).mean(axis=(1, 3))  # [p, q, c, p', q']
        expected = np.stack([[by_bin[p, q, :, p, q] for q in range(3)] for p in range(3)])
        self.assertAllClose(output[0], expected)

    @parameterized.product(op=_OPS[:2], output_size=((1, 300), (300, 1)))
    def test_any_number_of_bins(self, op, output_size):
        features = reference.random([1, 11, 13, 2 * output_size[0] * output_size[1]], tf.float32)
        boxes = coordinates([[0, 0, 13, 11], [-4.4, 2.2, 25.9, 3.7]], tf.float32)
        for channel_order in _ORDERS:
            options = {**op[1], "channel_order": channel_order}
            expected = _pooling(op[0], boxes, [0, 0], output_size, **options).average([features])
            output = in_formats(op[0], **options)(features, boxes, [0, 0], output_size)
            self.assertAllClose(output, expected, **reference.rounding(tf.float32))

    def test_empty_box_with_adaptive_samples_gives_zeros(self):
        """Torchvision returns NaN."""
        for box in ([2, 2, 2, 2], [1, 2, 3, 2]):
            output = tfo.detection.ps_roi_align(tf.ones([1, 4, 4, 4]), [box], [0], 2)
            self.assertAllEqual(output, np.zeros([1, 2, 2, 1]))

    def test_enormous_boxes(self):
        features = tf.reshape(tf.range(16.0), [1, 4, 4, 1])
        boxes = [[-1e30, -1e30, 1e30, 1e30], [0, 0, 1e30, 1e30], [-3e38, -3e38, 0, 0], [-3e38, 1, 3e38, 2]]
        output = tfo.detection.ps_roi_pool(features, boxes, [0] * 4, 1)
        self.assertAllClose(tf.reshape(output, [-1]), [7.5, 7.5, 0, 5.5])  # all pixels twice, none, row 1
        # The scaled coordinates overflow, but finite boxes remain valid.
        output = tfo.detection.ps_roi_pool(features, boxes, [0] * 4, 1, spatial_scale=1e20)
        self.assertAllClose(tf.reshape(output, [-1]), [7.5, 7.5, 0, 0])
        output = tfo.detection.ps_roi_align(features, boxes, [0] * 4, 1)
        self.assertAllClose(output, np.zeros([4, 1, 1, 1]))


class GradientTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(op=_OPS, dtype=DTYPES, channel_order=_ORDERS, formats=FORMATS)
    def test_equals_the_definition(self, op, dtype, channel_order, formats):
        op, options = op[0], {**op[1], "channel_order": channel_order, "spatial_scale": 0.5}
        features, boxes = reference.random([2, 9, 12, 15 * 5], dtype), coordinates(BOXES, dtype)
        upstream = reference.random([len(BOXES), 3, 5, 5], dtype, 2)
        pooling = _pooling(op, boxes, _INDICES, (3, 5), **options)
        expected = pooling.to_features(upstream, [features])[0]
        magnitudes = pooling.to_features(np.abs(upstream), [features])[0]
        unit = 1e-13 if dtype == tf.float64 else 3e-6
        pool = in_formats(op, *formats, **options)
        d_features, d_boxes = _gradients(lambda x, b: pool(x, b, _INDICES, (3, 5)), features, boxes, upstream=upstream)
        self.assertEqual(d_features.dtype, dtype)
        reference.assert_rounded_sum(self, d_features, expected, magnitudes)
        if op is tfo.detection.ps_roi_pool:
            self.assertIsNone(d_boxes)
            return
        expected_boxes = pooling.to_boxes(upstream, [features])
        self.assertAllClose(d_boxes, expected_boxes, rtol=unit, atol=unit * np.abs(expected_boxes).max())
        self.assertGreater(np.count_nonzero(expected_boxes), 40)

    @pairwise(op=_OPS, channel_order=_ORDERS, data_format=DATA_FORMATS)
    def test_numeric_gradient(self, op, channel_order, data_format):
        pool = in_formats(op[0], data_format, channel_order=channel_order, **op[1])
        weights = reference.random([4, 2, 1, 2], seed=2)

        def loss(x, boxes):
            return tf.reduce_sum(weights * pool(x, boxes, [0, 1, 0, 1], (2, 1)))

        function = tf.function(loss) if data_format == "NCHW" else loss
        x, boxes = reference.random([2, 6, 7, 4]), _SMOOTH_BOXES
        if op[0] is tfo.detection.ps_roi_pool:
            theoretical, numeric = tf.test.compute_gradient(lambda x: function(x, boxes), [x], 1e-5)
        else:
            theoretical, numeric = tf.test.compute_gradient(function, [x, boxes], 1e-5)
        for analytic, expected in zip(theoretical, numeric, strict=True):
            self.assertAllClose(analytic, expected, rtol=1e-7, atol=1e-7)
            self.assertGreater(np.count_nonzero(analytic), 8)

    @parameterized.parameters(*zip(_OPS[:2], _ORDERS, DATA_FORMATS, strict=True))
    def test_numeric_second_order(self, op, channel_order, data_format):
        pool = in_formats(op[0], data_format, channel_order=channel_order, **op[1])

        def to_features(x, boxes):
            return _gradients(lambda x: pool(x, boxes, [0, 1, 0, 1], (2, 1)) ** 3, x)[0]

        x, boxes = reference.random([2, 3, 4, 4]), _SMOOTH_BOXES * 0.6
        if op[0] is tfo.detection.ps_roi_pool:
            theoretical, numeric = tf.test.compute_gradient(lambda x: to_features(x, boxes), [x], 1e-5)
        else:
            theoretical, numeric = tf.test.compute_gradient(to_features, [x, boxes], 1e-5)
        for analytic, expected in zip(theoretical, numeric, strict=True):
            self.assertAllClose(analytic, expected, rtol=1e-6, atol=1e-6)
            self.assertGreater(np.count_nonzero(analytic), 50)

    @parameterized.parameters(*zip(_ORDERS, DATA_FORMATS, (0, 2), strict=True))
    def test_forward_mode_to_boxes(self, channel_order, data_format, sampling_ratio):
        align = in_formats(
            tfo.detection.ps_roi_align, data_format, channel_order=channel_order, sampling_ratio=sampling_ratio
        )
        x, boxes = reference.random([2, 3, 4, 4]), tf.constant(_SMOOTH_BOXES * 0.6)
        motion = tf.constant(reference.random(boxes.shape, seed=3))
        with tf.autodiff.ForwardAccumulator(boxes, motion) as accumulator:
            y = align(x, boxes, [0, 1, 0, 1], (2, 1))
        above, below = (align(x, boxes + step * motion, [0, 1, 0, 1], (2, 1)) for step in (1e-6, -1e-6))
        self.assertAllClose(accumulator.jvp(y), (above - below) / 2e-6, rtol=1e-6, atol=1e-6)
        self.assertGreater(np.count_nonzero(accumulator.jvp(y)), 4)


if __name__ == "__main__":
    tf.test.main()
