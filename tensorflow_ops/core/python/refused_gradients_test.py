"""Tests of `gradients.refuse`: an unused gradient costs nothing, a used one raises."""

import types

import tensorflow as tf

import tensorflow_ops as tfo
from tensorflow_ops.core.python import gradients, library


def _op(*inputs, skipped=()):
    return types.SimpleNamespace(inputs=inputs, skip_input_indices=skipped)


class RefuseTest(tf.test.TestCase):
    def test_an_eager_tape_raises_if_it_uses_the_gradient(self):
        x = tf.ones([2, 3])
        self.assertIsNone(gradients.refuse(_op(x, x, skipped=(1,)), 1, "no third order", [x]))
        with self.assertRaisesRegex(LookupError, "no third order"):
            gradients.refuse(_op(x, x, skipped=(0,)), 1, "no third order", [x])

    def test_an_error_has_a_text(self):
        with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), "reason is empty"):
            library.ops.tensorflow_ops_refuse_gradient(tf.ones([2]), [tf.ones([2])], reason="")

    def test_a_graph_raises_if_it_uses_the_gradient(self):
        for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
            for compiled in {False, library.xla_error is None}:

                @tf.function(jit_compile=compiled)
                def unused(x):
                    gradients.refuse(_op(x), 0, "no third order", [x])
                    return x

                @tf.function(jit_compile=compiled)
                def used(x):
                    return gradients.refuse(_op(x), 0, "no third order", [x])

                x = tf.ones([2, 3], dtype)
                self.assertAllEqual(unused(x), x)
                self.assertEqual(unused(x[:0]).shape, [0, 3])
                with self.assertRaisesRegex(tf.errors.UnimplementedError, "no third order"):
                    used(x)

    def test_a_graph_accepts_an_upstream_of_zeros(self):
        """Of an op between two tapes, and in forward mode, TensorFlow computes gradients to constants, too."""
        for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
            for compiled in {False, library.xla_error is None}:

                @tf.function(jit_compile=compiled)
                def refused(x, *upstream):
                    return gradients.refuse(_op(x), 0, "no third order", upstream)

                x, zeros = tf.ones([2, 3], dtype), tf.zeros([4], dtype)
                self.assertAllEqual(refused(x, zeros, -zeros, zeros[:0]), tf.zeros_like(x))
                self.assertAllEqual(refused(x[:0], zeros), x[:0])
                for bad in (1.0, float("nan")):
                    with self.assertRaisesRegex(tf.errors.UnimplementedError, "no third order"):
                        refused(x, zeros, tf.constant([0, 0, bad], dtype))

    def test_second_derivatives_of_an_op(self):
        boxes, others = tf.constant([[0.0, 0, 2, 2]]), tf.constant([[1.0, 1, 3, 3]])

        def second():
            with tf.GradientTape() as outer:
                outer.watch(boxes)
                with tf.GradientTape() as tape:
                    tape.watch(boxes)
                    loss = tfo.detection.box_iou_loss(boxes, others)
                first = tape.gradient(loss, boxes)
            return outer.gradient(first, boxes)

        with self.assertRaisesRegex(LookupError, "box_iou_loss has no second derivatives"):
            second()
        for compiled in {False, library.xla_error is None}:
            with self.assertRaisesRegex(tf.errors.UnimplementedError, "box_iou_loss has no second derivatives"):
                tf.function(second, jit_compile=compiled)()

    def test_forward_mode_says_that_it_needs_second_derivatives(self):
        features = tf.ones([1, 4, 4, 1])

        def forward():
            with tf.autodiff.ForwardAccumulator(features, features) as accumulator:
                y = tfo.nn.deform_conv2d(features, tf.zeros([1, 2, 2, 18]), tf.ones([3, 3, 1, 1]))
            return accumulator.jvp(y)

        compiled = [] if library.xla_error else [tf.function(forward, jit_compile=True)]
        for function in (forward, tf.function(forward), *compiled):
            with self.assertRaisesRegex(
                tf.errors.UnimplementedError, "deform_conv2d has no second derivatives, which forward mode .* needs"
            ):
                function()

    def test_forward_over_reverse(self):
        boxes, others = tf.constant([[0.0, 0, 2, 2]]), tf.constant([[1.0, 1, 3, 3]])

        def product(motion):
            with tf.autodiff.ForwardAccumulator(boxes, motion) as accumulator:
                with tf.GradientTape() as tape:
                    tape.watch(boxes)
                    loss = tfo.detection.box_iou_loss(boxes, others)
                first = tape.gradient(loss, boxes)
            return accumulator.jvp(first)

        compiled = [] if library.xla_error else [tf.function(product, jit_compile=True)]
        for function in (product, tf.function(product), *compiled):
            self.assertAllEqual(function(tf.zeros_like(boxes)), tf.zeros_like(boxes))
            with self.assertRaisesRegex(tf.errors.UnimplementedError, "box_iou_loss has no second derivatives"):
                function(tf.ones_like(boxes))

    def test_derivatives_of_a_refused_gradient(self):
        x = tf.ones([2])

        @tf.function
        def derivative(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = gradients.refuse(_op(x), 0, "no third order", [x])
            return tape.gradient(y, x)

        with self.assertRaisesRegex(tf.errors.UnimplementedError, "no third order"):
            derivative(x)

    def test_vectorized_map(self):
        def unused(x):
            gradients.refuse(_op(x), 0, "no third order", [x])
            return x + 1

        self.assertAllEqual(
            tf.vectorized_map(unused, tf.ones([3, 2]), fallback_to_while_loop=False), 2 * tf.ones([3, 2])
        )
        with self.assertRaisesRegex(tf.errors.UnimplementedError, "no third order"):
            tf.vectorized_map(
                lambda x: gradients.refuse(_op(x), 0, "no third order", [x]),
                tf.ones([3, 2]),
                fallback_to_while_loop=False,
            )


if __name__ == "__main__":
    tf.test.main()
