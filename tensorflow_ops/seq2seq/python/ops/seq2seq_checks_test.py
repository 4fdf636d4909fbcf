"""Tests of errors: of options and functions, and of what only the run can check, which XLA compiles, too."""

import functools
import math
import re

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_P = tfo.seq2seq.processors
_TABLE = np.random.default_rng(0).normal(size=[5, 5]).astype(np.float32)
_SEARCHES = {  # with their own options
    "beam_search": {"beam_width": 2},
    "sample": {"seed": [1, 2]},
    "stochastic_beam_search": {"beam_width": 2, "seed": [1, 2]},
}
_BEAM, _SAMPLERS = ["beam_search"], ["sample", "stochastic_beam_search"]


def _step_fn(tokens, state):
    return tf.gather(_TABLE, tokens), state


def _run(search, step_fn=_step_fn, state=(), **options):
    options = {"batch_size": 2, "max_length": 4, "bos_id": 0, "eos_ids": 1, **_SEARCHES[search], **options}
    return getattr(tfo.seq2seq, search)(step_fn, state, **options).sequences


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


def _returns(logits=(4, 3), state=None, dtype=tf.float32):
    """Returns a step_fn that returns zeros."""
    return lambda tokens, old: (tf.zeros(logits, dtype), old if state is None else state)


def _processes(process):
    return {"logits_processor": lambda step, sequences, logits: process(logits)}


_PROMPT, _HISTORY = {"prompt": [[1, 2], [3, 4]]}, {"logits_processor": _P.repetition_penalty(2.0)}
_NOT_INT32 = "(cannot be int32|are float32, expected int32)"
_H = {"h": tf.zeros([2])}
# Options, step functions and states that are refused: (searches, arguments of _run, message).
_REFUSED = [
    (_SEARCHES, {"max_length": "3"}, "max_length is '3'"),
    (_SEARCHES, {"eos_ids": [0, -1]}, r"an id is -1, expected an int in \[0, 2147483647\]"),
    *((_SEARCHES, {"eos_ids": x}, f"an id is {x!r}") for x in (0.5, "0", b"0")),
    (_SEARCHES, {"pad_id": 0.5}, "pad_id is 0.5"),
    (_SEARCHES, {"bos_id": 0.5}, "bos_id cannot be int32"),
    (_SEARCHES, {"bos_id": 2**32}, "bos_id is 4294967296, expected a whole number of 32 bits"),
    (_SEARCHES, {"bos_id": tf.constant(2**32)}, "bos_id is 4294967296, expected a whole number of 32 bits"),
    (_SEARCHES, {"prompt": np.int64([[1, 2**32], [3, 4]])}, r"prompt\[0,1\] is 4294967296, expected a whole number"),
    (
        _SEARCHES,
        {**_PROMPT, "prompt_lengths": np.int64([1, 2**32 + 1])},
        r"prompt_lengths\[1\] is 4294967297, expected",
    ),
    (_SEARCHES, {"history": np.int64([[1], [2**32]]), **_HISTORY}, r"history\[1,0\] is 4294967296, expected"),
    (_SEARCHES, {"prompt_lengths": [0]}, "prompt_lengths are given, but no prompt"),
    (_SEARCHES, {"prompt": [1, 2]}, r"prompt has shape \[2\], expected \[2,\?\]"),
    (_SEARCHES, {"prompt": [[1.0], [2.0]]}, "prompt " + _NOT_INT32),
    (_SEARCHES, {"prompt": [[1], [5]]}, "5"),
    (_SEARCHES, {"prompt": [[-1], [1]]}, "-1"),
    (_SEARCHES, {**_PROMPT, "prompt_lengths": [[1]]}, "prompt_lengths has shape"),
    (_SEARCHES, {"history": [1, 2], **_HISTORY}, r"history has shape \[2\], expected \[2,\?\]"),
    (_SEARCHES, {"history": [[0.5], [1.0]], **_HISTORY}, "history " + _NOT_INT32),
    (_SEARCHES, {"logits_processor": 1}, "logits_processor is 1, expected a function or None"),
    ([*_BEAM, "stochastic_beam_search"], {"beam_width": 0}, r"beam_width is 0, expected an int in \[1, 2147483647\]"),
    (_BEAM, {"beam_width": 2.0}, "beam_width is 2.0, expected an int"),
    (_BEAM, {"min_length": 4}, "min_length is 4, expected less than max_length, 4"),
    (_BEAM, {"length_penalty": math.inf}, "length_penalty is inf, expected a finite number"),
    (_BEAM, {"length_penalty": "1"}, "length_penalty is '1'"),
    (_BEAM, {"length_normalization": "no"}, "length_normalization is 'no', expected one of 'gnmt'"),
    (_BEAM, {"cut_off": None}, "cut_off is None, expected one of 'end', 'count'"),
    (_BEAM, {"early_stopping": "always"}, "early_stopping is 'always', expected True, False or 'never'"),
    (_BEAM, {"early_stopping": 1}, "early_stopping is 1"),
    (_BEAM, {"process_log_probs": 1}, "process_log_probs is 1, expected True or False"),
    (_BEAM, {"num_return_sequences": 3}, r"num_return_sequences is 3, expected \[1, 2\]: beam_width is 2"),
    (_BEAM, {"num_groups": 3, "diversity_penalty": 1.0}, "num_groups is 3, expected a divisor of beam_width, 2"),
    (_BEAM, {"num_groups": 2}, "num_groups is 2 and diversity_penalty is 0.0"),
    (_BEAM, {"diversity_penalty": 1.0}, "num_groups is 1 and diversity_penalty is 1.0"),
    (_BEAM, {"num_groups": 2, "diversity_penalty": -1.0}, "diversity_penalty is -1.0"),
    (_SAMPLERS, {"temperature": math.inf}, "temperature is inf"),
    (_SAMPLERS, {"top_k": -1}, r"top_k is -1, expected an int in \[0, 2147483647\]"),
    (_SAMPLERS, {"seed": 1}, r"seed is of shape \[\], expected \[2\] or \[batch_size,2\]"),
    (_SAMPLERS, {"seed": [1, 2, 3]}, r"seed is of shape \[3\]"),
    (_SAMPLERS, {"seed": [0.5, 1.0]}, "seed is float32, expected int32"),
    (["sample"], {"num_return_sequences": 0}, r"num_return_sequences is 0, expected an int in \[1, 2147483647\]"),
    (["stochastic_beam_search"], {"temperature": 0.0}, "temperature is 0.0, expected a number above 0"),
    (_SEARCHES, {"step_fn": 3}, "step_fn is 3, expected a function"),
    (_BEAM, {"step_fn": lambda *_: tf.zeros([4, 3])}, "a (Eager|Symbolic)?Tensor|a SymbolicTensor"),
    (_BEAM, {"step_fn": lambda _, s: (tf.zeros([4, 3]), s, 1)}, "returned 3 values, expected a pair"),
    (_BEAM, {"step_fn": _returns([4, 1, 3])}, r"logits are \[4,1,3\], expected \[4,\?\]"),
    (_BEAM, {"step_fn": _returns([2, 3])}, r"logits are \[2,3\], expected \[4,\?\]"),
    (_BEAM, {"step_fn": _returns([4, 0])}, r"logits are \[4,0\], expected at least one token"),
    (_BEAM, {"step_fn": _returns(dtype=tf.int32)}, "logits are int32"),
    (_BEAM, {"step_fn": _returns(state=()), "state": _H}, "another structure than initial_state"),
    (
        *(_BEAM, {"step_fn": _returns(state={"h": tf.zeros([4], tf.int32)}), "state": _H}),
        r"state\[h\] is int32, expected float32",
    ),
    (_BEAM, {"step_fn": _returns(state=_H), "state": _H}, r"state\[h\] has shape \[2\], expected \[4,...\]"),
    (_BEAM, {"state": {"h": 1.0}}, r"initial_state\[h\] has shape \[\], expected \[2,...\]: batch_size examples"),
    (_BEAM, {"state": [tf.zeros([3, 1])]}, r"initial_state\[0\] has shape \[3,1\], expected \[2,...\]"),
    (_BEAM, {"state": {"h": {"k": None}}}, r"initial_state\[h/k\] is None"),
    (_BEAM, _processes(lambda x: tf.cast(x, tf.float64)), "returned float64, expected float32"),
    (_BEAM, _processes(lambda x: x[:, :2]), r"logits are \[4,2\], expected \[4,5\]"),
    (_BEAM, _processes(lambda x: (x, x)), "forbidden tokens are float32, expected bool"),
    (_BEAM, _processes(lambda x: (x, x[:2] > 0)), r"forbidden tokens are \[2,5\], expected \[4,5\]"),
    (_BEAM, _processes(lambda x: (x, x, x)), "returned 3 values"),
]

_ABOVE_0 = "expected a number above 0, at most 1"
_OF_BATCH = r"\[2,\?\]: the first tokens of each example"
_SIZE = "the size of prompt"

# Options at run time: (searches, option, its good value, a bad one, message, other options).
_OPTIONS = [
    (_BEAM, "length_penalty", 0.5, math.nan, "length_penalty is nan, expected a finite number", {}),
    (_SAMPLERS, "temperature", 0.5, -1.0, r"temperature is -1(.0)?, expected a finite number that is not negative", {}),
    (_SAMPLERS, "top_p", 0.5, 0.0, f"top_p is 0(.0)?, {_ABOVE_0}", {}),
    (_SAMPLERS, "min_p", 0.5, 1.5, r"min_p is 1.5, expected a number in \[0, 1\]", {}),
    (_SAMPLERS, "typical_p", 0.5, 0.0, f"typical_p is 0(.0)?, {_ABOVE_0}", {}),
    (_SEARCHES, "max_length", 3, 0, r"max_length is 0, expected an int in \[1,", {}),
    (_SEARCHES, "batch_size", 2, -1, r"batch_size is -1, expected an int in \[0,", {}),
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
        *(_BEAM, "max_length", 4, 3, r"prompt_lengths\[0\] is 3, expected less than max_length"),
        {"prompt": [[1, 2, 3]] * 2},
    ),
    (  # With room for no more.
        *(_BEAM, "max_length", 3, 2, r"prompt_lengths\[0\] is 3, expected at most max_length"),
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
_ERRORS = (ValueError, tf.errors.InvalidArgumentError)
_WAYS = ("eager", "unknown shapes", "XLA")
# One of each kind of check: XLA compiles for seconds.
_COMPILED = ("length_penalty 0", "max_length 5", "seed 8", "prompt_lengths 13", "state", "logits")


class ChecksTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_REFUSED)
    def test_refuses(self, searches, arguments, message):
        for search in searches:
            call = functools.partial(_run, search, **arguments)
            for run in (call, tf.function(call, autograph=False)):
                with self.subTest(search), self.assertRaisesRegex(_ERRORS, message):
                    run()

    @parameterized.parameters("max_length", "min_length", "length_penalty", "eos_ids")
    def test_refuses_string_tensors(self, name):
        def call():  # A constant that is created outside of the graph has a known value, which is bytes.
            return _run("beam_search", **{name: tf.constant("0")})

        for run in (call, tf.function(call)):
            with self.assertRaisesRegex((ValueError, TypeError), f"{name}.*is b'0', expected"):
                run()

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
                with self.assertRaisesRegex(_ERRORS, message):
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


if __name__ == "__main__":
    tf.test.main()
