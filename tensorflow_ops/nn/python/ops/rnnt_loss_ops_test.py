"""Tests of tfo.nn.rnnt_loss: values by hand, options."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo


def _loss_and_gradient(labels, logits, label_lengths, logit_lengths, upstream=None, **options):
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tfo.nn.rnnt_loss(labels, logits, label_lengths, logit_lengths, **options)
    return loss.numpy(), tape.gradient(loss, logits, upstream).numpy()


class ValuesTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters((0, tf.int32, tf.int64), (3, tf.int64, tf.int32))
    def test_by_hand(self, blank, label_dtype, length_dtype):
        """Of equally likely classes all ways have the same probability; of one frame there is one way."""
        logits = np.full([3, 5, 4, 4], np.nan)
        logits[0, :5, :4], logits[1, :3, :3] = 0, 7
        row = np.random.default_rng(0).normal(size=[4, 4])
        logits[2, 0] = row
        loss, gradient = _loss_and_gradient(
            tf.constant([[1, 2, 1], [2, 2, -1], [2, 1, 2]], label_dtype),
            logits,
            tf.constant([3, 2, 3], label_dtype),
            tf.constant([5, 3, 1], length_dtype),
            upstream=np.array([1.0, 1.0, -0.5]),
            blank_index=blank,
        )
        ways = [8 * math.log(4) - math.log(math.comb(7, 3)), 5 * math.log(4) - math.log(math.comb(4, 2))]
        log_p, way = row - np.log(np.exp(row).sum(-1, keepdims=True)), (range(4), [2, 1, 2, blank])
        self.assertAllClose(loss, [*ways, -log_p[way].sum()], 1e-12)
        expected = np.exp(log_p)
        expected[way] -= 1
        self.assertAllClose(gradient[2, 0], -0.5 * expected, 1e-12, 1e-12)
        self.assertAllEqual(gradient[np.isnan(logits)], np.zeros(np.isnan(logits).sum()))

    @parameterized.parameters(1e8, 1e16, -1e30, 3e38)
    def test_offsets_of_frames_cancel_out(self, offset):
        # Multiples of a step survive the sum with the offset. Differences of logits have a limit, of 1.9e11.
        step = np.spacing(np.float32(abs(offset)))
        step = max(1.0, step) if step < 1e9 else 0.0
        logits = np.round(np.random.default_rng(6).normal(0, 2, [2, 4, 3, 4])) * step
        offsets = offset * np.exp2(-np.arange(4.0)).reshape([4] + [1] * (logits.ndim - 2))
        moved = (logits + offsets).astype(np.float32)
        logits = moved - offsets.astype(np.float32).astype(np.float64)
        inputs = [[1, 2], [3, 1]], [2, 1], [4, 3]
        actual = _loss_and_gradient(inputs[0], moved, *inputs[1:])
        expected = _loss_and_gradient(inputs[0], logits, *inputs[1:])
        self.assertAllClose(actual[0], expected[0], 1e-6)
        self.assertAllClose(actual[1], expected[1], 1e-6)

    def test_minus_1_is_the_last_class(self):
        logits = np.random.default_rng(0).normal(size=[2, 4, 3, 4])
        inputs = [[1, 2], [0, 1]], logits, [2, 1], [4, 3]
        for actual, expected in zip(
            _loss_and_gradient(*inputs, blank_index=-1), _loss_and_gradient(*inputs, blank_index=3), strict=True
        ):
            self.assertAllEqual(actual, expected)

    def test_labels_tell_the_static_shape_of_the_gradient(self):
        @tf.function(input_signature=[tf.TensorSpec([None] * 3 + [4])])
        def gradient(logits):
            with tf.GradientTape() as tape:
                tape.watch(logits)
                loss = tfo.nn.rnnt_loss([[1, 2], [3, 1]], logits, [2, 1], [4, 3])
            return tape.gradient(loss, logits)

        self.assertEqual(gradient.get_concrete_function().output_shapes.as_list(), [2, None, 3, 4])


if __name__ == "__main__":
    tf.test.main()
