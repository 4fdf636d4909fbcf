"""Tests of logits processors against loops over rows and tokens, and of the history that they read."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from seq2seq_testing import log_probabilities, markov, process_by_definition, processor_of

import tensorflow_ops as tfo

_INF = math.inf
_processors = tfo.seq2seq.processors


_BIASES = {(2,): 1.5, (0, 1): -2, (0, 3, 1): np.float32(0.25), (3, 1): -_INF}
# A rule of seq2seq_testing.process_by_definition, and other forms of its arguments.
_RULES = [
    *(("no_repeat_ngrams", {"size": size}) for size in (1, 2, 3, 5)),
    *(("bad_words", {"words": x}) for x in ([[2]], [[0, 1], [1]], [[1, 1, 1], [2, 0], [0, 2, 1, 3]], [])),
    *(("suppress_tokens", {"ids": ids}) for ids in ([3, 0, 3], [])),
    ("suppress_tokens", {"ids": [1], "first_steps": 2}),
    ("sequence_bias", {"biases": _BIASES}, {"biases": list(_BIASES.items())}),
    *(("sequence_bias", {"biases": x}) for x in ({(1, 2, 3, 1): 2.0}, {})),
    ("force_tokens", {"ids": [2], "at": 3}, {"ids": 2, "at": tf.constant(3)}),
    ("force_tokens", {"ids": [3, 0, 3], "at": 0}),
    *(("top_k", {"k": k}) for k in (1, 3, 20)),
    *(
        (name, {key: value}, {key: tf.constant(value, tf.float64)})
        for name, key, values in (
            *(("repetition_penalty", "penalty", (1.5, 0.5)), ("temperature", "value", (0.7,))),
            *(("top_p", "p", (0.1, 0.8, 1.0)), ("min_p", "p", (0.0, 0.3, 1.0)), ("typical_p", "p", (0.2, 0.9))),
        )
        for value in values
    ),
]


class ProcessorsTest(parameterized.TestCase, tf.test.TestCase):
    def _each(self, processor):
        """Yields (sequences, logits, result) for each length, eagerly and from one trace for all lengths."""
        rng = np.random.default_rng(0)
        unknown = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None], tf.float64)
        traced = tf.function(processor, input_signature=[tf.TensorSpec([], tf.int32), *unknown])
        for length in range(12):
            sequences, logits = rng.integers(0, 4, [7, length]), rng.normal(size=[7, 4])
            logits = tf.constant(np.where(rng.random([7, 4]) < 0.1, -_INF, logits))
            for run in (processor, traced):
                yield sequences, logits, run(length, tf.constant(sequences, tf.int32), logits)

    @parameterized.parameters(*_RULES)
    def test_equals_its_definition(self, name, arguments, *other_forms):
        for form in (arguments, *other_forms):
            for sequences, logits, result in self._each(processor_of(name, form)):
                if isinstance(result, tuple):
                    kept, forbidden = result
                    self.assertAllEqual(kept, logits)
                    result = tf.where(forbidden, tf.constant(-_INF, tf.float64), kept)
                rows = zip(sequences.tolist(), logits.numpy(), strict=True)
                expected = [process_by_definition([(name, arguments)], s, len(s), x) for s, x in rows]
                self.assertAllClose(result, expected, rtol=1e-12, atol=0)

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

    @parameterized.parameters(tf.float16, tf.bfloat16, tf.float32, tf.float64)
    def test_ids_that_are_no_tokens_match_nothing(self, dtype):
        sequences, logits = tf.constant([[-1, 9, 1], [-7, -1, 4]]), tf.ones([2, 4], dtype)
        penalized = _processors.repetition_penalty(2.0)(0, sequences, logits)
        self.assertEqual(penalized.dtype, dtype)
        self.assertAllEqual(penalized, [[1, 0.5, 1, 1], [1] * 4])
        for size in (1, 2, 3):
            _, forbidden = _processors.no_repeat_ngrams(size)(0, sequences, logits)
            self.assertAllEqual(forbidden, [[False, size == 1, False, False], [False] * 4])

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


class HistoryTest(parameterized.TestCase, tf.test.TestCase):
    """Processors read the history before the tokens of the search; nothing else does."""

    @parameterized.parameters(
        (tfo.seq2seq.beam_search, {"beam_width": 2}),
        (tfo.seq2seq.sample, {"seed": [1, 2]}),
        (tfo.seq2seq.sample, {"seed": [1, 2], "num_return_sequences": 2}),
        (tfo.seq2seq.stochastic_beam_search, {"seed": [1, 2], "beam_width": 2}),
    )
    def test_is_in_front_of_the_sequences(self, search, options):
        chain = log_probabilities([0.1, 0.5, 0.4], [0.4, 0.2, 0.4], [0.6, 0.1, 0.3])
        history, seen = np.array([[7, 8, 9], [-1, 5, 6]], np.int64), []

        def processor(step, sequences, logits):
            seen.append((int(step), sequences.numpy()))
            return logits

        def run(**more):
            return search(markov(chain), (), batch_size=2, max_length=4, bos_id=0, eos_ids=[], **options, **more)

        result = run(logits_processor=processor, history=history)
        for a, b in zip(result, run(history=[[1, 2]]), strict=True):  # without a processor, it is not read
            self.assertAllEqual(a, b)
        self.assertEqual([step for step, _ in seen], [0, 1, 2, 3])
        for step, sequences in seen:
            count = len(sequences) // 2
            self.assertAllEqual(sequences[:, :3], np.repeat(history, count, 0))
            self.assertEqual(sequences.shape, (2 * count, 3 + step))
        last = seen[-1][1][:, 3:].reshape([2, -1, 3])
        for rows, sequences in zip(last.tolist(), result.sequences.numpy().reshape([2, -1, 4]), strict=True):
            self.assertContainsSubset({tuple(s[:3]) for s in sequences.tolist()[:1]}, set(map(tuple, rows)))


if __name__ == "__main__":
    tf.test.main()
