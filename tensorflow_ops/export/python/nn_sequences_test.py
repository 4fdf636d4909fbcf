"""Compositions of sequence losses and conditional random fields: against the ops."""

import compositions_testing as testing
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

INF, NAN = float("inf"), float("nan")
INTS = (tf.int32, tf.int64)


def _random(shape, dtype, extreme, seed=0):
    """Returns normal numbers; with `extreme` one of NaN, inf, -inf, at a few places; "masks": -inf at a third."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) * 2
    if extreme == "masks":
        x[rng.random(shape) < 0.3] = -INF
    elif extreme is not None:
        x[rng.random(shape) < 3 / max(x.size, 1)] = extreme
    return tf.constant(x, dtype)


def _lengths(count, least, most, dtype):
    return tf.constant([most, least, *np.random.default_rng(1).integers(least, most + 1, count)][:count], dtype)


class SequenceLossTest(tf.test.TestCase, parameterized.TestCase):
    def _inputs(self, op, dtype, labels_dtype, lengths_dtype, sizes, blank_index, extreme):
        batch, frames, max_labels, classes = sizes
        shape = (batch, frames, max_labels + 1, classes) if op == "RnntLoss" else (batch, frames, classes)
        labels = np.random.default_rng(3).integers(0, classes - 1, (batch, max_labels))
        labels += labels >= blank_index % classes
        labels[:, max_labels - 1 :] = labels[:, :1]
        label_lengths = _lengths(batch, 0, max_labels, lengths_dtype)
        # Padding is anything.
        labels = np.where(np.arange(max_labels) < label_lengths.numpy()[:, None], labels, -7)
        logit_lengths = _lengths(batch, int(op == "RnntLoss"), frames, lengths_dtype)[::-1]
        return [tf.constant(labels, labels_dtype), _random(shape, dtype, extreme), label_lengths, logit_lengths]

    def _with_meaning(self, outputs):
        """Returns outputs without the largest logit of rows that have a NaN."""
        outputs[1] = tf.where(tf.math.is_nan(outputs[2]), outputs[2], outputs[1])
        return outputs

    @pairwise(
        dtype=testing.FLOATS,
        labels_dtype=INTS,
        lengths_dtype=INTS,
        sizes=((5, 9, 3, 4), (3, 4, 0, 2), (2, 6, 6, 5), (0, 3, 2, 3), (2, 0, 2, 3)),
        blank_index=(0, -1, 1),
        extreme=(None, "masks", NAN, INF),
        zero_infinity=(False, True),
    )
    def test_ctc_loss(self, zero_infinity, blank_index, **options):
        inputs = self._inputs("CtcLoss", blank_index=blank_index, **options)
        attrs = {"blank_index": blank_index, "zero_infinity": zero_infinity}
        testing.check(self, "CtcLoss", inputs, attrs, self._with_meaning)

    @pairwise(
        dtype=testing.FLOATS,
        labels_dtype=INTS,
        lengths_dtype=INTS,
        sizes=((5, 6, 3, 4), (3, 4, 0, 2), (2, 3, 6, 5), (0, 3, 2, 3)),
        blank_index=(0, -1, 1),
        extreme=(None, "masks", NAN, INF),
    )
    def test_rnnt_loss(self, blank_index, **options):
        inputs = self._inputs("RnntLoss", blank_index=blank_index, **options)
        testing.check(self, "RnntLoss", inputs, {"blank_index": blank_index}, self._with_meaning)

    def test_invalid_labels_and_lengths_are_nan(self):
        labels, logits = tf.constant([[1, 2], [1, 2**32 + 1], [0, 1], [1, 1], [1, 1]], tf.int64), tf.zeros([5, 4, 3])
        lengths = tf.constant([2, 2, 2, 3, 2]), tf.constant([4, 4, 4, 4, -1])
        attrs = {"blank_index": 0, "zero_infinity": True}
        loss = testing.run_composition("CtcLoss", [labels, logits, *lengths], attrs)[0]
        self.assertAllEqual(tf.math.is_nan(loss), [False, True, True, True, True])
        logits = tf.tile(logits[:, :, tf.newaxis], [1, 1, 3, 1])
        loss = testing.run_composition("RnntLoss", [labels, logits, *lengths], {"blank_index": 0})[0]
        self.assertAllEqual(tf.math.is_nan(loss), [False, True, True, True, True])


class CrfTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(
        op=("CrfLogLikelihood", "CrfMarginals", "CrfDecode"),
        dtype=testing.FLOATS,
        labels_dtype=INTS,
        lengths_dtype=INTS,
        sizes=((5, 6, 4), (3, 1, 3), (2, 4, 1), (0, 3, 2), (2, 0, 2)),
        extreme=(None, "masks", NAN, INF),
        of_transitions=(None, "masks", NAN, INF, "none"),
    )
    def test_crf(self, op, dtype, labels_dtype, lengths_dtype, sizes, extreme, of_transitions):
        batch, frames, tags = sizes
        value_dtype = tf.float64 if dtype == tf.float64 else tf.float32
        logits = _random(sizes, dtype, extreme)
        if of_transitions == "none":
            transitions = tf.fill([tags, tags], tf.constant(-INF, value_dtype))
        else:
            transitions = _random((tags, tags), value_dtype, of_transitions, 1)
        lengths = _lengths(batch, 0, frames, lengths_dtype)
        labels = np.random.default_rng(3).integers(0, tags, (batch, frames))
        labels = tf.constant(np.where(np.arange(frames) < lengths.numpy()[:, None], labels, -7), labels_dtype)
        inputs = [logits, transitions, lengths]
        testing.check(self, op, [labels, *inputs] if op == "CrfLogLikelihood" else inputs, {})

    @parameterized.parameters(*testing.FLOATS)
    def test_decode_breaks_ties_as_the_op(self, dtype):
        scores = np.random.default_rng(0).integers(0, 2, (8, 7, 4))
        transitions = np.random.default_rng(1).integers(0, 2, (4, 4))
        transitions = tf.constant(transitions, tf.float64 if dtype == tf.float64 else tf.float32)
        testing.check(self, "CrfDecode", [tf.constant(scores, dtype), transitions, tf.range(8)], {})

    def test_invalid_labels_and_lengths_are_nan(self):
        logits, transitions = tf.zeros([4, 2, 3]), tf.zeros([3, 3])
        labels, lengths = tf.constant([[0, 3], [0, 3], [0, 0], [0, 0]]), tf.constant([1, 2, 3, -1])
        expected = [False, True, True, True]
        likelihood = testing.run_composition("CrfLogLikelihood", [labels, logits, transitions, lengths], {})[0]
        self.assertAllEqual(tf.math.is_nan(likelihood), expected)
        marginals = testing.run_composition("CrfMarginals", [logits, transitions, lengths], {})[0]
        self.assertAllEqual(tf.math.is_nan(marginals[:, 0, 0]), [False, False, True, True])
        scores = testing.run_composition("CrfDecode", [logits, transitions, lengths], {})[1]
        self.assertAllEqual(tf.math.is_nan(scores), [False, False, True, True])


if __name__ == "__main__":
    tf.test.main()
