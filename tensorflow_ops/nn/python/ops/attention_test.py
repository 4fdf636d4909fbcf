"""Tests of attention's values and errors. attention_grad_test.py has those of gradients."""

import itertools

import attention_testing as definition
import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo

_INF, _NAN = np.inf, np.nan
# Of outputs near 1; weights of 16 bits are rounded.
_ROUNDING = {tf.float16: 2e-3, tf.bfloat16: 2e-2, tf.float32: 1e-5, tf.float64: 1e-12}
_PAIRS = [*itertools.combinations(definition.OPTIONS, 2), *((name,) for name in definition.OPTIONS), ()]


def _both(*args, **options):
    return tfo.nn.attention(*args, return_log_sum_exp=True, **options)


class DefinitionTest(tf.test.TestCase, parameterized.TestCase):
    def _check(self, tensors, options, dtype=tf.float64):
        """Compares with the definition, of the numbers that the dtype holds."""
        tensors = [tf.constant(x, dtype) for x in tensors]
        output, log_sum_exp = _both(*tensors, **options)
        self.assertEqual(output.dtype, dtype)
        self.assertEqual(log_sum_exp.dtype, tf.float64 if dtype == tf.float64 else tf.float32)
        arrays = [x.numpy().astype(np.float64) for x in tensors]
        expected = definition.attention(*arrays, **options)
        bound = _ROUNDING[dtype]
        self.assertAllClose(tf.cast(output, tf.float64), expected[0], bound, bound)
        bound = min(bound, 1e-5)
        self.assertAllClose(log_sum_exp, expected[1], bound, bound)

    @parameterized.parameters(*_PAIRS)
    def test_options_and_pairs_of_them(self, *names):
        self._check(definition.operands(), definition.chosen(*names))

    @parameterized.parameters([[5, 9]], [[9]], [[5, 1]], [[4, 1, 1]], [[4, 5, 9]], [[2, 1, 1, 1]], [[1, 4, 5, 1]], [[]])
    def test_masks_and_biases_broadcast(self, shape):
        rng = np.random.default_rng(2)
        for option in ({"mask": rng.random(shape) < 0.5}, {"bias": rng.normal(size=shape)}):
            self._check(definition.operands(), option)

    @parameterized.parameters(
        ({"window": 3},), ({"window": (None, 2)},), ({"window": (2, None)},), ({"window": (0, 0)},),
        ({"window": (None, 5), "causal": True},), ({"query_offset": 4},), ({"query_offset": -3, "causal": True},),
        ({"alibi_slopes": [0.5, 0.25, 0.125, 0.0]},), ({"key_lengths": [0, 9]},), ({"lengths": [0, 5]},),
    )  # fmt: skip
    def test_other_forms_of_options(self, options):
        self._check(definition.operands(), options)

    @parameterized.parameters(*itertools.product((tf.float32, tf.float64), ({}, {"causal": True}, {"mask": True})))
    def test_equals_keras(self, dtype, option):
        tensors = [tf.constant(x, dtype) for x in definition.operands(key_heads=4)]
        # Keras aligns the first query with the first key.
        ours, theirs = dict(option), dict(option)
        if option.get("causal"):
            ours, theirs = {"causal": True, "query_offset": 0}, {"is_causal": True}
        elif option:
            ours = theirs = {"mask": np.random.default_rng(0).random([2, 4, 5, 9]) < 0.8}
        ours["bias"] = theirs["bias"] = tf.constant(np.random.default_rng(1).normal(size=[2, 4, 5, 9]), dtype)
        expected = keras.ops.nn.dot_product_attention(*tensors, scale=0.4, **theirs)
        self.assertAllClose(tfo.nn.attention(*tensors, scale=0.4, **ours), expected, 1e-5, 1e-5)

    def test_float16_scores_above_65504(self):
        """In float16 they were infinite, and the output NaN."""
        query = key = tf.fill([1, 4, 1, 128], tf.constant(30, tf.float16))
        value = tf.reshape(tf.constant([1, 2, 3, 6], tf.float16), [1, 4, 1, 1])
        output, log_sum_exp = _both(query, key, value, scale=1.0)
        self.assertAllEqual(output, tf.fill([1, 4, 1, 1], 3.0))
        self.assertAllClose(log_sum_exp, np.full([1, 1, 4], 128 * 900 + np.log(4)), rtol=1e-6)

    @parameterized.parameters(tf.float32, tf.float64, tf.bfloat16)
    def test_scores_of_10000(self, dtype):
        rng = np.random.default_rng(0)
        query, key = 100.0 * rng.integers(-1, 2, [2, 40, 2, 3]), 100.0 * rng.integers(-1, 2, [2, 50, 2, 3])
        value, bias = rng.normal(size=[2, 50, 2, 4]), rng.integers(-8, 8, [50]) / 8
        self._check([query, key, value], {"scale": 1.0, "bias": bias}, dtype)

    @parameterized.parameters(1e4, -1e4, -_INF)
    def test_large_sinks(self, sink):
        tensors, sinks = definition.operands(), [sink, 0.0, sink, 0.0]
        self._check(tensors, {"sinks": sinks})
        output, log_sum_exp = _both(*tensors, sinks=sinks)
        without = _both(*tensors)
        for one, other, axis in ((output, without[0], 2), (log_sum_exp, without[1], 1)):
            expected = tf.zeros_like(other) if axis == 2 else tf.fill(other.shape, tf.constant(sink, tf.float64))
            expected = expected if sink > 0 else other
            self.assertAllEqual(tf.gather(one, [0, 2], axis=axis), tf.gather(expected, [0, 2], axis=axis))


class ExcludedPairsTest(tf.test.TestCase, parameterized.TestCase):
    def test_causal_aligns_the_last_query_with_the_last_key(self):
        def seen(queries, keys, **options):
            """Returns the last key that each query sees, of keys with equal scores."""
            value = np.eye(keys).reshape(1, keys, 1, keys)
            weights = tfo.nn.attention(np.zeros([1, queries, 1, 1]), np.zeros([1, keys, 1, 1]), value, **options)
            return [int(np.flatnonzero(row)[-1]) if row.any() else None for row in weights[0, :, 0].numpy()]

        self.assertEqual(seen(2, 5, causal=True), [3, 4])
        self.assertEqual(seen(5, 2, causal=True), [None, None, None, 0, 1])
        self.assertEqual(seen(2, 5, causal=True, query_offset=0), [0, 1])
        self.assertEqual(seen(2, 5, causal=True, key_lengths=[4]), [2, 3])
        self.assertEqual(seen(3, 5, causal=True, lengths=[2]), [3, 4, None])

    @parameterized.parameters(
        ({"mask": [[False]]},), ({"key_lengths": [0, 0]},), ({"bias": -_INF},), ({"window": 1, "query_offset": 99},)
    )  # fmt: skip
    def test_queries_without_keys_are_zero(self, options):
        query, key, value = definition.operands()
        output, log_sum_exp = _both(query, key, value, **options)
        self.assertAllEqual(output, tf.zeros([2, 5, 4, 2]))
        self.assertAllEqual(log_sum_exp, tf.fill([2, 4, 5], -_INF))
        output, log_sum_exp = _both(query, key, value, sinks=[1.0, 2, 3, 4], **options)
        self.assertAllEqual(output, tf.zeros([2, 5, 4, 2]))
        self.assertAllEqual(log_sum_exp, np.tile([[[1.0], [2.0], [3.0], [4.0]]], [2, 1, 5]))

    def test_queries_without_keys_beside_others(self):
        query, key, value = definition.operands(queries=40, keys=120)
        mask = np.random.default_rng(0).random([2, 4, 40, 120]) < 0.5
        mask[:, :, ::3] = False
        expected = definition.attention(query, key, value, mask=mask)
        output, log_sum_exp = _both(query, key, value, mask=mask)
        self.assertAllEqual(output[:, ::3], tf.zeros([2, 14, 4, 2]))
        self.assertAllClose(output, expected[0], 1e-12, 1e-12)
        self.assertAllClose(log_sum_exp, expected[1], 1e-12, 1e-12)

    def test_softcap_comes_before_the_mask(self):
        """The other way round, excluded keys would have scores of -softcap."""
        query, key, value = definition.operands()
        mask = np.arange(9) < 4
        expected = tfo.nn.attention(query, key[:, :4], value[:, :4], softcap=0.5)
        self.assertAllClose(tfo.nn.attention(query, key, value, mask=mask, softcap=0.5), expected, 1e-12, 1e-12)

    @pairwise(
        dtype=tuple(_ROUNDING),
        number=(_NAN, _INF, -_INF),
        option=("mask", "key_lengths", "causal", "bias"),
        keys=(9, 120),
    )
    def test_excluded_keys_and_values_may_be_anything(self, dtype, number, option, keys):
        last = keys - 4
        seen = np.arange(keys) < last
        options = {
            "mask": {"mask": seen},
            "key_lengths": {"key_lengths": [last, last], "query_offset": 0},
            "causal": {"causal": True, "query_offset": last - 5},
            "bias": {"bias": tf.constant(np.where(seen, 0, -_INF), dtype)},
        }[option]
        query, key, value = definition.operands(keys=keys)
        expected = _both(*(tf.constant(x, dtype) for x in (query, key, value)), **options)
        value[:, last:] = number
        if option != "bias":  # NaN - inf is NaN.
            key[:, last:] = number
        found = _both(*(tf.constant(x, dtype) for x in (query, key, value)), **options)
        for one, other in zip(found, expected, strict=True):
            self.assertAllEqual(one, other)

    def test_nan_among_scores_makes_its_query_nan_and_no_other(self):
        query, key, value = definition.operands(queries=40, keys=40, key_heads=4)
        query[0, 3, 1] = _NAN
        key[1, 30, 2] = _NAN  # Queries 30 to 39 see it.
        output, log_sum_exp = (x.numpy() for x in _both(query, key, value, causal=True))
        is_nan = np.zeros([2, 40, 4], bool)
        is_nan[0, 3, 1] = is_nan[1, 30:, 2] = True
        self.assertAllEqual(np.isnan(output), np.repeat(is_nan[..., np.newaxis], 2, -1))
        self.assertAllEqual(np.isnan(log_sum_exp), is_nan.transpose(0, 2, 1))

    def test_infinite_scores(self):
        query, key, value = definition.operands()
        key[0, 2, 0] = [_INF, 0, 0]
        expected = definition.attention(query, key, value)
        self.assertTrue(np.isnan(expected[0]).any())
        for one, other in zip(_both(query, key, value), expected, strict=True):
            self.assertAllClose(one, other, 1e-12, 1e-12)
        # Capped, they are finite.
        self.assertAllClose(
            tfo.nn.attention(query, key, value, softcap=2.0),
            definition.attention(query, key, value, softcap=2.0)[0],
            1e-12,
            1e-12,
        )

    @parameterized.parameters(_NAN, _INF, -_INF)
    def test_values_that_are_not_finite_concern_their_column(self, number):
        query, key, value = definition.operands(queries=40, keys=120)
        value[0, 110, 1, 0] = number
        output = tfo.nn.attention(query, key, value, causal=True)
        self.assertAllClose(output, definition.attention(query, key, value, causal=True)[0], 1e-12, 1e-12)
        self.assertAllEqual(np.isfinite(output[..., 1]), np.ones([2, 40, 4]))


class DropoutTest(tf.test.TestCase):
    def _factors(self, seed=(1, 2), dropout=0.25, queries=64, keys=100, dtype=tf.float64, batch=2):
        """Returns the factors of weights: values are one-hot, and scores equal."""
        query, key = tf.zeros([batch, queries, 3, 1], dtype), tf.zeros([batch, keys, 1, 1], dtype)
        value = tf.tile(tf.eye(keys, dtype=dtype)[tf.newaxis, :, tf.newaxis], [batch, 1, 1, 1])
        weights = tfo.nn.attention(query, key, value, dropout=dropout, seed=seed)
        return np.transpose(weights, [0, 2, 1, 3]) * keys

    def test_weights_are_dropped_by_their_places(self):
        for dropout in (0.25, 0.1, 2.0**-16, 0.999):
            expected = definition.kept((1, 2), 6, 64, 100, dropout).reshape(2, 3, 64, 100)
            self.assertAllClose(self._factors(dropout=dropout), expected, 1e-12, 1e-12)

    def test_share_of_dropped_weights(self):
        factors = self._factors()
        self.assertNear(np.mean(factors == 0), 0.25, 4 * np.sqrt(0.25 * 0.75 / factors.size))
        self.assertAllClose(factors[factors != 0], np.full(np.sum(factors != 0), 4 / 3), 1e-12)

    def test_seeds(self):
        first = self._factors()
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

    def _ragged(self, **sizes):
        query, key, value = definition.operands(batch=4, **sizes)
        lengths = self._LENGTHS, self._KEY_LENGTHS, self._KEY_LENGTHS
        return [tf.RaggedTensor.from_tensor(x, n) for x, n in zip((query, key, value), lengths, strict=True)]

    @parameterized.parameters(
        ({},), ({"causal": True},), ({"window": (2, 0)},), ({"query_offset": [0, 1, 2, 3]},), ({"softcap": 1.0},),
        ({"bias": definition.OPTIONS["bias"]},), ({"mask": np.arange(9) % 2 == 0},), ({"sinks": [1.0, 2, 3, 4]},),
        ({"alibi_slopes": [[1.0, 2, 3, 4]]},), ({"dropout": 0.5, "seed": [1, 2]},),
        ({"mask": np.arange(11) % 3 == 0},),  # longer than the longest example
    )  # fmt: skip
    def test_examples_equal_padded_ones(self, options):
        tensors = self._ragged()
        output, log_sum_exp = _both(*tensors, **options)
        self.assertIsInstance(output, tf.RaggedTensor)
        self.assertAllEqual(output.row_lengths(), self._LENGTHS)
        if "mask" in options:
            options = {"mask": options["mask"][:9]}
        padded = [x.to_tensor() for x in tensors]
        expected = definition.attention(*padded, lengths=self._LENGTHS, key_lengths=self._KEY_LENGTHS, **options)
        is_query = np.arange(5) < np.reshape(self._LENGTHS, [-1, 1])
        self.assertAllClose(output.values, expected[0][is_query], 1e-12, 1e-12)
        self.assertAllEqual(log_sum_exp.row_lengths(), self._LENGTHS)
        self.assertAllClose(log_sum_exp.values, expected[1].transpose(0, 2, 1)[is_query], 1e-12, 1e-12)

    def test_without_examples_and_without_rows(self):
        for lengths in ([], [0, 0]):
            tensors = [tf.RaggedTensor.from_row_lengths(x[0][:0], lengths) for x in definition.operands()]
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


class ModesTest(tf.test.TestCase, parameterized.TestCase):
    def test_lower_ranks_of_options_that_are_unknown(self):
        options = {"mask": np.arange(9) < 7, "bias": np.ones([5, 1]), "alibi_slopes": np.ones(4), "query_offset": 2}
        specs = [tf.TensorSpec(None, tf.convert_to_tensor(x).dtype) for x in options.values()]
        attend = tf.function(
            lambda *x: tfo.nn.attention(*definition.operands(), **dict(zip(options, x, strict=True))),
            input_signature=specs,
        )
        self.assertAllEqual(attend(*options.values()), tfo.nn.attention(*definition.operands(), **options))


class ErrorsTest(tf.test.TestCase, parameterized.TestCase):
    def test_lengths_of_unknown_rank(self):
        signature = [tf.TensorSpec(None, tf.int32)]
        call = tf.function(lambda n: tfo.nn.attention(*definition.operands(), key_lengths=n), signature)
        self.assertAllEqual(call(tf.constant(3)), call(tf.constant([3, 3])))
        for lengths in ([3], [3, 3, 3]):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"key_lengths must be \[B\]"):
                call(tf.constant(lengths))

    def test_ragged_results_have_the_splits_of_query(self):
        rows = np.ones([5, 2, 3], np.float32)
        x = tf.RaggedTensor.from_row_lengths(rows, tf.constant([3, 0, 2]))
        self.assertEqual((x + tfo.nn.attention(x, x, x)).row_splits.dtype, tf.int32)

    def test_ragged_arguments(self):
        query, key, value = (tf.RaggedTensor.from_tensor(x) for x in definition.operands())
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
