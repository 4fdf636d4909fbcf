"""Tests of models of region pooling layers: dtype policies, training, saving."""

import os

import keras
import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized
from roi_layers_testing import (
    BINS,
    INDICES,
    LAYERS,
    fractional_boxes,
    layer_features,
    make_layer,
    model_of_every_layer,
    pooled_maxima,
    random_features,
    whole_boxes,
)

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library


class PolicyTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        ("float32", tf.float32),
        ("bfloat16", tf.bfloat16),
        ("mixed_float16", tf.float16),
    )
    def test_features_are_cast_and_boxes_are_not(self, policy, dtype):
        # Neighbouring pixels that coincide when rounded to float16 or bfloat16.
        features = np.reshape(np.arange(4096) % 32, [1, 1, 4096, 1]).astype(np.float32)
        boxes = np.array([[[2049.5, 0, 2049.5, 0], [2050, 0, 2050, 0], [2051, 0, 2051, 0]]], np.float32)
        layer = tfo.layers.RoIPool(1, dtype=policy)
        for result in (layer(features, boxes), tf.function(layer)(features, boxes)):
            self.assertEqual(result.dtype, dtype)
            self.assertAllEqual(tf.reshape(tf.cast(result, tf.int32), [-1]), [2, 2, 3])
        self.assertEqual(layer(features[:0], boxes[:0]).dtype, dtype)
        symbolic = layer(keras.Input([1, 4096, 1]), keras.Input([3, 4]))
        self.assertEqual(tf.as_dtype(symbolic.dtype), dtype)

    @parameterized.parameters(*LAYERS)
    def test_every_layer_casts_features_and_not_boxes(self, name):
        function, options, _ = LAYERS[name]
        features, boxes = layer_features(name), fractional_boxes()
        layer = make_layer(name, dtype="mixed_bfloat16")
        cast = tf.nest.map_structure(lambda f: tf.cast(f, tf.bfloat16), features)
        expected = function(cast, boxes.reshape(-1, 4), INDICES, BINS, **options)
        for result in (layer(features, boxes), tf.function(layer)(features, boxes)):
            self.assertEqual(result.dtype, tf.bfloat16)
            self.assertAllEqual(tf.reshape(result, expected.shape), expected)

    def test_mixed_precision_model(self):
        keras.mixed_precision.set_global_policy("mixed_float16")
        self.addCleanup(keras.mixed_precision.set_global_policy, "float32")
        model = _model()
        model.compile("sgd", "mse")
        features, boxes = random_features([4, 8, 8, 3]), whole_boxes(3, images=4)
        result = model.predict([features, boxes], verbose=0)
        self.assertEqual(result.shape, (4, 3, 1))
        loss = model.train_on_batch([features, boxes], np.ones([4, 3, 1], np.float32))
        self.assertTrue(np.isfinite(loss))


def _model():
    """Returns a model of a convolution, region pooling, and one output per region."""
    image, boxes = keras.Input([None, None, 3]), keras.Input([None, 4])
    features = keras.layers.Conv2D(6, 3, padding="same", name="conv")(image)
    regions = tfo.layers.RoIPool((2, 2), name="pool")(features, boxes)
    outputs = keras.layers.Dense(1, dtype="float32")(keras.layers.Reshape([-1, 2 * 2 * 6])(regions))
    return keras.Model([image, boxes], outputs)


class ModelTest(parameterized.TestCase, tf.test.TestCase):
    def test_steps_compiled_by_xla_train_alike(self):
        if library.xla_error:
            self.skipTest(library.xla_error)
        images, boxes = random_features([3, 16, 16, 3]), fractional_boxes()[[0, 1, 0]]
        model = model_of_every_layer()
        targets = [np.ones_like(y) for y in model([images, boxes])]
        start, results = model.get_weights(), []
        for jit_compile in (False, True):
            model.set_weights(start)
            model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=jit_compile)
            self.assertEqual(model.jit_compile, jit_compile)
            history = model.fit([images, boxes], targets, batch_size=2, epochs=2, shuffle=False, verbose=0).history
            results.append([history["loss"], *model.predict([images, boxes], verbose=0), *model.get_weights()])
        for plain, compiled in zip(*results, strict=True):
            self.assertAllClose(plain, compiled, rtol=1e-5, atol=1e-5)

    def test_flat_boxes_in_a_functional_model(self):
        features = keras.Input([None, None, 3])
        boxes, box_indices = keras.Input(batch_shape=[None, 4]), keras.Input(batch_shape=[None], dtype="int32")
        model = keras.Model([features, boxes, box_indices], tfo.layers.RoIPool(2)(features, boxes, box_indices))
        images, values, indices = (
            random_features([2, 8, 8, 3]),
            whole_boxes(3).reshape(-1, 4)[:5],
            np.array([1, 0, 0, 1, 1]),
        )
        self.assertEqual(model.output_shape, (None, 2, 2, 3))
        self.assertAllClose(model([images, values, indices]), pooled_maxima(images, values, indices, (2, 2)))

    def test_saved_models_in_a_new_process(self):
        directory = self.get_temp_dir()
        model = model_of_every_layer()
        model.save(os.path.join(directory, "model.keras"))
        model.export(os.path.join(directory, "exported"), verbose=False)
        images, boxes = random_features([2, 16, 16, 3]), fractional_boxes()
        np.savez(os.path.join(directory, "inputs.npz"), images=images, boxes=boxes)
        script = """
            import keras
            import numpy as np
            import tensorflow as tf
            import tensorflow_ops as tfo

            inputs = list(np.load("inputs.npz").values())
            model = keras.saving.load_model("model.keras")
            for name in [name for name in tfo.layers.__all__ if "RoI" in name]:
                assert isinstance(model.get_layer(name), getattr(tfo.layers, name))
            exported = tf.saved_model.load("exported")
            np.savez("keras.npz", *model(inputs))
            np.savez("exported.npz", *exported.serve(inputs))
            """
        process_testing.output(directory, script)
        for file in ("keras.npz", "exported.npz"):
            with np.load(os.path.join(directory, file)) as outputs:
                for result, expected in zip(outputs.values(), model([images, boxes]), strict=True):
                    self.assertAllClose(result, expected)
                    self.assertGreater(np.count_nonzero(expected), 100)


if __name__ == "__main__":
    tf.test.main()
