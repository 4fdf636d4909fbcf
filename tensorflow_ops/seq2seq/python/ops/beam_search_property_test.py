"""Tests of beam_search's invariants, with settings drawn by hypothesis."""

import math

import hypothesis
import numpy as np
import tensorflow as tf
from hypothesis import strategies

import tensorflow_ops as tfo

_INF = math.inf


@strategies.composite
def searches(draw):
    """Draws (logits of a Markov chain [V, V], options)."""
    vocabulary = draw(strategies.integers(2, 6))
    width = draw(strategies.integers(1, 5))
    max_length = draw(strategies.integers(1, 6))
    eos_ids = draw(strategies.lists(strategies.integers(0, vocabulary - 1), max_size=2, unique=True))
    # Few different values, so that ties occur; -inf masks; NaN.
    values = strategies.sampled_from([0.0, 1.0, 2.0, -3.0, 100.0, -_INF, math.nan])
    row = strategies.lists(values, min_size=vocabulary, max_size=vocabulary)
    return np.array(draw(strategies.lists(row, min_size=vocabulary, max_size=vocabulary))), {
        "batch_size": draw(strategies.integers(0, 2)),
        "beam_width": width,
        "max_length": max_length,
        "bos_id": draw(strategies.integers(0, vocabulary - 1)),
        "eos_ids": eos_ids,
        "pad_id": draw(strategies.sampled_from([None, -1, 0, 77])),
        "min_length": draw(strategies.integers(0, max_length - 1)),
        "length_penalty": draw(strategies.sampled_from([0.0, 1.0, -1.0, 0.3])),
        "early_stopping": draw(strategies.sampled_from([True, False, "never"])),
        "num_return_sequences": draw(strategies.integers(1, width)),
    }


def _log_softmax(x):
    x = np.where(np.isnan(x), -_INF, x)
    largest = x.max(-1, keepdims=True)
    shifted = x - np.where(largest == -_INF, 0, largest)
    with np.errstate(divide="ignore"):
        return np.where(largest == -_INF, -_INF, shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


class PropertyTest(tf.test.TestCase):
    # Draws the same settings in every run. Without a deadline, because test machines may be busy.
    @hypothesis.settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @hypothesis.given(searches())
    def test_invariants(self, setting):
        logits, options = setting
        table = tf.constant(logits)
        result = tfo.seq2seq.beam_search(lambda tokens, state: (tf.gather(table, tokens), state), (), **options)
        log_p = _log_softmax(logits)
        eos_ids, count, max_length = options["eos_ids"], options["num_return_sequences"], options["max_length"]
        pad = options["pad_id"] if options["pad_id"] is not None else (eos_ids or [0])[0]
        shape = (options["batch_size"], count)
        self.assertEqual([t.shape for t in result], [(*shape, max_length), shape, shape, shape])
        for sequences, lengths, scores, log_probs in zip(*(t.numpy() for t in result), strict=True):
            self.assertTrue((scores[:-1] >= scores[1:]).all(), "scores are sorted")
            exists = scores > -_INF
            self.assertAllEqual(exists, lengths > 0)
            self.assertAllEqual(exists, log_probs > -_INF)
            found = [tuple(s[:n]) for s, n in zip(sequences[exists], lengths[exists], strict=True)]
            self.assertLen(set(found), len(found), "no hypothesis twice")
            for tokens, length, score, log_prob in zip(sequences, lengths, scores, log_probs, strict=True):
                self.assertAllEqual(tokens[length:], [pad] * (max_length - length))
                if not length:
                    continue
                tokens = tokens[:length]
                steps = log_p[[options["bos_id"], *tokens[:-1]], tokens]
                self.assertAllClose(log_prob, steps.sum(), rtol=1e-12, atol=1e-12)
                penalty = ((5 + length) / 6) ** options["length_penalty"]
                self.assertAllClose(score, log_prob / penalty, rtol=1e-12, atol=1e-12)
                is_end = np.isin(tokens, eos_ids)
                self.assertFalse(is_end[:-1].any(), "nothing after the end")
                if eos_ids:
                    self.assertTrue(is_end[-1])
                    self.assertGreater(length, options["min_length"])
                else:
                    self.assertEqual(length, max_length)


if __name__ == "__main__":
    tf.test.main()
