"""Tests of CTC decoding by hand, with a language model against sums over all paths, and of refused gradients."""

import functools
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library
from tensorflow_ops.core.python.library import ops


def _log_softmax(logits):
    logits = np.where(np.isnan(logits), -np.inf, logits)
    top = logits.max(-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def _collapse(path, blank):
    return tuple(label for label, _ in itertools.groupby(path) if label != blank)


def _all_sequences(logits, blank, score=lambda labels: 0.0):
    """Returns [(score, log probability, labels)] of all label sequences of one example, best first."""
    frames, classes = logits.shape
    logs, sums = _log_softmax(logits), {}
    for path in itertools.product(range(classes), repeat=frames):
        labels = _collapse(path, blank)
        sums[labels] = np.logaddexp(sums.get(labels, -np.inf), logs[np.arange(frames), path].sum())
    scored = [(log_prob + score(labels), log_prob, labels) for labels, log_prob in sums.items()]
    return sorted((one for one in scored if one[0] > -np.inf), reverse=True)


def _sequences(result, example):
    """Returns the label sequences of an example, as tuples, after a check of the padding."""
    labels, lengths = result.labels.numpy()[example], result.lengths.numpy()[example]
    for row, length in zip(labels, lengths, strict=True):
        assert (row[length:] == -1).all() and (row[:length] >= 0).all(), row
    return [tuple(row[:length]) for row, length in zip(labels, lengths, strict=True)]


# A language model of classes 0 to 3, by the label before; forbids 3 after 2.
_BIGRAMS = np.random.default_rng(7).normal(0, 1, [4, 4])
_BIGRAMS[2, 3] = -np.inf


def _bigram_score(blank, weight, bonus):
    def score(labels):
        pairs = zip((blank, *labels), labels, strict=False)
        return sum(weight * _BIGRAMS[pair] + bonus for pair in pairs)

    return score


class GreedyTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters((True, [1, 1, 2]), (False, [1, 1, 1, 2, 2]))
    def test_merge_repeated(self, merge_repeated, expected):
        path = tf.one_hot([[1, 1, 0, 1, 2, 2]], 3)
        labels, lengths, _ = tfo.seq2seq.ctc_greedy_decode(path, [6], merge_repeated=merge_repeated)
        self.assertAllEqual(labels[0, : lengths[0]], expected)


class LanguageModelTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(False, True)
    def test_a_wide_beam_finds_the_best_of_all_sequences(self, graph):
        logits = np.random.default_rng(8).normal(0, 1.5, [2, 5, 4])
        logits[1, 3:] = np.nan
        # Labels so far, to see that states follow their prefixes: number n + 1 is the n-th label.
        start = {"last": tf.zeros([2], tf.int32), "count": tf.zeros([2, 1], tf.float64)}

        def step_fn(labels, state):
            tf.debugging.Assert(tf.reduce_all((labels == 1) | (state["count"][:, 0] > 0)), ["empty prefix"])
            return tf.gather(_BIGRAMS, labels), {"last": labels, "count": state["count"] + 1}

        def decode(logits, lengths):
            return tfo.seq2seq.ctc_beam_search_decode(
                logits,
                lengths,
                beam_width=300,
                top_paths=20,
                blank_index=1,
                step_fn=step_fn,
                initial_state=start,
                lm_weight=0.8,
                label_bonus=0.2,
            )

        specs = [tf.TensorSpec([2, None, 4], tf.float64), tf.TensorSpec([2], tf.int64)]
        result = (tf.function(decode, specs) if graph else decode)(logits, [5, 3])
        for i, length in enumerate((5, 3)):
            expected = _all_sequences(logits[i, :length], 1, _bigram_score(1, 0.8, 0.2))[:20]
            self.assertEqual(_sequences(result, i)[: len(expected)], [one[2] for one in expected])
            self.assertAllClose(result.scores[i, : len(expected)], [one[0] for one in expected], 1e-12)
            self.assertAllClose(result.log_probs[i, : len(expected)], [one[1] for one in expected], 1e-12)

    def test_minus_1_is_the_last_class(self):
        logits = np.random.default_rng(8).normal(size=[2, 5, 4])
        bigrams = tf.constant(np.random.default_rng(9).normal(size=[4, 4]))

        def step_fn(labels, state):
            return tf.gather(bigrams, labels), state

        for decode in (
            tfo.seq2seq.ctc_greedy_decode,
            tfo.seq2seq.ctc_beam_search_decode,
            functools.partial(tfo.seq2seq.ctc_beam_search_decode, step_fn=step_fn),
        ):
            expected = decode(logits, [5, 3], blank_index=3)
            last = functools.partial(decode, logit_lengths=[5, 3], blank_index=-1)
            unknown = tf.function(last, input_signature=[tf.TensorSpec([None] * 3, tf.float64)])
            for result in (last(logits), unknown(logits)):
                for actual, value in zip(result, expected, strict=True):
                    self.assertAllEqual(actual, value)

    def test_a_state_sees_the_labels_of_its_prefix(self):
        logits = np.random.default_rng(9).normal(0, 2, [1, 6, 3])

        def step_fn(labels, state):  # counts labels: the third is forbidden
            count = state + tf.cast(labels != 0, tf.float32)
            return tf.where(count[:, tf.newaxis] >= 2, -np.inf, 0.0) * tf.ones([1, 3]), count

        @tf.function(jit_compile=library.xla_error is None, autograph=False)
        def decode(logits):
            return tfo.seq2seq.ctc_beam_search_decode(
                logits, [6], beam_width=50, top_paths=7, step_fn=step_fn, initial_state=tf.zeros([1])
            )

        expected = [one for one in _all_sequences(logits[0], 0) if len(one[2]) <= 2]
        for run in (decode, decode.python_function):
            result = run(tf.constant(logits))
            self.assertEqual(_sequences(result, 0), [one[2] for one in expected])
            self.assertAllClose(result.log_probs[0], [one[1] for one in expected], 1e-12)

    @parameterized.parameters(tf.float16, tf.float64)
    def test_scores_of_zero_change_nothing(self, dtype):
        logits = np.random.default_rng(10).normal(0, 2, [5, 25, 6])
        logits[3, 4] = logits[4, :, 2:] = -np.inf  # no sequence, one sequence
        logits[4, 0, 0] = -np.inf
        logits, lengths = tf.cast(logits, dtype), [25, 0, 14, 14, 2]
        options = {"beam_width": 9, "top_paths": 3, "label_bonus": -0.1, "pad_id": 0}
        plain = tfo.seq2seq.ctc_beam_search_decode(logits, lengths, **options)
        steps = tfo.seq2seq.ctc_beam_search_decode(
            logits, lengths, step_fn=lambda labels, state: (tf.zeros([45, 6]), state), **options
        )
        self.assertAllEqual(steps.lengths[3], [0, 0, 0])
        for ours, theirs in zip(steps, plain, strict=True):
            self.assertEqual(ours.dtype, theirs.dtype)
            self.assertAllClose(ours, theirs, 1e-6)

    def test_no_examples_and_no_frames(self):
        def step_fn(labels, state):
            return tf.zeros([tf.size(labels), 3]), state

        for batch, frames in ((0, 4), (2, 0)):
            result = tfo.seq2seq.ctc_beam_search_decode(
                tf.zeros([batch, frames, 3]), tf.zeros([batch], tf.int32), beam_width=4, top_paths=2, step_fn=step_fn
            )
            self.assertEqual(result.labels.shape, [batch, 2, frames])
            self.assertAllEqual(result.scores, [[0.0, -np.inf]] * batch if batch else np.zeros([0, 2]))


class ErrorsTest(parameterized.TestCase, tf.test.TestCase):
    def test_state_of_a_language_model(self):
        with self.assertRaisesRegex(ValueError, r"step_fn's state is \[300,2\], expected \[300,1\]"):
            tfo.seq2seq.ctc_beam_search_decode(
                tf.zeros([3, 3, 4]),
                [3, 3, 3],
                step_fn=lambda labels, state: (tf.zeros([300, 4]), tf.zeros([300, 2])),
                initial_state=tf.zeros([3, 1]),
            )

    def test_a_width_beyond_32_bits(self):
        logits, lengths = tf.zeros([4, 3, 4]), [3] * 4
        with self.assertRaisesRegex(ValueError, f"beam_width is {2**62}, expected .*2147483647"):
            ops.tensorflow_ops_ctc_beam_search_decode(
                logits, lengths, 0.0, beam_width=2**62, top_paths=2**62, blank_index=0, pad_id=-1, Tvalue=tf.float32
            )

    def test_gradients_are_errors(self):
        for decode in (tfo.seq2seq.ctc_greedy_decode, tfo.seq2seq.ctc_beam_search_decode):
            logits = tf.zeros([2, 3, 4])
            with tf.GradientTape() as tape:
                tape.watch(logits)
                log_probs = decode(logits, [3, 3]).log_probs
            with self.assertRaisesRegex(LookupError, "decode has no gradient: tfo.nn.ctc_loss"):
                tape.gradient(log_probs, logits)

    @pairwise(
        way=("eager", "graph", "XLA"),
        frames=(0, 3),
        dtype=(tf.bfloat16, tf.float32, tf.float64),
        in_a_loop=(False, True),
    )
    def test_gradients_with_a_language_model_are_errors(self, way, frames, dtype, in_a_loop):
        if way == "XLA" and library.xla_error:
            self.skipTest(library.xla_error)

        def decode(logits, state, weight):
            result = tfo.seq2seq.ctc_beam_search_decode(
                logits, [frames, 0], beam_width=2, initial_state=state, lm_weight=weight,
                step_fn=lambda labels, state: (tf.zeros([4, 4], dtype), state),
            )  # fmt: skip
            return tf.cast(tf.reduce_sum(result.scores), tf.float64)

        def gradient(number, *inputs):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                if in_a_loop:
                    total = tf.constant(0.0, tf.float64)
                    loop = (tf.constant(0), total)
                    _, total = tf.while_loop(
                        lambda i, _: i < 2,
                        lambda i, total: (i + 1, total + decode(*inputs)),
                        loop,
                        maximum_iterations=2,
                    )
                else:
                    total = decode(*inputs)
            # Without the error, a gradient of None or zeros.
            return tape.gradient(total, inputs)[number]

        inputs = tf.zeros([2, 3, 4], dtype), tf.zeros([2, 1], dtype), tf.constant(1.0, tf.float64)
        for number in range(2 if way == "eager" else 3):  # an eager lm_weight is a number
            function = gradient if way == "eager" else tf.function(gradient, jit_compile=way == "XLA", autograph=False)
            with self.assertRaisesRegex(
                LookupError if way == "eager" else tf.errors.UnimplementedError,
                "ctc_beam_search_decode has no gradient",
            ):
                function(number, *inputs)

    @parameterized.parameters(("eager", "variable"), ("graph", "tensor"), ("XLA", "variable"))
    def test_gradients_to_what_a_language_model_closes_over_are_errors(self, way, closed_over):
        if way == "XLA" and library.xla_error:
            self.skipTest(library.xla_error)
        table = tf.zeros([4, 4]) if closed_over == "tensor" else tf.Variable(tf.zeros([4, 4]))

        def gradient(logits):
            source = logits[0] if closed_over == "tensor" else table
            with tf.GradientTape() as tape:
                tape.watch(source)
                result = tfo.seq2seq.ctc_beam_search_decode(
                    tf.zeros([2, 3, 4]), [3, 2], beam_width=2,
                    step_fn=lambda labels, state: (tf.gather(source, labels), state),
                )  # fmt: skip
                total = tf.reduce_sum(result.scores)
            # Without the error, a gradient of None.
            return tape.gradient(total, source)

        function = gradient if way == "eager" else tf.function(gradient, jit_compile=way == "XLA", autograph=False)
        with self.assertRaisesRegex(
            LookupError if way == "eager" else tf.errors.UnimplementedError, "ctc_beam_search_decode has no gradient"
        ):
            tf.convert_to_tensor(function(tf.zeros([1, 4, 4])))


if __name__ == "__main__":
    tf.test.main()
