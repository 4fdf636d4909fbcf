"""Tests of beam_search's errors for bad options and step functions, and of options as tensors."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo


def _markov(rows, dtype=tf.float32):
    """Returns a step_fn whose next token depends on the last one only, from logits [V, V]."""
    table = tf.constant(rows, dtype)
    return lambda tokens, state: (tf.gather(table, tokens), state)


_OPTIONS = {"batch_size": 2, "beam_width": 2, "max_length": 3, "bos_id": 0, "eos_ids": 0}


def _search(options):
    return tfo.seq2seq.beam_search(_markov(np.zeros([3, 3])), (), **{**_OPTIONS, **options})


class ArgumentsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        ({"beam_width": 0}, r"beam_width is 0, expected an int in \[1, 2147483647\]"),
        ({"beam_width": 2.0}, "beam_width is 2.0, expected an int"),
        ({"max_length": 0}, r"max_length is 0, expected an int in \[1, 2147483647\]"),
        ({"batch_size": -1}, r"batch_size is -1, expected an int in \[0, 2147483647\]"),
        ({"eos_ids": [0, -1]}, r"an id is -1, expected an int in \[0, 2147483647\]"),
        ({"eos_ids": 0.5}, "an id is 0.5"),
        ({"pad_id": 0.5}, "pad_id is 0.5"),
        ({"bos_id": [0, 0, 0]}, r"bos_id has shape \[3\], expected \[2\]"),
        ({"bos_id": 0.5}, "bos_id cannot be int32"),
        ({"min_length": -1}, "min_length is -1"),
        ({"min_length": 3}, "min_length is 3, expected less than max_length, 3"),
        ({"length_penalty": math.inf}, "length_penalty is inf, expected a finite number"),
        ({"length_penalty": "1"}, "length_penalty is '1'"),
        ({"early_stopping": "always"}, "early_stopping is 'always', expected True, False or 'never'"),
        ({"early_stopping": 1}, "early_stopping is 1"),
        ({"num_return_sequences": 3}, r"num_return_sequences is 3, expected \[1, 2\]: beam_width is 2"),
        ({"num_groups": 3, "diversity_penalty": 1.0}, "num_groups is 3, expected a divisor of beam_width, 2"),
        ({"num_groups": 2}, "num_groups is 2 and diversity_penalty is 0.0"),
        ({"diversity_penalty": 1.0}, "num_groups is 1 and diversity_penalty is 1.0"),
        ({"num_groups": 2, "diversity_penalty": -1.0}, "diversity_penalty is -1.0"),
        ({"logits_processor": 1}, "logits_processor is 1, expected a function"),
        ({"max_length": "3"}, "max_length is '3'"),
        ({"eos_ids": "0"}, "an id is '0'"),
        ({"eos_ids": b"0"}, "an id is b'0'"),
    )
    def test_options(self, options, message):
        self._assert_raises(options, message)

    @parameterized.parameters("max_length", "min_length", "length_penalty", "eos_ids")
    def test_string_tensors(self, name):
        # Creates the constant inside the function: a graph's constant has a known value, which is bytes.
        self._assert_raises(lambda: {name: tf.constant("0")}, f"{name}.*is b'0', expected")

    def _assert_raises(self, options, message):
        for call in (lambda f: f(), lambda f: tf.function(f)()):
            with self.assertRaisesRegex((ValueError, TypeError), message):
                call(lambda: _search(options() if callable(options) else options))

    @parameterized.parameters(
        (lambda tokens, state: tf.zeros([4, 3]), "a (Eager|Symbolic)?Tensor|a SymbolicTensor"),
        (lambda tokens, state: (tf.zeros([4, 3]), state, 1), "returned 3 values, expected a pair"),
        (lambda tokens, state: (tf.zeros([4, 1, 3]), state), r"logits are \[4,1,3\], expected \[4,\?\]"),
        (lambda tokens, state: (tf.zeros([2, 3]), state), r"logits are \[2,3\], expected \[4,\?\]"),
        (lambda tokens, state: (tf.zeros([4, 0]), state), r"logits are \[4,0\], expected at least one token"),
        (lambda tokens, state: (tf.zeros([4, 3], tf.int32), state), "logits are int32"),
        (lambda tokens, state: (tf.zeros([4, 3]), ()), "another structure than initial_state"),
        (
            lambda tokens, state: (tf.zeros([4, 3]), {"h": tf.zeros([4], tf.int32)}),
            r"state\[h\] is int32, expected float32",
        ),
        (
            lambda tokens, state: (tf.zeros([4, 3]), {"h": tf.zeros([2])}),
            r"state\[h\] has shape \[2\], expected \[4,...\]",
        ),
    )
    def test_step_fn(self, step_fn, message):
        for call in (lambda f: f(), lambda f: tf.function(f)()):
            with self.assertRaisesRegex(ValueError, message):
                call(lambda: tfo.seq2seq.beam_search(step_fn, {"h": tf.zeros([2])}, **_OPTIONS))

    @parameterized.parameters(
        ({"h": 1.0}, r"initial_state\[h\] has shape \[\], expected \[2,...\]: batch_size examples"),
        ([tf.zeros([3, 1])], r"initial_state\[0\] has shape \[3,1\], expected \[2,...\]"),
        ({"h": {"k": None}}, r"initial_state\[h/k\] is None"),
    )
    def test_initial_state(self, state, message):
        with self.assertRaisesRegex(ValueError, message):
            tfo.seq2seq.beam_search(_markov(np.zeros([3, 3])), state, **_OPTIONS)

    def test_step_fn_is_a_function(self):
        with self.assertRaisesRegex(ValueError, "step_fn is 3, expected a function"):
            tfo.seq2seq.beam_search(3, (), **_OPTIONS)

    def test_end_token_outside_the_vocabulary(self):
        options = {**_OPTIONS, "eos_ids": [1, 3]}
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"eos_ids\[1\] is 3, expected \[0, 3\)"):
            tfo.seq2seq.beam_search(_markov(np.zeros([3, 3])), (), **options)

    def test_length_penalty_may_be_a_tensor(self):
        rng = np.random.default_rng(0)
        chain = _markov(rng.normal(size=[6, 6]), tf.float64)
        options = {**_OPTIONS, "max_length": 9, "beam_width": 4, "num_return_sequences": 4, "early_stopping": "never"}
        search = tf.function(
            lambda penalty: tfo.seq2seq.beam_search(chain, (), length_penalty=penalty, **options),
            input_signature=[tf.TensorSpec([], tf.float64)],
        )
        for penalty in (0.0, 0.7, -0.7):
            expected = tfo.seq2seq.beam_search(chain, (), length_penalty=penalty, **options)
            result = search(tf.constant(penalty, tf.float64))
            self.assertAllEqual(result.sequences, expected.sequences)
            self.assertAllClose(result.scores, expected.scores, rtol=1e-14)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "length_penalty is nan, expected a finite number"):
            search(tf.constant(math.nan, tf.float64))

    def test_at_run_time(self):
        @tf.function(
            input_signature=[tf.TensorSpec([None, 1]), tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.int32)]
        )
        def search(state, batch_size, max_length):
            options = {**_OPTIONS, "batch_size": batch_size, "max_length": max_length}
            return tfo.seq2seq.beam_search(lambda tokens, state: (tf.zeros([1, 3]) + state, state), state, **options)

        self.assertEqual(search(tf.zeros([2, 1]), 2, 3).sequences.shape, [2, 1, 3])
        for arguments, message in (
            (
                (tf.zeros([3, 1]), 2, 3),
                r"the shape of initial_state is \[3,1\], expected \[\?,...\]: batch_size examples",
            ),
            ((tf.zeros([2, 1]), 2, 0), r"max_length is 0, expected an int in \[1,"),
            ((tf.zeros([2, 1]), -1, 3), r"batch_size is -1, expected an int in \[0,"),
        ):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                search(*arguments)


if __name__ == "__main__":
    tf.test.main()
