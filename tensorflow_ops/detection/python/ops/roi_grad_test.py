"""Tests of which gradients are asked for, computed and refused. Their values: the tests of each op."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

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


# Of each op with a gradient to boxes: its registered name, a function of maps and boxes, and maps.
_OPS = {
    "RoiAlign": (lambda f, boxes: tfo.detection.roi_align(f, boxes, _INDICES, 2), (_MAP,)),
    "PsRoiAlign": (lambda f, boxes: tfo.detection.ps_roi_align(f, boxes, _INDICES, 2), (_MAP,)),
    "MultiscaleRoiAlign": (_multiscale, _PYRAMID),
}


def _gradients(function, sources):
    with tf.GradientTape() as tape:
        tape.watch(sources)
        y = function()
    return tape.gradient(y, sources)


def _types_of_ops(function, sources):
    """Of a graph that computes the gradients."""
    graph = tf.function(lambda: _gradients(function, sources)).get_concrete_function().graph
    return [op.type for op in graph.get_operations()]


class RoiGradTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_OPS)
    def test_only_what_is_asked_for_is_computed(self, name):
        function, maps = _OPS[name]
        boxes = tf.constant(_BOXES)
        for of_maps, of_boxes in itertools.product((False, True), repeat=2):
            sources = [*(maps if of_maps else ()), *([boxes] if of_boxes else [])]
            with self.subTest(of_maps=of_maps, of_boxes=of_boxes):
                types = _types_of_ops(lambda: function(*maps, boxes), sources)
                self.assertEqual(types.count(f"TensorflowOps>{name}Grad"), of_maps)
                self.assertEqual(types.count(f"TensorflowOps>{name}BoxesGrad"), of_boxes)

    @parameterized.parameters(*_OPS)
    def test_a_tf_function_that_two_tapes_watch(self, name):
        """TensorFlow then differentiates all of it twice, the gradient to boxes too."""
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
    def test_the_gradient_to_features_has_one_to_boxes(self, name):
        function, maps = _OPS[name]
        weights = [_random(m.shape, seed=5) for m in maps]
        upstream = _random(function(*maps, tf.constant(_BOXES)).shape, seed=6)

        def weighted(boxes):
            d_maps = _gradients(lambda: function(*maps, boxes) * upstream, maps)
            return tf.add_n([tf.reduce_sum(w * d) for w, d in zip(weights, d_maps, strict=True)])

        (theoretical,), (numeric,) = tf.test.compute_gradient(weighted, [tf.constant(_BOXES)], delta=1e-5)
        self.assertAllClose(theoretical, numeric, rtol=1e-6, atol=1e-6)
        self.assertEqual(np.count_nonzero(theoretical), 12)

    @parameterized.product(name=tuple(_OPS), graph=(False, True))
    def test_gradient_to_boxes_has_none(self, name, graph):
        function, maps = _OPS[name]

        def second():
            boxes = tf.constant(_BOXES)
            return _gradients(lambda: _gradients(lambda: function(*maps, boxes) ** 2, [boxes])[0], [*maps, boxes])

        message = f"TensorflowOps>{name}BoxesGrad has no gradient: the gradient to boxes cannot be differentiated again"
        with self.assertRaisesRegex(LookupError, message):
            (tf.function(second) if graph else second)()

    @parameterized.parameters(*_OPS)
    def test_gradient_to_boxes_of_a_tf_function_has_none(self, name):
        function, maps = _OPS[name]
        traced, boxes = tf.function(function), tf.constant(_BOXES)
        message = f"TensorflowOps>{name}BoxesGrad has no gradient: the gradient to boxes cannot be differentiated again"
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            _gradients(lambda: _gradients(lambda: traced(*maps, boxes) ** 2, [boxes])[0], maps)

    @parameterized.parameters(0, 1)
    def test_the_gradient_of_one_map_has_a_gradient(self, level):
        """Nothing comes in for the other one."""
        boxes = tf.constant(_BOXES)

        def one(fine, coarse):
            return _gradients(lambda: _multiscale(fine, coarse, boxes) ** 3, [fine, coarse])[level]

        theoretical, numeric = tf.test.compute_gradient(one, _PYRAMID)
        for own, result, expected in zip((level == 0, level == 1), theoretical, numeric, strict=True):
            self.assertAllClose(result, expected, rtol=1e-6, atol=1e-6)
            self.assertEqual(np.count_nonzero(result) > 10, own)


if __name__ == "__main__":
    tf.test.main()
