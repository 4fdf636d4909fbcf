"""Tests of whole training steps under tfo.layers.use_fused_ops, in each way in which Keras runs them."""

import os

import keras
import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_IMAGES = _RNG.normal(1, 2, size=[16, 65, 16, 8]).astype(np.float32)
_LABELS = _RNG.integers(0, 5, [16])
_ROWS = [
    "batch_normalization",
    "bias_activation",
    "conv",
    "depthwise_conv",
    "dropout",
    "group_normalization",
    "layer_normalization",
    "optimizers",
    "silu",
    "sparse_categorical_crossentropy",
]


def _model():
    """Returns a model with all rows; groups of one channel are served on all machines."""
    layers = [
        keras.layers.Conv2D(16, 3, groups=8, padding="same"),
        keras.layers.BatchNormalization(momentum=0.8),
        keras.layers.Activation("silu"),  # smooth: no rounding moves a number to another branch
        keras.layers.GroupNormalization(4),
        keras.layers.DepthwiseConv2D(3, strides=2),
        keras.layers.LayerNormalization(),
        keras.layers.Dense(16, activation="gelu"),
        keras.layers.Dropout(0.2),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(5, activation="softmax", dtype="float32"),
    ]
    return keras.Sequential([keras.Input([65, 16, 8]), *layers])


def _trained(policy=None, optimizer=None, **options):
    """Returns losses, weights and moving statistics after two epochs of two steps."""
    keras.utils.set_random_seed(0)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy or "float32")
    try:
        model = _model()
    finally:
        keras.config.set_dtype_policy(before)
    model.compile(optimizer or keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", **options)
    history = model.fit(_IMAGES, _LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return model, [history.history["loss"], *model.get_weights()]


class TrainingTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        ("float32", {}),
        ("mixed_float16", {"policy": "mixed_float16"}),  # Keras wraps the optimizer into a LossScaleOptimizer
        ("mixed_bfloat16", {"policy": "mixed_bfloat16"}),
        ("XLA", {"jit_compile": True}),
        ("eager", {"run_eagerly": True}),
        ("steps_per_execution", {"steps_per_execution": 2}),
        ("accumulation", {"gradient_accumulation_steps": 2}),
    )
    def test_is_keras_step(self, options):
        options = {"jit_compile": False} | options

        def run():
            own = dict(options)
            steps = own.pop("gradient_accumulation_steps", None)
            return _trained(optimizer=keras.optimizers.SGD(0.1, gradient_accumulation_steps=steps), **own)

        _, expected = run()
        with tfo.layers.use_fused_ops(_ROWS):
            model, actual = run()
        calls = tfo.layers.fused_ops()
        for row in _ROWS:
            is_original = options["jit_compile"] and row != "sparse_categorical_crossentropy"
            self.assertEqual(calls[row].get("reasons", {}).keys(), {"XLA"} if is_original else set(), row)
        limit = {"mixed_float16": 5e-3, "mixed_bfloat16": 5e-2}.get(options.get("policy"), 1e-5)
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, limit, limit)
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        loaded = keras.saving.load_model(path)
        self.assertAllEqual(loaded.predict(_IMAGES, verbose=0), model.predict(_IMAGES, verbose=0))

    def test_on_two_replicas(self):
        process_testing.output(
            os.path.dirname(__file__),
            """
            import tensorflow as tf
            cpu = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
            import numpy as np, tensorflow_ops as tfo, training_switch_test as of

            def trained():
                with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
                    return of._trained(jit_compile=False)[1]

            expected = trained()
            with tfo.layers.use_fused_ops(of._ROWS):
                actual = trained()
            for one, other in zip(actual, expected, strict=True):
                np.testing.assert_allclose(one, other, 1e-5, 1e-5)
            calls = tfo.layers.fused_ops()
            assert all(calls[row]["fused"] >= 2 for row in of._ROWS), calls
            """,
        )


if __name__ == "__main__":
    tf.test.main()
