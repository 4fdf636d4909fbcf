"""Tests of KeyValueCache: searches with one equal, bit for bit, those that reorder keys and values."""

import itertools
import os

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


# Layers of a model: [width, query, key and value of the heads].
_LAYERS = _RNG.normal(size=[2, 3 * _HEADS, 3 * _HEADS * 3]) / 2


def _attended(hidden):
    """Returns the layers' results for one sequence [T, width]: causal attention without a cache, in float64."""
    for weights in _LAYERS:
        query, key, value = (hidden @ weights).reshape([-1, 3, _HEADS, 3]).transpose(1, 2, 0, 3)
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(3) + np.triu(np.full([len(hidden)] * 2, -np.inf), 1)
        exps = np.exp(scores - scores.max(-1, keepdims=True))
        output = exps / exps.sum(-1, keepdims=True) @ value
        hidden = hidden + output.transpose(1, 0, 2).reshape(hidden.shape)
    return hidden


def _read(hidden, caches, **counts):
    """Returns the same for more positions [R, T, width] of each row, and the caches after them."""
    after = []
    for weights, cache in zip(_LAYERS, caches, strict=True):
        query, key, value = tf.unstack(
            tf.reshape(hidden @ tf.constant(weights, hidden.dtype), [*tf.unstack(tf.shape(hidden)[:2]), 3, _HEADS, 3]),
            axis=2,
        )
        cache = cache.append(key, value, **counts)
        hidden += tf.reshape(cache.attend(query), tf.shape(hidden))
        after.append(cache)
    return hidden, after


def _prompt_and_steps(prompt, counts, steps, beams):
    """Reads prompts [R, T, width] with padding, and [N, R, width] in a loop. Returns results [R, T + N, width]."""
    rows, size = tf.unstack(tf.shape(prompt)[:2])
    cache = tfo.seq2seq.KeyValueCache.create(rows // beams, size + tf.shape(steps)[0], _HEADS, 3, dtype=prompt.dtype)
    first, caches = _read(prompt, [cache.repeated(beams) if beams > 1 else cache] * 2, counts=counts)

    def step(i, caches, results):
        result, caches = _read(steps[i][:, tf.newaxis], caches)
        return i + 1, caches, tf.tensor_scatter_nd_update(results, [[i]], [result[:, 0]])

    loop = [tf.constant(0), caches, tf.zeros_like(steps)]
    _, _, results = tf.while_loop(lambda i, *_: i < tf.shape(steps)[0], step, loop)
    return tf.concat([first, tf.transpose(results, [1, 0, 2])], 1)


def _saved(function, signature, folder):
    module = tf.Module()
    module.call = tf.function(function, signature, autograph=False)
    tf.saved_model.save(module, folder)
    return tf.saved_model.load(folder).call


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
        output = cache.attend(query)
        for i, count in enumerate(counts.numpy()):
            x = (t[i : i + 1, :count] for t in (query, key, value))
            self.assertAllClose(output[i, :count], tfo.nn.attention(*x, causal=True)[0], 1e-5, 1e-5)
        options = {"beam_width": 4, "max_length": 9}
        # Fewer queries: the last that count.
        last = cache.attend(tf.gather(query, counts[:, tf.newaxis] - 1, batch_dims=1))
        self.assertAllEqual(last, tf.gather(output, counts[:, tf.newaxis] - 1, batch_dims=1))
        plain = tf.concat([cache.keys], 0), tf.concat([cache.values], 0), counts
        result = _search("beam_search", _with_cache, {**cached, "cache": cache}, **options)
        self._assert_same(result, _search("beam_search", _reordered, plain, **options))

    @parameterized.product(beams=[1, 3], mode=["eager", "graph", "saved", *["xla"] * (library.xla_error is None)])
    def test_prompts_of_different_lengths_equal_each_alone(self, beams, mode):
        specs = [tf.TensorSpec(shape, dtype) for shape, dtype in (
            ([None, None, None], tf.float64), ([None], tf.int32), ([None, None, None], tf.float64))]  # fmt: skip
        call = lambda *inputs: _prompt_and_steps(*inputs, beams)  # noqa: E731
        if mode == "saved":
            call = _saved(call, specs, os.path.join(self.get_temp_dir(), str(beams)))
        elif mode != "eager":
            call = tf.function(call, specs if mode == "graph" else None, jit_compile=mode == "xla", autograph=False)
        for counts, steps in (([4, 2, 0], 3), ([1, 3], 2)):  # the second call of a graph, too
            counts = np.repeat(counts, beams).astype(np.int32)
            size = max(counts)
            hidden = _RNG.normal(size=[len(counts), size + steps, _LAYERS.shape[1]])
            is_padding = np.arange(size) >= counts[:, np.newaxis]
            prompt = np.where(is_padding[..., np.newaxis], np.nan, hidden[:, :size])
            results = call(prompt, counts, hidden[:, size:].transpose(1, 0, 2)).numpy()
            for row, count in enumerate(counts):
                used = [*range(count), *range(size, size + steps)]
                np.testing.assert_allclose(results[row, used], _attended(hidden[row, used]), rtol=1e-12, atol=1e-12)

    @parameterized.parameters(1, 2)
    def test_padding_gives_zero(self, beams):
        cache = tfo.seq2seq.KeyValueCache.create(1, 8, 1, 2).repeated(beams)
        key = tf.random.stateless_normal([beams, 4, 1, 2], [1, 2])
        self.assertAllEqual(cache.append(key, key, counts=3).attend(key)[:, 3], tf.zeros([beams, 1, 2]))

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
        with self.assertRaisesRegex(
            (ValueError, tf.errors.InvalidArgumentError), "key has 31 positions, expected at most 30: the cache's"
        ):
            cached["cache"].append(key, key)
        options = {"beam_width": 4, "max_length": _LENGTH + 1, "eos_ids": ()}
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, r"lengths\[0\] is 30, expected \[0, 29\]: the cache is full"
        ):
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

    @parameterized.parameters(
        ({"batch_size": -1}, "batch_size is -1, expected an int in"),
        ({"max_length": 2.5}, "max_length is 2.5, expected an int in"),
        ({"num_heads": 0}, "num_heads is 0, expected an int in"),
        ({"depth": None}, "depth is None, expected an int in"),
        ({"value_depth": True}, "value_depth is True, expected an int in"),
        ({"dtype": tf.int32}, "dtype is tf.int32, expected float16, bfloat16, float32 or float64"),
        ({"dtype": "text"}, "dtype is 'text', expected float16, bfloat16, float32 or float64"),
    )
    def test_errors_of_create(self, changed, message):
        arguments = {"batch_size": 2, "max_length": 5, "num_heads": 1, "depth": 4} | changed
        with self.assertRaisesRegex(ValueError, message):
            tfo.seq2seq.KeyValueCache.create(**arguments)
        if "batch_size" in changed:
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                tf.function(lambda n: tfo.seq2seq.KeyValueCache.create(n, 5, 1, 4), [tf.TensorSpec([], tf.int32)])(-1)

    # Of a cache of 2 examples and 5 positions, in 4 rows.
    @parameterized.product(
        case=[
            (
                {"key": [4, 2, 1, 4], "value": [4, 1, 1, 3]},
                r"value .*\[4,1,1,3\], expected .*: as many positions as key",
            ),
            (
                {"key": [4, 1, 1, 4], "value": [4, 2, 1, 3]},
                r"value .*\[4,2,1,3\], expected .*: as many positions as key",
            ),
            ({"key": [2, 2, 1, 4]}, r"key .*\[2,2,1,4\], expected .*: a row for each of the cache"),
            ({"key": [4, 2, 2, 4]}, r"key .*\[4,2,2,4\], expected .*: a row for each of the cache"),
            ({"key": [4, 2, 4]}, r"key .*\[4,2,4\], expected .*: a row for each of the cache"),
            ({"value": [4, 2, 1, 4]}, r"value .*\[4,2,1,4\], expected "),
            ({"counts": [1, 1, 5, 5]}, r"counts\[2\] is 5, expected \[0, (2|the positions of key)\]"),
            ({"counts": -2}, r"counts\[0\] is -2, expected \[0, (2|the positions of key)\]"),
            ({"counts": [2**32, 2**32, 1, 1]}, r"counts\[0\] is 4294967296, expected a whole number of 32 bits"),
            ({"counts": [1, 1, 2]}, r"counts .*\[3\], expected \[[4?]\]: one for each row of the cache"),
            ({"counts": [[1, 1, 2, 2]]}, r"counts .*\[1,4\], expected \[[4?]\]: one for each row of the cache"),
            ({"counts": [1, 1, 2, 1]}, r"counts\[3\] is 1, expected the same for the 2 beams of an example"),
            ({"key": [4, 6, 1, 4], "value": [4, 6, 1, 3]}, "the cache's max_length|the cache is full"),
            ({"lengths": 4}, r"lengths\[0\] is 4, expected \[0, (3|max_.*)\]: the cache is full"),
            (
                {"query": [3, 2, 1, 4]},
                r"query .*\[3,2,1,4\], expected .*: a row for each of the cache, of its keys' depth",
            ),
            (
                {"query": [4, 2, 1, 3]},
                r"query .*\[4,2,1,3\], expected .*: a row for each of the cache, of its keys' depth",
            ),
        ],
        mode=["eager", "graph", *["xla"] * (library.xla_error is None)],
    )
    def test_errors_of_append_and_attend(self, case, mode):
        shapes = {"key": [4, 2, 1, 4], "value": [4, 2, 1, 3], "query": [4, 2, 1, 4]}
        inputs = {name: tf.zeros(case[0].get(name, shape)) for name, shape in shapes.items()}
        inputs["counts"] = tf.constant(case[0].get("counts", 1), tf.int64)
        inputs["lengths"] = tf.constant(case[0].get("lengths", 0))
        inputs["sizes"] = tf.constant([2, 5])

        def call(key, value, query, counts, lengths, sizes):
            sizes = tf.unstack(sizes) if mode == "graph" else (2, 5)
            cache = tfo.seq2seq.KeyValueCache.create(*sizes, 1, 4, value_depth=3).repeated(2)
            rest = tf.zeros([4, lengths, 1, 4])
            cache = cache.append(rest, rest[..., :3])
            return cache.append(key, value, counts=counts).attend(query)

        if mode == "graph":
            signature = {name: tf.TensorSpec(None, x.dtype) for name, x in inputs.items()}
            signature["lengths"], signature["sizes"] = tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.int32)
            call = tf.function(lambda inputs, call=call: call(**inputs), [signature], autograph=False)
        elif mode == "xla":
            call = tf.function(lambda inputs, call=call: call(**inputs), jit_compile=True, autograph=False)
        with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), case[1]):
            call(**inputs) if mode == "eager" else call(inputs)

    def test_dtypes_that_do_not_fit_raise(self):
        cache = tfo.seq2seq.KeyValueCache.create(1, 5, 1, 4)
        key, other = tf.zeros([1, 1, 1, 4]), tf.zeros([1, 1, 1, 4], tf.int32)
        for call, message in (
            (lambda: cache.append(other, key), "key are int32, expected float32"),
            (lambda: cache.append(key, tf.as_string(key)), "value are string, expected float32"),
            (lambda: cache.append(key, key, counts=0.5), "counts .*0.5"),
            (lambda: cache.attend(tf.cast(key, tf.float16)), "query is float16, expected float32: the cache's dtype"),
            (lambda: cache.attend(key, window=(1, 2)), r"window is \(1, 2\), expected None, a positive int, "),
        ):
            with self.assertRaisesRegex(ValueError, message):
                call()

    def test_a_search_whose_beams_append_different_counts_raises(self):
        def step_fn(tokens, cache):
            query, key, value = _query_key_value(tokens)
            cache = cache.append(key, value, counts=tokens % 2)
            return _logits(cache.attend(query)), cache

        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"counts\[\d\] is \d, expected the same for the 4"):
            _search("beam_search", step_fn, _states()[0]["cache"], beam_width=4)

    def test_a_state_of_another_batch_raises_in_a_graph(self):
        @tf.function(input_signature=[tf.TensorSpec([], tf.int32)], autograph=False)
        def search(batch_size):
            state = {"cache": tfo.seq2seq.KeyValueCache.create(batch_size, _LENGTH, _HEADS, _DEPTH)}
            state["steps"] = tf.zeros([3], tf.int32)
            return tuple(_search("beam_search", _with_cache, state, beam_width=4))

        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, r"shape of initial_state\[cache\].lengths is \[2\], expected \[3\]"
        ):
            search(2)


if __name__ == "__main__":
    tf.test.main()
