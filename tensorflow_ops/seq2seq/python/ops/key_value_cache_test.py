"""Tests of KeyValueCache: searches with one equal, bit for bit, those that reorder keys and values."""

import itertools

import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_VOCABULARY, _HEADS, _DEPTH, _LENGTH = 50, 2, 8, 30
_RNG = np.random.default_rng(0)
_TABLE = tf.constant(_RNG.normal(size=[_VOCABULARY, 3, _HEADS, _DEPTH]), tf.float32)
_LOGITS = tf.constant(_RNG.normal(size=[_HEADS * _DEPTH, _VOCABULARY]), tf.float32)
_OPTIONS = {"batch_size": 3, "max_length": 12, "bos_id": 1, "eos_ids": 0}
_SEARCHES = [
    ("beam_search", {"beam_width": 4, "num_return_sequences": 4}),
    ("sample", {"num_return_sequences": 3}),
    ("sample", {}),
]
# They reorder states by the function of the others, and XLA compiles them in seconds: seq2seq_graph_test.py does so.
_MORE_SEARCHES = [
    ("beam_search", {"beam_width": 6, "num_groups": 2, "diversity_penalty": 0.5}),
    ("stochastic_beam_search", {"beam_width": 4}),
]

# Prints how many caches of all beams a search adds to the process' peak.
_MEMORY = """
    import tensorflow as tf
    import tensorflow_ops as tfo

    def status(name):
        with open("/proc/self/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

    @tf.function
    def search(length):
        def step_fn(tokens, cache):
            row = tf.one_hot(tokens, 16)[:, tf.newaxis, tf.newaxis]
            cache = cache.append(row, row)
            return cache.attend(row)[:, 0, 0], cache

        cache = tfo.seq2seq.KeyValueCache.create(2, length, 1, 16)
        return tfo.seq2seq.beam_search(
            step_fn, cache, batch_size=2, beam_width=4, max_length=20, bos_id=1, eos_ids=0
        ).scores

    search(tf.constant(30))
    before = max(status("VmHWM"), status("VmRSS"))
    search(tf.constant(2**18))
    print((status("VmHWM") - before) / (2 * 4 * 2**18 * 16 * 2 * 4))
    """


def _query_key_value(tokens):
    return tf.unstack(tf.gather(_TABLE, tokens)[:, tf.newaxis], axis=2)


def _logits(output):
    return tf.matmul(tf.reshape(output, [-1, _HEADS * _DEPTH]), _LOGITS)


def _with_cache(tokens, state):
    query, key, value = _query_key_value(tokens)
    cache = state["cache"].append(key, value)
    return _logits(cache.attend(query)), {"cache": cache, "steps": state["steps"] + 1}


def _reordered(tokens, state):
    query, key, value = _query_key_value(tokens)
    keys, values, lengths = state
    keys, values = tfo.nn.update_cache(keys, key, lengths), tfo.nn.update_cache(values, value, lengths)
    output = tfo.nn.attention(query, keys, values, causal=True, key_lengths=lengths + 1)
    return _logits(output), (keys, values, lengths + 1)


def _search(name, step_fn, state, **options):
    function = getattr(tfo.seq2seq, name)
    options = {**_OPTIONS, **options}
    if name != "beam_search":
        options["seed"] = [1, 2]
    return function(step_fn, state, **options)


def _states(batch_size=3):
    """Returns the states of _with_cache and of _reordered, without positions."""
    cache = tfo.seq2seq.KeyValueCache.create(batch_size, _LENGTH, _HEADS, _DEPTH)
    steps = tf.zeros([batch_size], tf.int32)
    return {"cache": cache, "steps": steps}, (cache.keys, cache.values, cache.lengths)


class KeyValueCacheTest(tf.test.TestCase, parameterized.TestCase):
    def _assert_same(self, result, expected):
        for one, other in zip(result, expected, strict=True):
            self.assertAllEqual(one, other)

    @parameterized.parameters(
        *itertools.product(_SEARCHES + _MORE_SEARCHES, [False, None]),
        *itertools.product(_SEARCHES, [True] * (library.xla_error is None)),
    )
    def test_searches_equal_reordered_caches(self, search, jit_compile):
        name, options = search

        def run(step_fn, state):
            call = lambda: tuple(_search(name, step_fn, state, **options))  # noqa: E731
            return tf.function(call, jit_compile=jit_compile, autograph=False)() if jit_compile is not False else call()

        cached, plain = _states()
        self._assert_same(run(_with_cache, cached), run(_reordered, plain))

    def test_a_prompt_with_padding(self):
        cached, _ = _states()
        tokens, counts = tf.constant([[3, 4, 5], [6, 7, 1], [8, 1, 1]]), tf.constant([3, 2, 1])
        query, key, value = tf.unstack(tf.gather(_TABLE, tokens), axis=2)
        cache = cached["cache"].append(key, value, counts=counts)
        self.assertAllEqual(cache.lengths, counts)
        output = cache.attend(query, lengths=counts)
        for i, count in enumerate(counts.numpy()):
            x = (t[i : i + 1, :count] for t in (query, key, value))
            self.assertAllClose(output[i, :count], tfo.nn.attention(*x, causal=True)[0], 1e-5, 1e-5)
        options = {"beam_width": 4, "max_length": 9}
        plain = tf.concat([cache.keys], 0), tf.concat([cache.values], 0), counts
        result = _search("beam_search", _with_cache, {**cached, "cache": cache}, **options)
        self._assert_same(result, _search("beam_search", _reordered, plain, **options))

    def test_of_unknown_batch_and_length(self):
        @tf.function(input_signature=[tf.TensorSpec([], tf.int32)] * 2, autograph=False)
        def search(batch_size, length):
            cache = tfo.seq2seq.KeyValueCache.create(batch_size, length, _HEADS, _DEPTH)
            state = {"cache": cache, "steps": tf.zeros([batch_size], tf.int32)}
            options = {"batch_size": batch_size, "beam_width": 4}
            return tuple(_search("beam_search", _with_cache, state, **options))

        self._assert_same(search(3, _LENGTH), _search("beam_search", _with_cache, _states()[0], beam_width=4))

    def test_dtypes(self):
        for dtype in (tf.float16, tf.bfloat16, tf.float64):
            cache = tfo.seq2seq.KeyValueCache.create(2, 5, 1, 4, value_depth=3, dtype=dtype)
            cache = cache.append(tf.ones([2, 2, 1, 4]), tf.ones([2, 2, 1, 3]))
            self.assertEqual((cache.values.shape, cache.values.dtype), ([2, 5, 1, 3], dtype))
            self.assertAllEqual(cache.attend(tf.ones([2, 2, 3, 4], dtype)), tf.ones([2, 2, 3, 3], dtype))

    def test_a_search_holds_one_cache(self):
        # And that of 2 examples before, a quarter of it, and ancestors. Copies of caches would add another one.
        added = float(process_testing.output(self.get_temp_dir(), _MEMORY))
        self.assertBetween(added, 1, 1.75)

    def test_errors(self):
        cached, plain = _states()
        key = tf.zeros([3, _LENGTH + 1, _HEADS, _DEPTH])
        with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), "rows have 31 positions, and the"):
            cached["cache"].append(key, key)
        options = {"beam_width": 4, "max_length": _LENGTH + 1, "eos_ids": ()}
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"positions\[0\] is 30, expected \[0, 29\]"):
            _search("beam_search", _with_cache, cached, **options)
        with self.assertRaisesRegex(ValueError, r"initial_state\[cache\].lengths has shape \[2\], expected \[3\]"):
            _search("beam_search", _with_cache, {**cached, "cache": _states(2)[0]["cache"]}, beam_width=4)
        with self.assertRaisesRegex(ValueError, "beam_width is 4, expected 1: the search repeats the cache"):
            _search("beam_search", _with_cache, {**cached, "cache": cached["cache"].repeated(4)}, beam_width=4)

        def other(tokens, state):
            return _with_cache(tokens, state)[0], {**state, "cache": plain[0]}

        with self.assertRaisesRegex(
            ValueError, r"state\[cache\] is a .*Tensor, expected the KeyValueCache that it was given"
        ):
            _search("beam_search", other, cached, beam_width=4)


if __name__ == "__main__":
    tf.test.main()
