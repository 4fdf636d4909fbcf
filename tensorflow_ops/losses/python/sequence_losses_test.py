"""Tests of tfo.losses.CTC and RNNT."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_LABELS = np.array([[1, 3, 2], [2, -1, 0], [0, 0, 0]])  # of lengths 3, 1, 0
_LENGTHS = np.array([3, 1, 0])


def _logits(*dims):
    return np.random.default_rng(0).normal(size=[3, *dims]).astype(np.float32)


_LOSSES = (
    ("CTC", tfo.losses.CTC, tfo.nn.ctc_loss, _logits(6, 4)),
    ("RNNT", tfo.losses.RNNT, tfo.nn.rnnt_loss, _logits(6, 4, 4)),
)


class SequenceLossesTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.named_parameters(*_LOSSES)
    def test_labels_end_before_padding(self, loss, function, logits):
        expected = function(np.maximum(_LABELS, 0), logits, _LENGTHS, [6, 6, 6])
        for labels in (_LABELS, _LABELS.astype(np.float32)):
            self.assertAllEqual(loss(reduction=None)(labels, logits), expected)
        self.assertAllClose(loss()(_LABELS, logits), tf.reduce_mean(expected))
        weighted = loss(reduction="sum")(_LABELS, logits, sample_weight=np.array([1.0, 0.0, 2.0]))
        self.assertAllClose(weighted, expected[0] + 2 * expected[2])

    @parameterized.named_parameters(*_LOSSES)
    def test_a_blank_in_front_of_a_label_is_an_error(self, loss, function, logits):
        labels = np.array([[2, 1, 0], [1, 0, -1], [0, 1, 2]])
        text = r"labels\[2, 0\] is 0, expected a class other than blank_index: for labels from 0, pass blank_index=-1"
        for call in (loss(), tf.function(loss())):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, text):
                call(labels, logits)
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"labels\[0, 1\] is 0"):
                call(np.array([[1, 0, 3]] * 3, np.uint8), logits)
        expected = function(labels, logits, [3, 2, 3], [6] * 3, blank_index=3)
        for blank in (-1, 3):
            self.assertAllEqual(loss(blank_index=blank, reduction=None)(labels, logits), expected)

    @parameterized.named_parameters(*_LOSSES)
    def test_padding_may_be_anywhere(self, loss, function, logits):
        rows = [[1, 2, -1], [1, 2, 0], [1, -1, 2], [-1, 1, 2], [1, -5, 0], [-1, 1, -1], [1, 0, -1], [-1, 0, 0]]
        labels, lengths = np.array([[1, 2, 0]] * len(rows)), np.array([2, 2, 2, 2, 1, 1, 1, 0])
        logits = np.repeat(logits[:1], len(rows), 0)
        expected = function(labels, logits, lengths, [6] * len(rows))
        self.assertAllEqual(loss(reduction=None)(np.array(rows), logits), expected)
        no_labels = logits[:, :, :1] if logits.ndim == 4 else logits
        self.assertEqual(loss(reduction=None)(np.zeros([len(rows), 0], np.int32), no_labels).shape, [len(rows)])
        # Of the function, negative labels only.
        rows, expected = tf.constant([row for row in rows if 0 not in row]), tf.gather(expected, [0, 2, 3, 5])
        calls = [function, tf.function(function)]
        calls += [tf.function(function, input_signature=[tf.TensorSpec(None, tf.int32), tf.TensorSpec(None)])]
        calls += [tf.function(function, jit_compile=True)] if library.xla_error is None else []
        for call in calls:
            self.assertAllClose(call(rows, logits[:4]), expected, 1e-6)
        mapped = tf.vectorized_map(lambda x: function(*x), (rows[:, tf.newaxis], logits[:4, np.newaxis]))
        self.assertAllClose(mapped[:, 0], expected, 1e-6)

    @parameterized.named_parameters(*_LOSSES)
    def test_frames_of_a_mask_may_be_anywhere(self, loss, function, logits):
        masks = tf.sequence_mask([[6, 4, 2]] * 3, 6).numpy()
        masks[1], masks[2] = masks[0, :, ::-1], [[1, 0, 1, 1, 0, 1], [0, 1, 1, 1, 1, 0], [0, 1, 0, 0, 1, 0]]

        def loss_and_gradient(logits, mask):
            y_pred = tf.identity(logits)
            y_pred._keras_mask = mask
            with tf.GradientTape() as tape:
                tape.watch(y_pred)
                value = loss(reduction=None)(_LABELS, y_pred)
            return value, tape.gradient(value, y_pred)

        signature = [tf.TensorSpec([None] * logits.ndim), tf.TensorSpec([None, None], tf.bool)]
        calls = [loss_and_gradient, tf.function(loss_and_gradient, input_signature=signature)]
        calls += [tf.function(loss_and_gradient, jit_compile=True)] if library.xla_error is None else []
        for mask in masks:
            short, lengths = np.full_like(logits, np.nan), mask.sum(1)
            for i, length in enumerate(lengths):
                short[i, :length] = logits[i, mask[i]]
            variable = tf.Variable(short)
            with tf.GradientTape() as tape:
                expected = function(np.maximum(_LABELS, 0), variable, _LENGTHS, lengths)
            gradient, expected_gradient = tape.gradient(expected, variable).numpy(), np.zeros_like(logits)
            for i, length in enumerate(lengths):
                expected_gradient[i, mask[i]] = gradient[i, :length]
            for call in calls:
                value, gradient = call(logits, mask)
                self.assertAllEqual(value, expected)
                self.assertAllEqual(gradient, expected_gradient)
        for call in calls:
            errors = (ValueError, tf.errors.InvalidArgumentError)
            with self.assertRaisesRegex(errors, r"mask of y_pred.* \[3,5\].*, expected .*\[batch, frames\]"):
                call(logits, masks[0, :, :5])

    @parameterized.named_parameters(*_LOSSES)
    def test_no_examples(self, loss, function, logits):
        del function
        self.assertAllEqual(loss()(_LABELS[:0], logits[:0]), np.float32(0))

    @parameterized.named_parameters(*_LOSSES)
    def test_weights_are_of_examples(self, loss, function, logits):
        del function
        expected = loss()(_LABELS, logits, sample_weight=np.array([1.0, 2.0, 3.0]))
        self.assertAllEqual(loss()(_LABELS, logits, sample_weight=np.array([[1.0], [2.0], [3.0]])), expected)
        with self.assertRaisesRegex(ValueError, r"sample_weight has shape \[3,6\], expected \[batch\]"):
            loss()(_LABELS, logits, sample_weight=np.ones([3, 6]))
        weigh = tf.function(lambda weights: loss()(_LABELS, logits, weights), input_signature=[tf.TensorSpec(None)])
        for weights in ([1, 2, 3], [[1], [2], [3]]):
            self.assertAllEqual(weigh(np.float32(weights)), expected)
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, r"the shape of sample_weight is \[3,6\], expected \[batch\]"
        ):
            weigh(tf.ones([3, 6]))
        with self.assertRaisesRegex(ValueError, r"y_true has shape \[3,3,4\], expected \[\?,\?\]: .* not one-hot"):
            loss()(np.eye(4)[_LABELS], logits)

    @parameterized.named_parameters(*_LOSSES)
    def test_ragged_and_sparse_labels(self, loss, function, logits):
        labels = tf.RaggedTensor.from_tensor(np.maximum(_LABELS, 0), _LENGTHS)
        expected = function(np.maximum(_LABELS, 0), logits, _LENGTHS, [logits.shape[1]] * 3)
        as_rows = tf.RaggedTensor.from_row_lengths(labels.values + 1, _LENGTHS).to_sparse()
        sparse = tf.SparseTensor(as_rows.indices, as_rows.values - 1, [3, _LABELS.shape[1]])
        for y_true in (labels, tf.cast(labels, tf.float32), sparse):
            self.assertAllEqual(loss(reduction=None)(y_true, logits), expected)

    @parameterized.named_parameters(*_LOSSES)
    def test_config_round_trip(self, loss, function, logits):
        del function
        original = loss(blank_index=3, reduction="sum", dtype="float64")
        copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(original))
        self.assertEqual(copy.get_config(), original.get_config())
        labels = np.where(_LABELS == 3, 0, _LABELS)
        self.assertAllEqual(copy(labels, logits), original(labels, logits))
        self.assertEqual(copy(labels, logits).dtype, tf.float64)

    def test_equals_keras(self):
        logits, labels = _logits(6, 4), np.array([[1, 3, 2], [2, 0, 0], [3, 1, 0]])
        self.assertAllClose(tfo.losses.CTC()(labels, logits), keras.losses.CTC()(labels, logits), 1e-5)

    def test_zero_infinity(self):
        logits, labels = _logits(2, 4), np.array([[1, 1], [1, 2], [1, 0]])
        losses = tfo.losses.CTC(zero_infinity=True, reduction=None)(labels, logits)
        self.assertEqual(losses[0], 0)
        self.assertTrue(np.isinf(tfo.losses.CTC(reduction=None)(labels, logits)[0]))

    def test_bad_options(self):
        for option, value in (("blank_index", -2), ("zero_infinity", 1)):
            with self.assertRaisesRegex(ValueError, f"{option} is {value}"):
                tfo.losses.CTC(**{option: value})


if __name__ == "__main__":
    tf.test.main()
