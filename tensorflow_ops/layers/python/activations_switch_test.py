"""Tests of gelu and silu by tfo.layers.use_fused_ops."""

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
_ROWS = ["bias_activation", "gelu", "silu"]
_FUSED = {"fused": 1, "original": 0}
_GRAPPLER = "a product that grappler fuses it with"


@keras.saving.register_keras_serializable()
def gelu_approximate(x):
    return keras.activations.gelu(x, approximate=True)


# keras-hub, which is not installed for tests.
_UTILS = types.ModuleType("keras_hub.src.utils.keras_utils")
_UTILS.gelu_approximate = gelu_approximate
_HUB = mock.patch.dict(sys.modules, {_UTILS.__name__: _UTILS})
_LAYERS = {
    "dense": lambda **options: keras.layers.Dense(7, bias_initializer="normal", **options),
    "einsum": lambda **options: keras.layers.EinsumDense(
        "abc,cd->abd", (None, 7), bias_axes="d", bias_initializer="normal", **options
    ),
}


def _original(reason, calls=1):
    return {"fused": 0, "original": calls, "reasons": {reason: calls}}


def _run(function, variables, x, mode="eager"):
    """Returns what a function computes, and the gradients to x and the variables."""

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = function(x)
        return outputs, *tape.gradient(outputs, [x, *variables], tf.cos(tf.cast(tf.range(7), outputs.dtype)) + outputs)

    if mode != "eager":
        shape = [None] * (x.shape.rank - 1) + x.shape[-1:]
        run = tf.function(run, [tf.TensorSpec(shape, x.dtype)], jit_compile=mode == "XLA")
    return run(x)


class ActivationsTest(tf.test.TestCase, parameterized.TestCase):
    def _expect_close(self, actual, expected):
        tolerance = {2: 6e-2, 4: 2e-5, 8: 1e-7}[expected[0].dtype.size]
        for one, other in zip(actual, expected, strict=True):
            self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
            most = np.abs(tf.cast(other, tf.float64)).max()
            self.assertAllClose(one, other, tolerance, tolerance * most)

    @parameterized.product(
        function=("gelu", "gelu_approximate", "silu", "swish"),
        dtype=("float32", "float64", "bfloat16"),
        mode=("eager", "unknown sizes"),
    )
    def test_functions(self, function, dtype, mode):
        call = gelu_approximate if function == "gelu_approximate" else keras.activations.get(function)
        x = tf.cast(_RNG.normal(size=[4, 5, 7]) * 3, dtype)
        expected = _run(call, [], x, mode)
        with tfo.layers.use_fused_ops(_ROWS):
            self._expect_close(_run(call, [], x, mode), expected)
        name = "silu" if function == "swish" else function.split("_")[0]
        self.assertEqual(tfo.layers.fused_ops(), {name: _FUSED})

    @parameterized.product(
        kind=tuple(_LAYERS),
        function=("gelu", gelu_approximate, "silu", "swish"),
        policy=("float32", "float64", "mixed_bfloat16"),
        mode=("eager", "unknown sizes"),
    )
    def test_layers(self, kind, function, policy, mode):
        layer = _LAYERS[kind](activation=function, dtype=policy)
        layer.build([None, None, 6])
        x = tf.cast(_RNG.normal(size=[4, 5, 6]), layer.compute_dtype)
        variables = [v.value for v in layer.trainable_variables]
        expected = _run(layer, variables, x, mode)
        with _HUB, tfo.layers.use_fused_ops(_ROWS):
            self._expect_close(_run(layer, variables, x, mode), expected)
        self.assertEqual(tfo.layers.fused_ops(), {"bias_activation": _FUSED})

    def test_matrices_in_graphs(self):
        """Of inference, grappler fuses them."""
        layers = [keras.layers.Dense(7, "gelu"), keras.layers.Activation("gelu"), keras.layers.Dense(7, "gelu")]
        model = keras.Sequential([keras.Input([6]), *layers])
        x, y = _RNG.normal(size=[8, 6]), _RNG.normal(size=[8, 7])
        expected = model.predict(x, verbose=0)
        with tfo.layers.use_fused_ops(_ROWS):
            self.assertAllClose(model.predict(x, verbose=0), expected)
            model.predict_function = None
            self.assertEqual(tfo.layers.fused_ops(), {})  # traced before
            self.assertAllClose(model.predict(x, verbose=0), expected, 1e-5, 1e-5)
        gelu = {"fused": 1, "original": 2, "reasons": {_GRAPPLER: 2}}
        self.assertEqual(tfo.layers.fused_ops(), {"bias_activation": _original(_GRAPPLER, 2), "gelu": gelu})
        losses = []
        for rows in ([], _ROWS):
            copy = keras.models.clone_model(model)
            copy.set_weights(model.get_weights())
            copy.compile("sgd", "mse")
            with tfo.layers.use_fused_ops(rows):
                losses.append(copy.fit(x, y, epochs=3, verbose=0).history["loss"])
        self.assertAllClose(*losses, 1e-5)
        self.assertEqual(
            tfo.layers.fused_ops(),
            {"bias_activation": {"fused": 2, "original": 0}, "gelu": {"fused": 1, "original": 0}},
        )

    def test_a_tensor_as_training(self):
        layer = _LAYERS["dense"](activation="gelu")
        x = tf.constant(_RNG.normal(size=[4, 6]), tf.float32)
        expected = layer(x)
        with tfo.layers.use_fused_ops(_ROWS):
            actual = tf.function(lambda training: layer(x, training=training))(tf.constant(True))
        self.assertAllClose(actual, expected, 1e-5, 1e-5)
        self.assertEqual(tfo.layers.fused_ops(), {"bias_activation": _FUSED})

    @parameterized.parameters("gelu", "silu")
    def test_ragged(self, name):
        x = tf.RaggedTensor.from_row_lengths(tf.constant(_RNG.normal(size=[5]), tf.float32), [2, 0, 3])
        function = getattr(keras.ops, name)
        expected = function(x)
        with tfo.layers.use_fused_ops(_ROWS):
            self.assertAllEqual(function(x).flat_values, expected.flat_values)
        self.assertEqual(tfo.layers.fused_ops(), {name: _original("ragged inputs")})

    def test_originals(self):
        class Halving(keras.layers.Dense):
            @property
            def kernel(self):
                return super().kernel.value

        x = tf.constant(_RNG.normal(size=[4, 5, 6]), tf.float32)
        wide = keras.layers.EinsumDense("abc,cde->abde", [None, 2, 7], bias_axes="de", activation="silu")
        cases = [
            ("a bias of several dims", wide, x, {"silu": _FUSED}),
            ("mixed dtypes", Halving(7, "silu", dtype="mixed_bfloat16", autocast=False), x, {"silu": _FUSED}),
        ]
        for reason, layer, inputs, others in cases:
            expected = layer(inputs)
            with tfo.layers.use_fused_ops(_ROWS):
                self.assertAllClose(layer(inputs), expected, 1e-2 if "mixed" in reason else 1e-5, 1e-5)
            self.assertEqual(tfo.layers.fused_ops(), {"bias_activation": _original(reason), **others})
        with tfo.layers.use_fused_ops(_ROWS):
            sparse = tf.sparse.from_dense(tf.eye(6))
            layer = keras.layers.Dense(7, "gelu")
            self.assertAllClose(layer(sparse), layer(tf.eye(6)), 1e-5, 1e-5)
            _run(layer, [], tf.ones([2, 6]), "XLA")
            _run(keras.activations.gelu, [], tf.ones([2, 7]), "XLA")
        calls = {"fused": 1, "original": 2, "reasons": {"sparse inputs": 1, "XLA": 1}}
        gelu = {"fused": 1, "original": 2, "reasons": {"XLA": 2}}
        self.assertEqual(tfo.layers.fused_ops(), {"bias_activation": calls, "gelu": gelu})
        # Without a bias, or with other activations, a layer is none of the row's.
        with tfo.layers.use_fused_ops(_ROWS):
            keras.layers.Dense(7, "relu")(x)
            keras.layers.Dense(7)(x)
            keras.layers.Dense(7, lambda x: keras.activations.silu(x))(x)
            keras.layers.Dense(7, "gelu", use_bias=False)(x)
        self.assertEqual(tfo.layers.fused_ops(), {"gelu": _FUSED, "silu": _FUSED})

    def test_integers(self):
        with tfo.layers.use_fused_ops(_ROWS), self.assertRaises(ValueError):
            keras.activations.gelu(tf.constant([1, 2]))
        self.assertEqual(tfo.layers.fused_ops(), {"gelu": _original("int32 inputs")})

    def test_lora_and_quantized(self):
        layer = keras.layers.Dense(7, "gelu")
        layer.build([None, None, 6])
        layer.enable_lora(2, b_initializer="normal")
        x = tf.constant(_RNG.normal(size=[4, 5, 6]), tf.float32)
        variables = [v.value for v in layer.trainable_variables]
        expected = _run(layer, variables, x)
        with tfo.layers.use_fused_ops(_ROWS):
            self._expect_close(_run(layer, variables, x), expected)
        self.assertEqual(tfo.layers.fused_ops(), {"bias_activation": _FUSED})
        layer.quantize("int8")
        expected = layer(x)
        with tfo.layers.use_fused_ops(_ROWS):
            self.assertAllClose(layer(x), expected, 1e-5, 1e-5)
        self.assertEqual(tfo.layers.fused_ops(), {"gelu": _FUSED})

    def test_saved_model(self):
        model = keras.Sequential([keras.Input([5, 6]), keras.layers.Dense(7, "gelu"), keras.layers.Activation("silu")])
        x = _RNG.normal(size=[4, 5, 6]).astype(np.float32)
        expected = model(x)
        path = os.path.join(self.get_temp_dir(), "model")
        with tfo.layers.use_fused_ops(_ROWS), self.assertWarnsRegex(RuntimeWarning, "contains ops of tensorflow_ops"):
            model.export(path, verbose=False)
        loaded = tf.saved_model.load(path)
        self.assertAllClose(loaded.serve(x), expected, 1e-5, 1e-5)
        model.save(path + ".keras")
        self.assertAllClose(keras.models.load_model(path + ".keras")(x), expected)


if __name__ == "__main__":
    tf.test.main()
