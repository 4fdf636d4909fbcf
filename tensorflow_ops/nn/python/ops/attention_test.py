"""Tests of attention: its options and their gradients, dropout, RaggedTensors, unknown shapes, errors.

The C++ tests compare all pairs of options, sizes, dtypes and numbers that are not finite with loops.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_T, _S = np.arange(5)[:, np.newaxis], np.arange(9)
_I = _T + 4  # The last query is beside the last key.
_RNG = np.random.default_rng(1)
_MASK, _SLOPES = _RNG.random([2, 1, 5, 9]) < 0.6, _RNG.uniform(size=[2, 4])


def _operands(batch=2):
    """Returns normal query, key and value."""
    rng = np.random.default_rng(0)
    return [tf.constant(rng.normal(size=[batch, *dims])) for dims in ([5, 4, 3], [9, 2, 3], [9, 2, 2])]


def _of_examples(*numbers):
    return np.reshape(numbers, [-1, 1, 1, 1])


def _both(*args, **options):
    return tfo.nn.attention(*args, return_log_sum_exp=True, **options)


def _composition(query, key, value, bias, sinks, mask=True, slopes=0.0, scale=3**-0.5, softcap=None):
    key, value = (tf.repeat(x, 2, axis=2) for x in (key, value))
    scores = scale * tf.einsum("btnd,bsnd->bnts", query, key)
    if softcap:
        scores = softcap * tf.tanh(scores / softcap)
    scores = tf.where(mask, scores + bias - slopes * abs(_I - _S), -np.inf)
    sinks = tf.broadcast_to(sinks[:, tf.newaxis, tf.newaxis], [2, 4, 5, 1])
    log_sum_exp = tf.reduce_logsumexp(tf.concat([scores, sinks], -1), -1)
    return tf.einsum("bnts,bsnd->btnd", tf.exp(scores - log_sum_exp[..., tf.newaxis]), value), log_sum_exp


class OptionsTest(tf.test.TestCase, parameterized.TestCase):
    def _check(self, options, meaning, bias=(4, 1, 9)):
        """Compares results and gradients with the composition."""
        tensors = [*_operands(), *(tf.constant(np.random.default_rng(2).normal(size=size)) for size in (bias, [4]))]
        # Padding has no gradient.
        is_query = np.arange(5) < np.reshape(options.get("lengths", 5), [-1, 1, 1])
        upstream = [tf.constant(_RNG.normal(size=[2, 5, 4, 2])), tf.constant(_RNG.normal(size=[2, 4, 5]) * is_query)]

        def results(function, options):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                results = function(*tensors[:3], bias=tensors[3], sinks=tensors[4], **options)
            return *results, *tape.gradient(results, tensors, output_gradients=upstream)

        for ours, expected in zip(results(_both, options), results(_composition, meaning), strict=True):
            self.assertAllClose(ours, expected, 1e-11, 1e-11)

    @parameterized.parameters(
        ({"mask": _MASK}, {"mask": _MASK}),
        ({"mask": _S < 4, "softcap": 0.5}, {"mask": _S < 4, "softcap": 0.5}),
        ({"causal": True}, {"mask": _S <= _I}),
        ({"causal": True, "query_offset": 0}, {"mask": _S <= _T}),
        ({"causal": True, "window": (None, 5)}, {"mask": _S <= _I}),
        ({"causal": True, "key_lengths": [9, 4]}, {"mask": _S <= _T + _of_examples(4, -1)}),
        (
            {"causal": True, "lengths": [3, 5]},
            {"mask": (_S <= _T + _of_examples(6, 4)) & (_T < _of_examples(3, 5))},
        ),
        ({"window": 3}, {"mask": abs(_I - _S) < 3}),
        ({"window": (None, 2)}, {"mask": _S <= _I + 2}),
        ({"window": (2, None), "query_offset": 6}, {"mask": _T + 4 <= _S}),
        (
            {"window": (3, 1), "query_offset": [2, -1]},
            {"mask": (_T + _of_examples(-1, -4) <= _S) & (_S <= _T + _of_examples(3, 0))},
        ),
        ({"key_lengths": 4}, {"mask": _S < 4}),
        ({"scale": -0.7}, {"scale": -0.7}),
        ({"alibi_slopes": _SLOPES[0]}, {"slopes": np.reshape(_SLOPES[0], [4, 1, 1])}),
        ({"alibi_slopes": _SLOPES}, {"slopes": np.reshape(_SLOPES, [2, 4, 1, 1])}),
    )
    def test_equal_a_composition(self, options, meaning):
        self._check(options, meaning)

    @parameterized.parameters([[5, 9]], [[9]], [[5, 1]], [[2, 1, 1, 1]], [[1, 4, 5, 1]], [[]])
    def test_biases_broadcast(self, shape):
        self._check({}, {}, bias=shape)

    def test_lower_ranks_that_are_unknown(self):
        options = {"mask": np.arange(9) < 7, "bias": np.ones([5, 1]), "alibi_slopes": np.ones(4), "query_offset": 2}
        specs = [tf.TensorSpec(None, tf.convert_to_tensor(x).dtype) for x in options.values()]
        attend = tf.function(
            lambda *x: tfo.nn.attention(*_operands(), **dict(zip(options, x, strict=True))), input_signature=specs
        )
        self.assertAllEqual(attend(*options.values()), tfo.nn.attention(*_operands(), **options))

    def test_vectorized_map_of_unknown_ranks(self):
        def gradients(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                output = tfo.nn.attention(*tensors)
            return tape.gradient(output, tensors)

        stacked = [np.stack([x, 2 * x]) for x in _operands()]
        mapped = tf.function(
            lambda *x: tf.vectorized_map(lambda xs: gradients(*xs), x, fallback_to_while_loop=False),
            input_signature=[tf.TensorSpec(None, x.dtype) for x in stacked],
        )
        expected = tf.map_fn(lambda xs: gradients(*xs), tuple(tf.convert_to_tensor(x) for x in stacked))
        for one, other in zip(mapped(*stacked), expected, strict=True):
            self.assertAllEqual(one, other)

    def test_lengths_of_unknown_rank(self):
        signature = [tf.TensorSpec(None, tf.int32)]
        call = tf.function(lambda n: tfo.nn.attention(*_operands(), key_lengths=n), signature)
        self.assertAllEqual(call(tf.constant(3)), call(tf.constant([3, 3])))
        for lengths in ([3], [3, 3, 3]):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"key_lengths must be \[B\]"):
                call(tf.constant(lengths))


class DropoutTest(tf.test.TestCase):
    def _factors(self, seed=(1, 2), queries=64, keys=100, dtype=tf.float64, batch=2):
        """Returns the factors of weights: values are one-hot, and scores equal."""
        query, key = tf.zeros([batch, queries, 3, 1], dtype), tf.zeros([batch, keys, 1, 1], dtype)
        value = tf.tile(tf.eye(keys, dtype=dtype)[tf.newaxis, :, tf.newaxis], [batch, 1, 1, 1])
        weights = tfo.nn.attention(query, key, value, dropout=0.25, seed=seed)
        return np.transpose(weights, [0, 2, 1, 3]) * keys

    def test_seeds(self):
        first = self._factors()
        self.assertNear(np.mean(first == 0), 0.25, 4 * np.sqrt(0.25 * 0.75 / first.size))
        self.assertAllClose(first[first != 0], np.full(np.sum(first != 0), 4 / 3), 1e-12)
        self.assertAllEqual(self._factors(), first)
        self.assertAllEqual(self._factors(tf.constant([1, 2 + 2**32], tf.int64)), first)
        for seed in ((2, 2), (1, 3), (-1, 2)):
            self.assertNear(np.mean((self._factors(seed) == 0) == (first == 0)), 0.625, 0.01)

    def test_other_sizes_and_dtypes_drop_the_same_places(self):
        first = self._factors() == 0
        self.assertAllEqual(self._factors(queries=33, keys=41) == 0, first[:, :, :33, :41])
        self.assertAllEqual(self._factors(dtype=tf.bfloat16) == 0, first)
        self.assertAllEqual(self._factors(batch=1) == 0, first[:1])


class RaggedTest(tf.test.TestCase, parameterized.TestCase):
    _LENGTHS, _KEY_LENGTHS = [5, 0, 1, 3], [9, 2, 0, 4]

    def _ragged(self):
        lengths = self._LENGTHS, self._KEY_LENGTHS, self._KEY_LENGTHS
        return [tf.RaggedTensor.from_tensor(x, n) for x, n in zip(_operands(batch=4), lengths, strict=True)]

    @parameterized.parameters(
        ({"sinks": [1.0, 2, 3, 4]},), ({"causal": True},), ({"query_offset": [0, 1, 2, 3]},),
        ({"bias": _RNG.normal(size=[4, 1, 9])},), ({"dropout": 0.5, "seed": [1, 2]},),
        ({"mask": np.arange(11) % 3 == 0},),  # longer than the longest example
    )  # fmt: skip
    def test_examples_equal_padded_ones(self, options):
        tensors = self._ragged()
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x.values for x in tensors])
            found = _both(*tensors, **options)
            padded = [x.to_tensor() for x in tensors]
            if "mask" in options:
                options = {"mask": options["mask"][:9]}
            output, log_sum_exp = _both(*padded, lengths=self._LENGTHS, key_lengths=self._KEY_LENGTHS, **options)
            log_sum_exp = tf.transpose(log_sum_exp, [0, 2, 1])
            expected = [tf.RaggedTensor.from_tensor(x, self._LENGTHS) for x in (output, log_sum_exp)]
            squares = [tf.square(x.values) for x in (found[0], expected[0])]
        for one, other in zip(found, expected, strict=True):
            self.assertAllEqual(one.row_splits, other.row_splits)
            self.assertAllClose(one.values, other.values, 1e-12, 1e-12)
        for x in tensors:
            d, expected = (tf.convert_to_tensor(tape.gradient(y, x.values)) for y in squares)
            self.assertAllClose(d, expected, 1e-12, 1e-12)

    def test_without_examples_and_without_rows(self):
        for lengths in ([], [0, 0]):
            tensors = [tf.RaggedTensor.from_row_lengths(x[0][:0], lengths) for x in _operands()]
            self.assertAllEqual(tfo.nn.attention(*tensors).row_lengths(), lengths)

    def test_key_and_value_of_different_rows(self):
        query, key, value = self._ragged()
        other = tf.RaggedTensor.from_row_lengths(value.values, [2, 9, 0, 4])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"row_splits\[1\] is 2, expected those of key"):
            tfo.nn.attention(query, key, other)
        # The same rows, of another tensor.
        value = tf.RaggedTensor.from_row_lengths(value.values, self._KEY_LENGTHS)
        self.assertAllEqual(tfo.nn.attention(query, key, value).row_lengths(), self._LENGTHS)

    def test_unknown_static_shapes(self):
        tensors = self._ragged()
        specs = [tf.RaggedTensorSpec([None, None, x.shape[2], None], x.dtype, ragged_rank=1) for x in tensors]
        attend = tf.function(lambda *x: _both(*x, causal=True, query_offset=1), input_signature=specs)
        for one, other in zip(attend(*tensors), _both(*tensors, causal=True, query_offset=1), strict=True):
            self.assertAllEqual(one.values, other.values)
            self.assertAllEqual(one.row_splits, other.row_splits)

    def test_xla(self):
        query, key, value = self._ragged()

        @tf.function(jit_compile=True)
        def attend(*values):
            return tfo.nn.attention(
                *(x.with_values(y) for x, y in zip((query, key, value), values, strict=True))
            ).values

        found = attend(query.values, key.values, value.values)
        self.assertAllClose(found, tfo.nn.attention(query, key, value).values, 1e-12, 1e-12)

    def test_ragged_results_have_the_splits_of_query(self):
        rows = np.ones([5, 2, 3], np.float32)
        x = tf.RaggedTensor.from_row_lengths(rows, tf.constant([3, 0, 2]))
        self.assertEqual((x + tfo.nn.attention(x, x, x)).row_splits.dtype, tf.int32)

    def test_ragged_arguments(self):
        query, key, value = (tf.RaggedTensor.from_tensor(x) for x in _operands())
        with self.assertRaisesRegex(ValueError, "key has 1 examples, expected 2, as query has"):
            tfo.nn.attention(query, key[:1], value)
        for argument, message in (
            ({"lengths": [1, 2]}, "lengths.* expected None"),
            ({"mask": np.ones([4, 9], bool)}, "mask is .*expected at least"),
        ):
            with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), message):
                tfo.nn.attention(query, key, value, **argument)


if __name__ == "__main__":
    tf.test.main()
