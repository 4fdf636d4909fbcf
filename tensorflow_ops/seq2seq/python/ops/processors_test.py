"""Tests of logits processors, against loops over rows and tokens, and in searches."""

import doctest
import itertools
import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_INF = math.inf
_processors = tfo.seq2seq.processors


def _forbidden_ngrams(sequence, size, vocabulary):
    """Returns whether each token would repeat an n-gram of the sequence."""
    before = {tuple(sequence[i : i + size]) for i in range(len(sequence) - size + 1)}
    return [
        len(sequence) + 1 >= size and (*sequence, t)[len(sequence) + 1 - size :] in before for t in range(vocabulary)
    ]


def _forbidden_words(sequence, words, vocabulary):
    return [any(tuple((*sequence, t)[-len(word) :]) == tuple(word) for word in words) for t in range(vocabulary)]


class ProcessorsTest(parameterized.TestCase, tf.test.TestCase):
    def _each(self, processor, rows=7, vocabulary=4, lengths=range(8), dtype=tf.float32):
        """Yields (sequences, logits, result) for each length, eagerly and from one trace for all lengths."""
        rng = np.random.default_rng(0)
        traced = tf.function(
            processor,
            input_signature=[
                tf.TensorSpec([], tf.int32),
                tf.TensorSpec([None, None], tf.int32),
                tf.TensorSpec([None, None], dtype),
            ],
        )
        for length in lengths:
            sequences = rng.integers(0, vocabulary, [rows, length])
            logits = tf.constant(rng.normal(size=[rows, vocabulary]), dtype)
            logits = tf.where(rng.random([rows, vocabulary]) < 0.1, tf.constant(-_INF, dtype), logits)
            for run in (processor, traced):
                yield sequences, logits, run(length, tf.constant(sequences, tf.int32), logits)

    def _assert_forbids(self, processor, expected, **options):
        for sequences, logits, (kept, forbidden) in self._each(processor, **options):
            self.assertAllEqual(kept, logits)
            self.assertAllEqual(forbidden, [expected(s) for s in sequences.tolist()])

    @parameterized.parameters(1, 2, 3, 5)
    def test_no_repeat_ngrams(self, size):
        self._assert_forbids(
            _processors.no_repeat_ngrams(size), lambda s: _forbidden_ngrams(s, size, 3), vocabulary=3, lengths=range(12)
        )

    @parameterized.parameters([[[2]]], [[[0, 1], [1]]], [[[1, 1, 1], [2, 0], [0, 2, 1, 3]]], [[]])
    def test_bad_words(self, words):
        self._assert_forbids(_processors.bad_words(words), lambda s: _forbidden_words(s, words, 4))

    def test_suppress_tokens(self):
        self._assert_forbids(_processors.suppress_tokens([3, 0, 3]), lambda s: [True, False, False, True])
        self._assert_forbids(_processors.suppress_tokens([]), lambda s: [False] * 4)
        self._assert_forbids(
            _processors.suppress_tokens([1], first_steps=2), lambda s: [False, len(s) < 2, False, False]
        )

    @parameterized.parameters(tf.float16, tf.bfloat16, tf.float32, tf.float64)
    def test_repetition_penalty(self, dtype):
        for penalty in (1.5, 0.5, tf.constant(1.5)):
            for sequences, logits, result in self._each(_processors.repetition_penalty(penalty), dtype=dtype):
                self.assertEqual(result.dtype, dtype)
                x = logits.numpy().astype(np.float64)
                has = np.array([[t in s for t in range(4)] for s in sequences.tolist()])
                expected = np.where(has, np.where(x < 0, x * float(penalty), x / float(penalty)), x)
                self.assertAllClose(tf.cast(result, tf.float64), expected, rtol=1e-2 if dtype.size == 2 else 1e-6)

    def test_chain(self):
        first = _processors.repetition_penalty(2.0)
        chained = _processors.chain(first, _processors.suppress_tokens([1]), _processors.bad_words([[0, 2]]))
        for sequences, logits, (result, forbidden) in self._each(chained):
            self.assertAllEqual(result, first(0, tf.constant(sequences, tf.int32), logits))
            self.assertAllEqual(forbidden, [[False, True, bool(s) and s[-1] == 0, False] for s in sequences.tolist()])
        for _, logits, result in self._each(_processors.chain()):
            self.assertAllEqual(result, logits)

    def test_docstring_examples_run(self):
        for member in (_processors, *(getattr(_processors, name) for name in _processors.__all__)):
            (test,) = doctest.DocTestFinder(recurse=False).find(member, "processors", globs={})
            self.assertNotEmpty(test.examples)
            doctest.DebugRunner(verbose=False).run(test)

    def test_no_rows(self):
        for processor in (
            _processors.no_repeat_ngrams(2),
            _processors.bad_words([[1, 2]]),
            _processors.suppress_tokens([1]),
        ):
            _, forbidden = processor(3, tf.zeros([0, 3], tf.int32), tf.zeros([0, 4]))
            self.assertEqual(forbidden.shape, [0, 4])

    def test_in_searches(self):
        """The model prefers 1 2 1 2 ...; with processors no pair repeats and 3 never occurs."""
        table = tf.constant(np.log([[1, 9, 3, 3], [1, 1, 9, 8], [1, 9, 1, 8], [9, 1, 1, 1]]), tf.float32)
        processor = _processors.chain(_processors.no_repeat_ngrams(2), _processors.suppress_tokens([3]))
        options = {"batch_size": 2, "max_length": 4, "bos_id": 0, "eos_ids": [], "logits_processor": processor}

        def step_fn(tokens, state):
            return tf.gather(table, tokens), state

        def search():
            found = tfo.seq2seq.beam_search(step_fn, (), beam_width=3, **options).sequences[:, 0]
            drawn = [
                tfo.seq2seq.sample(step_fn, (), seed=[1, 2], **more, **options).sequences
                for more in ({}, {"top_k": 3}, {"temperature": 0.0})
            ]
            return [found, *drawn]

        for run in (search, tf.function(search)):
            for sequences in run():
                for s in sequences.numpy().tolist():
                    pairs = list(itertools.pairwise(s))
                    self.assertLen(set(pairs), len(pairs))
                    self.assertNotIn(3, s)

    @parameterized.parameters(
        (lambda: _processors.repetition_penalty(0.0), "penalty is 0.0, expected a number above 0"),
        (lambda: _processors.no_repeat_ngrams(0), r"size is 0, expected an int in \[1, 2147483647\]"),
        (lambda: _processors.bad_words([[1], []]), "words have an empty one"),
        (lambda: _processors.bad_words([[-1]]), "an id is -1"),
        (lambda: _processors.suppress_tokens([0.5]), "an id is 0.5"),
        (lambda: _processors.suppress_tokens([1], first_steps=-1), "first_steps is -1"),
        (lambda: _processors.chain(None), "a processor is None, expected a function"),
    )
    def test_bad_arguments(self, call, message):
        with self.assertRaisesRegex(ValueError, message):
            call()

    def test_bad_penalty_at_run_time(self):
        @tf.function(input_signature=[tf.TensorSpec([])])
        def process(penalty):
            return _processors.repetition_penalty(penalty)(1, tf.zeros([1, 1], tf.int32), tf.ones([1, 2]))

        self.assertAllEqual(process(2.0), [[0.5, 1.0]])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "penalty is out of its range"):
            process(-1.0)

    def test_id_outside_the_vocabulary(self):
        for processor in (_processors.suppress_tokens([4]), _processors.bad_words([[4]])):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "4"):
                processor(1, tf.zeros([2, 1], tf.int32), tf.zeros([2, 4]))


if __name__ == "__main__":
    tf.test.main()
