"""Tests of tfo.nn.ctc_loss against tf.nn.ctc_loss, of tfo.nn.rnnt_loss by hand, and of options of both."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo


def _loss_and_gradient(function, labels, logits, *lengths, upstream=None, **options):
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = function(labels, logits, *lengths, **options)
    return loss.numpy(), tape.gradient(loss, logits, upstream).numpy()


class CTCTest(parameterized.TestCase, tf.test.TestCase):
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
        options = {"upstream": upstream, "blank_index": blank}
        loss, gradient = _loss_and_gradient(tfo.nn.ctc_loss, labels, logits, *lengths, **options)
        self.assertAllClose(loss, theirs, 1e-5)
        self.assertAllClose(gradient, expected, 1e-4, 1e-5)

    def test_zero_infinity_zeros_impossible_losses_only(self):
        labels = np.array([[1, 2, 1], [2, 2, 0], [1, 1, 1], [0, 0, 0], [2, 1, 0]])
        logits = np.random.default_rng(0).normal(size=[5, 6, 4])
        # The third and the last example are impossible.
        inputs = tfo.nn.ctc_loss, labels, logits, np.array([3, 2, 3, 0, 2]), np.array([6, 3, 4, 2, 0])
        loss, gradient = _loss_and_gradient(*inputs)
        zeroed, same_gradient = _loss_and_gradient(*inputs, zero_infinity=True)
        self.assertAllEqual(np.isinf(loss), [False, False, True, False, True])
        self.assertAllEqual(zeroed, np.where(np.isinf(loss), 0, loss))
        self.assertAllEqual(gradient, same_gradient)

    def test_wrong_arguments(self):
        ragged = tf.ragged.constant([[1, 2], [1]])
        for name, bad, text in (
            ("label_lengths", 2, "is a RaggedTensor, .* pass label_lengths.to_tensor"),
            ("label_lengths", 0, "are given, expected None: labels is a RaggedTensor, which has lengths"),
            ("logit_lengths", 1, "are given, expected None: logits is a RaggedTensor, which has lengths"),
        ):
            inputs = [[[1, 2]], tf.zeros([1, 3, 4]), [2], [3]]
            inputs[bad] = ragged
            with self.assertRaisesRegex(ValueError, f"{name} {text}"):
                tfo.nn.ctc_loss(*inputs)


class RNNTTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters((0, tf.int32, tf.int64), (3, tf.int64, tf.int32))
    def test_by_hand(self, blank, label_dtype, length_dtype):
        """Of equally likely classes all ways have the same probability; of one frame there is one way."""
        logits = np.full([3, 5, 4, 4], np.nan)
        logits[0, :5, :4], logits[1, :3, :3] = 0, 7
        row = np.random.default_rng(0).normal(size=[4, 4])
        logits[2, 0] = row
        loss, gradient = _loss_and_gradient(
            tfo.nn.rnnt_loss,
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

    def test_labels_tell_the_static_shape_of_the_gradient(self):
        @tf.function(input_signature=[tf.TensorSpec([None] * 3 + [4])])
        def gradient(logits):
            with tf.GradientTape() as tape:
                tape.watch(logits)
                loss = tfo.nn.rnnt_loss([[1, 2], [3, 1]], logits, [2, 1], [4, 3])
            return tape.gradient(loss, logits)

        self.assertEqual(gradient.get_concrete_function().output_shapes.as_list(), [2, None, 3, 4])


@parameterized.parameters((tfo.nn.ctc_loss, (2, 4, 4)), (tfo.nn.rnnt_loss, (2, 4, 3, 4)))
class BothTest(parameterized.TestCase, tf.test.TestCase):
    """Calls with logits of the given shape."""

    _LABELS, _LENGTHS = [[1, 2], [3, 1]], ([2, 1], [4, 3])

    def test_offsets_of_frames_cancel_out(self, function, shape):
        for offset in (1e8, 1e16, -1e30, 3e38):
            # Multiples of a step survive the sum with the offset. Differences of logits have a limit, of 1.9e11.
            step = np.spacing(np.float32(abs(offset)))
            step = max(1.0, step) if step < 1e9 else 0.0
            logits = np.round(np.random.default_rng(6).normal(0, 2, shape)) * step
            offsets = offset * np.exp2(-np.arange(4.0)).reshape([4] + [1] * (logits.ndim - 2))
            moved = (logits + offsets).astype(np.float32)
            logits = moved - offsets.astype(np.float32).astype(np.float64)
            actual = _loss_and_gradient(function, self._LABELS, moved, *self._LENGTHS)
            expected = _loss_and_gradient(function, self._LABELS, logits, *self._LENGTHS)
            for one, other in zip(actual, expected, strict=True):
                self.assertAllClose(one, other, 1e-6, msg=f"with the offset {offset}")

    def test_the_gradient_is_linear_in_the_upstream_gradient(self, function, shape):
        generator = np.random.default_rng(5)
        logits, upstream = generator.normal(size=shape), tf.constant([0.5, -3.0], tf.float64)
        along = generator.normal(size=shape)
        with tf.GradientTape() as outer:
            outer.watch(upstream)
            x = tf.constant(logits)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = function(self._LABELS, x, *self._LENGTHS)
            gradient = inner.gradient(loss, x, upstream)
            product = tf.reduce_sum(gradient * along)
        _, unit = _loss_and_gradient(function, self._LABELS, logits, *self._LENGTHS)
        axes = tuple(range(1, logits.ndim))
        self.assertAllClose(product, np.sum(upstream * np.sum(unit * along, axes)), 1e-12)
        self.assertAllClose(outer.gradient(product, upstream), np.sum(unit * along, axes), 1e-12)

    def test_minus_1_is_the_last_class(self, function, shape):
        logits, labels = np.random.default_rng(0).normal(size=shape), [[1, 2], [0, 1]]
        expected = _loss_and_gradient(function, labels, logits, *self._LENGTHS, blank_index=3)
        for signature in (shape, [None] * len(shape)):

            @tf.function(input_signature=[tf.TensorSpec(signature, tf.float64)])
            def call(x):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    loss = function(labels, x, *self._LENGTHS, blank_index=-1)
                return loss, tape.gradient(loss, x)

            for actual, value in zip(call(logits), expected, strict=True):
                self.assertAllEqual(actual, value)


if __name__ == "__main__":
    tf.test.main()
