"""Tests of logits processors, against loops over rows and tokens, and in searches."""

import doctest
import itertools
import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from seq2seq_testing import process_by_definition

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

    def _assert_equals_definition(self, processor, name, **arguments):
        for sequences, logits, result in self._each(processor, dtype=tf.float64, vocabulary=9, rows=5):
            rows = zip(sequences.tolist(), logits.numpy(), strict=True)
            expected = [process_by_definition([(name, arguments)], s, len(s), x) for s, x in rows]
            self.assertAllClose(result, expected, rtol=1e-12, atol=0)

    @parameterized.parameters(
        [{(2,): 1.5, (0, 1): -2, (0, 3, 1): np.float32(0.25), (4, 1): -_INF}],
        [{(1, 2, 3, 4): 2.0}],
        [{}],
    )
    def test_sequence_bias(self, biases):
        for given in (biases, list(biases.items())):
            self._assert_equals_definition(_processors.sequence_bias(given), "sequence_bias", biases=biases)

    def test_force_tokens(self):
        for step in (0, 3, tf.constant(3)):
            for ids in (2, [2], [4, 0, 4]):
                listed = [ids] if isinstance(ids, int) else ids
                processor = _processors.force_tokens(ids, step=step)
                self._assert_equals_definition(processor, "force_tokens", ids=listed, at=int(step))

    @parameterized.parameters(
        ("temperature", 0.7), ("top_k", 1), ("top_k", 3), ("top_k", 20), ("top_p", 0.1), ("top_p", 0.8), ("top_p", 1.0),
        ("min_p", 0.0), ("min_p", 0.3), ("min_p", 1.0), ("typical_p", 0.2), ("typical_p", 0.9),
    )  # fmt: skip
    def test_filters(self, name, value):
        key = {"temperature": "value", "top_k": "k"}.get(name, "p")
        for given in (value, tf.constant(value, tf.float64)) if name != "top_k" else (value,):
            self._assert_equals_definition(getattr(_processors, name)(given), name, **{key: value})

    def test_filters_equal_the_options_of_sample(self):
        """The same tokens are drawn, with the same seeds."""
        logits = tf.constant(np.random.default_rng(0).normal(size=[30, 30]) * 2, tf.float32)

        def step_fn(tokens, state):
            return tf.gather(logits, tokens), state

        options = {"temperature": 0.8, "top_k": 12, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.9}
        common = {"batch_size": 50, "max_length": 8, "bos_id": 0, "eos_ids": [], "seed": [1, 2]}
        for names in (*([name] for name in options if name not in ("top_k", "top_p")), list(options)):
            chained = _processors.chain(*(getattr(_processors, name)(options[name]) for name in names))
            sorted_too = {"top_p": 1 - 1e-15} if len(names) > 1 else {}  # `sample` draws from sorted tokens
            expected = tfo.seq2seq.sample(step_fn, (), **common, **{name: options[name] for name in names})
            found = tfo.seq2seq.sample(step_fn, (), logits_processor=chained, **common, **sorted_too)
            self.assertAllEqual(found.sequences, expected.sequences)

    @parameterized.parameters(tf.float16, tf.bfloat16, tf.float32, tf.float64)
    def test_filters_of_nan_and_infinity(self, dtype):
        logits = tf.constant([[0, math.nan, 1, -_INF], [_INF, 0, 0, math.nan], [-_INF] * 4], dtype)
        for processor in (
            _processors.top_k(2),
            _processors.top_p(0.99),
            _processors.min_p(0.1),
            _processors.typical_p(0.99),
        ):
            result = processor(0, tf.zeros([3, 0], tf.int32), logits)
            self.assertEqual(result.dtype, dtype)
            self.assertAllEqual(result[0], [0, -_INF, 1, -_INF])
            self.assertAllEqual(result[1:, 0], [_INF, -_INF])

    def test_ids_that_are_no_tokens_match_nothing(self):
        sequences, logits = tf.constant([[-1, 9, 1], [-7, -1, 4]]), tf.ones([2, 4])
        self.assertAllEqual(_processors.repetition_penalty(2.0)(0, sequences, logits), [[1, 0.5, 1, 1], [1] * 4])
        for size in (1, 2, 3):
            _, forbidden = _processors.no_repeat_ngrams(size)(0, sequences, logits)
            self.assertAllEqual(forbidden, [[False, size == 1, False, False], [False] * 4])

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

    def test_chain_hides_forbidden_tokens(self):
        """The second token is forbidden, so the two likeliest others are kept; it keeps its probability."""
        chained = _processors.chain(_processors.suppress_tokens([1]), _processors.top_k(2))
        result, forbidden = chained(0, tf.zeros([1, 0], tf.int32), tf.constant([[0.0, 3.0, 2.0, 1.0]]))
        self.assertAllEqual(result, [[-_INF, 3, 2, 1]])
        self.assertAllEqual(forbidden, [[False, True, False, False]])

    @parameterized.product(process_log_probs=(False, True), in_a_chain=(False, True))
    def test_forbidden_tokens_in_a_softmax(self, process_log_probs, in_a_chain):
        """Processors apply to them, too: a mask after the softmax changes no log probability of others."""
        logits = np.array([0.0, 1.0, 5.0, -2.0])
        forbid = _processors.suppress_tokens([2])
        start = logits - np.log(np.exp(logits).sum()) if process_log_probs else logits
        for rule, expected in (
            (_processors.temperature(0.5), start * 2),
            (_processors.sequence_bias({(2,): 1.5, (0,): -1.0}), start + np.array([-1, 0, 1.5, 0])),
            (
                _processors.repetition_penalty(2.0),
                np.where(start < 0, start * 2, start / 2) if process_log_probs else [0, 0.5, 2.5, -4],
            ),
        ):
            history = [[0, 1, 2, 3]]
            rule = _processors.chain(rule) if in_a_chain else rule
            if not process_log_probs:
                expected = expected - np.log(np.exp(expected).sum())
            for processor in (_processors.chain(forbid, rule), _processors.chain(rule, forbid)):
                found = tfo.seq2seq.beam_search(
                    lambda tokens, state: (tf.constant([logits] * 4), state), (), batch_size=1, beam_width=4,
                    max_length=1, bos_id=0, eos_ids=[], num_return_sequences=3, history=history,
                    logits_processor=processor, process_log_probs=process_log_probs,
                )  # fmt: skip
                tokens = found.sequences.numpy()[0, :, 0]
                self.assertCountEqual(tokens, [0, 1, 3])
                self.assertAllClose(found.log_probs[0], expected[tokens], rtol=1e-12)

    @parameterized.product(
        filtered=(("top_k", 2), ("top_p", 0.6), ("min_p", 0.3), ("typical_p", 0.6)), in_a_chain=(False, True)
    )
    def test_filters_leave_out_forbidden_tokens(self, filtered, in_a_chain):
        """They choose among the others; before the rule that forbids, among all."""
        name, value = filtered
        logits = np.array([[0.0, 5.0, 2.0, 1.0, 2.5]])
        keep = getattr(_processors, name)(value)
        none = tf.zeros([1, 0], tf.int32)

        def by_definition(x):
            return process_by_definition([(name, {"k" if name == "top_k" else "p": value})], [], 0, x[0]).reshape(1, -1)

        rule = _processors.chain(_processors.temperature(0.5), keep) if in_a_chain else keep
        scale = 2 if in_a_chain else 1
        result, forbidden = _processors.chain(_processors.suppress_tokens([1]), rule)(0, none, tf.constant(logits))
        self.assertAllEqual(forbidden, [[False, True, False, False, False]])
        hidden = np.where([[False, True, False, False, False]], -_INF, logits * scale)
        self.assertAllEqual(result, np.where(forbidden, logits * scale, by_definition(hidden)))
        result, _ = _processors.chain(rule, _processors.suppress_tokens([1]))(0, none, tf.constant(logits))
        self.assertAllEqual(result, by_definition(logits * scale))

    @parameterized.parameters("top_p", "typical_p")
    def test_filters_that_keep_all(self, name):
        """Rounded sums would remove the rarest tokens."""
        logits = tf.constant([[0.0, -50.0, -100.0, math.nan, _INF, -_INF]], tf.float64)
        self.assertAllEqual(getattr(_processors, name)(1.0)(0, tf.zeros([1, 0], tf.int32), logits), logits)

    def test_forced_tokens_in_a_chain(self):
        """They overrule processors before them, in their step, also in a chain in a chain."""
        forbid, force = _processors.suppress_tokens([1, 2]), _processors.force_tokens(1, step=1)
        before, logits = tf.zeros([1, 1], tf.int32), tf.constant([[0.0, 3.0, 2.0]])
        for chained in (_processors.chain(forbid, force), _processors.chain(forbid, _processors.chain(force))):
            result, forbidden = chained(1, before, logits)
            self.assertAllEqual(result, [[-_INF, 0, -_INF]])
            self.assertAllEqual(forbidden, [[False] * 3])
            result, forbidden = chained(0, before, logits)
            self.assertAllEqual(result, logits)
            self.assertAllEqual(forbidden, [[False, True, True]])
        _, forbidden = _processors.chain(force, forbid)(1, before, logits)
        self.assertAllEqual(forbidden, [[False, True, True]])

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
        (
            lambda: _processors.bad_words([[1], []]),
            "words contains an empty sequence, expected at least one token in each",
        ),
        (lambda: _processors.bad_words([[-1]]), "an id is -1"),
        (lambda: _processors.suppress_tokens([0.5]), "an id is 0.5"),
        (lambda: _processors.suppress_tokens([1], first_steps=-1), "first_steps is -1"),
        (lambda: _processors.chain(None), "a processor is None, expected a function"),
        (lambda: _processors.sequence_bias({(): 1.0}), "biases contains an empty sequence"),
        (lambda: _processors.sequence_bias({(1, -1): 1.0}), "an id is -1"),
        (lambda: _processors.sequence_bias({(1,): _INF}), "a bias is inf, expected a number below"),
        (lambda: _processors.sequence_bias({(1,): math.nan}), "a bias is nan"),
        (lambda: _processors.sequence_bias({1: 2.0}), "biases is {1: 2.0}, expected a dict from tuples"),
        (lambda: _processors.sequence_bias([(1, 2, 3)]), r"biases is \[\(1, 2, 3\)\], expected a dict from tuples"),
        (lambda: _processors.sequence_bias(3), "biases is 3, expected a dict from tuples"),
        (lambda: _processors.force_tokens([], step=0), "ids is empty, expected at least one token"),
        (lambda: _processors.force_tokens(-1, step=0), "an id is -1"),
        (lambda: _processors.force_tokens(1, step=-1), "step is -1, expected an int in"),
        (lambda: _processors.temperature(0.0), "temperature is 0.0, expected a finite number above 0"),
        (lambda: _processors.top_k(0), "top_k is 0, expected an int in"),
        (lambda: _processors.top_p(0.0), "top_p is 0.0, expected a number above 0, at most 1"),
        (lambda: _processors.min_p(1.5), r"min_p is 1.5, expected a number in \[0, 1\]"),
        (lambda: _processors.typical_p(0.0), "typical_p is 0.0, expected a number above 0, at most 1"),
    )
    def test_bad_arguments(self, call, message):
        with self.assertRaisesRegex(ValueError, message):
            call()

    def test_bad_penalty_at_run_time(self):
        @tf.function(input_signature=[tf.TensorSpec([])])
        def process(penalty):
            return _processors.repetition_penalty(penalty)(1, tf.zeros([1, 1], tf.int32), tf.ones([1, 2]))

        self.assertAllEqual(process(2.0), [[0.5, 1.0]])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "penalty is -1, expected a number above 0"):
            process(-1.0)

    def test_id_outside_the_vocabulary(self):
        for processor in (
            _processors.suppress_tokens([4]),
            _processors.bad_words([[1, 4]]),
            _processors.sequence_bias({(1, 4): 1.0}),
            _processors.force_tokens(4, step=5),
        ):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "4"):
                processor(1, tf.zeros([2, 1], tf.int32), tf.zeros([2, 4]))


if __name__ == "__main__":
    tf.test.main()
