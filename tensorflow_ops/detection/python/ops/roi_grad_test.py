"""Tests of which gradients are computed, of forward mode and of higher orders. Each op's tests cover values."""

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


def _types_of_ops(function, sources):
    """Returns the op types of a graph that computes the gradients."""
    graph = tf.function(lambda: _gradients(function, sources)).get_concrete_function().graph
    return [op.type for op in graph.get_operations()]


class RoiGradTest(parameterized.TestCase, tf.test.TestCase):
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

    @parameterized.parameters(*_OPS)
    def test_forward_mode(self, name):
        """The directional derivative along random changes of maps or boxes equals a finite difference."""
        function, maps = _OPS[name]
        inputs = [*maps, tf.constant(_BOXES)]
        for i, x in enumerate(inputs):
            direction = _random(x.shape, seed=7)
            with tf.autodiff.ForwardAccumulator(x, direction) as accumulator:
                y = function(*inputs)
            ends = []
            for step in (1e-6, -1e-6):
                ends.append(function(*inputs[:i], x + step * direction, *inputs[i + 1 :]))
            self.assertAllClose(accumulator.jvp(y), (ends[0] - ends[1]) / 2e-6, rtol=1e-7, atol=1e-7)

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
        for compiled in {False, library.xla_error is None}:
            with self.assertRaisesRegex(tf.errors.UnimplementedError, message):
                tf.function(second, jit_compile=compiled)()

    @parameterized.parameters(*_OPS)
    def test_forward_over_reverse(self, name):
        """Hessian-vector products of sum(y^3) exist for maps. Those for boxes are refused."""
        function, maps = _OPS[name]
        inputs = [*maps, tf.constant(_BOXES)]

        def product(i, wanted):
            with tf.autodiff.ForwardAccumulator(inputs[i], _random(inputs[i].shape, seed=7)) as accumulator:
                found = _gradients(lambda: function(*inputs) ** 3, [inputs[k] for k in wanted])
            return [accumulator.jvp(g) for g in found]

        of_maps, of_boxes = range(len(maps)), len(maps)
        for i, x in enumerate(maps):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [*maps]
                moved[i] = x + step * _random(x.shape, seed=7)
                ends.append(_gradients(lambda moved=moved: function(*moved, inputs[-1]) ** 3, moved))
            for k, (result, above, below) in enumerate(zip(product(i, of_maps), *ends, strict=True)):
                self.assertAllClose(result, (above - below) / 2e-6, rtol=1e-6, atol=1e-6)
                self.assertEqual(np.count_nonzero(result) > 3, k == i)  # a box reads one map
        for i, wanted in ((of_boxes, of_maps), (of_boxes, [of_boxes]), (0, [of_boxes])):
            for run in (product, tf.function(product)):
                with self.assertRaisesRegex(tf.errors.UnimplementedError, "roi_align to its boxes has no gradient"):
                    run(i, wanted)

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

    def test_gradient_of_one_map_has_a_gradient(self):
        """The other map's gradient has no upstream."""
        boxes = tf.constant(_BOXES)

        def one(fine, coarse):
            return _gradients(lambda: _multiscale(fine, coarse, boxes) ** 3, [fine, coarse])[1]

        theoretical, numeric = tf.test.compute_gradient(one, _PYRAMID)
        for own, result, expected in zip((False, True), theoretical, numeric, strict=True):
            self.assertAllClose(result, expected, rtol=1e-6, atol=1e-6)
            self.assertEqual(np.count_nonzero(result) > 10, own)


if __name__ == "__main__":
    tf.test.main()
