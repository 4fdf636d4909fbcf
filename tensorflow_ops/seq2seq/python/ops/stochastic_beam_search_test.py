"""Tests of stochastic_beam_search: frequencies, log probabilities, seeds, gradients."""

import itertools
import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_INF = math.inf
# The probabilities of 0 (start and end), 1 and 2 after each of them.
_CHAIN = np.array([[0.3, 0.5, 0.2], [0.4, 0.0, 0.6], [0.7, 0.3, 0.0]])


def _log(p):
    with np.errstate(divide="ignore"):
        return np.log(p)


def _step_fn(dtype=tf.float32, chain=_CHAIN):
    table = tf.constant(_log(chain), dtype)
    return lambda tokens, state: (tf.gather(table, tokens), state)


def _every_sequence(chain, max_length):
    """Returns {tokens: probability} of all sequences. Sequences of max_length may lack the end token."""
    found = {}
    for length in range(1, max_length + 1):
        for body in itertools.product((1, 2), repeat=length):
            for tokens in ((*body[:-1], 0), body if length == max_length else ()):
                p = math.prod(chain[a, b] for a, b in itertools.pairwise((0, *tokens)))
                if tokens and p > 0:
                    found[tokens] = p
    return found


def _search(step_fn=None, **options):
    options = {"batch_size": 3, "beam_width": 4, "max_length": 3, "bos_id": 0, "eos_ids": 0, "seed": [1, 2], **options}
    return tfo.seq2seq.stochastic_beam_search(step_fn or _step_fn(), (), **options)


def _tokens(result, example):
    rows = zip(np.asarray(result.sequences[example]).tolist(), np.asarray(result.lengths[example]), strict=True)
    return [tuple(s[:n]) for s, n in rows if n]


class DistributionTest(parameterized.TestCase, tf.test.TestCase):
    def _assert_draws(self, every, **options):
        """Asserts that ordered pairs are as frequent as when drawing twice without replacement."""
        count = 6000
        # In a graph, because eager steps are slow.
        result = tf.function(lambda: _search(batch_size=count, beam_width=2, **options))()
        result = tf.nest.map_structure(np.asarray, result)  # slices of tensors are slow, too
        pairs = {}
        for example in range(count):
            pair = tuple(_tokens(result, example))
            pairs[pair] = pairs.get(pair, 0) + 1
        total = sum(every.values())
        self.assertContainsSubset(set(itertools.chain(*pairs)), set(every))
        for first, second in itertools.permutations(every, 2):
            p = every[first] / total
            expected = p * every[second] / (total - every[first])
            error = abs(pairs.get((first, second), 0) / count - expected)
            self.assertLess(error, 5 * math.sqrt(expected * (1 - expected) / count) + 1e-12, (first, second))

    def test_draws_without_replacement(self):
        self._assert_draws(_every_sequence(_CHAIN, 3))

    def test_temperature(self):
        chain = _CHAIN**2 / (_CHAIN**2).sum(-1, keepdims=True)
        self._assert_draws(_every_sequence(chain, 2), max_length=2, temperature=tf.constant(0.5))

    @parameterized.parameters({"top_k": 2, "top_p": 0.75, "min_p": 0.5}, {"logits_processor": None})
    def test_filters(self, **options):
        # Each filter keeps the two most likely tokens in the first step, and all tokens in later steps.
        chain = _CHAIN.copy()
        chain[0] = [0.375, 0.625, 0]
        if "logits_processor" in options:
            options = {"logits_processor": tfo.seq2seq.processors.suppress_tokens([2], first_steps=1)}
        self._assert_draws(_every_sequence(chain, 2), max_length=2, **options)


class SequencesTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(tf.float16, tf.float64)
    def test_all_sequences(self, dtype):
        """The beam is wider than the number of sequences."""
        every = _every_sequence(_CHAIN, 3)
        for run in (lambda f: f(), lambda f: tf.function(f)()):
            result = run(lambda: _search(_step_fn(dtype), beam_width=len(every) + 3, pad_id=9))
            self.assertEqual(result.log_probs.dtype, tf.float64 if dtype == tf.float64 else tf.float32)
            for example in range(3):
                found = _tokens(result, example)
                self.assertLen(found, len(every))
                self.assertEqual(set(found), set(every))
                rtol = {2: 3e-2, 4: 1e-6, 8: 1e-12}[dtype.size]
                expected = [math.log(every[tokens]) for tokens in found]
                self.assertAllClose(result.log_probs[example, : len(every)], expected, rtol=rtol, atol=rtol)
                self.assertAllEqual(result.log_probs[example, len(every) :], [-_INF] * 3)
                self.assertAllEqual(result.perturbed_log_probs[example, len(every) :], [-_INF] * 3)
                self.assertAllEqual(result.sequences[example, len(every) :], [[9] * 3] * 3)
                falling = result.perturbed_log_probs[example, : len(every)].numpy()
                self.assertTrue((falling[:-1] > falling[1:]).all())
                for row, tokens in zip(result.sequences[example].numpy(), found, strict=False):
                    self.assertAllEqual(row[len(tokens) :], [9] * (3 - len(tokens)))

    def test_estimates_are_unbiased(self):
        """Estimates the probability of an event by importance weighting of a few sequences."""
        result = tf.function(lambda: _search(batch_size=4000, beam_width=4))()
        p, perturbed = np.exp(result.log_probs.numpy().astype(float)), result.perturbed_log_probs.numpy()
        q = -np.expm1(-np.exp(result.log_probs[:, :-1].numpy() - perturbed[:, -1:]))
        is_long = result.lengths[:, :-1].numpy() == 3
        terms = (is_long * p[:, :-1] / q).sum(-1)
        expected = sum(p for tokens, p in _every_sequence(_CHAIN, 3).items() if len(tokens) == 3)
        self.assertLess(abs(terms.mean() - expected), 5 * terms.std() / math.sqrt(len(terms)))

    def test_each_example_has_its_own_seed(self):
        seeds = tf.random.split([1, 2], 3)
        whole = _search()
        self.assertAllEqual(_search(seed=seeds).sequences, whole.sequences)
        part = _search(batch_size=2, seed=seeds[1:])
        for mine, other in zip(part, whole, strict=True):
            self.assertAllEqual(mine, other[1:])
        self.assertNotAllEqual(_search(seed=[3, 4]).perturbed_log_probs, whole.perturbed_log_probs)

    def test_states_follow_their_sequences(self):
        """The state sums the tokens so far; sequences change rows between steps."""
        table = tf.constant(np.random.default_rng(0).normal(size=[9, 9]), tf.float64)

        def step_fn(tokens, state):
            return tf.gather(table, tf.math.floormod(state + tokens, 9)), state + tokens

        result = tfo.seq2seq.stochastic_beam_search(
            step_fn, tf.constant([0, 5]), batch_size=2, beam_width=5, max_length=6, bos_id=0, eos_ids=8, seed=[1, 2]
        )
        log_p = tf.math.log_softmax(table).numpy()
        for example, start in enumerate((0, 5)):
            found = _tokens(result, example)
            self.assertLen(set(found), 5)
            for tokens, log_prob in zip(found, result.log_probs[example].numpy(), strict=True):
                sums = start + np.cumsum((0, *tokens))[:-1]
                self.assertAllClose(log_prob, log_p[sums % 9, tokens].sum(), rtol=1e-12)

    def test_prompt_and_min_length(self):
        result = _search(max_length=4, prompt=[[0, 1], [2, 9], [9, 9]], prompt_lengths=[2, 1, 0], min_length=3)
        for example, prompt in enumerate(((0, 1), (2,), ())):
            found = _tokens(result, example)
            self.assertLen(set(found), len(found))
            for tokens, log_prob in zip(found, result.log_probs[example].numpy(), strict=False):
                self.assertEqual(tokens[: len(prompt)], prompt)
                self.assertNotIn(0, tokens[len(prompt) : 3])
                p = math.prod(_CHAIN[a, b] for a, b in itertools.pairwise((0, *tokens)))
                self.assertAllClose(log_prob, math.log(p), rtol=1e-5)

    def test_gradient_of_log_probs(self):
        logits = tf.constant(np.random.default_rng(1).normal(size=[3, 3]))
        expected = _search(lambda tokens, state: (tf.gather(logits, tokens), state))
        with tf.GradientTape() as tape:
            tape.watch(logits)
            result = _search(lambda tokens, state: (tf.gather(logits, tokens), state))
        self.assertAllEqual(result.sequences, expected.sequences)
        found = tf.convert_to_tensor(tape.gradient(result.log_probs, logits))
        p = tf.nn.softmax(logits).numpy()
        total = np.zeros([3, 3])
        for example in range(3):
            for tokens in _tokens(result, example):
                for a, b in itertools.pairwise((0, *tokens)):
                    total[a] += np.eye(3)[b] - p[a]
        self.assertAllClose(found, total, rtol=1e-9, atol=1e-12)

    def test_no_token_is_left(self):
        result = _search(_step_fn(chain=np.array([[0, 1.0, 0], [0, 0, 0], [0, 0, 0]])))
        self.assertAllEqual(result.lengths, [[0] * 4] * 3)
        self.assertAllEqual(result.log_probs, [[-_INF] * 4] * 3)
        self.assertAllEqual(result.sequences, np.zeros([3, 4, 3]))


if __name__ == "__main__":
    tf.test.main()
