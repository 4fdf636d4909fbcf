"""Tests of checks that only the run can make: eagerly, in a graph with unknown shapes, and compiled by XLA."""

import math
import re

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_P = tfo.seq2seq.processors
_TABLE = np.random.default_rng(0).normal(size=[5, 5]).astype(np.float32)
_SEARCHES = {
    "beam_search": lambda *args, **options: tfo.seq2seq.beam_search(*args, beam_width=2, **options),
    "sample": lambda *args, **options: tfo.seq2seq.sample(*args, **{"seed": [1, 2], **options}),
    "stochastic_beam_search": lambda *args, **options: tfo.seq2seq.stochastic_beam_search(
        *args, beam_width=2, **{"seed": [1, 2], **options}
    ),
}
_SAMPLERS = ("sample", "stochastic_beam_search")


def _step_fn(tokens, state):
    return tf.gather(_TABLE, tokens), state


def _run(search, step_fn=_step_fn, state=(), **options):
    options = {"batch_size": 2, "max_length": 4, "bos_id": 0, "eos_ids": 1, **options}
    return _SEARCHES[search](step_fn, state, **options).sequences


def _option(name, **more):
    return lambda search, value: _run(search, **{name: value}, **more)


def _rows_of_logits(search, rows):
    """A step_fn whose logits depend in shape on a tensor's."""
    del search
    batch = tf.shape(rows)[0]

    def step_fn(tokens, state):
        return tf.zeros([batch, 3]) + 0.0 * tf.cast(tokens[0], tf.float32), state

    return tfo.seq2seq.beam_search(
        step_fn, (), batch_size=tf.size(rows) // 2, beam_width=1, max_length=2, bos_id=0, eos_ids=1
    ).sequences


def _shape(name, actual, expected):
    """Returns the regex of the error for a shape, eagerly and in a graph."""
    return rf"({name} has shape|the shape of {name} is) {actual}, expected {expected}"


_PROMPT, _ABOVE_0 = {"prompt": [[1, 2], [3, 4]]}, "expected a number above 0, at most 1"
_OF_BATCH = r"\[2,\?\]: the first tokens of each example"
_HISTORY = {"logits_processor": _P.repetition_penalty(2.0)}
_SIZE = "the size of prompt"

# Options: (searches, option, its good value, a bad one, message, other options).
_OPTIONS = [
    (["beam_search"], "length_penalty", 0.5, math.nan, "length_penalty is nan, expected a finite number", {}),
    (_SAMPLERS, "temperature", 0.5, -1.0, r"temperature is -1(.0)?, expected a finite number that is not negative", {}),
    (_SAMPLERS, "top_p", 0.5, 0.0, f"top_p is 0(.0)?, {_ABOVE_0}", {}),
    (_SAMPLERS, "min_p", 0.5, 1.5, r"min_p is 1.5, expected a number in \[0, 1\]", {}),
    (_SAMPLERS, "typical_p", 0.5, 0.0, f"typical_p is 0(.0)?, {_ABOVE_0}", {}),
    (_SEARCHES, "max_length", 3, 0, r"max_length is 0, expected an int in \[1,", {}),
    (_SEARCHES, "min_length", 1, -1, "min_length is -1, expected an int", {}),
    (_SAMPLERS, "seed", [[1, 2], [3, 4]], [[1, 2]], _shape("seed", r"\[1,2\]", r"\[2,2\]: two numbers for each"), {}),
    (_SEARCHES, "bos_id", [1, 2], [1, 2, 3], _shape("bos_id", r"\[?3\]?", r"\[2\]: a scalar, or one for each"), {}),
    (_SEARCHES, "prompt", [[1, 2], [3, 4]], [[1, 2]], _shape("prompt", r"\[1,2\]", _OF_BATCH), {}),
    (
        *(_SEARCHES, "history", [[1, 2], [3, 4]], [[1, 2]]),
        *(_shape("history", r"\[1,2\]", r"\[2,\?\]: tokens before each example"), _HISTORY),
    ),
    (_SEARCHES, "prompt_lengths", [1, 2], [1], _shape("prompt_lengths", r"\[?1\]?", r"\[2\]: one for each"), _PROMPT),
    (_SEARCHES, "prompt_lengths", [1, 2], [1, 3], rf"prompt_lengths\[1\] is 3, expected \[0, 2\]: {_SIZE}", _PROMPT),
    (_SEARCHES, "prompt_lengths", [1, 2], [-1, 2], rf"prompt_lengths\[0\] is -1, expected \[0, 2\]: {_SIZE}", _PROMPT),
    (
        *(_SEARCHES, "prompt_lengths", [1, 2], [1, 5]),
        r"prompt_lengths\[1\] is 5, expected (less than|at most) max_length, 4",
        {"prompt": [[1, 2, 3, 4, 0]] * 2},
    ),
    (
        *(["beam_search"], "max_length", 4, 3, r"prompt_lengths\[0\] is 3, expected less than max_length"),
        {"prompt": [[1, 2, 3]] * 2},
    ),
    (  # With room for no more.
        *(["beam_search"], "max_length", 3, 2, r"prompt_lengths\[0\] is 3, expected at most max_length"),
        {"prompt": [[1, 2, 3]] * 2, "cut_off": "count"},
    ),
    (
        *(_SAMPLERS, "max_length", 3, 2, r"prompt_lengths\[0\] is 3, expected at most max_length"),
        {"prompt": [[1, 2, 3]] * 2},
    ),
    (
        *(_SEARCHES, "prompt", [[1, 2], [3, 4]], [[1], [3]]),
        rf"prompt_lengths\[1\] is 2, expected (\[0, 1\]: {_SIZE}|\[0, {_SIZE}\])",
        {"prompt_lengths": [1, 2]},
    ),
]
# Name: (searches, function of a search's name and a tensor, good value, bad value, message).
_CASES = {
    **{f"{name} {k}": (of, _option(name, **more), *values) for k, (of, name, *values, more) in enumerate(_OPTIONS)},
    "initial_state": (
        _SEARCHES,
        lambda search, state: _run(
            search, lambda tokens, state: (tf.gather(_TABLE, tokens) + state["h"], state), {"h": state}
        ),
        [[1.0], [2.0]],
        [[1.0]],
        _shape(r"initial_state\[h\]", r"\[1,1\]", r"\[2,...\]: batch"),
    ),
    "state": (
        _SEARCHES,
        lambda search, rows: _run(
            search, lambda tokens, state: (tf.gather(_TABLE, tokens) + state[:, tf.newaxis], rows), tf.zeros([2])
        ),
        None,
        [1.0],
        _shape("step_fn's state", r"\[?1\]?", r"\[[24],...\]: the rows"),
    ),
    "logits": (
        [""],
        _rows_of_logits,
        [[1, 2], [3, 4]],
        [[1, 2, 3, 4]],
        r"(logits (are|has shape)|the shape of logits is) \[1,3\], expected \[[2?],\?\]: one row for each token",
    ),
}
_WAYS = ("eager", "unknown shapes", "XLA")
# One of each kind of check: XLA compiles for seconds.
_COMPILED = ("length_penalty 0", "max_length 5", "seed 7", "prompt_lengths 12", "state", "logits")


class ChecksTest(parameterized.TestCase, tf.test.TestCase):
    def _way(self, way, function, value):
        if way == "eager":
            return function
        if way == "XLA" and library.xla_error:
            self.skipTest(library.xla_error)
        value = tf.convert_to_tensor(value)
        spec = tf.TensorSpec([None] * value.shape.rank, value.dtype)
        return tf.function(function, input_signature=[spec], autograph=False, jit_compile=way == "XLA")

    @parameterized.parameters(
        *((name, way) for name in _CASES for way in _WAYS if way != "XLA" or name in _COMPILED),
    )
    def test_at_run_time(self, name, way):
        searches, function, good, bad, message = _CASES[name]
        if way != "eager":
            searches = list(searches)[:1]  # the searches share the checks, and tracing takes seconds
        if way == "XLA":
            # XLA knows shapes when it compiles, and stops at the first op that they do not fit.
            shape = re.search(r"the shape of (.*) is\) (.*), expected (.*): ", message)
            if shape:
                variable, actual, _ = shape.groups()
                variable = re.sub(r"\W", "_", variable.replace("\\", ""))
                message += rf"|Shape of tensor .*{variable}.* {actual} is not compatible with expected shape"
                message += "|Input to reshape is a tensor with 3 values"  # logits
        for search in searches:
            with self.subTest(search):
                run = self._way(way, lambda value, search=search: function(search, value), bad)
                if good is not None:
                    run(tf.convert_to_tensor(good))
                with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), message):
                    run(tf.convert_to_tensor(bad))

    @parameterized.parameters(
        ("XLA", "beam_search", {}),
        ("unknown shapes", "sample", {}),
        ("eager", "sample", {"top_k": 2}),
        ("eager", "sample", {"top_p": 0.5}),
        ("eager", "sample", {"temperature": 0.0}),
        ("unknown shapes", "stochastic_beam_search", {}),
    )
    def test_end_token_outside_the_vocabulary(self, way, name, options):
        run = self._way(way, lambda bos: _run(name, bos_id=bos, eos_ids=[1, 5], **options), 0)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"eos_ids\[1\] is 5, expected \[0, 5\)"):
            run(tf.constant(0))

    def test_token_of_a_processor_outside_the_vocabulary(self):
        for processor, name in (
            (_P.suppress_tokens([0, 5]), r"ids\[1\]"),
            (_P.bad_words([[0], [1, 5]]), "words: an id"),
            (_P.bad_words([[0], [5, 1]]), "words: an id"),
            (_P.sequence_bias({(0,): 1.0, (1, 5): 1.0}), "biases: an id"),
            (_P.sequence_bias({(0,): 1.0, (5, 1): 1.0}), "biases: an id"),
            (_P.force_tokens([0, 5], step=3), r"ids\[1\]"),
        ):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, name + r" is 5, expected \[0, 5\)"):
                _run("beam_search", logits_processor=processor)

    @parameterized.parameters(*_WAYS)
    def test_batch_gather_of_any_rank(self, way):
        def gather(params, indices):
            return tfo.seq2seq.batch_gather(params, indices)

        if way != "eager":
            if way == "XLA" and library.xla_error:
                self.skipTest(library.xla_error)
            specs = [tf.TensorSpec(None, tf.float32), tf.TensorSpec(None, tf.int32)]
            gather = tf.function(gather, input_signature=specs, jit_compile=way == "XLA")
        params = tf.reshape(tf.range(6.0), [2, 3])
        self.assertAllEqual(gather(params, [[0], [2]]), [[0], [5]])
        # XLA knows shapes when it compiles, and stops at the first op that they do not fit.
        for indices, message in (
            (3, "indices are a scalar|the shape of indices is .*expected at least one dim|slice index -1"),
            ([[0], [3]], r"indices\[1,0\] is 3, expected \[0,"),
            ([[[0]]], "expected at least (3|as many) dims|slice index 2"),
            (
                [[0]],
                r"the same batch dims|requested shape|params is \[2,3\], expected the batch dims",
            ),
        ):
            with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), message):
                gather(params, tf.constant(indices))

    def test_batch_gather_in_vectorized_map(self):
        def gather(indices):
            return tf.vectorized_map(
                lambda i: tfo.seq2seq.batch_gather(tf.constant([[1, 2, 3]]), i), indices, fallback_to_while_loop=False
            )

        for run in (gather, tf.function(gather)):
            self.assertAllEqual(run(tf.constant([[[0]], [[2]]])), [[[1]], [[3]]])
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"indices\[1,0,0\] is 3, expected \[0, 3\)"):
                run(tf.constant([[[0]], [[3]]]))


if __name__ == "__main__":
    tf.test.main()
