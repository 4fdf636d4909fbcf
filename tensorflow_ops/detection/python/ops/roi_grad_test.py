"""Tests of the gradients of region pooling: their options, which ones are computed, higher orders, errors.

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
    "PsRoiAlign": (lambda f, boxes: tfo.detection.ps_roi_align(f, boxes, _INDICES, 2), (_MAP,)),
    "MultiscaleRoiAlign": (_multiscale, _PYRAMID),
}
_FUNCTIONS = {
    **_OPS,
    "maximum": (
        lambda f, boxes: tfo.detection.roi_align(f, boxes, _INDICES, 2, sampling_ratio=2, mode="max"),
        (_MAP,),
    ),
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
    "roi_align, max": (tfo.detection.roi_align, {**_SAMPLED, "sampling_ratio": 3, "mode": "max", **_SCALED}, 2),
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

    @parameterized.product(name=tuple(_FUNCTIONS), of_boxes=(False, True))
    def test_second_order_to_features(self, name, of_boxes):
        """With gradients to boxes or without. TensorFlow differentiates all outputs of a tf.function twice."""
        function, maps = _FUNCTIONS[name]

        def second(function):
            boxes = tf.constant(_BOXES)
            first = [tf.zeros([])]

            def penalty():
                sources = [*maps, boxes] if of_boxes else maps
                first[:] = _gradients(lambda: function(*maps, boxes) ** 3, sources)[: len(maps)]
                return tf.add_n([tf.reduce_sum(g**2) for g in first])

            return first, _gradients(penalty, maps)

        plain = second(function)
        for of_maps, expected in zip(second(tf.function(function)), plain, strict=True):
            for result, one in zip(of_maps, expected, strict=True):
                self.assertAllClose(result, one, rtol=1e-12)
                self.assertGreater(np.count_nonzero(one), 10)
        in_graph = tf.function(lambda: second(function))()
        tf.nest.map_structure(lambda x, y: self.assertAllClose(x, y, rtol=1e-12), in_graph, plain)

    @parameterized.parameters(*_FUNCTIONS)
    def test_gradient_to_features_has_a_gradient_to_boxes(self, name):
        function, maps = _FUNCTIONS[name]
        weights = [_random(m.shape, seed=5) for m in maps]
        upstream = _random(function(*maps, tf.constant(_BOXES)).shape, seed=6)

        def weighted(boxes):
            d_maps = _gradients(lambda: function(*maps, boxes) * upstream, maps)
            return tf.add_n([tf.reduce_sum(w * d) for w, d in zip(weights, d_maps, strict=True)])

        (theoretical,), (numeric,) = tf.test.compute_gradient(weighted, [tf.constant(_BOXES)], delta=1e-5)
        self.assertAllClose(theoretical, numeric, rtol=1e-6, atol=1e-6)
        self.assertEqual(np.count_nonzero(theoretical), 12)

    @parameterized.parameters("RoiAlign", "maximum")
    def test_second_gradient_to_features_has_a_gradient_to_boxes(self, name):
        function, (features,) = _FUNCTIONS[name]
        weights = _random(features.shape, seed=5)

        def weighted(boxes):
            def penalty():
                return _gradients(lambda: function(features, boxes) ** 3, [features])[0] ** 2

            return tf.reduce_sum(weights * _gradients(penalty, [features])[0])

        (theoretical,), (numeric,) = tf.test.compute_gradient(weighted, [tf.constant(_BOXES)], delta=1e-6)
        self.assertAllClose(theoretical, numeric, rtol=1e-6, atol=1e-6 * np.abs(numeric).max())
        self.assertEqual(np.count_nonzero(theoretical), 12)

    @parameterized.parameters(*zip(_FUNCTIONS, ("boxes", "maps", "upstream", "all"), strict=True))
    def test_gradient_to_boxes_has_no_gradient(self, name, to):
        function, maps = _FUNCTIONS[name]
        boxes = tf.constant(_BOXES)
        upstream = _random(function(*maps, boxes).shape, seed=6)
        sources = {"boxes": [boxes], "maps": maps, "upstream": [upstream], "all": [*maps, boxes, upstream]}[to]

        def second():
            return _gradients(lambda: _gradients(lambda: function(*maps, boxes) ** 3 * upstream, [boxes]), sources)

        message = "roi_align to its boxes has no gradient"
        with self.assertRaisesRegex(LookupError, message):
            second()
        for compiled in {False, name == "RoiAlign" and library.xla_error is None}:
            with self.assertRaisesRegex(tf.errors.UnimplementedError, message):
                tf.function(second, jit_compile=compiled)()

    @parameterized.product(name=tuple(_FUNCTIONS), traced=(False, True))
    def test_forward_mode_along_boxes_is_an_error(self, name, traced):
        function, maps = _FUNCTIONS[name]
        boxes = tf.constant(_BOXES)
        message = r"roi_align to its boxes has no gradient, which forward mode \(.*\) along boxes needs"
        with self.assertRaisesRegex(tf.errors.UnimplementedError, message):
            with tf.autodiff.ForwardAccumulator(boxes, _random(boxes.shape, seed=7)):
                (tf.function(function) if traced else function)(*maps, boxes)

    @parameterized.parameters("maximum", "MultiscaleRoiAlign")
    def test_forward_over_reverse_with_boxes_has_no_gradient(self, name):
        function, maps = _FUNCTIONS[name]
        inputs = [*maps, tf.constant(_BOXES)]
        for moves, of in ((inputs[-1], maps), (inputs[-1], inputs[-1:]), (inputs[0], inputs[-1:])):
            with self.assertRaisesRegex(tf.errors.UnimplementedError, "roi_align to its boxes has no gradient"):
                with tf.autodiff.ForwardAccumulator(moves, _random(moves.shape, seed=7)):
                    _gradients(lambda: function(*inputs) ** 3, of)

    @parameterized.parameters(*_OPS)
    def test_forward_mode_along_features_is_linear(self, name):
        """Constant boxes have a tangent of zeros. A NaN in the map does not spread."""
        function, maps = _OPS[name]
        maps = [tf.tensor_scatter_nd_update(maps[0], [[0, 2, 2, 0]], [np.nan]), *maps[1:]]
        boxes, direction = tf.constant(_BOXES), _random(maps[0].shape, seed=7)
        with tf.autodiff.ForwardAccumulator(maps[0], direction) as accumulator:
            y = function(*maps, boxes)
        self.assertAllClose(accumulator.jvp(y), function(direction, *(m * 0 for m in maps[1:]), boxes), rtol=1e-12)

    def test_forward_mode_along_features_of_the_maximum(self):
        function, (features,) = _FUNCTIONS["maximum"]
        direction = _random(features.shape, seed=7)
        with tf.autodiff.ForwardAccumulator(features, direction) as accumulator:
            y = function(features, tf.constant(_BOXES))
        upstream = _random(y.shape, seed=4)
        (gradient,) = _gradients(lambda: function(features, tf.constant(_BOXES)) * upstream, [features])
        self.assertAllClose(
            tf.reduce_sum(accumulator.jvp(y) * upstream), tf.reduce_sum(gradient * direction), rtol=1e-12
        )

    @parameterized.parameters(
        ([0, 0, 2, 2], [[3, 3], [3, 3]], 3, [[0.25, 0.25], [0.25, 0.25]]),
        ([0, 0, 2, 2], [[3, 1], [3, 2]], 3, [[0.5, 0], [0.5, 0]]),
        ([0, 0, 2, 2], [[3, 3], [3, 2]], 3, [[0.25, 0.5], [0.25, 0]]),
        ([0, 0, 2, 2], [[-3, -3], [-1, -2]], -1, [[0, 0], [1, 0]]),
        ([0, 0, 2, 2], [[3, 1], [np.nan, 2]], np.nan, [[np.nan, np.nan], [np.nan, np.nan]]),
        # Two samples on the first column, two outside of the map.
        ([-4, 0, 2, 2], [[-3, 3], [-1, 3]], 0, [[0, 0], [0, 0]]),
        ([-4, 0, 2, 2], [[0, 3], [0, 3]], 0, [[0.25, 0], [0.25, 0]]),
    )
    def test_samples_that_tie_share_the_gradient_of_the_maximum(self, box, pixels, maximum, expected):
        """One bin of 2 x 2 samples on pixels."""
        x = tf.reshape(tf.constant(pixels, tf.float32), [1, 2, 2, 1])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tfo.detection.roi_align(x, [box], [0], 1, sampling_ratio=2, mode="max")
        self.assertAllEqual(tf.squeeze(y), maximum)
        self.assertAllEqual(tape.gradient(y, x)[0, :, :, 0], expected)


if __name__ == "__main__":
    tf.test.main()
