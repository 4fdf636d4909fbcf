"""Tests of tfo.nn.crf_log_likelihood, crf_decode and crf_marginals against a loop over all tag sequences."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library


def _all_sequences(logits, transitions):
    """Returns the sequences of one example, in the order of ties, and their scores."""
    frames, tags = logits.shape
    sequences = [path[::-1] for path in itertools.product(range(tags), repeat=frames)]
    scores = [
        sum(logits[t, tag] for t, tag in enumerate(path)) + sum(transitions[a, b] for a, b in itertools.pairwise(path))
        for path in sequences
    ]
    return sequences, np.array(scores, np.float64)


def _expected(labels, logits, transitions):
    """Returns the log likelihood, marginals, expected counts, best tags and best score of one example."""
    sequences, scores = _all_sequences(logits, transitions)
    log_z = scores.max() + np.log(np.exp(scores - scores.max()).sum())
    marginals, counts = np.zeros(logits.shape), np.zeros(transitions.shape)
    for path, score in zip(sequences, scores, strict=True):
        for t, tag in enumerate(path):
            marginals[t, tag] += np.exp(score - log_z)
        for a, b in itertools.pairwise(path):
            counts[a, b] += np.exp(score - log_z)
    best = scores.argmax()
    likelihood = scores[sequences.index(tuple(labels))] - log_z
    return likelihood, marginals, counts, sequences[best], scores[best]


def _likelihood_and_gradients(labels, logits, transitions, upstream=None, **options):
    logits, transitions = tf.constant(logits), tf.constant(transitions)
    with tf.GradientTape() as tape:
        tape.watch([logits, transitions])
        likelihood = tfo.nn.crf_log_likelihood(labels, logits, transitions, **options)
    return likelihood.numpy(), *(g.numpy() for g in tape.gradient(likelihood, [logits, transitions], upstream))


_LENGTHS = np.array([5, 1, 3, 0])


def _batch(seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, [4, 5])
    logits, transitions = generator.normal(0, 2, [4, 5, 3]), generator.normal(0, 2, [3, 3])
    for i, length in enumerate(_LENGTHS):
        labels[i, length:], logits[i, length:] = -1, np.nan
    return labels, logits, transitions


class ValuesTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters((tf.int32, tf.int64), (tf.int64, tf.int32))
    def test_equals_all_sequences(self, label_dtype, length_dtype):
        labels, logits, transitions = _batch()
        upstream, lengths = np.array([1.0, -0.5, 2.0, 3.0]), tf.constant(_LENGTHS, length_dtype)
        likelihood, d_logits, d_transitions = _likelihood_and_gradients(
            tf.constant(labels, label_dtype), logits, transitions, upstream, lengths=lengths
        )
        marginals = tfo.nn.crf_marginals(logits, transitions, lengths=lengths).numpy()
        best = tfo.nn.crf_decode(logits, transitions, lengths=lengths)
        expected_d_transitions = np.zeros([3, 3])
        for i, length in enumerate(_LENGTHS):
            tags = labels[i, :length]
            expected = _expected(tags, logits[i, :length], transitions)
            self.assertAllClose(likelihood[i], expected[0], 1e-12, 1e-12)
            self.assertAllClose(marginals[i, :length], expected[1], 1e-12, 1e-12)
            self.assertAllEqual(marginals[i, length:], np.zeros([5 - length, 3]))
            one_hot = np.eye(3)[tags.astype(int)].reshape(length, 3)
            self.assertAllClose(d_logits[i, :length], upstream[i] * (one_hot - expected[1]), 1e-11, 1e-12)
            self.assertAllEqual(d_logits[i, length:], np.zeros([5 - length, 3]))
            self.assertAllEqual(best.labels[i], [*expected[3]] + [0] * (5 - length))
            self.assertAllClose(best.scores[i], expected[4], 1e-12)
            counts = -expected[2]
            for a, b in itertools.pairwise(tags):
                counts[a, b] += 1
            expected_d_transitions += upstream[i] * counts
        self.assertAllClose(d_transitions, expected_d_transitions, 1e-11, 1e-12)

    def test_without_lengths_all_frames_count(self):
        _, logits, transitions = _batch()
        expected = _expected([0, 1, 2, 0, 1], logits[0], transitions)
        actual = tfo.nn.crf_log_likelihood([[0, 1, 2, 0, 1]], logits[:1], transitions)
        self.assertAllClose(actual[0], expected[0], 1e-12)
        self.assertAllEqual(tfo.nn.crf_decode(logits[:1], transitions).labels[0], expected[3])

    def test_scores_of_decode_have_a_gradient_along_the_best_sequence(self):
        _, logits, transitions = _batch()
        with tf.GradientTape() as tape:
            variables = tf.Variable(logits), tf.Variable(transitions)
            best = tfo.nn.crf_decode(*variables, lengths=_LENGTHS)
        d_logits, d_transitions = tape.gradient(best.scores, variables, tf.constant([1.0, 2.0, 3.0, 4.0], tf.float64))
        expected_logits, expected_transitions = np.zeros([4, 5, 3]), np.zeros([3, 3])
        for i, length in enumerate(_LENGTHS):
            path = best.labels.numpy()[i, :length]
            expected_logits[i, np.arange(length), path] = i + 1
            for a, b in itertools.pairwise(path):
                expected_transitions[a, b] += i + 1
        self.assertAllEqual(d_logits, expected_logits)
        self.assertAllEqual(d_transitions, expected_transitions)

    def test_ties_go_to_the_lowest_tag(self):
        best = tfo.nn.crf_decode(tf.zeros([1, 3, 4]), tf.zeros([4, 4]))
        self.assertAllEqual(best.labels, [[0, 0, 0]])
        # From 1 and from 2 to tag 3, at equal scores.
        transitions = np.full([4, 4], -1.0)
        transitions[1, 3] = transitions[2, 3] = 0
        logits = np.array([[[-5.0, 0, 0, -5], [-5, -5, -5, 0]]])
        self.assertAllEqual(tfo.nn.crf_decode(logits, transitions).labels, [[1, 3]])


class ForwardModeTest(tf.test.TestCase):
    def test_any_batch_also_compiled(self):
        def along(labels, logits, transitions):
            tangents = tf.cos(logits), tf.sin(tf.reshape(tf.range(9.0), [3, 3]))
            with tf.autodiff.ForwardAccumulator((logits, transitions), tangents) as accumulator:
                likelihood = tfo.nn.crf_log_likelihood(labels, logits, transitions)
            return accumulator.jvp(likelihood)

        ways = [along, tf.function(along)]
        if library.xla_error is None:
            ways.append(tf.function(along, jit_compile=True))
        rng = np.random.default_rng(5)
        for batch in (0, 1, 3):
            labels = tf.constant(rng.integers(0, 3, [batch, 4]))
            logits, transitions = (tf.constant(rng.normal(size=s), tf.float32) for s in ([batch, 4, 3], [3, 3]))
            step = 1e-2
            near = [
                tfo.nn.crf_log_likelihood(
                    labels,
                    tf.cast(logits, tf.float64) + sign * step * tf.cast(tf.cos(logits), tf.float64),
                    tf.cast(transitions, tf.float64) + sign * step * np.sin(np.arange(9.0).reshape(3, 3)),
                )
                for sign in (1, -1)
            ]
            for way in ways:
                self.assertAllClose(way(labels, logits, transitions), (near[0] - near[1]) / (2 * step), atol=1e-3)


class ErrorsTest(tf.test.TestCase):
    def test_padding_before_a_tag(self):
        scores = tf.zeros([2, 4, 3]), tf.zeros([3, 3])
        calls = [tfo.nn.crf_log_likelihood, tf.function(tfo.nn.crf_log_likelihood)]
        calls += [tf.function(tfo.nn.crf_log_likelihood, jit_compile=True)] if library.xla_error is None else []
        for labels, place in (([[1, 2, 0, -1], [-1, -1, 1, 2]], "1, 0"), ([[1, -5, 0, -1], [0] * 4], "0, 1")):
            text = rf"labels\[{place}\] is -., expected \[0, 3\), and padding only at the end: pad_sequences\(p"
            for call in calls:
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, text):
                    call(labels, *scores)
        expected = tfo.nn.crf_log_likelihood([[1, 2, 0, 0], [1, 0, 0, 0]], *scores, lengths=[3, 0])
        for call in calls:
            self.assertAllEqual(call([[1, 2, 0, -1], [-1] * 4], *scores), expected)

    def test_one_hot_labels(self):
        with self.assertRaisesRegex(ValueError, r"labels has shape \[2,4,3\], expected \[\?,\?\]: .* not one-hot"):
            tfo.nn.crf_log_likelihood(tf.zeros([2, 4, 3], tf.int32), tf.zeros([2, 4, 3]), tf.zeros([3, 3]))

    def test_marginals_have_no_gradient(self):
        logits = tf.Variable(tf.zeros([1, 3, 2]))
        with self.assertRaisesRegex(LookupError, "crf_marginals has no gradient"):
            with tf.GradientTape() as tape:
                marginals = tfo.nn.crf_marginals(logits, tf.zeros([2, 2]))
            tape.gradient(marginals, logits)


if __name__ == "__main__":
    tf.test.main()
