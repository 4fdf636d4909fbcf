"""Tests of beam_search with prompts and with a logits_processor, by hand."""

import itertools
import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from seq2seq_testing import log_probabilities, markov

import tensorflow_ops as tfo

_INF = math.inf
_P = tfo.seq2seq.processors


class PromptTest(tf.test.TestCase):
    _CHAIN = log_probabilities([0.1, 0.5, 0.4], [0.4, 0.2, 0.4], [0.6, 0.1, 0.3])

    def _search(self, **options):
        options = {"beam_width": 2, "max_length": 4, "bos_id": 0, "eos_ids": 0, **options}
        return tfo.seq2seq.beam_search(markov(self._CHAIN), (), **options)

    def test_end_token_in_a_prompt_does_not_end_it(self):
        result = self._search(batch_size=1, prompt=[[0, 2]], min_length=3)
        self.assertAllEqual(result.sequences[0, 0], [0, 2, 2, 0])
        self.assertAllClose(result.log_probs[0, 0], np.log(0.1 * 0.4 * 0.3 * 0.6))

    def test_one_trace_for_all_prompts(self):
        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int64)])
        def search(prompt, lengths):
            return self._search(batch_size=tf.shape(prompt)[0], prompt=prompt, prompt_lengths=lengths)

        self.assertAllEqual(search([[1], [2]], [1, 0]).sequences[:, 0], [[1, 0, 0, 0], [2, 0, 0, 0]])
        self.assertAllEqual(search([[1, 1, 7]], [2]).sequences[:, 0], [[1, 1, 0, 0]])
        self.assertAllEqual(search(np.zeros([1, 0], np.int32), [0]).sequences[:, 0], [[2, 0, 0, 0]])

    def test_bad_arguments_raise(self):
        for options, error, message in (
            ({"prompt_lengths": [1]}, ValueError, "prompt_lengths are given, but no prompt"),
            ({"prompt": [1, 2]}, ValueError, r"prompt has shape \[2\], expected \[1,\?\]"),
            ({"prompt": [[1], [2]]}, ValueError, r"prompt has shape \[2,1\], expected \[1,\?\]"),
            ({"prompt": [[1.0]]}, ValueError, "prompt are float32, expected int32|prompt cannot be int32"),
            ({"prompt": [[1]], "prompt_lengths": [[1]]}, ValueError, "prompt_lengths has shape"),
            ({"prompt": [[1]], "prompt_lengths": [2]}, tf.errors.InvalidArgumentError, r"expected \[0, 1\]: the size"),
            ({"prompt": [[1]], "prompt_lengths": [-1]}, tf.errors.InvalidArgumentError, r"expected \[0, 1\]"),
            ({"prompt": [[1, 1, 1, 1]]}, tf.errors.InvalidArgumentError, "expected less than max_length, 4"),
            ({"prompt": [[5]]}, tf.errors.InvalidArgumentError, "5"),
            ({"prompt": [[-1]]}, tf.errors.InvalidArgumentError, "-1"),
            ({"length_normalization": "no"}, ValueError, "length_normalization is 'no', expected one of 'gnmt'"),
            ({"cut_off": None}, ValueError, "cut_off is None, expected one of 'end', 'count'"),
            ({"process_log_probs": 1}, ValueError, "process_log_probs is 1, expected True or False"),
        ):
            with self.assertRaisesRegex(error, message):
                self._search(batch_size=1, **options)


class HistoryTest(parameterized.TestCase, tf.test.TestCase):
    """Processors read the history before the tokens of the search; nothing else does."""

    _CHAIN = log_probabilities([0.1, 0.5, 0.4], [0.4, 0.2, 0.4], [0.6, 0.1, 0.3])
    _SEARCHES = (
        lambda **options: tfo.seq2seq.beam_search(beam_width=2, **options),
        lambda **options: tfo.seq2seq.sample(seed=[1, 2], **options),
        lambda **options: tfo.seq2seq.sample(seed=[1, 2], num_return_sequences=2, **options),
        lambda **options: tfo.seq2seq.stochastic_beam_search(seed=[1, 2], beam_width=2, **options),
    )

    def _options(self, **options):
        model = {"step_fn": markov(self._CHAIN), "initial_state": (), "batch_size": 2, "max_length": 4}
        return {**model, "bos_id": 0, "eos_ids": [], **options}

    @parameterized.parameters(*_SEARCHES)
    def test_is_in_front_of_the_sequences(self, search):
        seen = []

        def processor(step, sequences, logits):
            seen.append((int(step), sequences.numpy()))
            return logits

        history = np.array([[7, 8, 9], [-1, 5, 6]], np.int64)
        result = search(**self._options(logits_processor=processor, history=history))
        expected = search(**self._options())
        for a, b in zip(result, expected, strict=True):
            self.assertAllEqual(a, b)
        for step, sequences in seen:
            count = len(sequences) // 2
            self.assertAllEqual(sequences[:, :3], np.repeat(history, count, 0))
            self.assertEqual(sequences.shape, (2 * count, 3 + step))
        last = seen[-1][1][:, 3:].reshape([2, -1, 3])
        for rows, sequences in zip(last.tolist(), result.sequences.numpy().reshape([2, -1, 4]), strict=True):
            self.assertContainsSubset({tuple(s[:3]) for s in sequences.tolist()[:1]}, set(map(tuple, rows)))

    @parameterized.parameters(*_SEARCHES)
    def test_in_a_graph(self, search):
        processor = _P.chain(_P.no_repeat_ngrams(2), _P.repetition_penalty(1.5))

        def run(history):
            return search(**self._options(logits_processor=processor, history=history)).sequences

        compiled = tf.function(run, input_signature=[tf.TensorSpec([None, None], tf.int32)])
        for history in ([[0, 1], [2, 0]], [[1, 1, 0], [-1, 2, 0]]):
            self.assertAllEqual(compiled(history), run(history))

    def test_no_examples(self):
        for search in self._SEARCHES:
            options = {
                "batch_size": 0,
                "logits_processor": _P.no_repeat_ngrams(2),
                "history": np.zeros([0, 3], np.int32),
            }
            self.assertEqual(search(**self._options(**options)).sequences.shape[0], 0)

    def test_bad_arguments_raise(self):
        for search in self._SEARCHES:
            for history, message in (
                ([1, 2], r"history has shape \[2\], expected \[2,\?\]"),
                ([[1]], r"history has shape \[1,1\], expected \[2,\?\]"),
                ([[0.5], [1.0]], "history (cannot be int32|are float32, expected int32)"),
            ):
                processor = _P.repetition_penalty(2.0)
                with self.assertRaisesRegex(ValueError, message):
                    search(**self._options(history=history, logits_processor=processor))

    @parameterized.parameters(*_SEARCHES)
    def test_without_a_processor_it_has_no_effect(self, search):
        def run(history):
            return search(**self._options(history=history)).sequences

        self.assertAllEqual(run([[1, 2]]), run(None))


class ProcessorTest(tf.test.TestCase):
    _CHAIN = log_probabilities([0.1, 0.5, 0.4], [0.4, 0.2, 0.4], [0.6, 0.1, 0.3])

    def _search(self, processor, **options):
        options = {"batch_size": 2, "beam_width": 2, "max_length": 4, "bos_id": 0, "eos_ids": 0, **options}
        return tfo.seq2seq.beam_search(markov(self._CHAIN), (), logits_processor=processor, **options)

    def test_receives_steps_and_sequences(self):
        seen = []

        def processor(step, sequences, logits):
            seen.append((int(step), sequences.numpy().tolist()))
            return logits

        result = self._search(processor, eos_ids=[], num_return_sequences=2)
        self.assertEqual([step for step, _ in seen], [0, 1, 2, 3])
        self.assertEqual(seen[0][1], [[]] * 4)
        # Both examples have the same live sequences.
        last = np.array(seen[3][1])
        self.assertAllEqual(last[:2], last[2:])
        self.assertContainsSubset(
            {tuple(s[:3]) for s in result.sequences[0].numpy().tolist()}, set(map(tuple, last.tolist()))
        )

    def test_forbid_repeated_tokens(self):
        """Forbidden tokens keep their probability; tokens masked by -inf pass theirs on to the others."""

        def forbidden(sequences, logits):
            return tf.reduce_any(tf.one_hot(sequences, logits.shape[-1], True, False, dtype=tf.bool), 1)

        def keeps(step, sequences, logits):
            del step
            return logits, forbidden(sequences, logits)

        def renormalizes(step, sequences, logits):
            del step
            return tf.where(forbidden(sequences, logits), -_INF, logits)

        for run in (lambda f: f(), lambda f: tf.function(f)()):
            result = run(lambda: self._search(keeps, min_length=2))
            self.assertAllEqual(result.sequences[:, 0], [[1, 2, 0, 0]] * 2)
            self.assertAllClose(result.log_probs[:, 0], [math.log(0.5 * 0.4 * 0.6)] * 2)
            result = run(lambda: self._search(renormalizes, min_length=2))
            self.assertAllEqual(result.sequences[:, 0], [[1, 2, 0, 0]] * 2)
            self.assertAllClose(result.log_probs[:, 0], [math.log(0.5 * 0.4 / 0.8 * 1)] * 2)

    def test_processed_log_probabilities_are_not_normalized(self):
        """A beam that holds all sequences finds the best sums of the log probabilities that the processor returns."""

        def half(step, sequences, log_probs):
            self.assertEqual(log_probs.dtype, tf.float32)
            return tf.where(tf.range(3) == 1, log_probs / 2 - tf.cast(step, tf.float32), log_probs)

        p = np.exp(self._CHAIN)
        every = {}
        for length in range(1, 4):
            for body in itertools.product((1, 2), repeat=length - 1):
                tokens = (*body, 0)
                terms = [
                    np.log(p[a, b]) / 2 - step if b == 1 else np.log(p[a, b])
                    for step, (a, b) in enumerate(zip((0, *tokens), tokens, strict=False))
                ]
                every[tokens] = sum(terms)
        best = sorted(every, key=every.get, reverse=True)[:5]
        for dtype in (tf.float16, tf.float32):
            result = tfo.seq2seq.beam_search(
                markov(self._CHAIN, dtype), (), batch_size=1, beam_width=20, max_length=3, bos_id=0, eos_ids=0,
                early_stopping="never", num_return_sequences=5, logits_processor=half, process_log_probs=True,
            )  # fmt: skip
            rtol = 1e-5 if dtype == tf.float32 else 2e-3
            self.assertAllClose(result.log_probs[0], [every[tokens] for tokens in best], rtol=rtol)
            for sequence, tokens in zip(result.sequences[0].numpy(), best, strict=True):
                self.assertAllEqual(sequence[: len(tokens)], tokens)

    def test_process_log_probs_without_a_processor_changes_nothing(self):
        for a, b in zip(self._search(None, process_log_probs=True), self._search(None), strict=True):
            self.assertAllEqual(a, b)

    def test_bad_arguments_raise(self):
        for result, message in (
            (lambda x: tf.cast(x, tf.float64), "returned float64, expected float32"),
            (lambda x: x[:, :2], r"logits are \[4,2\], expected \[4,3\]"),
            (lambda x: (x, x), "forbidden tokens are float32, expected bool"),
            (lambda x: (x, x[:2] > 0), r"forbidden tokens are \[2,3\], expected \[4,3\]"),
            (lambda x: (x, x, x), "returned 3 values"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                self._search(lambda step, sequences, logits, result=result: result(logits))


if __name__ == "__main__":
    tf.test.main()
