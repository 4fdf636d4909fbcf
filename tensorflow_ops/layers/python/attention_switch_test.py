"""Tests of attention by tfo.layers.use_fused_ops."""

import functools

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_MINOR = int(keras.__version__.split(".")[1])
_RNG = np.random.default_rng(0)


def _normal(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


_QUERY, _KEY, _VALUE = _normal(2, 5, 4, 3), _normal(2, 7, 4, 3), _normal(2, 7, 4, 3)
_MASK = _RNG.uniform(size=[2, 1, 5, 7]) < 0.5
_MASK[..., 0] = True


def _ops(function, *args):
    """Returns the types of the ops that a call runs."""
    graph = tf.function(function).get_concrete_function(*map(tf.constant, args)).graph
    return [op.type for op in graph.get_operations()]


class AttentionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        {},
        {"is_causal": True},
        {"mask": _MASK},
        {"mask": _MASK[0, 0], "is_causal": True},
        {"bias": _normal(1, 4, 5, 7)},
        {"bias": _normal(5, 7).astype(np.float64), "scale": 0.1},
        {"scale": np.float32(2), "flash_attention": False},
    )
    def test_is_keras_function(self, **options):
        tensors = [tf.constant(x) for x in (_QUERY, _KEY, _VALUE)]

        def with_gradients():
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                result = keras.ops.dot_product_attention(*tensors, **options)
                loss = tf.reduce_sum(result * result)
            return [result, *tape.gradient(loss, tensors)]

        expected = with_gradients()
        with tfo.layers.use_fused_ops():
            actual = with_gradients()
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, 1e-4, 1e-4)

    @parameterized.product(
        case=(
            ("rows", np.arange(5)[:, np.newaxis] * np.ones(7) >= 2, {}),
            ("queries", np.array([5, 2]).reshape(2, 1, 1, 1) > np.arange(5)[:, np.newaxis], {}),
            ("examples", np.array([True, False])[:, np.newaxis, np.newaxis, np.newaxis], {}),
            ("heads", np.arange(4)[:, np.newaxis, np.newaxis] > 1, {"bias": _normal(5, 7)}),
            ("left padding", np.arange(7) > 2, {"is_causal": True}),
            ("left padding of examples", np.arange(7) > np.array([6, 1])[:, np.newaxis, np.newaxis, np.newaxis],
             {"is_causal": True, "bias": _normal(2, 4, 5, 7)}),
        ),
        queries=(5, 1),
        wrap=("eager", "graph", "jit"),
    )  # fmt: skip
    def test_queries_without_keys(self, case, queries, wrap):
        _, mask, options = case
        mask = np.broadcast_to(mask, np.broadcast_shapes(mask.shape, (5, 1)))[..., :queries, :]
        options = {key: x[..., :queries, :] if key == "bias" else x for key, x in options.items()}
        tensors = [tf.constant(x) for x in (_QUERY[:, :queries], _KEY, _VALUE)]

        def with_gradients(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                result = keras.ops.dot_product_attention(*tensors, mask=mask, **options)
                loss = tf.reduce_sum(tf.sin(result))
            return [result, *tape.gradient(loss, tensors)]

        expected = with_gradients(*tensors)
        if wrap != "eager":
            spec = [tf.TensorSpec([None, queries if queries == 1 else None, 4, 3]), *[tf.TensorSpec([None] * 4)] * 2]
            with_gradients = tf.function(with_gradients, spec, jit_compile=wrap == "jit")
        with tfo.layers.use_fused_ops(["dot_product_attention"]):
            actual = with_gradients(*tensors)
            self.assertEqual(tfo.layers.fused_ops()["dot_product_attention"]["fused"], 1)
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, 1e-5, 1e-5)

    def test_means_of_shared_and_narrow_values(self):
        mask = np.zeros([5, 7], bool)
        for dtype, tolerance in (("float16", 1e-3), ("bfloat16", 1e-2), ("float64", 1e-12)):
            query, key, value = (tf.cast(x, dtype) for x in (_QUERY, _KEY[:, :, :2], _VALUE[:, :, :2]))
            with tfo.layers.use_fused_ops(["dot_product_attention"]):
                actual = keras.ops.dot_product_attention(query, key, value, mask=mask)
            mean = tf.cast(value, tf.float64).numpy().mean(1, keepdims=True).repeat(2, 2)
            self.assertEqual(actual.dtype, dtype)
            self.assertAllClose(tf.cast(actual, tf.float64), np.broadcast_to(mean, actual.shape), tolerance, tolerance)

    def test_heads_share_keys(self):
        with tfo.layers.use_fused_ops():
            actual = keras.ops.dot_product_attention(_QUERY, _KEY[:, :, :2], _VALUE[:, :, :2])
        repeated = (np.repeat(x[:, :, :2], 2, axis=2) for x in (_KEY, _VALUE))
        self.assertAllClose(actual, keras.ops.dot_product_attention(_QUERY, *repeated), 1e-5, 1e-5)

    def test_calls_of_keras_are_fused(self):
        function = keras.ops.dot_product_attention
        layer = keras.layers.MultiHeadAttention(4, 3)
        args = _QUERY, _KEY, _VALUE
        self.assertNotIn("TensorflowOps>Attention", _ops(function, *args))
        with tfo.layers.use_fused_ops():
            self.assertIn("TensorflowOps>Attention", _ops(function, *args))
            self.assertIn("TensorflowOps>Attention", _ops(layer, _QUERY[:, 0], _VALUE[:, 0]))
            with tfo.layers.use_fused_ops():
                pass
            self.assertIn("TensorflowOps>Attention", _ops(function, *args))
        self.assertNotIn("TensorflowOps>Attention", _ops(function, *args))
        switch = tfo.layers.use_fused_ops()
        self.assertIn("TensorflowOps>Attention", _ops(function, *args))
        switch.close()
        self.assertNotIn("TensorflowOps>Attention", _ops(function, *args))

    def _calls(self, call):
        """Returns results without the switch and with it, and whether calls were fused."""
        expected = call()
        with tfo.layers.use_fused_ops(["dot_product_attention"]):
            actual = call()
            calls = tfo.layers.fused_ops().get("dot_product_attention", {"fused": 0})
            return expected, actual, calls["fused"] > 0

    @parameterized.product(
        kind=("MultiHeadAttention", "GroupQueryAttention"),
        options=(
            {},
            {"use_causal_mask": True},
            {"attention_mask": np.tril(np.ones([6, 6], int), -1)},  # the first query has no key
            {"query_mask": np.arange(6) < [[6], [3]], "value_mask": np.arange(6) < [[6], [3]]},
        ),
        in_graph=(False, True),
    )
    def test_dropout_of_no_training(self, kind, options, in_graph):
        sizes = (4, 3) if kind == "MultiHeadAttention" else (3, 4, 2)
        layer = getattr(keras.layers, kind)(*sizes, dropout=0.5, seed=1)
        x = _normal(2, 6, 5)
        layer(x, x)
        wrap = (lambda f: tf.function(f, [tf.TensorSpec([None, None, 5])])) if in_graph else lambda f: f
        expected, actual, is_fused = self._calls(lambda: wrap(lambda x: layer(x, x, **options))(tf.constant(x)))
        self.assertEqual(is_fused, _MINOR >= 10 or not options)
        self.assertAllClose(actual, expected, 1e-5, 1e-5)

    def test_dropout_in_training(self):
        x = tf.constant(_normal(2, 6, 5))
        layer = keras.layers.MultiHeadAttention(4, 3, dropout=0.5, seed=1)
        layer(x, x)

        class Outer(keras.layers.Layer):  # without an argument, the training of the model is that of all layers
            def call(self, x):
                return layer._compute_attention(*[x[:, :, tf.newaxis]] * 3)[0]

        outer = Outer()
        model = keras.Sequential([outer])
        model(x)

        def dropped(call):
            layer._dropout_layer.seed_generator.state.assign([1, 0])
            return call()

        for call in (lambda: layer(x, x, training=True), lambda: model(x, training=True)):
            expected, actual, is_fused = self._calls(functools.partial(dropped, call))
            self.assertFalse(is_fused)
            self.assertAllEqual(actual, expected)
        _, _, is_fused = self._calls(lambda: outer(x))
        self.assertTrue(is_fused)

    def test_scores_of_layers_with_dropout(self):
        x = _normal(2, 6, 5)
        layer = keras.layers.MultiHeadAttention(4, 3, dropout=0.5)
        layer(x, x)
        expected, actual, is_fused = self._calls(lambda: layer(x, x, return_attention_scores=True))
        self.assertFalse(is_fused)
        for one, other in zip(actual, expected, strict=True):
            self.assertAllEqual(one, other)

        class Probe(keras.layers.MultiHeadAttention):
            def _compute_attention(self, *args, **kwargs):
                output, self.scores = super()._compute_attention(*args, **kwargs)
                return output, self.scores

        probe = Probe(4, 3, dropout=0.5)
        probe(x, x)
        expected, actual, is_fused = self._calls(lambda: (probe(x, x), probe.scores)[1])
        self.assertFalse(is_fused)
        self.assertAllEqual(actual, expected)

    def test_flash_attention(self):
        layer = keras.layers.MultiHeadAttention(2, 3, flash_attention=True)
        x = _normal(2, 5, 4)
        with self.assertRaisesRegex(ValueError, "Flash attention is not supported"):
            layer(x, x)
        with tfo.layers.use_fused_ops():
            self.assertEqual(layer(x, x).shape, [2, 5, 4])

    def test_falls_back_to_keras(self):
        wide = tf.constant(_QUERY, tf.float64), tf.constant(_KEY, tf.float64), tf.constant(_VALUE, tf.float64)
        half = [tf.cast(x, tf.float16) for x in wide]
        scale = tf.constant(0.5)
        expected = keras.ops.dot_product_attention(*half, scale=scale)
        with tfo.layers.use_fused_ops():
            self.assertAllEqual(keras.ops.dot_product_attention(*half, scale=scale), expected)
            with self.assertRaisesRegex(ValueError, "only supports 4D inputs"):
                keras.ops.dot_product_attention(_QUERY[0], _KEY[0], _VALUE[0])


if __name__ == "__main__":
    tf.test.main()
