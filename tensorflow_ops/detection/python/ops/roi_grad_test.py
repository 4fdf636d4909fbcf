"""Tests of the gradients of region pooling: their options, which ones are computed, forward mode, higher orders.

The C++ tests cover values, opcheck the default options.
"""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

# No sample lies on a pixel, where the gradient to boxes jumps.
_BOXES = np.array([[0.31, 0.43, 5.17, 4.61], [1.23, 2.71, 6.93, 5.87], [2.13, 1.37, 3.29, 2.93]])
_INDICES = np.array([0, 1, 1], np.int32)


def _random(shape, seed=1):
    return tf.constant(np.random.default_rng(seed).normal(size=shape))


_MAP = _random([2, 6, 7, 4])
_PYRAMID = (_MAP, _random([2, 3, 4, 4], seed=2))


def _multiscale(fine, coarse, boxes):
    options = {"strides": (1, 2), "canonical_box_size": 4, "canonical_stride": 2}
    return tfo.detection.multiscale_roi_align([fine, coarse], boxes, _INDICES, 2, **options)


# For each op with a gradient to boxes, by registered name: (function of maps and boxes, maps).
_OPS = {
    "RoiAlign": (lambda f, boxes: tfo.detection.roi_align(f, boxes, _INDICES, 2), (_MAP,)),
    "RoiAlignMax": (lambda f, boxes: tfo.detection.roi_align(f, boxes, _INDICES, 2, mode="max"), (_MAP,)),
    "PsRoiAlign": (lambda f, boxes: tfo.detection.ps_roi_align(f, boxes, _INDICES, 2), (_MAP,)),
    "MultiscaleRoiAlign": (_multiscale, _PYRAMID),
}


def _gradients(function, sources):
    with tf.GradientTape() as tape:
        tape.watch(sources)
        y = function()
    return tape.gradient(y, sources)


# (function, options, channels): options other than the defaults.
_FORMATS = {"data_format": "NCHW", "box_format": "yxyx"}
_SCALED = {"spatial_scale": 0.8, **_FORMATS}
_SAMPLED = {"sampling_ratio": 1, "aligned": False}
_OPTIONS = {
    "roi_pool": (tfo.detection.roi_pool, _SCALED, 2),
    "roi_align": (tfo.detection.roi_align, {**_SAMPLED, **_SCALED}, 2),
    "roi_align, max": (tfo.detection.roi_align, {"mode": "max", **_SAMPLED, **_SCALED}, 2),
    "ps_roi_pool": (tfo.detection.ps_roi_pool, {"channel_order": "bin_major", **_SCALED}, 6),
    "ps_roi_align": (
        tfo.detection.ps_roi_align,
        {"channel_order": "bin_major", "sampling_ratio": 1, **_SCALED},
        6,
    ),
    "multiscale_roi_align": (
        lambda features, *args, **options: tfo.detection.multiscale_roi_align(
            [features, features[:, :, ::2, ::2]], *args, **options
        ),
        {"strides": (1.25, 2.5), "canonical_box_size": 3.3, "canonical_stride": 2.5, **_SAMPLED, **_FORMATS},
        2,
    ),
}


def _types_of_ops(function, sources):
    """Returns the op types of a graph that computes the gradients."""
    graph = tf.function(lambda: _gradients(function, sources)).get_concrete_function().graph
    return [op.type for op in graph.get_operations()]


class RoiGradTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(name=tuple(_OPTIONS), order=(1, 2))
    def test_options_reach_the_gradients(self, name, order):
        pool, options, channels = _OPTIONS[name]
        boxes = tf.constant(_BOXES[:, [1, 0, 3, 2]])
        # Features differ by at least 1/8, so that small steps change no maximum.
        features = np.random.default_rng(1).permutation(2 * channels * 42).reshape([2, channels, 6, 7]) / 8
        constant = (1,) if name.endswith("roi_pool") else ()

        def pooled(features, boxes):
            return pool(features, boxes, _INDICES, (3, 2), **options)

        def gradient(features, boxes):
            (gradient,) = _gradients(lambda: pooled(features, boxes) ** 2, [features])
            return gradient

        function = pooled if order == 1 else gradient
        tfo.testing.assert_gradients(function, [tf.constant(features), boxes], non_differentiable=constant)

    @parameterized.parameters(*_OPS)
    def test_only_requested_gradients_are_computed(self, name):
        function, maps = _OPS[name]
        boxes = tf.constant(_BOXES)
        for of_maps, of_boxes in itertools.product((False, True), repeat=2):
            sources = [*(maps if of_maps else ()), *([boxes] if of_boxes else [])]
            with self.subTest(of_maps=of_maps, of_boxes=of_boxes):
                types = _types_of_ops(lambda: function(*maps, boxes), sources)
                self.assertEqual(types.count(f"TensorflowOps>{name}Grad"), of_maps)
                self.assertEqual(types.count(f"TensorflowOps>{name}BoxesGrad"), of_boxes)

    @parameterized.parameters(*_OPS)
    def test_tf_function_under_two_tapes(self, name):
        """TensorFlow differentiates all outputs twice, including the gradient to boxes."""
        function, maps = _OPS[name]

        def second(function):
            boxes = tf.constant(_BOXES)
            first = [tf.zeros([])]

            def penalty():
                first[:] = _gradients(lambda: function(*maps, boxes) ** 3, maps)
                return tf.add_n([tf.reduce_sum(g**2) for g in first])

            return first, _gradients(penalty, maps)

        for plain, traced in zip(second(function), second(tf.function(function)), strict=True):
            for expected, result in zip(plain, traced, strict=True):
                self.assertAllClose(result, expected, rtol=1e-12)
                self.assertGreater(np.count_nonzero(expected), 10)

    @parameterized.parameters(*_OPS)
    def test_gradient_to_features_has_a_gradient_to_boxes(self, name):
        function, maps = _OPS[name]
        weights = [_random(m.shape, seed=5) for m in maps]
        upstream = _random(function(*maps, tf.constant(_BOXES)).shape, seed=6)

        def weighted(boxes):
            d_maps = _gradients(lambda: function(*maps, boxes) * upstream, maps)
            return tf.add_n([tf.reduce_sum(w * d) for w, d in zip(weights, d_maps, strict=True)])

        (theoretical,), (numeric,) = tf.test.compute_gradient(weighted, [tf.constant(_BOXES)], delta=1e-5)
        self.assertAllClose(theoretical, numeric, rtol=1e-6, atol=1e-6)
        self.assertEqual(np.count_nonzero(theoretical), 12)

    @parameterized.parameters("RoiAlign", "RoiAlignMax")
    def test_second_gradient_to_features_has_a_gradient_to_boxes(self, name):
        function, (features,) = _OPS[name]
        weights = _random(features.shape, seed=5)

        def weighted(boxes):
            def penalty():
                return _gradients(lambda: function(features, boxes) ** 3, [features])[0] ** 2

            return tf.reduce_sum(weights * _gradients(penalty, [features])[0])

        (theoretical,), (numeric,) = tf.test.compute_gradient(weighted, [tf.constant(_BOXES)], delta=1e-6)
        self.assertAllClose(theoretical, numeric, rtol=1e-6, atol=1e-6 * np.abs(numeric).max())
        self.assertEqual(np.count_nonzero(theoretical), 12)

    @parameterized.parameters(*zip(_OPS, ("boxes", "maps", "all", "all"), strict=True))
    def test_gradient_to_boxes_has_no_gradient(self, name, to):
        function, maps = _OPS[name]
        boxes = tf.constant(_BOXES)
        sources = {"boxes": [boxes], "maps": maps, "all": [*maps, boxes]}[to]

        def second():
            return _gradients(lambda: _gradients(lambda: function(*maps, boxes) ** 3, [boxes]), sources)

        message = "roi_align to its boxes has no gradient"
        with self.assertRaisesRegex(LookupError, message):
            second()
        for compiled in {False, name == "RoiAlign" and library.xla_error is None}:
            with self.assertRaisesRegex(tf.errors.UnimplementedError, message):
                tf.function(second, jit_compile=compiled)()

    @parameterized.parameters("RoiAlignMax", "MultiscaleRoiAlign")
    def test_forward_over_reverse_with_boxes_has_no_gradient(self, name):
        function, maps = _OPS[name]
        inputs = [*maps, tf.constant(_BOXES)]
        for moves, of in ((inputs[-1], maps), (inputs[-1], inputs[-1:]), (inputs[0], inputs[-1:])):
            with self.assertRaisesRegex(tf.errors.UnimplementedError, "roi_align to its boxes has no gradient"):
                with tf.autodiff.ForwardAccumulator(moves, _random(moves.shape, seed=7)):
                    _gradients(lambda: function(*inputs) ** 3, of)

    @parameterized.product(mode=("avg", "max"), sampling_ratio=(0, 2))
    def test_forward_mode_is_the_transpose_of_reverse_mode(self, mode, sampling_ratio):
        """For boxes inside, at an edge, around the map, outside, thin, empty, inverted, huge and not finite."""
        inside = [[0.3, 0.4, 5.2, 4.6], [-2.4, -1.7, 3.1, 9.9], [-9, -9, 20, 30], [2.1, 3.4, 2.3, 3.5]]
        others = [[20, 20, 30, 30], [3.1, 2.2, 3.1, 2.2], [5, 1, 2, 4], [-1e9, 1, 1e9, 5], [np.nan, 0, 3, 3]]
        boxes = np.array([*inside, *others, [0, 0, np.inf, 3]])
        motion, boxes = _random(boxes.shape, seed=3), tf.constant(boxes)

        def pool():
            return tfo.detection.roi_align(
                _MAP, boxes, [0, 1] * 5, (2, 3), sampling_ratio=sampling_ratio, aligned=mode == "max", mode=mode
            )

        with tf.autodiff.ForwardAccumulator(boxes, motion) as accumulator:
            y = pool()
        upstream = _random(y.shape, seed=4)
        along = tf.reduce_sum(accumulator.jvp(y) * upstream, [1, 2, 3])
        (to_boxes,) = _gradients(lambda: pool() * upstream, [boxes])
        self.assertAllClose(along, tf.reduce_sum(to_boxes * motion, 1), rtol=1e-11, atol=1e-11)
        self.assertGreater(np.count_nonzero(along), 3)

    @parameterized.parameters(*_OPS)
    def test_derivative_along_boxes_has_a_gradient_only_to_the_direction(self, name):
        function, maps = _OPS[name]
        boxes, motion = tf.constant(_BOXES), _random(_BOXES.shape, seed=7)
        upstream = _random(function(*maps, boxes).shape, seed=8)

        def change():
            with tf.autodiff.ForwardAccumulator(boxes, motion) as accumulator:
                y = function(*maps, boxes)
            return accumulator.jvp(y) * upstream

        (expected,) = _gradients(lambda: function(*maps, boxes) * upstream, [boxes])
        self.assertAllClose(tf.function(lambda: _gradients(change, [motion]))()[0], expected, rtol=1e-12)
        for sources in ([boxes], maps):
            with self.assertRaisesRegex(tf.errors.UnimplementedError, "roi_align to its boxes has no gradient"):
                _gradients(change, sources)

    @parameterized.parameters("RoiAlign", "PsRoiAlign", "MultiscaleRoiAlign")
    def test_constant_boxes_skip_the_derivative_to_boxes(self, name):
        """A NaN in the map does not spread to bins whose tangents are zero."""
        function, maps = _OPS[name]
        maps = [tf.tensor_scatter_nd_update(maps[0], [[0, 2, 2, 0]], [np.nan]), *maps[1:]]
        boxes, direction = tf.constant(_BOXES), _random(maps[0].shape, seed=7)
        with tf.autodiff.ForwardAccumulator(maps[0], direction) as accumulator:
            y = function(*maps, boxes)
        self.assertAllClose(accumulator.jvp(y), function(direction, *(m * 0 for m in maps[1:]), boxes), rtol=1e-12)

    def test_constant_boxes_skip_the_derivative_of_the_maximum_to_boxes(self):
        """Each bin's tangent is that of its sample, a NaN too; reverse mode with ones gives the samples' pixels."""
        function, (features,) = _OPS["RoiAlignMax"]
        features = tf.tensor_scatter_nd_update(features, [[0, 2, 2, 0]], [np.nan])
        boxes, direction = tf.constant(_BOXES), _random(features.shape, seed=7)
        with tf.autodiff.ForwardAccumulator(features, direction) as accumulator:
            y = function(features, boxes)
        change = accumulator.jvp(y)
        self.assertTrue(np.isnan(y).any())
        with tf.GradientTape() as tape:
            tape.watch(features)
            y = function(features, boxes)
        self.assertAllClose(tf.reduce_sum(change), tf.reduce_sum(direction * tape.gradient(y, features)), rtol=1e-12)

    @parameterized.parameters(0, 3)
    def test_tangent_of_the_maximum_follows_the_kernels_sample(self, sampling_ratio):
        """With tied samples, samples outside the map, and NaN."""
        features = np.zeros([1, 5, 6, 4])
        features[..., 0] = -((np.arange(5)[:, np.newaxis] - 1.7) ** 2)  # all samples of a row tie
        features[..., 1] = np.arange(6) / 8 - 1  # below the 0 of outside samples
        features[..., 2:] = np.random.default_rng(3).normal(size=[5, 6, 1])
        features[0, 2, 3, 3] = np.nan
        boxes = tf.constant([[0.31, 0.43, 5.17, 4.61], [-4.3, 1.2, 4.4, 4.3], [3.13, 1.37, 5.29, 2.93]], tf.float64)
        motion = _random(boxes.shape, seed=4)

        def pool(boxes, channels):
            x = features[..., :channels]
            return tfo.detection.roi_align(x, boxes, [0] * 3, 2, sampling_ratio=sampling_ratio, mode="max")

        with tf.autodiff.ForwardAccumulator(boxes, motion) as accumulator:
            y = pool(boxes, 4)
        change = accumulator.jvp(y).numpy()
        self.assertAllEqual(np.isnan(change), np.isnan(y))
        self.assertTrue(np.isnan(y).any())
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(boxes)
            y = pool(boxes, 3)
        # One bin at a time.
        for at in np.ndindex(*y.shape):
            upstream = np.zeros(y.shape)
            upstream[at] = 1
            expected = tf.reduce_sum(tape.gradient(y, boxes, tf.constant(upstream)) * motion)
            self.assertAllClose(change[at], expected, rtol=1e-12, atol=1e-12, msg=str(at))
        self.assertTrue((y[1, :, :, 1] == 0).numpy().any())
        self.assertGreater(np.count_nonzero(change), 24)


if __name__ == "__main__":
    tf.test.main()
