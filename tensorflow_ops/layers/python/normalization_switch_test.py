"""Tests of layer, root-mean-square and group normalization by tfo.layers.use_fused_ops."""

import sys
import types
from unittest import mock

import keras
import numpy as np
import pairwise_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_LAYERS = {
    "layer_normalization": (keras.layers.LayerNormalization, {}),
    "group_normalization": (keras.layers.GroupNormalization, {"groups": 4}),
}
if hasattr(keras.layers, "RMSNormalization"):  # from Keras 3.9
    _LAYERS["rms_normalization"] = keras.layers.RMSNormalization, {}


def _layer(name, shape, **options):
    kind, of_kind = _LAYERS[name]
    layer = kind(**{**of_kind, **options})
    layer.build([None, *shape[1:]])
    for weight in layer.weights:
        weight.assign(_RNG.uniform(0.5, 2, weight.shape))
    return layer


def _run(layer, x, d, mode="eager"):
    """Returns outputs, and gradients to x and to the layer's weights."""

    def run(x, d):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x)
        return outputs, *tape.gradient(outputs, [x, *(v.value for v in layer.trainable_variables)], d)

    if mode == "unknown sizes":
        run = tf.function(run, [tf.TensorSpec([None] * (x.shape.rank - 1) + x.shape[-1:], x.dtype)] * 2)
    elif mode != "eager":
        run = tf.function(run, jit_compile=mode == "XLA")
    return run(x, d)


def _check(case, name, layer, x, mode, reason=None):
    d = tf.cast(_RNG.normal(size=x.shape), layer.compute_dtype)
    expected = _run(layer, x, d, mode)
    with tfo.layers.use_fused_ops([name]):
        actual = _run(layer, x, d, mode)
    calls = {"fused": 1, "original": 0} if reason is None else {"fused": 0, "original": 1, "reasons": {reason: 1}}
    case.assertEqual(tfo.layers.fused_ops(), {name: calls})
    for one, other in zip(actual, expected, strict=True):
        case.assertEqual(one.dtype, other.dtype)
        # Keras 3.9 and 3.10 compute root mean squares in 16 bits.
        is_wide = name != "rms_normalization" or not keras.__version__.startswith(("3.9.", "3.10."))
        size = one.dtype.size if is_wide else min(one.dtype.size, x.dtype.size)
        limit = {2: 2e-2, 4: 1e-5, 8: 1e-12}[size] * max(1, np.abs(tf.cast(other, tf.float64)).max())
        case.assertAllClose(tf.cast(one, tf.float64), tf.cast(other, tf.float64), 0, limit)


class NormalizationTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise_testing.pairwise(
        name=tuple(_LAYERS),
        policy=("float32", "mixed_float16", "mixed_bfloat16", "float64"),
        mode=("eager", "unknown sizes", "graph"),
        sizes=((3,), (3, 5), (2, 4, 3)),
    )
    def test_is_keras(self, name, policy, mode, sizes):
        shape = [*sizes, 8]
        layer = _layer(name, shape, dtype=policy)
        x = tf.cast(_RNG.normal(1, 2, size=shape), layer.compute_dtype)
        _check(self, name, layer, x, mode)

    @parameterized.parameters(
        ("layer_normalization", {"axis": [-2, -1]}),
        ("layer_normalization", {"axis": [1, 2]}),
        ("layer_normalization", {"axis": 2, "center": False}),
        ("layer_normalization", {"scale": False, "epsilon": 0.1}),
        ("group_normalization", {"groups": -1}),
        ("group_normalization", {"groups": 1, "center": False, "scale": False}),
    )
    def test_options(self, name, options):
        x = tf.constant(_RNG.normal(1, 2, size=[3, 5, 8]), tf.float32)
        _check(self, name, _layer(name, x.shape, **options), x, "graph")

    @parameterized.parameters(
        ("layer_normalization", {"axis": 1}, "graph", "other axes than the last ones"),
        ("layer_normalization", {}, "XLA", "XLA"),
        ("group_normalization", {"axis": 1, "groups": 5}, "graph", "other axes than the last ones"),
        ("group_normalization", {}, "XLA", "XLA"),
    )
    def test_originals(self, name, options, mode, reason):
        x = tf.constant(_RNG.normal(1, 2, size=[3, 5, 8]), tf.float32)
        _check(self, name, _layer(name, x.shape, **options), x, mode, reason)

    def test_integers_and_the_variance_of_rms_scaling(self):
        for options, x, reason in (
            ({}, tf.ones([2, 8], tf.int32), "int32 inputs"),
            ({"rms_scaling": True}, tf.constant(_RNG.normal(size=[2, 8]), tf.float32), "rms_scaling=True"),
        ):
            layer = _layer("layer_normalization", x.shape, **options)
            layer.autocast = False
            expected = layer(x)
            with tfo.layers.use_fused_ops(["layer_normalization"]):
                self.assertAllEqual(layer(x), expected)
            self.assertEqual(tfo.layers.fused_ops()["layer_normalization"]["reasons"], {reason: 1})

    @parameterized.product(name=tuple(_LAYERS), autocast=(True, False), dtype=("float16", "float32", "float64"))
    def test_dtypes_of_layers(self, name, autocast, dtype):
        layer = _layer(name, [2, 8], dtype="mixed_bfloat16")
        layer.autocast &= autocast  # Keras turns some layers' off
        x = tf.cast(_RNG.normal(size=[2, 8]), dtype)
        expected = layer(x)
        with tfo.layers.use_fused_ops():
            self.assertEqual(layer(x).dtype, expected.dtype)

    def test_a_float32_layer_of_16_bits_is_as_exact_as_keras(self):
        layer = _layer("layer_normalization", [64, 32], dtype="float32")
        x = tf.cast(_RNG.normal(size=[64, 32]), tf.bfloat16)
        z = np.float64(tf.cast(x, tf.float64))
        z = (z - z.mean(1, keepdims=True)) / np.sqrt(z.var(1, keepdims=True) + layer.epsilon)
        expected = z * layer.gamma.numpy() + layer.beta.numpy()
        before = np.abs(layer(x) - expected).max()
        with tfo.layers.use_fused_ops():
            self.assertLess(np.abs(layer(x) - expected).max(), 2 * before + 1e-6)

    @parameterized.parameters("float32", "float64")
    def test_epsilons(self, dtype):
        for name in _LAYERS:
            for epsilon in (tf.constant(0.1, dtype), -1e-3):
                layer = _layer(name, [2, 8], dtype=dtype)
                layer.epsilon = epsilon
                x = tf.cast(_RNG.normal(size=[2, 8]), dtype)
                expected = layer(x)
                with tfo.layers.use_fused_ops():
                    self.assertAllEqual(layer(x), expected)
                self.assertEqual(tfo.layers.fused_ops()[name]["reasons"], {"no number as epsilon": 1})

    @parameterized.parameters(*((name,) for name in _LAYERS if name != "group_normalization"))
    def test_ragged(self, name):
        layer = _layer(name, [None, None, 8])
        x = tf.RaggedTensor.from_row_lengths(tf.constant(_RNG.normal(size=[5, 8]), tf.float32), [2, 0, 3])
        expected = layer.call(x)
        with tfo.layers.use_fused_ops():
            actual = layer.call(x)
        self.assertAllEqual(actual.flat_values, expected.flat_values)
        self.assertEqual(tfo.layers.fused_ops()[name]["reasons"], {"ragged inputs": 1})

    def test_models_save_load_and_export(self):
        model = keras.Sequential([keras.Input([5, 8]), *(_layer(name, [None, 5, 8]) for name in _LAYERS)])
        x = _RNG.normal(size=[3, 5, 8]).astype(np.float32)
        expected = model.predict(x, verbose=0)
        folder = self.get_temp_dir()
        with tfo.layers.use_fused_ops():
            model.save(f"{folder}/model.keras")
            model.export(f"{folder}/saved", verbose=False)
        self.assertAllClose(
            keras.saving.load_model(f"{folder}/model.keras").predict(x, verbose=0), expected, 1e-5, 1e-5
        )
        loaded = tf.saved_model.load(f"{folder}/saved")
        self.assertAllClose(loaded.serve(x), expected, 1e-5, 1e-5)

    @parameterized.product(
        path=(
            "llama.llama_layernorm.LlamaLayerNorm",
            "gemma.rms_normalization.RMSNormalization",
            "qwen3.qwen3_layernorm.Qwen3LayerNorm",
        ),
        policy=("float32", "mixed_bfloat16"),
    )
    def test_keras_hub(self, path, policy):
        plus = 1.0 if path.startswith("gemma") else 0.0
        is_qwen = path.startswith("qwen3")

        class Norm(keras.layers.Layer):
            def __init__(self, **options):
                super().__init__(**options)
                self.epsilon = 1e-5
                self.scale = self.add_weight(shape=[8], initializer="uniform")

            def call(self, x):
                wide = tf.cast(x, tf.float32)
                wide *= tf.math.rsqrt(tf.reduce_mean(tf.square(wide), -1, keepdims=True) + self.epsilon)
                y = wide * (plus + tf.cast(self.scale, tf.float32))
                return tf.cast(y, x.dtype if is_qwen else self.compute_dtype)

        module, _, name = f"keras_hub.src.models.{path}".rpartition(".")
        modules = {key: types.ModuleType(key) for key in ("keras_hub", module)}
        modules["keras_hub"].__version__ = "0.32.0"
        setattr(modules[module], name, Norm)
        layer = Norm(dtype=policy)
        x = tf.cast(_RNG.normal(size=[2, 3, 8]), layer.compute_dtype)
        with mock.patch.dict(sys.modules, modules):
            _check(self, "rms_normalization", layer, x, "unknown sizes")
            layer.autocast = False
            expected = layer(tf.cast(x, tf.float32)).dtype
            with tfo.layers.use_fused_ops():
                self.assertEqual(layer(tf.cast(x, tf.float32)).dtype, expected)


if __name__ == "__main__":
    tf.test.main()
