"""Tests of `gradients.refuse`: an unused gradient costs nothing, a used one raises."""

import types

import tensorflow as tf

from tensorflow_ops.core.python import gradients


def _op(*inputs, skipped=()):
    return types.SimpleNamespace(inputs=inputs, skip_input_indices=skipped)


class RefuseTest(tf.test.TestCase):
    def test_an_eager_tape_raises_if_it_uses_the_gradient(self):
        x = tf.ones([2, 3])
        self.assertIsNone(gradients.refuse(_op(x, x, skipped=(1,)), 1, "no third order"))
        with self.assertRaisesRegex(LookupError, "no third order"):
            gradients.refuse(_op(x, x, skipped=(0,)), 1, "no third order")

    def test_a_graph_raises_if_it_uses_the_gradient(self):
        for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64):

            @tf.function
            def unused(x):
                gradients.refuse(_op(x), 0, "no third order")
                return x

            @tf.function
            def used(x):
                return gradients.refuse(_op(x), 0, "no third order")

            x = tf.ones([2, 3], dtype)
            self.assertAllEqual(unused(x), x)
            with self.assertRaisesRegex(tf.errors.UnknownError, "LookupError: no third order"):
                used(x)


if __name__ == "__main__":
    tf.test.main()
