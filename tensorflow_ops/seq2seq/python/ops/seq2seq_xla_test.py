"""Tests of searches and samplers that XLA compiles as a whole, loop included."""

import unittest

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_VOCABULARY = 20
_LOGITS = 2 * np.random.default_rng(0).normal(size=(_VOCABULARY, _VOCABULARY)).astype(np.float32)
_BIAS = np.random.default_rng(1).normal(size=(2, _VOCABULARY)).astype(np.float32)

_P = tfo.seq2seq.processors


def setUpModule():
    if library.xla_error:
        raise unittest.SkipTest(library.xla_error)


def _lower_largest_token(step, sequences, logits):
    del step
    return tf.where(tf.range(_VOCABULARY) == tf.reduce_max(sequences, 1)[:, tf.newaxis], logits - 1, logits)


def _no_repeats(step, sequences, logits):
    del step
    return logits, tf.reduce_any(sequences[..., tf.newaxis] == tf.range(_VOCABULARY), 1)


_PROCESSORS = {
    "no_repeat_ngrams": _P.no_repeat_ngrams(2),
    "chain": _P.chain(
        _P.repetition_penalty(1.5),
        _P.bad_words([[1, 2], [3]]),
        _P.suppress_tokens([4], first_steps=2),
        _P.sequence_bias({(1, 2): 2.0, (3,): -1.0, (4, 5): -float("inf")}),
        _P.force_tokens([0, 7], step=7),
    ),
    "filters": _P.chain(_P.temperature(0.8), _P.top_k(9), _P.top_p(0.9), _P.min_p(0.05), _P.typical_p(0.9)),
    "of a user": _P.chain(_no_repeats, _lower_largest_token),
}


def _step(tokens, bias):
    return tf.gather(_LOGITS, tokens) + bias, bias


def _search(search, bias, options, batch_size=2):
    return search(_step, bias, batch_size=batch_size, bos_id=1, eos_ids=[0, 7], **{"max_length": 8, **options})


class CompiledTest(parameterized.TestCase, tf.test.TestCase):
    def _check(self, search, **options):
        def run(bias):
            return _search(search, bias, options)

        expected = run(tf.constant(_BIAS))
        found = tf.function(run, jit_compile=True, autograph=False)(tf.constant(_BIAS))
        self.assertAllEqual(found.sequences, expected.sequences)
        self.assertAllEqual(found.lengths, expected.lengths)
        self.assertAllClose(found.log_probs, expected.log_probs, rtol=1e-5)

    @parameterized.parameters(
        {"length_penalty": 0.8, "min_length": 3, "num_return_sequences": 2, "early_stopping": "never"},
        {"num_groups": 3, "diversity_penalty": 0.5, "prompt": np.array([[4, 5], [6, 8]]), "prompt_lengths": [1, 2]},
        {"cut_off": "count", "length_normalization": "length", "length_penalty": 1.0},
    )
    def test_beam_search(self, **options):
        self._check(tfo.seq2seq.beam_search, beam_width=3, **options)

    @parameterized.parameters(*_PROCESSORS)
    def test_beam_search_with_processor(self, name):
        self._check(tfo.seq2seq.beam_search, beam_width=3, logits_processor=_PROCESSORS[name])

    @parameterized.parameters(
        {"top_k": 5, "num_return_sequences": 2, "prompt": np.array([[4, 5], [6, 8]])},
        {"top_p": 0.8, "temperature": 0.7, "min_length": 2, "min_p": 0.05, "typical_p": 0.9},
    )
    def test_sample(self, **options):
        self._check(tfo.seq2seq.sample, seed=[1, 2], **options)

    def test_stochastic_beam_search(self):
        processor = _PROCESSORS["no_repeat_ngrams"]
        self._check(tfo.seq2seq.stochastic_beam_search, beam_width=3, seed=[1, 2], logits_processor=processor)

    def test_sizes_that_are_tensors(self):
        def run(bias, max_length):
            return _search(
                tfo.seq2seq.beam_search, bias, {"beam_width": 3, "max_length": max_length}, tf.shape(bias)[0]
            ).sequences

        compiled = tf.function(run, jit_compile=True, autograph=False)
        for batch, max_length in ((2, 5), (1, 3)):
            bias = tf.constant(_BIAS[:batch])
            self.assertAllEqual(compiled(bias, tf.constant(max_length)), run(bias, max_length))


if __name__ == "__main__":
    tf.test.main()
