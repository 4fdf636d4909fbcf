"""Tests of tfo.layers.use_fused_attention: beside Keras's own attention, which it replaces."""

import os
import sys
import types
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

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


class UseFusedAttentionTest(tf.test.TestCase, parameterized.TestCase):
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
        with tfo.layers.use_fused_attention():
            actual = with_gradients()
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, 1e-4, 1e-4)

    def test_heads_share_keys(self):
        with tfo.layers.use_fused_attention():
            actual = keras.ops.dot_product_attention(_QUERY, _KEY[:, :, :2], _VALUE[:, :, :2])
        repeated = (np.repeat(x[:, :, :2], 2, axis=2) for x in (_KEY, _VALUE))
        self.assertAllClose(actual, keras.ops.dot_product_attention(_QUERY, *repeated), 1e-5, 1e-5)

    def test_calls_of_keras_are_fused(self):
        function = keras.ops.dot_product_attention
        layer = keras.layers.MultiHeadAttention(4, 3)
        args = _QUERY, _KEY, _VALUE
        self.assertNotIn("TensorflowOps>Attention", _ops(function, *args))
        with tfo.layers.use_fused_attention():
            self.assertIn("TensorflowOps>Attention", _ops(function, *args))
            self.assertIn("TensorflowOps>Attention", _ops(layer, _QUERY[:, 0], _VALUE[:, 0]))
            with tfo.layers.use_fused_attention():
                pass
            self.assertIn("TensorflowOps>Attention", _ops(function, *args))
        self.assertNotIn("TensorflowOps>Attention", _ops(function, *args))
        switch = tfo.layers.use_fused_attention()
        self.assertIn("TensorflowOps>Attention", _ops(function, *args))
        switch.close()
        self.assertNotIn("TensorflowOps>Attention", _ops(function, *args))

    def test_flash_attention(self):
        layer = keras.layers.MultiHeadAttention(2, 3, flash_attention=True)
        x = _normal(2, 5, 4)
        with self.assertRaisesRegex(ValueError, "Flash attention is not supported"):
            layer(x, x)
        with tfo.layers.use_fused_attention():
            self.assertEqual(layer(x, x).shape, [2, 5, 4])

    def test_falls_back_to_keras(self):
        wide = tf.constant(_QUERY, tf.float64), tf.constant(_KEY, tf.float64), tf.constant(_VALUE, tf.float64)
        half = [tf.cast(x, tf.float16) for x in wide]
        scale = tf.constant(0.5)
        expected = keras.ops.dot_product_attention(*half, scale=scale)
        with tfo.layers.use_fused_attention():
            self.assertAllEqual(keras.ops.dot_product_attention(*half, scale=scale), expected)
            with self.assertRaisesRegex(ValueError, "only supports 4D inputs"):
                keras.ops.dot_product_attention(_QUERY[0], _KEY[0], _VALUE[0])

    def test_a_model_trains_and_is_saved_without_us(self):
        x, y = _normal(4, 6, 8), _normal(4, 6, 8)

        def trained():
            keras.utils.set_random_seed(0)
            inputs = keras.Input([6, 8])
            attended = keras.layers.MultiHeadAttention(2, 4)(inputs, inputs, use_causal_mask=True)
            heads = keras.ops.reshape(attended, [-1, 6, 2, 4])
            model = keras.Model(
                inputs, keras.ops.reshape(keras.ops.dot_product_attention(heads, heads, heads), [-1, 6, 8])
            )
            model.compile(keras.optimizers.SGD(0.1), "mse")
            model.fit(x, y, epochs=3, verbose=0)
            return model

        expected = trained()
        with tfo.layers.use_fused_attention():
            model = trained()
            path = os.path.join(self.get_temp_dir(), "model.keras")
            model.save(path)
        for one, other in zip(model.weights, expected.weights, strict=True):
            self.assertAllClose(one, other, 1e-4, 1e-4)
        self.assertNotIn("tensorflow_ops", model.to_json())
        self.assertAllClose(keras.saving.load_model(path).predict(x, verbose=0), expected(x), 1e-4, 1e-4)

    def test_modules_of_keras_hub(self):
        names = [f"keras_hub.src.models.{name}_attention" for name in ("llama.llama", "mixtral.mixtral", "qwen.qwen")]
        modules = {name: types.ModuleType(name) for name in names}
        llama, mixtral, qwen = modules.values()
        for module in modules.values():
            module.fused_attention_op_available = lambda: False
        mixtral.running_on_gpu = mixtral.gpu_supports_fused_attention_op = lambda: False
        with mock.patch.dict(sys.modules, modules):
            with tfo.layers.use_fused_attention():
                self.assertTrue(llama.fused_attention_op_available())
                self.assertTrue(mixtral.running_on_gpu() and mixtral.gpu_supports_fused_attention_op())
                self.assertFalse(qwen.fused_attention_op_available())
            self.assertFalse(llama.fused_attention_op_available() or mixtral.running_on_gpu())

    def test_unknown_keras(self):
        with mock.patch.object(keras, "__version__", "3.99.1"):
            for call in (
                tfo.layers.use_fused_attention,
                lambda: tfo.layers.MultiHeadAttention(2, 3),
                lambda: tfo.layers.GroupQueryAttention(3, 4, 2),
            ):
                message = r'Keras 3.7 to 3.15, and Keras 3.99.1 is installed.*"keras>=3.7,<3.16", or .* Keras 3.99'
                with self.assertRaisesRegex(ImportError, message):
                    call()
        with (
            mock.patch.object(keras.backend, "backend", lambda: "jax"),
            self.assertRaisesRegex(ValueError, "backend is 'jax', expected 'tensorflow'"),
        ):
            tfo.layers.use_fused_attention()


if __name__ == "__main__":
    tf.test.main()
