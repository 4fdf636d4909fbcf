"""Tests of tfo.nn.ctc_loss against tf.nn.ctc_loss, and of its options and errors."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo


def _loss_and_gradient(labels, logits, label_lengths, logit_lengths, upstream=None, **options):
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tfo.nn.ctc_loss(labels, logits, label_lengths, logit_lengths, **options)
    return loss.numpy(), tape.gradient(loss, logits, upstream).numpy()


_LABELS = np.array([[1, 2, 1], [2, 2, -1], [1, 1, 1], [-1, -1, -1], [2, 1, -1]])
_LABEL_LENGTHS = np.array([3, 2, 3, 0, 2])
_LOGIT_LENGTHS = np.array([6, 3, 4, 2, 0])  # the third and the last example are impossible


class ValuesTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters((0, tf.int32, tf.int64), (39, tf.int64, tf.int32))
    def test_equals_tensorflow(self, blank, label_dtype, length_dtype):
        generator = np.random.default_rng(1)
        labels = tf.constant(generator.integers(1, 39, [3, 7]), label_dtype)
        logits = generator.normal(size=[3, 30, 40]).astype(np.float32)
        lengths = [7, 4, 1], [30, 25, 8]
        upstream = tf.constant([1.0, -0.5, 2.0])
        with tf.GradientTape() as tape:
            x = tf.constant(logits)
            tape.watch(x)
            theirs = tf.nn.ctc_loss(tf.cast(labels, tf.int32), x, *lengths, logits_time_major=False, blank_index=blank)
        expected = tape.gradient(theirs, x, upstream)
        for i, length in enumerate(lengths[1]):
            logits[i, length:] = np.nan  # TensorFlow reads these
        lengths = tf.constant(lengths[0], label_dtype), tf.constant(lengths[1], length_dtype)
        loss, gradient = _loss_and_gradient(labels, logits, *lengths, upstream=upstream, blank_index=blank)
        self.assertAllClose(loss, theirs, 1e-5)
        self.assertAllClose(gradient, expected, 1e-4, 1e-5)

    def test_zero_infinity_zeros_impossible_losses_only(self):
        logits = np.random.default_rng(0).normal(size=[5, 6, 4])
        inputs = np.maximum(_LABELS, 0), logits, _LABEL_LENGTHS, _LOGIT_LENGTHS
        loss, gradient = _loss_and_gradient(*inputs)
        zeroed, same_gradient = _loss_and_gradient(*inputs, zero_infinity=True)
        self.assertAllEqual(np.isinf(loss), [False, False, True, False, True])
        self.assertAllEqual(zeroed, np.where(np.isinf(loss), 0, loss))
        self.assertAllEqual(gradient, same_gradient)

    @parameterized.parameters(1e8, 1e16, -1e30, 3e38)
    def test_offsets_of_frames_cancel_out(self, offset):
        # Multiples of a step survive the sum with the offset. Differences of logits have a limit, of 1.9e11.
        step = np.spacing(np.float32(abs(offset)))
        step = max(1.0, step) if step < 1e9 else 0.0
        logits = np.round(np.random.default_rng(6).normal(0, 2, [2, 4, 4])) * step
        offsets = offset * np.exp2(-np.arange(4.0)).reshape([4] + [1] * (logits.ndim - 2))
        moved = (logits + offsets).astype(np.float32)
        logits = moved - offsets.astype(np.float32).astype(np.float64)
        inputs = [[1, 2], [3, 1]], [2, 1], [4, 3]
        actual = _loss_and_gradient(inputs[0], moved, *inputs[1:])
        expected = _loss_and_gradient(inputs[0], logits, *inputs[1:])
        self.assertAllClose(actual[0], expected[0], 1e-6)
        self.assertAllClose(actual[1], expected[1], 1e-6)

    def test_the_gradient_is_linear_in_the_upstream_gradient(self):
        generator = np.random.default_rng(5)
        logits, upstream = generator.normal(size=[2, 4, 4]), tf.constant([0.5, -3.0])
        upstream = tf.cast(upstream, tf.float64)
        inputs = [[1, 2], [3, 1]], [2, 1], [4, 3]
        along = generator.normal(size=logits.shape)
        with tf.GradientTape() as outer:
            outer.watch(upstream)
            x = tf.constant(logits)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tfo.nn.ctc_loss(inputs[0], x, *inputs[1:])
            gradient = inner.gradient(loss, x, upstream)
            product = tf.reduce_sum(gradient * along)
        _, unit = _loss_and_gradient(inputs[0], logits, *inputs[1:])
        axes = tuple(range(1, logits.ndim))
        self.assertAllClose(product, np.sum(upstream * np.sum(unit * along, axes)), 1e-12)
        self.assertAllClose(outer.gradient(product, upstream), np.sum(unit * along, axes), 1e-12)

    def test_minus_1_is_the_last_class(self):
        logits = np.random.default_rng(0).normal(size=[5, 6, 4])
        labels = np.where(_LABELS < 0, -1, _LABELS - 1)
        inputs = labels, logits, _LABEL_LENGTHS, _LOGIT_LENGTHS
        expected = _loss_and_gradient(*inputs, blank_index=3)
        for unknown in (False, True):
            signature = [tf.TensorSpec([None] * 3 if unknown else logits.shape, tf.float64)]

            @tf.function(input_signature=signature)
            def function(x):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    loss = tfo.nn.ctc_loss(labels, x, _LABEL_LENGTHS, _LOGIT_LENGTHS, blank_index=-1)
                return loss, tape.gradient(loss, x)

            for actual, value in zip(function(logits), expected, strict=True):
                self.assertAllEqual(actual, value)


class ErrorsTest(parameterized.TestCase, tf.test.TestCase):
    def test_arguments(self):
        labels, logits, lengths = [[1, 2]], tf.zeros([1, 3, 4]), ([2], [3])
        ragged = tf.ragged.constant([[1, 2], [1]])
        for name, bad, text in (
            ("label_lengths", 2, "is a RaggedTensor, .* pass label_lengths.to_tensor"),
            ("label_lengths", 0, "are given, expected None: labels is a RaggedTensor, which has lengths"),
            ("logit_lengths", 1, "are given, expected None: logits is a RaggedTensor, which has lengths"),
        ):
            inputs = [labels, logits, *lengths]
            inputs[bad] = ragged
            with self.assertRaisesRegex(ValueError, f"{name} {text}"):
                tfo.nn.ctc_loss(*inputs)


if __name__ == "__main__":
    tf.test.main()
