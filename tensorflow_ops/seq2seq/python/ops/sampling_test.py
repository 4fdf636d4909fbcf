"""Tests of sample: distributions, seeds, log probabilities and their gradient."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_INF, _NAN = math.inf, math.nan


def _constant(logits, dtype=tf.float32):
    """Returns a step_fn with the same logits in every step."""
    row = tf.constant(logits, dtype)
    return lambda tokens, state: (tf.repeat(row[tf.newaxis], tf.shape(tokens)[0], 0), state)


def _chain(vocabulary=6, seed=0):
    table = tf.constant(np.random.default_rng(seed).normal(size=[vocabulary, vocabulary]))
    return table, lambda tokens, state: (tf.gather(table, tokens), state)


def _sample(step_fn, **options):
    options = {"batch_size": 4, "max_length": 6, "bos_id": 0, "eos_ids": [], "seed": [1, 2], **options}
    return tfo.seq2seq.sample(step_fn, (), **options)


class DistributionTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        ({}, [0.5, 0.3, 0.15, 0.05]),
        ({"temperature": 0.5}, np.square([0.5, 0.3, 0.15, 0.05]) / np.square([0.5, 0.3, 0.15, 0.05]).sum()),
        ({"top_k": 2}, [0.5 / 0.8, 0.3 / 0.8, 0, 0]),
        ({"top_k": 9}, [0.5, 0.3, 0.15, 0.05]),
        ({"top_p": 0.7}, [0.5 / 0.8, 0.3 / 0.8, 0, 0]),
        ({"top_p": 0.81}, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        ({"top_p": 1e-9}, [1, 0, 0, 0]),
        # Among the top 3, the first has 0.5 / 0.95 < 0.6.
        ({"top_k": 3, "top_p": 0.6}, [0.5 / 0.8, 0.3 / 0.8, 0, 0]),
        ({"top_k": 3, "top_p": 0.5}, [1, 0, 0, 0]),
        ({"temperature": 0.0}, [1, 0, 0, 0]),
        ({"temperature": tf.constant(0.0)}, [1, 0, 0, 0]),
        ({"min_p": 0.31}, [0.5 / 0.8, 0.3 / 0.8, 0, 0]),
        ({"min_p": 0.29}, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        ({"min_p": 1.0}, [1, 0, 0, 0]),
        ({"min_p": tf.constant(0.31), "top_k": 1}, [1, 0, 0, 0]),
        # 0.09 / 0.25 < 0.37
        ({"min_p": 0.37, "temperature": 0.5}, [1, 0, 0, 0]),
        # The entropy is 1.142, -log p is 0.69, 1.20, 1.90, 3.0: the second is nearest, then the first and the third.
        ({"typical_p": 0.2}, [0, 1, 0, 0]),
        ({"typical_p": 0.31}, [0.5 / 0.8, 0.3 / 0.8, 0, 0]),
        ({"typical_p": tf.constant(0.81)}, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        # Among the first two, the entropy is 0.662 and -log p is 0.47 and 0.98.
        ({"typical_p": 0.5, "top_p": 0.7}, [1, 0, 0, 0]),
        # The first has 0.25 / 0.365 < 0.7.
        ({"temperature": tf.constant(0.5, tf.float64), "top_p": tf.constant(0.7)}, [0.25 / 0.34, 0.09 / 0.34, 0, 0]),
    )
    def test_frequencies_match_the_probabilities(self, options, expected):
        order = [2, 0, 3, 1]  # the most likely token is not the first
        logits = np.empty(4)
        logits[order] = np.log([0.5, 0.3, 0.15, 0.05]) + 7
        count = 20000
        # Few steps of many sequences, because eager steps are slow.
        result = _sample(_constant(logits), batch_size=count // 5, max_length=5, **options)
        drawn = np.bincount(result.sequences.numpy().reshape(-1), minlength=4)[order] / count
        expected = np.array(expected)
        np.testing.assert_array_equal(drawn[expected == 0], 0)
        error = np.abs(drawn - expected)[expected > 0]
        # within five standard deviations
        self.assertTrue((error <= 5 * np.sqrt(expected * (1 - expected) / count)[expected > 0] + 1e-12).all(), drawn)

    @parameterized.parameters(tf.float16, tf.bfloat16, tf.float32, tf.float64)
    def test_nan_and_infinity(self, dtype):
        for options in ({}, {"top_k": 3}, {"top_p": 0.9}, {"temperature": 0.0}):
            logits = [0.0, _NAN, 0.0, -_INF]
            result = _sample(_constant(logits, dtype), batch_size=50, **options)
            self.assertContainsSubset(set(result.sequences.numpy().reshape(-1).tolist()), {0, 2})
            self.assertAllClose(result.log_probs, [6 * math.log(0.5)] * 50, rtol=1e-3)
            result = _sample(_constant([0.0, _INF, _NAN], dtype), batch_size=3, **options)
            self.assertAllEqual(result.sequences, [[1] * 6] * 3)
            self.assertAllEqual(result.log_probs, [0] * 3)

    def test_no_token_ends_the_sequence(self):
        for options in ({}, {"top_k": 2}, {"top_p": 0.9}, {"temperature": 0.0}):
            result = _sample(_constant([-_INF, _NAN]), eos_ids=1, pad_id=5, **options)
            self.assertAllEqual(result.sequences, [[1, 5, 5, 5, 5, 5]] * 4)
            self.assertAllEqual(result.lengths, [1] * 4)
            self.assertAllEqual(result.log_probs, [-_INF] * 4)


class SequenceTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters({}, {"top_k": 3}, {"top_p": 0.8}, {"temperature": 2.0}, {"temperature": 0.0})
    def test_ends_and_log_probabilities(self, **options):
        table, step_fn = _chain()
        result = _sample(step_fn, batch_size=40, max_length=9, eos_ids=[2, 4], pad_id=-1, min_length=2, **options)
        log_p = tf.math.log_softmax(table).numpy()
        for tokens, length, log_prob in zip(*(t.numpy() for t in result), strict=True):
            self.assertAllEqual(tokens[length:], [-1] * (9 - length))
            tokens = tokens[:length]
            ends = np.isin(tokens, [2, 4])
            self.assertFalse(ends[:-1].any())
            self.assertTrue(ends[-1] or length == 9)
            self.assertGreater(length, 2)
            self.assertAllClose(log_prob, log_p[[0, *tokens[:-1]], tokens].sum(), rtol=1e-12)
        self.assertGreater(len(set(result.lengths.numpy())), 1 if options.get("temperature") != 0 else 0)

    def test_greedy_equals_beam_width_1(self):
        _, step_fn = _chain(30)
        drawn = _sample(step_fn, temperature=0.0, eos_ids=3, max_length=20)
        found = tfo.seq2seq.beam_search(
            step_fn, (), batch_size=4, beam_width=1, max_length=21, bos_id=0, eos_ids=3, pad_id=3
        )
        length = int(drawn.lengths[0])
        self.assertAllEqual(drawn.sequences[:, :length], found.sequences[:, 0, :length])

    def test_greedy_ties_go_to_the_lowest_token(self):
        for temperature in (0.0, tf.constant(0.0)):
            result = _sample(_constant([0.0, 1.0, 1.0]), temperature=temperature)
            self.assertAllEqual(result.sequences, [[1] * 6] * 4)

    def test_state_stays_with_its_example(self):
        def step_fn(tokens, state):
            del tokens
            return tf.one_hot(state["next"], 9) * 100, {"next": state["next"] + 1}

        result = tfo.seq2seq.sample(
            step_fn, {"next": tf.constant([0, 3])}, batch_size=2, max_length=4, bos_id=0, eos_ids=5, seed=[0, 0]
        )
        self.assertAllEqual(result.sequences, [[0, 1, 2, 3], [3, 4, 5, 5]])
        self.assertAllEqual(result.lengths, [4, 3])

    def test_several_sequences_for_each_example(self):
        table, step_fn = _chain()
        options = {"batch_size": 3, "max_length": 5, "bos_id": [0, 1, 2], "eos_ids": 3, "top_p": 0.9}

        def draw(count, seed):
            return tfo.seq2seq.sample(step_fn, (), seed=seed, num_return_sequences=count, **options)

        result = draw(4, [1, 2])
        self.assertEqual([t.shape for t in result], [[3, 4, 5], [3, 4], [3, 4]])
        self.assertLen({tuple(s) for s in result.sequences[0].numpy()}, 4)
        log_p = tf.math.log_softmax(table).numpy()
        for b in range(3):
            for tokens, length, log_prob in zip(*(t[b].numpy() for t in result), strict=True):
                tokens = tokens[:length]
                self.assertAllClose(log_prob, log_p[[b, *tokens[:-1]], tokens].sum(), rtol=1e-12)
        # Results are the same for fewer sequences and per-example seeds.
        self.assertAllEqual(draw(2, [1, 2]).sequences, result.sequences[:, :2])
        self.assertAllEqual(draw(4, tf.random.split([1, 2], 3)).sequences, result.sequences)

    def test_states_of_several_sequences(self):
        def step_fn(tokens, state):
            del tokens
            return tf.one_hot(state, 9) * 100, state + 1

        result = tfo.seq2seq.sample(
            step_fn, tf.constant([0, 3]), batch_size=2, max_length=2, bos_id=0, eos_ids=[], seed=[0, 0],
            num_return_sequences=2,
        )  # fmt: skip
        self.assertAllEqual(result.sequences, [[[0, 1]] * 2, [[3, 4]] * 2])

    def test_prompt(self):
        table, step_fn = _chain()
        log_p = tf.math.log_softmax(table).numpy()
        options = {"eos_ids": 2, "pad_id": -1, "prompt": [[2, 2, 9], [4, 0, 0], [5, 5, 5], [0, 0, 0]]}
        for more in ({}, {"num_return_sequences": 3}, {"top_k": 2}, {"temperature": 0.0}):
            result = _sample(step_fn, prompt_lengths=[2, 1, 3, 0], **options, **more)
            rows = [tf.reshape(t, [-1, *t.shape[len(t.shape) - (k == 0) :]]) for k, t in enumerate(result)]
            count = more.get("num_return_sequences", 1)
            for i, (tokens, length, log_prob) in enumerate(zip(*(r.numpy() for r in rows), strict=True)):
                prompt = [[2, 2], [4], [5, 5, 5], []][i // count]
                self.assertAllEqual(tokens[: len(prompt)], prompt)
                self.assertFalse((tokens[len(prompt) : length - 1] == 2).any())
                self.assertTrue(length == 6 or tokens[length - 1] == 2)
                self.assertAllEqual(tokens[length:], [-1] * (6 - length))
                tokens = tokens[:length]
                self.assertAllClose(log_prob, log_p[[0, *tokens[:-1]], tokens].sum(), rtol=1e-12)
        result = _sample(step_fn, max_length=3, prompt=[[2, 2, 2]] * 4, eos_ids=[])
        self.assertAllEqual(result.sequences, [[2, 2, 2]] * 4)

    def test_log_probs_ignore_the_processor(self):
        table, step_fn = _chain()
        log_p = tf.math.log_softmax(table).numpy()

        def processor(step, sequences, logits):
            self.assertAllEqual(sequences.shape, [4, step])
            return tf.where(tf.range(6) < 2, math.nan, logits), tf.repeat([[False] * 5 + [True]], 4, 0)

        for more in ({}, {"top_k": 3}, {"top_p": 0.9}, {"temperature": 0.0}):
            result = _sample(step_fn, logits_processor=processor, **more)
            self.assertContainsSubset(set(result.sequences.numpy().reshape(-1).tolist()), {2, 3, 4})
            for tokens, log_prob in zip(result.sequences.numpy(), result.log_probs.numpy(), strict=True):
                self.assertAllClose(log_prob, log_p[[0, *tokens[:-1]], tokens].sum(), rtol=1e-12)

    def test_policy_gradient(self):
        """The gradient of a drawn token's log probability is its one-hot vector minus the probabilities."""
        table = tf.Variable(np.random.default_rng(1).normal(size=[4, 4]))

        def draw():
            return _sample(lambda tokens, state: (tf.gather(table, tokens), state), eos_ids=3, top_p=0.9)

        for run in (draw, tf.function(draw)):
            with tf.GradientTape() as tape:
                result = run()
                total = tf.reduce_sum(result.log_probs)
            gradient = tf.convert_to_tensor(tape.gradient(total, table))
            p = tf.nn.softmax(table).numpy()
            expected = np.zeros([4, 4])
            for tokens, length in zip(result.sequences.numpy(), result.lengths.numpy(), strict=True):
                for before, token in zip([0, *tokens[: length - 1]], tokens[:length], strict=True):
                    expected[before] -= p[before]
                    expected[before, token] += 1
            self.assertAllClose(gradient, expected, rtol=1e-10, atol=1e-10)


class SeedTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters({}, {"top_k": 3}, {"top_p": 0.8})
    def test_same_seed_same_sequences(self, **options):
        _, step_fn = _chain(20)
        first = _sample(step_fn, **options).sequences
        self.assertAllEqual(_sample(step_fn, **options).sequences, first)
        self.assertAllEqual(tf.function(lambda: _sample(step_fn, **options).sequences)(), first)
        self.assertNotAllEqual(_sample(step_fn, seed=[1, 3], **options).sequences, first)
        self.assertNotAllEqual(first[0], first[1])

    def test_examples_do_not_depend_on_batch_and_length(self):
        _, step_fn = _chain(20)
        expected = _sample(step_fn, batch_size=8).sequences
        self.assertAllEqual(_sample(step_fn, batch_size=3).sequences, expected[:3])
        self.assertAllEqual(_sample(step_fn, batch_size=8, max_length=4).sequences, expected[:, :4])
        seeds = tf.random.split([1, 2], 8)
        self.assertAllEqual(_sample(step_fn, batch_size=5, seed=seeds[3:]).sequences, expected[3:])


if __name__ == "__main__":
    tf.test.main()
