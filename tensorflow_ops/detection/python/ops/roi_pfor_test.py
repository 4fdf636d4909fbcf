"""Tests of the region pooling ops under tf.vectorized_map and jacobian."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_P, _N, _K, _H, _W = 3, 2, 3, 6, 7  # iterations, images, boxes, pixels

_BINS = (2, 3)
_FUNCTIONS = {
    "roi_pool": (tfo.detection.roi_pool, 2, {}),
    "roi_align": (tfo.detection.roi_align, 2, {}),
    "roi_align, max": (tfo.detection.roi_align, 2, {"sampling_ratio": 2, "mode": "max"}),
    "ps_roi_pool": (tfo.detection.ps_roi_pool, 12, {}),
    "ps_roi_align": (tfo.detection.ps_roi_align, 12, {"sampling_ratio": 2}),
    "multiscale_roi_align": (
        lambda features, *args, **options: tfo.detection.multiscale_roi_align(
            [features, features[:, ::2, ::2]], *args, **options
        ),
        2,
        {"strides": (1, 2), "canonical_box_size": 4, "canonical_stride": 1},
    ),
}


def _map(function, elements):
    return tf.vectorized_map(function, elements, fallback_to_while_loop=False)


def _random(shape, seed=1):
    return tf.constant(np.random.default_rng(seed).normal(size=shape))


_BOXES = np.array([[0.3, 0.4, 5.1, 4.6], [1.2, 2.7, 6.9, 5.8], [4, 4, 2, 5]])
_INDICES = np.array([0, 1, 1], np.int32)


def _align(features, boxes, box_indices=_INDICES, **options):
    return tfo.detection.roi_align(features, boxes, box_indices, _BINS, **options)


def _gradient(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x)


class EachFunctionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        name=("roi_pool", "multiscale_roi_align"), differ=((True, True), (True, False), (False, True))
    )
    def test_second_gradients_equal_a_loop(self, name, differ):
        """They call each op, its gradients, and their gradients."""
        pool, channels, options = _FUNCTIONS[name]

        def second(inputs):
            def first(inputs):
                features, boxes = inputs
                return _gradient(lambda f: pool(f, boxes, _INDICES, _BINS, **options) ** 3, features)

            return [d for d in _gradient(first, inputs) if d is not None]

        shifts = np.arange(_P)[:, np.newaxis, np.newaxis] / 8
        inputs = [_random([_P, _N, _H, _W, channels]), tf.constant(_BOXES + shifts)]

        def one(own):
            return second([x if differs else whole[0] for x, whole, differs in zip(own, inputs, differ, strict=True)])

        mapped = _map(one, inputs)
        for p in range(_P):
            for result, expected in zip(mapped, one([x[p] for x in inputs]), strict=True):
                self.assertAllClose(result[p], expected, rtol=1e-11, atol=1e-11)
                self.assertGreater(np.count_nonzero(expected), 3)

    @parameterized.parameters(*_FUNCTIONS)
    def test_out_of_range_box_index_is_an_error(self, name):
        """The index must not reach another iteration's image either."""
        pool, channels, options = _FUNCTIONS[name]
        features = _random([_P, _N, _H, _W, channels])
        for at, wrong in ((0, _N), (_P - 1, -1)):
            indices = np.array([_INDICES] * _P)
            indices[at, 1] = wrong
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, rf"box_indices\[{at * _K + 1}\] is -1"):
                _map(lambda x: pool(x[0], _BOXES, x[1], _BINS, **options), (features, indices))


class VectorizedMapTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(False, True)
    def test_shared_images_are_not_copied(self, differ):
        features = _random([_P if differ else 1, _N, _H, _W, 1])

        @tf.function
        def pool(boxes):
            if differ:
                return _map(lambda x: _align(*x), (features, boxes))
            return _map(lambda b: _align(features[0], b), boxes)

        graph = pool.get_concrete_function(tf.TensorSpec([_P, 3, 4], tf.float64)).graph
        body, mapped = (op for op in graph.get_operations() if op.type == "TensorflowOps>RoiAlign")
        self.assertEqual(body.inputs[0].shape, [_N, _H, _W, 1])
        self.assertEqual(mapped.inputs[0].shape, [_P * _N if differ else _N, _H, _W, 1])
        self.assertEqual(mapped.inputs[1].shape, [_P * 3, 4])
        self.assertEqual(pool.get_concrete_function(tf.TensorSpec([_P, 3, 4], tf.float64)).output_shapes[:2], [_P, 3])

    def test_nested(self):
        features, boxes = _random([2, _P, _N, _H, _W, 2]), _BOXES + np.arange(_P)[:, np.newaxis, np.newaxis] / 4
        result = _map(lambda f: _map(lambda x: _align(*x), (f, tf.constant(boxes))), features)
        for i, p in itertools.product(range(2), range(_P)):
            self.assertAllClose(result[i, p], _align(features[i, p], boxes[p]), rtol=1e-12)
        # Maps over all features for each set of boxes, and takes the gradient to features.
        gradients = _map(lambda b: _map(lambda f: _gradient(lambda f: _align(f, b) ** 2, f), features[0]), boxes)
        for i, p in itertools.product(range(_P), range(_P)):
            expected = _gradient(lambda f, i=i: _align(f, boxes[i]) ** 2, features[0, p])
            self.assertAllClose(gradients[i, p], expected, rtol=1e-12, atol=1e-12)

    def test_output_size_that_differs_raises_or_falls_back_to_a_loop(self):
        features, sizes = _random([_N, _H, _W, 2]), tf.constant([[2, 3], [2, 3]])

        def pool(size):
            return tfo.detection.roi_align(features, _BOXES, _INDICES, size)

        message = "output_size of TensorflowOps>RoiAlign differs between iterations, expected one for all"
        with self.assertRaisesRegex(ValueError, message):
            _map(pool, sizes)
        self.assertAllClose(tf.vectorized_map(pool, sizes), [pool([2, 3])] * 2)


if __name__ == "__main__":
    tf.test.main()
