"""Tests of ramp."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import ramp


class RampTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(tf.float16, tf.bfloat16, tf.float32, tf.float64)
    def test_equals_numpys_clip(self, dtype):
        x = tf.cast(np.random.default_rng(0).normal(size=[3, 5]), dtype)
        y = ramp.ramp(x, limit=0.5)
        self.assertEqual(y.dtype, dtype)
        self.assertAllEqual(y, np.clip(x.numpy(), 0, 0.5))

    def test_gradient(self):
        x = tf.constant([-1.0, 0.25, 2.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = ramp.ramp(x) * [3.0, 4.0, 5.0]
        self.assertAllEqual(tape.gradient(y, x), [0.0, 4.0, 0.0])

    def test_static_shape_is_the_inputs(self):
        traced = tf.function(ramp.ramp).get_concrete_function(tf.TensorSpec([None, 3]))
        self.assertEqual(traced.output_shapes.as_list(), [None, 3])

    def test_negative_limit(self):
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "limit is -1, expected at least 0"):
            ramp.ramp([1.0], limit=-1.0)


if __name__ == "__main__":
    tf.test.main()
