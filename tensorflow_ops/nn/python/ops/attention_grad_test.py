"""Tests of attention's gradients: against differences of its definition in NumPy, and in Keras's composition."""

import itertools

import attention_testing as definition
import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo

_INF, _NAN = np.inf, np.nan
_PAIRS = [*itertools.combinations(definition.OPTIONS, 2), *((name,) for name in definition.OPTIONS), ()]


def _gradients(tensors, *upstream, **options):
    """Returns the gradients of the output, and of the log-sum-exp if there are two upstream ones, to all tensors."""
    tensors = {name: tf.convert_to_tensor(x) for name, x in tensors.items()}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        given = options | tensors
        operands = [given.pop(name) for name in ("query", "key", "value")]
        results = tfo.nn.attention(*operands, return_log_sum_exp=True, **given)[: len(upstream)]
    return tape.gradient(results, tensors, output_gradients=list(upstream))


def _operands(**sizes):
    return dict(zip(("query", "key", "value"), definition.operands(**sizes), strict=True))


class NumericTest(tf.test.TestCase, parameterized.TestCase):
    def _check(self, tensors, options, dtype=tf.float64, bound=1e-7):
        """Compares the derivative along a random direction of each tensor with differences of the definition."""
        rng = np.random.default_rng(3)
        # The numbers that the dtype holds.
        tensors = {name: tf.constant(x, dtype).numpy().astype(np.float64) for name, x in tensors.items()}
        results = definition.attention(**tensors, **options)
        # A log-sum-exp of -inf, and those of padding, have upstream gradients, too, which must not matter.
        upstream = [rng.normal(size=x.shape) for x in results]
        lengths = np.reshape(options.get("lengths", results[1].shape[-1]), [-1, 1, 1])
        matters = np.isfinite(results[1]) & (np.arange(results[1].shape[-1]) < lengths)

        def loss(**changed):
            output, log_sum_exp = definition.attention(**(tensors | changed), **options)
            return np.sum(output * upstream[0]) + np.sum(np.where(matters, log_sum_exp, 0) * upstream[1])

        given = {name: tf.constant(x, dtype) for name, x in tensors.items()}
        wide = tf.float64 if dtype == tf.float64 else tf.float32
        gradients = _gradients(given, tf.constant(upstream[0], dtype), tf.constant(upstream[1], wide), **options)
        for name, x in tensors.items():
            self.assertEqual(gradients[name].dtype, dtype)
            direction = rng.normal(size=x.shape)
            numeric = (loss(**{name: x + 1e-6 * direction}) - loss(**{name: x - 1e-6 * direction})) / 2e-6
            terms = tf.cast(gradients[name], tf.float64) * direction
            scale = 1 + np.sqrt(np.sum(np.square(terms)))
            self.assertLess(abs(np.sum(terms) - numeric), bound * scale, f"{name}, {options}")

    @parameterized.parameters(*_PAIRS)
    def test_options_and_pairs_of_them(self, *names):
        options = definition.chosen(*names)
        learnt = {name: options.pop(name) for name in ("bias", "sinks") if name in options}
        self._check(_operands() | learnt, options)

    @pairwise(
        dtype=(tf.float32, tf.float64),
        queries=(1, 31, 32, 33, 113),
        keys=(1, 31, 113),
        heads=((4, 4), (4, 2), (4, 1), (1, 1)),
        depth=(1, 20, 96, 256),
        value_depth=(1, 33, 256),
        options=({}, {"causal": True}, {"window": 7}, {"softcap": 2.0}),
    )
    def test_sizes(self, dtype, queries, keys, heads, depth, value_depth, options):
        operands = definition.operands(1, queries, keys, *heads, depth, value_depth)
        tensors = dict(zip(("query", "key", "value"), operands, strict=True))
        self._check(tensors, options, dtype, 1e-7 if dtype == tf.float64 else 1e-4)

    @parameterized.parameters([[5, 9]], [[9]], [[5, 1]], [[4, 1, 1]], [[4, 5, 9]], [[2, 1, 1, 1]], [[1, 4, 5, 1]], [[]])
    def test_biases_broadcast(self, shape):
        self._check(_operands() | {"bias": np.random.default_rng(2).normal(size=shape)}, {})

    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_16_bits(self, dtype):
        tensors = {name: x / 2 for name, x in _operands(queries=33, keys=40).items()}
        tensors["bias"] = np.random.default_rng(2).normal(size=[40])
        self._check(tensors, definition.chosen("causal"), dtype, 5e-2 if dtype == tf.bfloat16 else 1e-2)

    def test_all_options(self):
        options = definition.chosen(*definition.OPTIONS)
        tensors = [options.pop(name) for name in ("bias", "sinks")]

        def attend(query, key, value, bias, sinks):
            return tfo.nn.attention(query, key, value, bias=bias, sinks=sinks, **options)

        tfo.testing.assert_gradients(attend, [*definition.operands(), *tensors])

    def test_ragged(self):
        lengths, key_lengths = [5, 0, 3], [9, 2, 0]
        tensors = _operands(batch=3) | {"bias": np.random.default_rng(2).normal(size=[4, 5, 9]), "sinks": np.ones(4)}
        upstream = np.random.default_rng(4).normal(size=[3, 5, 4, 2])
        expected = _gradients(tensors, tf.constant(upstream), lengths=lengths, key_lengths=key_lengths, causal=True)
        given = {
            name: tf.RaggedTensor.from_tensor(tensors[name], n)
            for name, n in (("query", lengths), ("key", key_lengths), ("value", key_lengths))
        }
        learnt = {name: tf.constant(tensors[name]) for name in ("bias", "sinks")}
        with tf.GradientTape() as tape:
            tape.watch([given, learnt])
            output = tfo.nn.attention(*given.values(), causal=True, **learnt)
            loss = tf.reduce_sum(output.values * tf.RaggedTensor.from_tensor(upstream, lengths).values)
        of_given, of_learnt = tape.gradient(loss, [given, learnt])
        for name, d in of_given.items():
            d = d.values if isinstance(d, tf.RaggedTensor) else d
            self.assertAllClose(
                d, tf.RaggedTensor.from_tensor(expected[name], given[name].row_lengths()).values, 1e-12, 1e-12
            )
        for name, d in of_learnt.items():
            self.assertAllClose(d, expected[name], 1e-12, 1e-12)


class PropertiesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_equals_keras(self, causal):
        tensors = _operands(key_heads=4) | {"bias": np.random.default_rng(1).normal(size=[2, 4, 5, 9])}
        tensors = {name: tf.constant(x) for name, x in tensors.items()}
        upstream = tf.constant(np.random.default_rng(2).normal(size=[2, 5, 4, 2]))
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            output = keras.ops.nn.dot_product_attention(**tensors, is_causal=causal)
        expected = tape.gradient(output, tensors, output_gradients=upstream)
        gradients = _gradients(tensors, upstream, causal=causal, query_offset=0)
        for name in tensors:
            # Keras's softmax is of float32.
            self.assertAllClose(gradients[name], expected[name], 1e-6, 1e-6)

    @parameterized.parameters(({"mask": [[False]]},), ({"key_lengths": [0, 0]},), ({"lengths": [0, 0]},))
    def test_queries_without_keys_pass_no_gradient(self, options):
        tensors = _operands() | {"bias": np.zeros([5, 9])}
        upstream = tf.ones([2, 5, 4, 2], tf.float64), tf.ones([2, 4, 5], tf.float64)
        for name, d in _gradients(tensors, *upstream, **options).items():
            self.assertAllEqual(d, tf.zeros_like(tensors[name]))

    def test_without_keys_the_log_sum_exp_is_the_sink(self):
        upstream = tf.zeros([2, 5, 4, 2], tf.float64), tf.ones([2, 4, 5], tf.float64)
        for options, expected in (({"mask": [[False]]}, 10.0), ({"lengths": [0, 3]}, 3.0)):  # Padding has no gradient.
            options["key_lengths"] = [0, 0]
            gradients = _gradients(_operands() | {"sinks": np.zeros(4)}, *upstream, **options)
            self.assertAllEqual(gradients["sinks"], tf.fill([4], expected))

    @pairwise(number=(_NAN, _INF, -_INF), option=("mask", "key_lengths", "causal"), keys=(9, 120))
    def test_excluded_keys_and_values_may_be_anything(self, number, option, keys):
        last = keys - 4
        options = {
            "mask": {"mask": np.arange(keys) < last},
            "key_lengths": {"key_lengths": [last, last], "query_offset": 0},
            "causal": {"causal": True, "query_offset": last - 5},
        }[option]
        tensors = _operands(keys=keys)
        upstream = tf.ones([2, 5, 4, 2], tf.float64), tf.ones([2, 4, 5], tf.float64)
        expected = _gradients(tensors, *upstream, **options)
        for name in ("key", "value"):
            tensors[name][:, last:] = number
        for name, d in _gradients(tensors, *upstream, **options).items():
            self.assertAllEqual(d, expected[name])

    def test_a_merge_of_parts_equals_the_whole(self):
        """As in attention over rings of devices: each part's weight is e^(its log-sum-exp)."""
        tensors = {name: tf.constant(x) for name, x in _operands(keys=60).items()}
        # Some queries see no key of the first part, and query 0 none at all.
        mask = np.random.default_rng(0).random([5, 60]) < 0.5
        mask[:3, :25] = mask[0] = False

        def merged(query, key, value):
            parts = [slice(0, 25), slice(25, 60)]
            of_parts = [
                tfo.nn.attention(query, key[:, part], value[:, part], mask=mask[:, part], return_log_sum_exp=True)
                for part in parts
            ]
            log_sums = tf.stack([log_sum for _, log_sum in of_parts])
            weights = tf.transpose(tfo.nn.softmax(log_sums, axis=0), [0, 1, 3, 2])[..., tf.newaxis]
            return tf.reduce_sum(weights * tf.stack([output for output, _ in of_parts]), 0)

        upstream = tf.constant(np.random.default_rng(2).normal(size=[2, 5, 4, 2]))
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            output = merged(**tensors)
        self.assertAllClose(output, tfo.nn.attention(**tensors, mask=mask), 1e-12, 1e-12)
        gradients = tape.gradient(output, tensors, output_gradients=upstream)
        for name, expected in _gradients(tensors, upstream, mask=mask).items():
            self.assertAllClose(gradients[name], expected, 1e-10, 1e-10)

    def test_dropped_weights_pass_no_gradient_to_values(self):
        """The gradient to one-hot values shows the weights that the forward pass kept."""
        query, key = tf.zeros([1, 40, 2, 1]), tf.zeros([1, 100, 2, 1])
        value = tf.tile(tf.eye(100)[tf.newaxis, :, tf.newaxis], [1, 1, 2, 1])
        options = {"dropout": 0.5, "seed": [3, 4]}
        forward = tfo.nn.attention(query, key, value, **options)
        for t in range(0, 40, 13):
            upstream = tf.one_hot([[[t] * 2]], 40, axis=1)[:, :, 0]  # Of one query.
            upstream = tf.repeat(upstream[..., tf.newaxis], 100, -1)
            d = _gradients({"query": query, "key": key, "value": value}, upstream, **options)["value"]
            self.assertAllClose(d[0, :, :, 0], tf.transpose(forward[0, t]), 1e-6, 1e-6)

    def test_large_sinks_take_all_gradient(self):
        tensors = _operands() | {"sinks": np.full(4, 1e4)}
        upstream = tf.ones([2, 5, 4, 2], tf.float64), tf.ones([2, 4, 5], tf.float64)
        gradients = _gradients(tensors, *upstream)
        for name in ("query", "key", "value"):
            self.assertAllEqual(gradients[name], tf.zeros_like(tensors[name]))
        self.assertAllEqual(gradients["sinks"], tf.fill([4], 10.0))  # Of the log-sum-exp, 2 examples of 5 queries.

    @parameterized.parameters({"batch": 0}, {"queries": 0}, {"keys": 0}, {"heads": 0}, {"depth": 0}, {"value_depth": 0})
    def test_empty_tensors(self, **sizes):
        tensors = _operands(**sizes)
        (batch, queries, heads, _), value_depth = tensors["query"].shape, tensors["value"].shape[-1]
        tensors |= {"bias": np.zeros([1, 1, 1, 1]), "sinks": np.zeros(heads)}
        upstream = tf.ones([batch, queries, heads, value_depth], tf.float64)
        for name, d in _gradients(tensors, upstream, scale=1.0).items():
            self.assertEqual(d.shape, tensors[name].shape)
            self.assertAllEqual(np.isfinite(d), np.ones(d.shape))

    def test_alibi_slopes_have_no_gradient(self):
        options = {"alibi_slopes": tf.constant(definition.OPTIONS["alibi_slopes"])}
        with tf.GradientTape() as tape:
            tape.watch(options)
            output = tfo.nn.attention(*definition.operands(), **options)
        self.assertIsNone(tape.gradient(output, options)["alibi_slopes"])

    @parameterized.parameters("query", "key", "value", "bias", "sinks")
    def test_second_derivatives_are_refused(self, name):
        tensors = _operands() | {"bias": definition.OPTIONS["bias"], "sinks": definition.OPTIONS["sinks"]}
        tensors = {name: tf.constant(x) for name, x in tensors.items()}
        with tf.GradientTape() as outer:
            outer.watch(tensors)
            with tf.GradientTape() as inner:
                inner.watch(tensors)
                loss = tf.reduce_sum(tfo.nn.attention(**tensors) ** 2)
            first = inner.gradient(loss, tensors[name])
        with self.assertRaisesRegex(LookupError, "attention has no second derivatives"):
            outer.gradient(first, tensors["query"])


if __name__ == "__main__":
    tf.test.main()
