"""Tests of beam_search against a list-based reference, exhaustive search, and hand-computed results.

seq2seq_checks_test.py tests arguments, beam_search_property_test.py invariants, seq2seq_graph_test.py graphs, XLA and
processes.
"""

import itertools
import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise
from seq2seq_testing import log_probabilities, markov, process_by_definition, processor_of

import tensorflow_ops as tfo

_INF = math.inf


def _log_softmax(x):
    x = np.where(np.isnan(x), -_INF, np.minimum(x, np.finfo(np.float64).max))
    largest = x.max()
    if largest == -_INF:
        return x
    return x - largest - np.log(np.exp(x - largest).sum())


class Rnn:
    """A recurrent model with random weights. Logits depend on the example and on all its tokens so far."""

    def __init__(self, rng, batch, vocabulary, scale=3.0, masked=0.0):
        size = 5
        self.embedding = rng.normal(size=[vocabulary, size])
        self.recurrent = rng.normal(size=[size, size]) / math.sqrt(size)
        self.out = rng.normal(size=[size, vocabulary]) * scale / math.sqrt(size)
        self.bias = np.where(rng.random([vocabulary]) < masked, -_INF, rng.normal(size=[vocabulary]))
        self.first = rng.normal(size=[batch, size])
        self.vocabulary = vocabulary

    def initial_state(self):
        # A nest whose leaves both affect the logits, so that mixed-up rows change the result.
        return {"hidden": tf.constant(self.first), "more": (tf.zeros([len(self.first), 1], tf.int32),)}

    def step_fn(self, tokens, state):
        hidden = tf.tanh(tf.matmul(state["hidden"], self.recurrent) + tf.gather(self.embedding, tokens))
        count = state["more"][0] + 1
        logits = tf.matmul(hidden, self.out) + self.bias + 0.1 * tf.cast(count % 3, tf.float64) * self.out[0]
        return logits, {"hidden": hidden, "more": (count,)}

    def logits(self, example, bos_id, prefix):
        """Returns the logits of the token after a prefix."""
        hidden = self.first[example]
        for token in (bos_id, *prefix):
            hidden = np.tanh(hidden @ self.recurrent + self.embedding[token])
        return hidden @ self.out + self.bias + 0.1 * ((len(prefix) + 1) % 3) * self.out[0]


def _search(
    logits_fn,
    *,
    beam_width,
    max_length,
    eos_ids,
    min_length=0,
    length_penalty=0.0,
    length_normalization="gnmt",
    cut_off="end",
    early_stopping=True,
    num_return_sequences=1,
    num_groups=1,
    diversity_penalty=0.0,
    prompt=(),
    history=(),
    rules=(),
):
    """Searches for one example with lists of prefixes.

    Returns [(score, log probability, tokens)], best first.
    """
    width = beam_width // num_groups
    live = [[(0.0, 0.0, ())] for _ in range(num_groups)]  # (log probability minus penalties, penalties, tokens)
    ended = [[] for _ in range(num_groups)]
    done = [False] * num_groups
    if beam_width == 1:
        early_stopping = True

    counts = cut_off == "count" or not eos_ids

    def score(log_prob, length):
        return log_prob / ((5 + length) / 6 if length_normalization == "gnmt" else length) ** length_penalty

    for step in range(max_length):
        if all(done):
            break
        last = step == max_length - 1
        taken = []
        for g in range(num_groups):
            if done[g]:
                continue
            candidates = []
            if step < len(prompt):
                ((log_prob, _, prefix),) = live[g]
                log_prob += _log_softmax(logits_fn(prefix))[prompt[step]]
                live[g] = [(log_prob, 0.0, (*prefix, prompt[step]))] if log_prob > -_INF else []
                ended[g] = [(score(log_prob, step + 1), log_prob, new) for *_, new in live[g] if last and counts]
                done[g] = not live[g] or last
                continue
            for beam, (log_prob, penalty, prefix) in enumerate(live[g]):
                log_probs = _log_softmax(logits_fn(prefix))
                log_probs = process_by_definition(rules, (*history, *prefix), step, log_probs)
                for token, value in enumerate(log_probs):
                    is_end = token in eos_ids
                    if value == -_INF or (not is_end if last and not counts else is_end and step < min_length):
                        continue
                    less = diversity_penalty * taken.count(token)
                    new = (log_prob + value - less, penalty + less, (*prefix, token))
                    candidates.append((-new[0], beam, token, new))
            candidates.sort(key=lambda c: c[:3])
            candidates = [(new, new[2][-1] in eos_ids) for *_, new in candidates]
            for new, is_end in candidates[:width]:
                if is_end or (last and counts):
                    ended[g].append((score(new[0], step + 1), new[0] + new[1], new[2]))
            ended[g] = sorted(ended[g], key=lambda h: -h[0])[:width]
            live[g] = [new for new, is_end in candidates if not is_end][:width]
            taken += [new[2][-1] for new in live[g]]
            if not live[g]:
                done[g] = True
            elif len(ended[g]) == width:
                best, worst = live[g][0][0], ended[g][-1][0]
                length = max_length if early_stopping == "never" and length_penalty > 0 else step + 1
                done[g] = early_stopping is True or not score(best, length) > worst
    return sorted((h for group in ended for h in group), key=lambda h: -h[0])[:num_return_sequences]


def _random_setting(seed):
    """Returns (model, options) of a search."""
    rng = np.random.default_rng(seed)
    vocabulary = int(rng.integers(2, 9))
    batch = int(rng.integers(1, 4))
    groups = int(rng.choice([1, 1, 1, 2, 3]))
    width = int(rng.integers(1, 5)) * groups
    model = Rnn(rng, batch, vocabulary, scale=rng.choice([0.3, 3.0]), masked=rng.choice([0, 0.2]))
    max_length = int(rng.integers(1, 8))
    options = {
        "beam_width": width,
        "max_length": max_length,
        "eos_ids": rng.permutation(vocabulary)[: rng.integers(0, min(3, vocabulary) + 1)].tolist(),
        "min_length": int(rng.integers(0, max_length)),
        "length_penalty": float(rng.choice([0, 0.6, 2, -0.7])),
        "early_stopping": [True, False, "never"][rng.integers(3)],
        "num_return_sequences": int(rng.integers(1, width + 1)),
        "num_groups": groups,
        "diversity_penalty": float(rng.choice([0.3, 2])) if groups > 1 else 0.0,
    }
    options["length_normalization"] = str(rng.choice(["gnmt", "length"]))
    options["cut_off"] = str(rng.choice(["end", "count"]))
    if rng.random() < 0.3:
        size = int(rng.integers(0, 5))
        max_size = min(size, max_length if options["cut_off"] == "count" or not options["eos_ids"] else max_length - 1)
        options["prompt"] = rng.integers(0, vocabulary, [batch, size])
        options["prompt_lengths"] = rng.integers(0, max_size + 1, [batch])
    return model, options


def _random_rules(rng, vocabulary, max_length):
    """Returns processors and their arguments: [(name, arguments)]."""

    def word():
        return tuple(rng.integers(0, vocabulary, [rng.integers(1, 4)]).tolist())

    rules = [
        ("sequence_bias", {"biases": {word(): float(rng.normal()) for _ in range(6)}}),
        ("repetition_penalty", {"penalty": float(rng.choice([0.7, 1.3, 3.0]))}),
        ("no_repeat_ngrams", {"size": int(rng.integers(1, 4))}),
        ("bad_words", {"words": [word() for _ in range(4)]}),
        ("suppress_tokens", {"ids": [int(rng.integers(vocabulary))], "first_steps": int(rng.integers(3))}),
        ("force_tokens", {"ids": [int(rng.integers(vocabulary))], "at": int(rng.integers(max_length))}),
        ("temperature", {"value": 1.5}),
        ("top_k", {"k": int(rng.integers(1, 5))}),
        ("top_p", {"p": 0.9}),
        ("min_p", {"p": 0.1}),
        ("typical_p", {"p": 0.9}),
    ]
    return [rule for rule in rules if rng.random() < 0.3]


class ReferenceTest(parameterized.TestCase, tf.test.TestCase):
    def assert_equals_reference(self, result, model, options, bos_id, histories=None, rules=()):
        eos_ids = options["eos_ids"]
        pad = eos_ids[0] if eos_ids else 0
        options = dict(options)
        prompts = options.pop("prompt", np.zeros([len(model.first), 0], int))
        prompts = [
            p[:n].tolist() for p, n in zip(prompts, options.pop("prompt_lengths", [0] * len(prompts)), strict=True)
        ]
        for b, (sequences, lengths, scores, log_probs) in enumerate(zip(*(x.numpy() for x in result), strict=True)):
            history = () if histories is None else [int(t) for t in histories[b] if t >= 0]
            expected = _search(
                lambda prefix, b=b: model.logits(b, bos_id, prefix),
                prompt=prompts[b],
                history=history,
                rules=rules,
                **options,
            )
            count = len(expected)
            np.testing.assert_allclose(scores[:count], [h[0] for h in expected], rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(log_probs[:count], [h[1] for h in expected], rtol=1e-12, atol=1e-12)
            for tokens, length, (*_, hypothesis) in zip(sequences, lengths, expected, strict=False):
                self.assertEqual(tuple(tokens[:length]), hypothesis)
                np.testing.assert_array_equal(tokens[length:], pad)
            np.testing.assert_array_equal(scores[count:], -_INF)
            np.testing.assert_array_equal(log_probs[count:], -_INF)
            np.testing.assert_array_equal(lengths[count:], 0)
            np.testing.assert_array_equal(sequences[count:], pad)

    @parameterized.parameters(*range(6))
    def test_equals_reference(self, block):
        for seed in range(20 * block, 20 * block + 20):
            model, options = _random_setting(seed)
            result = tfo.seq2seq.beam_search(
                model.step_fn, model.initial_state(), batch_size=len(model.first), bos_id=1, **options
            )
            self.assertEqual(result.scores.dtype, tf.float64)
            with self.subTest(seed=seed, **options):
                self.assert_equals_reference(result, model, options, 1)

    @parameterized.parameters(0, 1)
    def test_processors_equal_their_definitions(self, block):
        """They read the history, whose padding in front is no token, and tokens that are not the model's."""
        for seed in range(20 * block, 20 * block + 15):
            model, options = _random_setting(seed)
            rng = np.random.default_rng(seed)
            batch = len(model.first)
            rules = _random_rules(rng, model.vocabulary, options["max_length"])
            histories = None
            if rng.random() < 0.8:
                histories = rng.integers(0, model.vocabulary + 1, [batch, rng.integers(0, 6)])
                padding = rng.integers(0, histories.shape[1] + 1, [batch, 1])
                histories[np.arange(histories.shape[1]) < padding] = -1

            processor = tfo.seq2seq.processors.chain(*(processor_of(*rule) for rule in rules))
            result = tfo.seq2seq.beam_search(
                model.step_fn, model.initial_state(), batch_size=batch, bos_id=1, logits_processor=processor,
                process_log_probs=True, history=histories, **options,
            )  # fmt: skip
            with self.subTest(seed=seed, rules=rules, history=histories, **options):
                self.assert_equals_reference(result, model, options, 1, histories, rules)


class ExhaustiveTest(parameterized.TestCase, tf.test.TestCase):
    """A beam that holds all prefixes finds the best of all sequences."""

    @pairwise(seed=(0, 1), length_penalty=(0.0, 1.0, -0.5), vocabulary=(2, 3))
    def test_finds_the_best(self, seed, length_penalty, vocabulary):
        max_length, eos = (5 if vocabulary == 2 else 4), 0
        model = Rnn(np.random.default_rng(seed), 1, vocabulary)
        every = []
        for length in range(1, max_length + 1):
            for body in itertools.product(range(1, vocabulary), repeat=length - 1):
                tokens = (*body, eos)
                log_prob = sum(_log_softmax(model.logits(0, 0, tokens[:i]))[tokens[i]] for i in range(length))
                every.append((log_prob / ((5 + length) / 6) ** length_penalty, log_prob, tokens))
        every.sort(key=lambda h: -h[0])
        width = max((vocabulary - 1) ** max_length * vocabulary, len(every))
        count = min(5, len(every))
        result = tfo.seq2seq.beam_search(
            model.step_fn,
            model.initial_state(),
            batch_size=1,
            beam_width=width,
            max_length=max_length,
            bos_id=0,
            eos_ids=eos,
            length_penalty=length_penalty,
            early_stopping="never",
            num_return_sequences=count,
        )
        self.assertAllClose(result.scores[0], [h[0] for h in every[:count]], rtol=1e-12)
        for sequence, length, (*_, tokens) in zip(result.sequences[0], result.lengths[0], every, strict=False):
            self.assertAllEqual(sequence[:length], tokens)


class ByHandTest(parameterized.TestCase, tf.test.TestCase):
    # 0 is start and end. The probabilities of 0, 1 and 2 after 0, after 1 and after 2.
    _CHAIN = log_probabilities([0.1, 0.5, 0.4], [0.4, 0, 0.6], [0.9, 0.1, 0])

    def _search(self, chain=None, **options):
        options = {"batch_size": 1, "beam_width": 2, "max_length": 4, "bos_id": 0, "eos_ids": 0, **options}
        chain = self._CHAIN if chain is None else chain
        return tfo.seq2seq.beam_search(markov(chain), (), **options)

    def test_beam_finds_what_greedy_search_misses(self):
        greedy = self._search(beam_width=1)
        self.assertAllEqual(greedy.sequences, [[[1, 2, 0, 0]]])
        self.assertAllClose(greedy.log_probs, [[math.log(0.5 * 0.6 * 0.9)]])
        result = self._search(num_return_sequences=2)
        self.assertAllEqual(result.sequences, [[[2, 0, 0, 0], [1, 2, 0, 0]]])
        self.assertAllClose(result.log_probs, [[math.log(0.4 * 0.9), math.log(0.5 * 0.6 * 0.9)]])

    def test_early_stopping(self):
        """After finding [1 0] and [0], the search stops, or continues and finds [1 1 0], which is better than [0]."""
        chain = log_probabilities([0.3, 0.5, 0.2], [0.45, 0.55, 0], [0.9, 0.1, 0])
        for early_stopping, second in ((True, [0, 0, 0, 0]), (False, [1, 1, 0, 0]), ("never", [1, 1, 0, 0])):
            result = self._search(chain, early_stopping=early_stopping, num_return_sequences=2, length_penalty=2.0)
            self.assertAllEqual(result.sequences, [[[1, 0, 0, 0], second]])

    def test_never_stops_while_a_longer_sequence_could_be_better(self):
        """[0] and [3] end after one step; [1] is less likely, but [1 2 4 0] has a better score."""
        chain = log_probabilities([0.4, 0.2, 0.1, 0.3, 0], *np.eye(5)[[2, 4, 0, 0]])
        for early_stopping, expected in ((True, [[0], [3]]), (False, [[0], [3]]), ("never", [[1, 2, 4, 0], [0]])):
            result = self._search(
                chain,
                eos_ids=[0, 3],
                max_length=6,
                early_stopping=early_stopping,
                num_return_sequences=2,
                length_penalty=2.0,
            )
            for sequence, length, tokens in zip(result.sequences[0], result.lengths[0], expected, strict=True):
                self.assertAllEqual(sequence[:length], tokens)

    def test_several_end_tokens(self):
        result = self._search(eos_ids=[2, 0], num_return_sequences=2, pad_id=9)
        self.assertAllEqual(result.sequences, [[[2, 9, 9, 9], [1, 2, 9, 9]]])
        twice = self._search(eos_ids=[2, 0, 2], num_return_sequences=2, pad_id=9)
        self.assertAllEqual(twice.sequences, result.sequences)

    def test_start_tokens_of_each_example(self):
        result = self._search(batch_size=2, bos_id=[1, 2], beam_width=3)
        self.assertAllEqual(result.sequences[:, 0], [[2, 0, 0, 0], [0, 0, 0, 0]])

    def test_ties_go_to_the_lower_beam_and_token(self):
        result = self._search(np.zeros([4, 4]), eos_ids=[], beam_width=4, max_length=2, num_return_sequences=4)
        self.assertAllEqual(result.sequences, [[[0, 0], [0, 1], [0, 2], [0, 3]]])

    @parameterized.parameters(tf.float16, tf.bfloat16, tf.float32, tf.float64)
    def test_nan_and_infinity(self, dtype):
        logits = np.array([[0, math.nan, 1.0, -_INF], [0, 0, 0, 0], [0, _INF, math.nan, 0], [0, 0, 0, 0.0]])
        result = tfo.seq2seq.beam_search(
            markov(logits, dtype), (), batch_size=1, beam_width=3, max_length=2, bos_id=0, eos_ids=[]
        )
        self.assertEqual(result.scores.dtype, tf.float64 if dtype == tf.float64 else tf.float32)
        self.assertAllEqual(result.sequences, [[[2, 1]]])
        self.assertAllClose(result.scores, [[1 - math.log(1 + math.e)]], rtol=1e-2 if dtype.size == 2 else 1e-6)

    def test_groups_break_ties_by_the_lower_token(self):
        """All tokens are equally likely: the first group takes 0 and 1; the second takes 2, then 0 again."""
        groups = {"num_groups": 2, "diversity_penalty": 0.5, "num_return_sequences": 4}
        result = self._search(np.zeros([3, 3]), beam_width=4, max_length=1, eos_ids=[], **groups)
        self.assertAllEqual(result.sequences, [[[0], [1], [2], [0]]])
        self.assertAllClose(result.scores, np.log([[1 / 3] * 4]) - [[0, 0, 0, 0.5]])


if __name__ == "__main__":
    tf.test.main()
