"""Tests of dropout by tfo.layers.use_fused_ops: Keras's own masks."""

import os

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_FUSED = {"fused": 1, "original": 0}
_X = _RNG.normal(size=[32, 6, 10]).astype(np.float32)
_LABELS = _RNG.integers(0, 3, [32])


def _is_same(test, one, other):
    test.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
    test.assertAllEqual(tf.bitcast(one, tf.uint8), tf.bitcast(other, tf.uint8))


def _calls(layer, x, mode, count=3):
    """Returns outputs and gradients of several calls, each with the next seed."""

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return y, tape.gradient(y, x, x)

    if mode != "eager":
        run = tf.function(run, [tf.TensorSpec([None, *x.shape[1:]], x.dtype)], jit_compile=mode == "XLA")
    return [tensor for _ in range(count) for tensor in run(x)]


def _model(policy="float32"):
    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Dropout(0.3),
        keras.layers.Dense(8, activation="relu"),
        keras.layers.Dropout(0.2),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(3, dtype="float32"),
    ]
    model = keras.Sequential([keras.Input([6, 10]), *layers])
    for layer in layers[:-1]:
        layer.dtype_policy = policy
    return model


class DropoutTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        dtype=("float16", "bfloat16", "float32", "float64"),
        mode=("eager", "unknown batch"),
        rate=(0.1, np.float64(0.5), 0.997),
    )
    def test_is_keras_mask(self, dtype, mode, rate):
        x = tf.cast(_X, dtype)
        expected = _calls(keras.layers.Dropout(rate, seed=7, dtype=dtype), x, mode)
        layer = keras.layers.Dropout(rate, seed=7, dtype=dtype)
        with tfo.layers.use_fused_ops(["dropout"]):
            actual = _calls(layer, x, mode)
        calls = 1 if mode == "unknown batch" else 3
        self.assertEqual(tfo.layers.fused_ops(), {"dropout": {"fused": calls, "original": 0}})
        for one, other in zip(actual, expected, strict=True):
            _is_same(self, one, other)
        # The next call is Keras's, with the next seed.
        _is_same(self, layer(x, training=True), _calls(keras.layers.Dropout(rate, seed=7, dtype=dtype), x, mode, 4)[-2])

    @parameterized.parameters(None, 5, 2**31 - 2, "generator")
    def test_seeds(self, seed):
        def run():
            keras.utils.clear_session()  # also the generator of calls without seed
            keras.utils.set_random_seed(3)
            own = keras.random.SeedGenerator(2**31 - 1) if seed == "generator" else seed
            return [keras.random.dropout(_X, 0.4, seed=own) for _ in range(2)]

        expected = run()
        with tfo.layers.use_fused_ops():
            actual = run()
        self.assertEqual(tfo.layers.fused_ops(), {"dropout": {"fused": 2, "original": 0}})
        for one, other in zip(actual, expected, strict=True):
            _is_same(self, one, other)

    @parameterized.product(policy=("float32", "mixed_float16", "mixed_bfloat16"), eager=(False, True))
    def test_fit(self, policy, eager):
        def fitted():
            model = _model(policy)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False, run_eagerly=eager)
            losses = model.fit(_X, _LABELS, batch_size=12, epochs=2, shuffle=False, verbose=0).history["loss"]
            return [np.float64(losses), *model.get_weights()]

        expected = fitted()
        with tfo.layers.use_fused_ops(["dropout"]):
            actual = fitted()
        self.assertEqual(tfo.layers.fused_ops()["dropout"]["original"], 0)
        self.assertAllEqual(actual[0], expected[0])
        for one, other in zip(actual, expected, strict=True):
            self.assertAllEqual(one, other)

    def test_originals(self):
        x = tf.constant(_X)
        rate = tf.constant(0.5)
        cases = [
            ("a noise_shape", lambda: keras.layers.Dropout(0.5, noise_shape=(32, 1, 10), seed=1)(x, training=True)),
            ("a noise_shape", lambda: keras.layers.Dropout(0.5, noise_shape=_X.shape, seed=1)(x, training=True)),
            ("a noise_shape", lambda: keras.layers.SpatialDropout1D(0.5, seed=1)(x, training=True)),
            ("a tensor as rate", lambda: keras.random.dropout(x, rate, seed=1)),
            ("no float as rate", lambda: keras.random.dropout(x, 0, seed=1)),
            ("XLA", lambda: _calls(keras.layers.Dropout(0.5, seed=1), x, "XLA", 1)[0]),
        ]
        for reason, run in cases:
            expected = run()
            with tfo.layers.use_fused_ops():
                actual = run()
            calls = {"fused": 0, "original": 1, "reasons": {reason: 1}}
            self.assertEqual(tfo.layers.fused_ops(), {"dropout": calls})
            _is_same(self, actual, expected)
        with tfo.layers.use_fused_ops():
            _is_same(self, keras.random.dropout(x, 0.0, seed=1), x)
            with self.assertRaisesRegex(ValueError, "floating point tensor"):
                keras.random.dropout(tf.ones([3], tf.int32), 0.5, seed=1)
        calls = {"fused": 0, "original": 1, "reasons": {"int32 inputs": 1}}
        self.assertEqual(tfo.layers.fused_ops(), {"dropout": calls})

    def test_inference_is_no_call(self):
        layer = keras.layers.Dropout(0.5)
        with tfo.layers.use_fused_ops():
            _is_same(self, layer(tf.constant(_X)), tf.constant(_X))
        self.assertEqual(tfo.layers.fused_ops(), {})

    def test_remat(self):
        """Keras draws again where it computes again, and so does the switch."""
        if not hasattr(keras, "remat"):
            self.skipTest("Keras 3.9 has remat")

        def run():
            seed = keras.random.SeedGenerator(3)
            x = tf.constant(_X)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = keras.remat(lambda x: keras.random.dropout(x, 0.4, seed=seed) ** 2)(x)
            return y, tape.gradient(y, x)

        expected = run()
        with tfo.layers.use_fused_ops():
            actual = run()
        self.assertEqual(tfo.layers.fused_ops(), {"dropout": {"fused": 2, "original": 0}})
        for one, other in zip(actual, expected, strict=True):
            _is_same(self, one, other)

    def test_exported_training_function(self):
        class Step(tf.Module):
            def __init__(self):
                super().__init__()
                self.seeds = keras.layers.Dropout(0.5, seed=4)
                self.state = self.seeds.seed_generator.state.value

            @tf.function(input_signature=[tf.TensorSpec([None, 6, 10])])
            def run(self, x):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = self.seeds(x, training=True)
                return y, tape.gradient(y, x)

        step, exported = Step(), Step()
        expected = step.run(_X)
        path = os.path.join(self.get_temp_dir(), "step")
        with tfo.layers.use_fused_ops():
            tf.saved_model.save(exported, path)
        self.assertEqual(tfo.layers.fused_ops(), {"dropout": _FUSED})
        loaded = tf.saved_model.load(path)
        for one, other in zip(loaded.run(_X), expected, strict=True):
            _is_same(self, one, other)


if __name__ == "__main__":
    tf.test.main()
