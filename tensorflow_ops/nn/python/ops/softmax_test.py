"""Tests of softmax, log_prob_from_logits and softmax_entropy: values, gradients, bad input.

nn_grad_test.py tests higher orders, nn_graph_test.py graphs, nn_memory_test.py memory.
"""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_INF, _NAN = math.inf, math.nan
_FUNCTIONS = {
    "softmax": tfo.nn.softmax,
    "log_prob_from_logits": tfo.nn.log_prob_from_logits,
    "softmax_entropy": tfo.nn.softmax_entropy,
}


def _logits(shape, dtype, scale=3.0, masked=0.0, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) * scale
    x[rng.random(shape) < masked] = -_INF
    return tf.cast(x, dtype)


def _gradient(function, x, upstream):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x, output_gradients=tf.cast(upstream, y.dtype))


class ValueTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(tf.float16, tf.bfloat16, tf.float32, tf.float64)
    def test_extremes_of_the_dtype(self, dtype):
        top, third = float(dtype.max), 1 / 3
        x = tf.cast(np.array([[top, -top, 0], [-top, -top, -top], [top, top, top], [-_INF, -top, -_INF]]), dtype)
        expected = tf.cast(tf.constant([[1, 0, 0], [third] * 3, [third] * 3, [0, 1, 0]], tf.float64), dtype)
        self.assertAllClose(tfo.nn.softmax(x), expected, rtol=1e-6, atol=0)
        self.assertAllClose(tfo.nn.softmax_entropy(x), [0, math.log(3), math.log(3), 0], rtol=1e-6)
        log_p = tfo.nn.log_prob_from_logits(x)
        self.assertAllEqual(tf.cast(log_p[0, :1], tf.float64), [0])
        self.assertAllLess(log_p[0, 1:], -0.9 * top)
        self.assertAllEqual(tf.cast(log_p[3], tf.float64), [-_INF, 0, -_INF])

    def test_ten_million_classes(self):
        """A naive float32 sum would lose accuracy."""
        x = tf.zeros([1, 10_000_000])
        self.assertAllClose(tfo.nn.softmax_entropy(x), [math.log(1e7)], rtol=2e-7)
        self.assertAllClose(tfo.nn.sparse_softmax_cross_entropy([7], x), [math.log(1e7)], rtol=2e-7)
        self.assertAllClose(tfo.nn.softmax(x)[0, ::999_999], np.full(11, 1e-7), rtol=2e-7)

    @parameterized.parameters(*_FUNCTIONS)
    def test_any_axis(self, function):
        function = _FUNCTIONS[function]
        x = _logits([3, 4, 5, 6], tf.float32).numpy()
        for axis in range(-4, 4):
            expected = function(np.moveaxis(x, axis, -1)).numpy()
            if expected.ndim == 4:
                expected = np.moveaxis(expected, -1, axis)
            for result in (function(x, axis=axis), _any_rank(function, tf.float32, axis)(x)):
                np.testing.assert_array_equal(result.numpy(), expected)

    def test_input_may_be_a_list_or_a_single_row(self):
        self.assertAllEqual(tfo.nn.softmax([0.0, 0.0]), [0.5, 0.5])
        self.assertEqual(tfo.nn.softmax_entropy([0.0, -_INF]).shape, [])
        self.assertAllEqual(tfo.nn.log_prob_from_logits(np.zeros([1])), [0])


def _any_rank(function, dtype, axis, **options):
    return tf.function(lambda x: function(x, axis=axis), input_signature=[tf.TensorSpec(None, dtype)], **options)


class GradientTest(parameterized.TestCase, tf.test.TestCase):
    def test_gradient_of_unmasked_log_probabilities(self):
        x = tf.constant([[1.0, -_INF, 2.0], [-_INF, -_INF, -_INF]])

        def loss(x):
            log_p = tfo.nn.log_prob_from_logits(x)
            return tf.reduce_sum(tf.where(log_p > -_INF, log_p, 0.0))

        p = 1 / (1 + math.e)
        self.assertAllClose(_gradient(loss, x, 1.0), [[1 - 2 * p, 0, 2 * p - 1], [0, 0, 0]], rtol=1e-6)

    def test_upstream_of_classes_with_zero_probability_is_ignored(self):
        x = tf.constant([[0.0, 1.0, -_INF]])
        for d in (_NAN, _INF):
            gradient = _gradient(tfo.nn.softmax, x, [[1.0, 2.0, d]])
            self.assertAllClose(gradient, _gradient(tfo.nn.softmax, x, [[1.0, 2.0, 0.0]]), atol=0)


class BadInputTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(function=tuple(_FUNCTIONS), axis=(2, -3), compiled=(False, True))
    def test_axis_of_unknown_rank(self, function, axis, compiled):
        if compiled and library.xla_error:
            self.skipTest(library.xla_error)
        # Of rank 3 they are axes.
        good, bad = tf.ones([2, 3, 4]), tf.ones([2, 3])
        call = _any_rank(_FUNCTIONS[function], tf.float32, axis, jit_compile=compiled)
        self.assertAllEqual(call(good), _FUNCTIONS[function](good, axis=axis))
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, f"axis is {axis}, expected an axis of the tensor"):
            call(bad)


if __name__ == "__main__":
    tf.test.main()
