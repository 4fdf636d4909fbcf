"""Tests of Keras's layers with weights of 8 and 4 bits under tfo.layers.use_fused_ops, beside the layers alone."""

import os
import unittest
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_MINOR = int(keras.__version__.split(".")[1])
_MODES = ("int8", "int4") if _MINOR > 10 else ("int8",)


def _normal(*shape):
    return tf.constant(_RNG.normal(size=shape), tf.float32)


def _build(layer, x):
    """Builds a layer with weights and biases that are not 0."""
    layer(x)
    for variable in layer.weights:
        variable.assign(_RNG.normal(size=variable.shape))
    return layer


class QuantizedLayersTest(tf.test.TestCase, parameterized.TestCase):
    def _is_keras(self, layer, x, served=True, with_gradient=True, tolerances=(1e-5, 1e-4), **options):
        """Compares outputs, and gradients to inputs."""

        def run():
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x, **options)
            return (y, tape.gradient(y, x)) if with_gradient else (y,)

        expected = run()
        with tfo.layers.use_fused_ops(["quantized_matmul"]):
            actual = run()
            calls = tfo.layers.fused_ops().get("quantized_matmul", {"fused": 0})
            self.assertEqual(calls["fused"], served)
            spec = tf.TensorSpec([None, *x.shape[1:]], x.dtype)
            in_graph = tf.function(lambda x: layer(x, **options), input_signature=[spec])(x)
        self.assertEqual((actual[0].shape, actual[0].dtype), (expected[0].shape, expected[0].dtype))
        for one, other in zip([*actual, in_graph], [*expected, expected[0]], strict=True):
            one, other = (tf.cast(y, tf.float64) for y in (one, other))
            self.assertAllClose(one, other, *tolerances)

    @parameterized.product(mode=_MODES, units=(1, 6, 7))
    def test_dense(self, mode, units):
        x = _normal(2, 3, 9)
        layer = _build(keras.layers.Dense(units, "tanh"), x)
        layer.quantize(mode)
        self._is_keras(layer, x)

    @parameterized.product(
        mode=_MODES,
        case=[
            ("abc,cde->abde", (None, 4, 5), [2, 3, 8]),
            ("abcd,cde->abe", (None, 6), [2, 3, 4, 6]),
            ("ab,bc->ac", (7,), [3, 9]),
            ("abc,cd->dab", (2, 3), [2, 3, 8]),
        ],
    )
    def test_einsum_dense(self, mode, case):
        equation, shape, of_inputs = case
        x = _normal(*of_inputs)
        layer = keras.layers.EinsumDense(equation, shape, bias_axes="e" if equation.startswith("abc,cde") else None)
        layer = _build(layer, x)
        layer.quantize(mode)
        # In 4 bits, older releases pack along the first of two summed axes.
        is_packed_apart = mode == "int4" and equation.startswith("abcd") and _MINOR < 14
        self._is_keras(layer, x, served=not equation.endswith("dab") and not is_packed_apart)

    @parameterized.product(mode=_MODES, tie_weights=(True, False))
    def test_reversible_embedding(self, mode, tie_weights):
        if not hasattr(keras.layers, "ReversibleEmbedding"):
            self.skipTest("not in this Keras")
        layer = keras.layers.ReversibleEmbedding(11, 9, tie_weights=tie_weights, logit_soft_cap=3.0)
        ids = tf.constant([[1, 5]])
        layer(ids)
        layer.quantize(mode)
        # Keras's gradient does not see what it rounds.
        self._is_keras(layer, _normal(2, 3, 9), with_gradient=False, reverse=True)
        with tfo.layers.use_fused_ops():
            self.assertEqual(layer(ids).shape, [1, 2, 9])

    @parameterized.product(
        case=(("int8", True), ("int8", False), ("int4", True), ("int4", False), ("int4", False, 8)),
        policy=("float32", "mixed_bfloat16", "float64"),
        dtype=("float32", "bfloat16", "float64"),
    )
    def test_dtypes_of_layers_that_cast_no_inputs(self, case, policy, dtype):
        mode, rounds, *block_size = case
        if not hasattr(keras.layers, "ReversibleEmbedding") or (_MINOR < 14 and not rounds):
            self.skipTest("not in this Keras")
        config = None
        if _MINOR >= 14:
            quantizer = keras.quantizers.AbsMaxQuantizer() if rounds else None
            options = {"block_size": block_size[0] if block_size else None} if mode == "int4" else {}
            kind = {"int8": "Int8QuantizationConfig", "int4": "Int4QuantizationConfig"}[mode]
            config = getattr(keras.quantizers, kind)(activation_quantizer=quantizer, **options)
        x = tf.cast(_normal(2, 3, 16), dtype)
        tolerances = (1e-5, 1e-4) if "b" not in policy + dtype else (2e-2, 2e-2)
        for layer in (
            keras.layers.ReversibleEmbedding(11, 16, dtype=policy),
            keras.layers.ReversibleEmbedding(11, 16, tie_weights=False, dtype=policy),
            keras.layers.Dense(11, autocast=False, dtype=policy),
            keras.layers.EinsumDense("abc,cd->abd", (None, 11), autocast=False, dtype=policy),
        ):
            is_embedding = isinstance(layer, keras.layers.ReversibleEmbedding)
            layer.build([None] if is_embedding else x.shape)
            layer.quantize(mode, config=config) if config else layer.quantize(mode)
            call_options = {"reverse": True} if is_embedding else {}
            y = layer(x, **call_options)
            with tfo.layers.use_fused_ops(["quantized_matmul"]):
                actual = layer(x, **call_options)
                if is_embedding and dtype == y.dtype.name:
                    self.assertEqual(tfo.layers.fused_ops()["quantized_matmul"]["fused"], 1)
            self.assertEqual(actual.dtype, y.dtype)
            self.assertAllClose(*(tf.cast(x, tf.float64) for x in (actual, y)), *tolerances)

    def test_axes_of_quantizers(self):
        if not hasattr(keras.layers, "ReversibleEmbedding"):
            self.skipTest("not in this Keras")
        x = _normal(2, 3, 16)
        for axis, is_last in ((-1, True), (2, True), ((0, 1), False), (0, False), ((0, 1, 2), False)):
            layer = keras.layers.ReversibleEmbedding(11, 16)
            layer.build([None])
            layer.quantize("int8")
            layer.inputs_quantizer = keras.quantizers.AbsMaxQuantizer(axis=axis)
            if axis == (0, 1, 2) or is_last:
                self._is_keras(layer, x, served=is_last, with_gradient=False, reverse=True)
            else:
                with tfo.layers.use_fused_ops(), self.assertRaises(tf.errors.InvalidArgumentError):
                    layer(x, reverse=True)

    @parameterized.product(mode=_MODES, policy=("float32", "mixed_bfloat16"), rows=(8, 9), rounds=(True, False))
    def test_gpus_have_faster_products(self, mode, policy, rows, rounds):
        x = _normal(1, rows, 16)
        layer = _build(keras.layers.Dense(6, dtype=policy), x)
        layer.quantize(mode)
        if _MINOR < 14 and not rounds:
            self.skipTest("since Keras 3.14")
        layer.inputs_quantizer = keras.quantizers.AbsMaxQuantizer(axis=-1) if rounds else None
        expected = layer(x)
        for known in (True, False):
            has_blocks = getattr(layer, "_int4_block_size", None) not in (None, -1)  # Keras rounds no inputs of these
            is_of_integers = rounds and not has_blocks
            served = (known and rows <= 8) or is_of_integers or (mode == "int4" and policy != "float32")
            spec = tf.TensorSpec([1, rows if known else None, 16])
            with mock.patch.object(tf.config, "list_logical_devices", lambda kind=None: ["GPU:0"]):
                with tfo.layers.use_fused_ops(["quantized_matmul"]):
                    actual = tf.function(lambda x: layer(x), input_signature=[spec])(x)
                    self.assertEqual(tfo.layers.fused_ops()["quantized_matmul"]["fused"], served)
            self.assertAllClose(tf.cast(actual, "float32"), tf.cast(expected, "float32"), 2e-2, 2e-2)

    @parameterized.product(tie_weights=(True, False), rounds=(True, False))
    def test_embeddings_on_gpus(self, tie_weights, rounds):
        if not hasattr(keras.layers, "ReversibleEmbedding") or (_MINOR < 14 and not rounds):
            self.skipTest("not in this Keras")
        layer = keras.layers.ReversibleEmbedding(11, 16, tie_weights=tie_weights)
        layer.build([None])
        layer.quantize("int8")
        layer.inputs_quantizer = layer.inputs_quantizer if rounds else None
        with mock.patch.object(tf.config, "list_logical_devices", lambda kind=None: ["GPU:0"]):
            for rows in (8, 9):
                x = _normal(rows, 16)
                served = rounds or rows <= 8
                self._is_keras(layer, x, served=served, with_gradient=False, reverse=True)

    @parameterized.parameters((16, False), (64, False), (-1, True))
    def test_blocks_on_gpus(self, block_size, served):
        if _MINOR < 14:
            self.skipTest("since Keras 3.14")
        x = _normal(9, 40)
        layer = _build(keras.layers.Dense(6), x)
        layer.quantize("int4", config=keras.quantizers.Int4QuantizationConfig(block_size=block_size))
        layer.inputs_quantizer = keras.quantizers.AbsMaxQuantizer(axis=-1)
        with mock.patch.object(tf.config, "list_logical_devices", lambda kind=None: ["GPU:0"]):
            self._is_keras(layer, x, served=served)

    def test_calls_the_original(self):
        x = _normal(2, 9)
        layer = _build(keras.layers.Dense(6), x)
        layer.quantize("int8")
        layer.inputs_quantizer = keras.quantizers.AbsMaxQuantizer(axis=-1, value_range=(-100, 100))
        self._is_keras(layer, x, served=False)
        layer = _build(keras.layers.Dense(6), x)
        layer.quantize("int8")
        layer.enable_lora(2)
        self._is_keras(layer, x, served=False)

    def test_groups_and_float_inputs(self):
        if _MINOR < 14:
            self.skipTest("since Keras 3.14")
        from keras.quantizers import Int4QuantizationConfig

        x = _normal(2, 3, 40)
        for config in (Int4QuantizationConfig(block_size=16), Int4QuantizationConfig(block_size=-1), None):
            for layer in (keras.layers.Dense(6), keras.layers.EinsumDense("abc,cde->abde", (None, 4, 5))):
                layer = _build(layer, x)
                layer.quantize("int4", config=config)
                self._is_keras(layer, x)

    @parameterized.product(mode=("gptq", "awq"), bits=(4, 8))
    def test_calibrated_weights(self, mode, bits):
        config_of = getattr(keras.quantizers, f"{mode.upper()}Config", None)
        if config_of is None or (mode, bits) == ("awq", 8):
            self.skipTest("not in this Keras")
        options = {"group_size": 8} if mode == "awq" else {"group_size": 8, "weight_bits": bits}
        config = config_of(dataset=["text"], tokenizer=lambda text: [[0]], **options)
        x = _normal(2, 3, 24)
        for layer in (keras.layers.Dense(5, "relu"), keras.layers.EinsumDense("abc,cde->abde", (None, 4, 5))):
            layer = _build(layer, x)
            layer.quantize(mode, config=config)
            self._is_keras(layer, x, served=False)  # before the weights are calibrated
            setattr(layer, f"is_{mode}_calibrated", True)
            kernel, groups = layer.quantized_kernel, layer.kernel_scale.shape[-1]
            self.assertEqual(groups, 3)
            kernel.assign(_RNG.integers(0, 256, kernel.shape))
            layer.kernel_scale.assign(_RNG.uniform(0.1, 0.5, layer.kernel_scale.shape))
            layer.kernel_zero.assign(_RNG.integers(0, 16, layer.kernel_zero.shape))
            layer.g_idx.assign(_RNG.permutation(np.arange(24) // 8))
            if mode == "awq":
                layer.awq_scales.assign(_RNG.uniform(0.5, 2, 24))
            self._is_keras(layer, x)

    @unittest.skipUnless(hasattr(keras.quantizers, "AWQConfig"), "not in this Keras")
    def test_small_scales_of_awq_in_float16(self):
        layer = _build(keras.layers.Dense(5, dtype="float16"), x := tf.constant([[10.0] * 24], tf.float16))
        layer.quantize("awq", config=keras.quantizers.AWQConfig(dataset=["text"], tokenizer=None, group_size=8))
        layer.is_awq_calibrated = True
        layer.quantized_kernel.assign(_RNG.integers(0, 256, layer.quantized_kernel.shape))
        layer.kernel_scale.assign(np.full([5, 3], 1e-3))
        layer.kernel_zero.assign(np.full([5, 3], 7))
        layer.awq_scales.assign([1e-4] + [1] * 23)
        expected = layer(x)
        with tfo.layers.use_fused_ops():
            y = layer(x)
        self.assertEqual(y.dtype, tf.float16)
        self.assertAllClose(y, expected, 5e-3)

    def test_a_model_is_saved_without_us(self):
        x = _normal(4, 12)
        model = keras.Sequential([keras.layers.Dense(16, "gelu"), keras.layers.Dense(5)])
        model(x)
        expected_layers = [type(layer) for layer in model.layers]
        model.quantize("int8")
        with tfo.layers.use_fused_ops():
            y = model.predict(x, verbose=0)
            self.assertEqual(tfo.layers.fused_ops()["quantized_matmul"], {"fused": 2, "original": 0})
            path = os.path.join(self.get_temp_dir(), "model.keras")
            model.save(path)
        loaded = keras.saving.load_model(path)
        self.assertEqual([type(layer) for layer in loaded.layers], expected_layers)
        self.assertAllClose(loaded.predict(x, verbose=0), y, 1e-5, 1e-5)


if __name__ == "__main__":
    tf.test.main()
