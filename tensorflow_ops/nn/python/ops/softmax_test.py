"""Tests of softmax, log_prob_from_logits and softmax_entropy: many classes, axes."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_FUNCTIONS = {
    "softmax": tfo.nn.softmax,
    "log_prob_from_logits": tfo.nn.log_prob_from_logits,
    "softmax_entropy": tfo.nn.softmax_entropy,
}


def _any_rank(function, dtype, axis, **options):
    return tf.function(lambda x: function(x, axis=axis), input_signature=[tf.TensorSpec(None, dtype)], **options)


class SoftmaxTest(parameterized.TestCase, tf.test.TestCase):
    def test_ten_million_classes(self):
        """A naive float32 sum would lose accuracy."""
        x = tf.zeros([1, 10_000_000])
        self.assertAllClose(tfo.nn.softmax_entropy(x), [math.log(1e7)], rtol=2e-7)
        self.assertAllClose(tfo.nn.sparse_softmax_cross_entropy([7], x), [math.log(1e7)], rtol=2e-7)
        self.assertAllClose(tfo.nn.softmax(x)[0, ::999_999], np.full(11, 1e-7), rtol=2e-7)

    @parameterized.parameters(*_FUNCTIONS)
    def test_any_axis(self, function):
        function = _FUNCTIONS[function]
        x = np.random.default_rng(1).normal(size=[3, 4, 5, 6]).astype(np.float32)
        for axis in range(-4, 4):
            expected = function(np.moveaxis(x, axis, -1)).numpy()
            if expected.ndim == 4:
                expected = np.moveaxis(expected, -1, axis)
            for result in (function(x, axis=axis), _any_rank(function, tf.float32, axis)(x)):
                np.testing.assert_array_equal(result.numpy(), expected)

    def test_input_may_be_a_list_or_a_single_row(self):
        self.assertAllEqual(tfo.nn.softmax([0.0, 0.0]), [0.5, 0.5])
        self.assertEqual(tfo.nn.softmax_entropy([0.0, -math.inf]).shape, [])
        self.assertAllEqual(tfo.nn.log_prob_from_logits(np.zeros([1])), [0])

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
