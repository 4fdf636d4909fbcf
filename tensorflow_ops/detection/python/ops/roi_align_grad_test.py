"""Tests of roi_align's gradients to features and boxes, of any order."""

import numpy as np
import roi_reference_testing as reference
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise
from roi_reference_testing import (
    BOXES,
    BOXES_WITHOUT_SAMPLES,
    DATA_FORMATS,
    DTYPES,
    FORMATS,
    INF,
    NAN,
    Pooling,
    coordinates,
    gradients_of,
    in_formats,
)

import tensorflow_ops as tfo

# For images of 6 x 7 pixels at scale 0.8: boxes that overlap each other, cross each edge, are thinner than a pixel, or
# lie outside. No sample lies on a pixel's centre or an edge, where derivatives jump.
_SMOOTH_BOXES = np.array(
    [
        [1.17, 0.83, 5.39, 4.61],
        [1.21, 1.37, 5.83, 5.17],
        [-2.43, -1.71, 3.13, 9.87],
        [4.31, 3.17, 11.9, 7.93],
        [2.11, 3.43, 2.31, 3.53],
        [20.3, 20.1, 30.7, 31.9],
        [4.3, 4.1, 1.7, 1.9],
        [NAN, 1, 2, 3],
    ]
)
_INDICES = [k % 2 for k in range(len(_SMOOTH_BOXES))]
_SHAPE = (2, 6, 7, 3)
_SCALE = 0.8


def _align(data_format="NHWC", box_format="xyxy", **options):
    return in_formats(tfo.detection.roi_align, data_format, box_format, **options)


def _gradients(function, *inputs, upstream=None):
    """Returns the gradients of function(*inputs) to each input."""
    inputs = [tf.convert_to_tensor(x) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = function(*inputs)
    return tape.gradient(y, inputs, output_gradients=upstream)


def _gradient(function, x, upstream=None):
    return _gradients(function, x, upstream=upstream)[0]


class FirstOrderTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(data_format=DATA_FORMATS, aligned=(True, False), sampling_ratio=(0, 1, 2), mode=("avg", "max"))
    def test_numeric_gradient_to_features_and_boxes(self, data_format, aligned, sampling_ratio, mode):
        options = {"spatial_scale": _SCALE, "aligned": aligned, "sampling_ratio": sampling_ratio, "mode": mode}
        align = _align(data_format, **options)

        def loss(x, boxes):
            y = align(x, boxes, _INDICES, (2, 3))
            return tf.reduce_sum(reference.random(y.shape, seed=2) * y)

        theoretical, numeric = _compute_gradient(
            tf.function(loss) if data_format == "NCHW" else loss, [reference.random(_SHAPE), _SMOOTH_BOXES]
        )
        for analytic, expected in zip(theoretical, numeric, strict=True):
            self.assertAllClose(analytic, expected, rtol=1e-7, atol=1e-7)
            self.assertGreater(np.count_nonzero(analytic), 15)

    @pairwise(dtype=DTYPES, aligned=(True, False), sampling_ratio=(0, 3), mode=("avg", "max"), formats=FORMATS)
    def test_equals_the_definition(self, dtype, aligned, sampling_ratio, mode, formats):
        features, boxes = reference.random([2, 9, 12, 19], dtype), coordinates(BOXES, dtype)
        box_indices, upstream = [k % 2 for k in range(len(BOXES))], reference.random([len(BOXES), 3, 5, 19], dtype, 2)
        to_features, to_boxes = gradients_of(Pooling(boxes, box_indices, (3, 5), 0.5, sampling_ratio, aligned), mode)
        expected_features, expected_boxes = to_features(upstream, [features])[0], to_boxes(upstream, [features])
        magnitudes = to_features(np.abs(upstream), [features])[0]
        self.assertGreater(np.count_nonzero(expected_boxes), 40)
        align = _align(*formats, spatial_scale=0.5, aligned=aligned, sampling_ratio=sampling_ratio, mode=mode)
        d_features, d_boxes = _gradients(
            lambda x, boxes: align(x, boxes, box_indices, (3, 5)), features, boxes, upstream=upstream
        )
        self.assertEqual((d_features.dtype, d_boxes.dtype), (dtype, tf.as_dtype(boxes.dtype)))
        reference.assert_rounded_sum(self, d_features, expected_features, magnitudes)
        unit = 1e-13 if dtype == tf.float64 else 3e-6
        self.assertAllClose(d_boxes, expected_boxes, rtol=unit, atol=unit * np.abs(expected_boxes).max())

    @parameterized.parameters((tf.float16, 130), (tf.float32, 64))
    def test_wide_maps(self, dtype, channels):
        features = reference.random([2, 3, 1500, channels], dtype)
        boxes = coordinates([[0, 0, 1500, 3], [1300.2, -1, 1600, 2.2], [700, 0.7, 720, 2]], dtype)
        upstream = reference.random([3, 2, 5, channels], dtype, 2)
        pooling = Pooling(boxes, [0, 1, 1], (2, 5))
        expected, magnitudes = (pooling.to_features(u, [features])[0] for u in (upstream, np.abs(upstream)))
        result = _gradient(lambda x: tfo.detection.roi_align(x, boxes, [0, 1, 1], (2, 5)), features, upstream)
        reference.assert_rounded_sum(self, result, expected, magnitudes)

    @pairwise(sampling_ratio=(0, 60), dtype=(tf.float32, tf.float64), mode=("avg", "max"))
    def test_any_number_of_samples(self, sampling_ratio, dtype, mode):
        features = reference.random([1, 40, 60, 2], dtype)
        boxes = coordinates([[-200, 5, 9, 300], [50, -900, 70, 900], [0, 0, 60, 40], [2, 2, 2, 2]], dtype)
        upstream = reference.random([4, 2, 1, 2], dtype, 2)
        to_features, to_boxes = gradients_of(Pooling(boxes, [0] * 4, (2, 1), sampling_ratio=sampling_ratio), mode)
        align = _align(sampling_ratio=sampling_ratio, mode=mode)
        gradients = _gradients(lambda x, b: align(x, b, [0] * 4, (2, 1)), features, boxes, upstream=upstream)
        unit = 1e-12 if dtype == tf.float64 else 1e-5
        for result, expected in zip(
            gradients,
            (to_features(upstream, [features])[0], to_boxes(upstream, [features])),
            strict=True,
        ):
            self.assertAllClose(result, expected, rtol=unit, atol=unit * np.abs(expected).max())

    @parameterized.product(dtype=(tf.float16, tf.bfloat16), mode=("avg", "max"))
    def test_sums_of_many_overlapping_boxes_round_once(self, dtype, mode):
        """Sums 300 numbers: bfloat16 sums would stop at 256, and float16 sums would lose a tenth of each number."""
        features = reference.random([2, 6, 7, 33], dtype)
        boxes = coordinates([[0, 0, 7, 6], [1, 1, 5, 5], [2, 2, 9, 9]] * 100, dtype)
        box_indices = [k // 3 % 2 for k in range(300)]
        pooling = Pooling(boxes, box_indices, (2, 2), 1.0, 2)
        upstream = np.random.default_rng(4).uniform(0.5, 1.5, [300, 2, 2, 33]).astype(dtype.as_numpy_dtype)
        to_features, _ = gradients_of(pooling, mode)
        align = _align(sampling_ratio=2, mode=mode)
        result = _gradient(lambda x: align(x, boxes, box_indices, (2, 2)), features, upstream)
        expected = to_features(upstream, [features])[0]
        reference.assert_rounded_sum(self, result, expected, expected)
        self.assertGreater(expected.max(), 20)

    @parameterized.product(mode=("avg", "max"), sampling_ratio=(0, 1))
    def test_irrelevant_pixels_are_not_read(self, mode, sampling_ratio):
        """Forward ignores pixels without weight; the gradient to boxes ignores pixels that neighbour no sample."""
        boxes = coordinates([box for box in BOXES if not max(map(abs, box)) > 1e5], tf.float32)
        indices = list(range(len(boxes)))  # one image per box
        features = reference.random([len(boxes), 9, 12, 19], tf.float32)
        pooling = Pooling(boxes, indices, (3, 5), 0.5, sampling_ratio)
        weighted, neighbours = np.zeros([2, len(boxes), 9, 12, 1], bool)
        for b in pooling.bins([features]):
            np.logical_or.at(weighted[b.at[0], ..., 0], (b.rows, b.columns), b.weights != 0)
            neighbours[b.at[0], b.rows, b.columns] = True
        self.assertBetween(weighted.mean(), 0.05, 0.5)
        align = _align(spatial_scale=0.5, sampling_ratio=sampling_ratio, mode=mode)
        upstream = reference.random([len(boxes), 3, 5, 19], tf.float32, 2)
        zeros, nans = (
            (
                align(np.where(weighted, features, rest), boxes, indices, (3, 5)),
                *_gradients(
                    lambda x, b: align(x, b, indices, (3, 5)),
                    np.where(neighbours, features, rest),
                    boxes,
                    upstream=upstream,
                ),
            )
            for rest in np.float32([0, NAN])
        )
        for with_zeros, with_nans in zip(zeros, nans, strict=True):
            self.assertAllEqual(with_nans, with_zeros)

    @parameterized.product(mode=("avg", "max"), sampling_ratio=(0, 2))
    def test_boxes_without_samples_have_no_gradient(self, mode, sampling_ratio):
        boxes = BOXES_WITHOUT_SAMPLES
        align = _align(mode=mode, sampling_ratio=sampling_ratio)
        x, boxes = tf.ones([1, 4, 4, 3]), coordinates(boxes, tf.float32)
        upstream = tf.fill([len(boxes), 2, 2, 3], INF)
        d_x, d_boxes = _gradients(lambda x, b: align(x, b, [0] * len(boxes), 2), x, boxes, upstream=upstream)
        self.assertAllEqual(d_x, np.zeros(x.shape))
        self.assertAllEqual(d_boxes, np.zeros(boxes.shape))


class HigherOrderTest(parameterized.TestCase, tf.test.TestCase):
    """Derivatives of sum(w align(x)^3): upstream depends on x, so every order uses the op's gradients."""

    _BOXES = np.array([[0.37, 0.21, 3.19, 2.43], [1.13, 0.77, 2.31, 2.59], [1.17, 0.83, 9.41, 8.73], [3, 1, 2, 2]])
    _INDICES = (0, 1, 1, 0)

    @pairwise(order=(2, 3), data_format=DATA_FORMATS, mode=("avg", "max"))
    def test_numeric_gradient_to_features(self, order, data_format, mode):
        align = _align(data_format, mode=mode)
        x = reference.random([2, 3, 4, 2])

        def first(x):
            weights = reference.random([4, 2, 2, 2], seed=2)
            return _gradient(lambda x: weights * align(x, self._BOXES, self._INDICES, 2) ** 3, x)

        def second(x):
            return _gradient(lambda x: reference.random(x.shape, seed=5) * x**2 * first(x), x)

        function = {2: first, 3: second}[order]
        theoretical, numeric = tf.test.compute_gradient(
            tf.function(function) if data_format == "NCHW" else function, [x], 1e-5
        )
        self.assertAllClose(theoretical[0], numeric[0], rtol=1e-6, atol=1e-6)
        self.assertGreater(np.count_nonzero(theoretical[0]), 50)

    # Tracing takes seconds, so each mode runs four of the combinations.
    @parameterized.product(
        case=tuple(zip(DTYPES, (0, 2, 0, 2), (True, True, False, False), strict=True)), mode=("avg", "max")
    )
    def test_forward_mode_to_boxes_is_the_transpose_of_reverse_mode(self, case, mode):
        """For each box, also outside, inverted, huge, empty and non-finite ones: u . (J v) = (J^T u) . v."""
        dtype, sampling_ratio, aligned = case
        # No sample lies on a pixel's centre, where rounding decides on the side of the kink.
        features, boxes = reference.random([2, 9, 12, 3], dtype), coordinates(np.array(BOXES) + 0.01371, dtype)
        box_indices, upstream = [k % 2 for k in range(len(BOXES))], reference.random([len(BOXES), 2, 4, 3], dtype, 2)
        pooling = Pooling(boxes, box_indices, (2, 4), 0.5, sampling_ratio, aligned)
        motion = coordinates(reference.random(boxes.shape, seed=3), dtype)
        expected = (motion * gradients_of(pooling, mode)[1](upstream, [features])).sum(1)
        formats = FORMATS[DTYPES.index(dtype)]
        align = _align(*formats, spatial_scale=0.5, aligned=aligned, sampling_ratio=sampling_ratio, mode=mode)
        watched = tf.constant(boxes)
        with tf.autodiff.ForwardAccumulator(watched, tf.constant(motion)) as accumulator:
            y = align(features, watched, box_indices, (2, 4))
        change = accumulator.jvp(y)
        self.assertEqual(change.dtype, dtype)
        terms = upstream.astype(np.float64) * change.numpy().astype(np.float64)
        unit = {tf.float64: 1e-12, tf.float32: 1e-5, tf.float16: 1e-3, tf.bfloat16: 5e-3}[dtype]
        error = np.abs(terms.sum((1, 2, 3)) - expected) / (1 + np.abs(terms).sum((1, 2, 3)))
        self.assertAllInRange(error, 0, unit)
        self.assertGreater(np.count_nonzero(terms), 100)


def _compute_gradient(function, inputs):
    """Like tf.test.compute_gradient, but accepts NaN coordinates."""
    finite = [np.where(np.isnan(x), 0, x) for x in inputs]
    holes = [np.where(np.isnan(x), NAN, 0) for x in inputs]
    return tf.test.compute_gradient(lambda *x: function(*(a + b for a, b in zip(x, holes, strict=True))), finite, 1e-5)


if __name__ == "__main__":
    tf.test.main()
