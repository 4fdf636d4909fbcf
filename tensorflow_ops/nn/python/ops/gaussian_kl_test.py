"""Tests of gaussian_kl: tiny variances, axes, broadcasting.

nn_grad_test.py tests higher orders, nn_memory_test.py memory.
"""

import functools
import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python.library import ops


def _gaussian(shape, seed):
    rng = np.random.default_rng(seed)
    return tuple(tf.constant(rng.normal(size=shape)) for _ in range(2))


class ValueTest(parameterized.TestCase, tf.test.TestCase):
    def test_distance_of_means_with_tiny_variances(self):
        """(m_q - m_p)^2 e^-s_p is finite, although e^-s_p overflows."""
        q, p = ((tf.constant([1e-20]), tf.constant([-95.0])), (tf.constant([0.0]), tf.constant([-95.0])))
        expected = 0.5 * np.float64(np.float32(1e-20)) ** 2 * math.exp(95)
        self.assertAllClose(tfo.nn.gaussian_kl(q, p), expected, rtol=1e-5)

    @parameterized.parameters(0, -2)
    def test_any_axis(self, axis):
        q, p = _gaussian([3, 4, 5], 1), _gaussian([3, 4, 5], 2)
        moved = [[np.moveaxis(t, axis, -1) for t in pair] for pair in (q, p)]
        expected = tfo.nn.gaussian_kl(*moved)
        self.assertAllEqual(tfo.nn.gaussian_kl(q, p, axis=axis), expected)
        any_rank = tf.function(
            lambda *t: tfo.nn.gaussian_kl(t[:2], t[2:], axis=axis),
            input_signature=[tf.TensorSpec(None, tf.float64)] * 4,
        )
        self.assertAllEqual(any_rank(*q, *p), expected)

    def test_raw_ops_take_two_tensors_of_p_or_none(self):
        row = tf.zeros([1, 2])
        call = functools.partial(ops.tensorflow_ops_gaussian_kl, row, row, [row] * 3, Tvalue=tf.float32)
        # As a graph is traced: its gradients would be too few.
        for attempt in (call, tf.function(call).get_concrete_function):
            with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), "p must be a mean and a log"):
                attempt()


class BroadcastTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        shapes=(
            ([3, 4], [4], [], [3, 1]),
            ([1], [2, 5], [2, 1], [1, 5]),
            ([], [], [4], []),
            ([2, 1, 3], [4, 1], [3], [1]),
            ([0, 4], [4], [1, 1], []),
        ),
        graph=(False, True),
    )
    def test_shapes_and_gradients(self, shapes, graph):
        tensors = [tf.constant(np.random.default_rng(i).normal(size=shape)) for i, shape in enumerate(shapes)]
        full = np.broadcast_shapes(*shapes)

        def run(function, tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                result = function(tensors[:2], tensors[2:])
            return result, tape.gradient(result, tensors)

        def broadcast(q, p):
            q_mean, q_log, p_mean, p_log = (tf.broadcast_to(t, full) for t in (*q, *p))
            ratio = q_log - p_log
            return 0.5 * tf.reduce_sum(tf.exp(ratio) - 1 - ratio + (q_mean - p_mean) ** 2 * tf.exp(-p_log), -1)

        expected, expected_gradients = run(broadcast, tensors)
        call = tf.function(
            lambda *t: run(tfo.nn.gaussian_kl, list(t)), input_signature=[tf.TensorSpec(None, tf.float64)] * 4
        )
        result, gradients = call(*tensors) if graph else run(tfo.nn.gaussian_kl, tensors)
        self.assertAllClose(result, expected, rtol=1e-12)
        for gradient, expected_gradient, tensor in zip(gradients, expected_gradients, tensors, strict=True):
            self.assertEqual(gradient.shape, tensor.shape)
            self.assertAllClose(gradient, expected_gradient, rtol=1e-12, atol=1e-12)

    def test_dtypes(self):
        wide, half = tf.constant([0.5], tf.float64), tf.constant([0.5], tf.float16)
        self.assertEqual(tfo.nn.gaussian_kl((wide, 0.1)).dtype, tf.float64)
        self.assertEqual(tfo.nn.gaussian_kl((0.0, wide), (half, 1)).dtype, tf.float64)
        self.assertEqual(tfo.nn.gaussian_kl((half, half), (wide, wide)).dtype, tf.float32)
        self.assertEqual(tfo.nn.gaussian_kl(([0, 1], 0)).dtype, tf.float32)
        self.assertAllEqual(tfo.nn.gaussian_kl((half, half), (wide, wide)), 0)

    @parameterized.product(unknown=(0, 1, 2, 3))
    def test_unknown_rank_may_be_the_largest(self, unknown):
        specs = [tf.TensorSpec([2, 3])] * 4
        specs[unknown] = tf.TensorSpec(None)
        kl = tf.function(lambda *t: tfo.nn.gaussian_kl(t[:2], t[2:]), input_signature=specs)
        self.assertIsNone(kl.get_concrete_function().structured_outputs.shape.rank)
        for shape in ([], [3], [2, 3], [5, 1, 3]):
            tensors = [tf.random.stateless_normal(shape if i == unknown else [2, 3], [i, 0]) for i in range(4)]
            self.assertAllClose(kl(*tensors), tfo.nn.gaussian_kl(tensors[:2], tensors[2:]), rtol=1e-6)

    def test_known_shapes_are_checked_despite_an_unknown_rank(self):
        for known in ((0, 1), (0, 3), (1, 2)):
            specs = [tf.TensorSpec(None)] * 4
            specs[known[0]], specs[known[1]] = tf.TensorSpec([2, 3]), tf.TensorSpec([4])
            kl = tf.function(lambda *t: tfo.nn.gaussian_kl(t[:2], t[2:]), input_signature=specs)
            with self.assertRaisesRegex(ValueError, r"\[2,3\].* \[4\].*, expected shapes that broadcast"):
                kl.get_concrete_function()


if __name__ == "__main__":
    tf.test.main()
