"""Tests of tfo.losses.CTC and RNNT."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_LABELS = np.array([[1, 3, 2], [2, -1, 1], [0, 0, 0]])  # of lengths 3, 1, 0
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
    def test_a_mask_gives_the_frames(self, loss, function, logits):
        masked = tf.constant(logits)
        masked._keras_mask = tf.sequence_mask([6, 4, 2], 6)
        expected = function(np.maximum(_LABELS, 0), logits, _LENGTHS, [6, 4, 2])
        self.assertAllEqual(loss(reduction=None)(_LABELS, masked), expected)

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

    def test_a_model_with_a_mask_learns(self):
        keras.utils.set_random_seed(0)
        inputs = keras.Input([None, 3])
        hidden = keras.layers.Masking()(inputs)
        hidden = keras.layers.GRU(8, return_sequences=True)(hidden)
        model = keras.Model(inputs, keras.layers.Dense(4)(hidden))
        model.compile(keras.optimizers.Adam(0.02), loss=tfo.losses.CTC())
        x = np.random.default_rng(1).normal(size=[3, 6, 3]).astype(np.float32)
        x[1, 4:] = 0
        history = model.fit(x, _LABELS, epochs=12, verbose=0).history["loss"]
        self.assertLess(history[-1], 0.8 * history[0])

    def test_bad_options(self):
        with self.assertRaisesRegex(ValueError, "blank_index is -1"):
            tfo.losses.CTC(blank_index=-1)
        with self.assertRaisesRegex(ValueError, "zero_infinity is 1"):
            tfo.losses.CTC(zero_infinity=1)


if __name__ == "__main__":
    tf.test.main()
