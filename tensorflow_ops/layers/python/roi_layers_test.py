"""Tests of the region pooling layers."""

import os
import subprocess
import sys
import textwrap

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo


def _reference(features, boxes, box_indices, output_size, spatial_scale=1.0):
    """The maximum of each bin, of features [N,H,W,C] and xyxy boxes of whole pixels, which lie in the image."""
    output = np.zeros([len(boxes), *output_size, features.shape[3]])
    for k, (box, image) in enumerate(zip(boxes, box_indices, strict=True)):
        x1, y1, x2, y2 = (int(v * spatial_scale) for v in box)
        for p, q in np.ndindex(*output_size):
            height, width = y2 - y1 + 1, x2 - x1 + 1
            rows = slice(y1 + p * height // output_size[0], y1 - (-(p + 1) * height // output_size[0]))
            columns = slice(x1 + q * width // output_size[1], x1 - (-(q + 1) * width // output_size[1]))
            output[k, p, q] = features[image, rows, columns].max(axis=(0, 1))
    return output


def _features(shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _boxes(count, images=2, size=8, seed=2):
    """Boxes [images, count, 4] of whole pixels inside of the image."""
    corners = np.random.default_rng(seed).integers(0, size, [images, count, 2, 2])
    return np.concatenate([corners.min(axis=2), corners.max(axis=2)], -1).astype(np.float32)


class RoIPoolTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(data_format=("NHWC", "NCHW"), box_format=("xyxy", "yxyx"))
    def test_pools_boxes_in_both_forms(self, data_format, box_format):
        features, boxes = _features([2, 8, 8, 5]), _boxes(3)
        expected = _reference(features, boxes.reshape(-1, 4), [0, 0, 0, 1, 1, 1], (2, 3), spatial_scale=1)
        if data_format == "NCHW":
            features, expected = np.moveaxis(features, 3, 1), np.moveaxis(expected, 3, 1)
        # Image coordinates are twice those of features.
        boxes = 2 * boxes
        if box_format == "yxyx":
            boxes = boxes[..., [1, 0, 3, 2]]
        layer = tfo.layers.RoIPool((2, 3), spatial_scale=0.5, data_format=data_format, box_format=box_format)

        by_image = layer(features, boxes)
        self.assertAllClose(by_image, np.reshape(expected, [2, 3, *expected.shape[1:]]), rtol=0, atol=0)
        self.assertEqual(layer.compute_output_shape(features.shape, boxes.shape), by_image.shape)
        flat = layer(features, boxes.reshape(-1, 4), np.array([0, 0, 0, 1, 1, 1], np.int32))
        self.assertAllClose(flat, expected, rtol=0, atol=0)
        self.assertEqual(layer.compute_output_shape(features.shape, (6, 4), (6,)), flat.shape)

    def test_no_boxes(self):
        layer = tfo.layers.RoIPool(2)
        self.assertEqual(layer(_features([2, 8, 8, 5]), np.zeros([2, 0, 4], np.float32)).shape, (2, 0, 2, 2, 5))
        self.assertEqual(layer(_features([0, 8, 8, 5]), np.zeros([0, 3, 4], np.float32)).shape, (0, 3, 2, 2, 5))
        flat = layer(_features([2, 8, 8, 5]), np.zeros([0, 4], np.float32), np.zeros([0], np.int32))
        self.assertEqual(flat.shape, (0, 2, 2, 5))

    @parameterized.parameters(
        ("NHWC", (None, None, None, 7), (None, None, 4), (None, None, 3, 2, 7)),
        ("NHWC", (2, 8, None, None), (2, 5, 4), (2, 5, 3, 2, None)),
        ("NHWC", (2, 8, 8, 7), (None, 4), (None, 3, 2, 7)),
        ("NCHW", (None, 7, None, None), (None, 5, 4), (None, 5, 7, 3, 2)),
    )
    def test_output_shape_of_unknown_dims(self, data_format, features, boxes, expected):
        layer = tfo.layers.RoIPool((3, 2), data_format=data_format)
        self.assertEqual(layer.compute_output_shape(features, boxes), expected)
        inputs = [
            keras.Input(batch_shape=features),
            keras.Input(batch_shape=boxes),
            *([keras.Input(batch_shape=boxes[:1], dtype="int32")] if len(boxes) == 2 else []),
        ]
        self.assertEqual(layer(*inputs).shape, expected)
        # The shape that the graph itself knows.
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
        concrete = tf.function(layer, input_signature=specs).get_concrete_function()
        self.assertEqual(concrete.output_shapes.as_list(), list(expected))

    def test_config_makes_the_same_layer(self):
        layer = tfo.layers.RoIPool((2, 3), spatial_scale=0.25, data_format="NCHW", box_format="yxyx", name="pool")
        config = layer.get_config()
        copy = tfo.layers.RoIPool.from_config(config)
        self.assertEqual(copy.get_config(), config)
        self.assertEqual(copy.name, "pool")
        self.assertEqual(
            (copy.output_size, copy.spatial_scale, copy.data_format, copy.box_format), ((2, 3), 0.25, "NCHW", "yxyx")
        )
        through_json = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
        self.assertEqual(through_json.get_config(), config)

    @parameterized.parameters(
        ({"output_size": 0}, "output_size is"),
        ({"output_size": (2, -1)}, r"output_size is \(2, -1\)"),
        ({"output_size": (1, 2, 3)}, r"output_size is \(1, 2, 3\)"),
        ({"output_size": 2.5}, "output_size is 2.5"),
        ({"output_size": (2, 2.5)}, r"output_size is \(2, 2.5\)"),
        ({"spatial_scale": 0.0}, "spatial_scale is 0.0"),
        ({"spatial_scale": -1}, "spatial_scale is -1"),
        ({"spatial_scale": float("nan")}, "spatial_scale is nan"),
        ({"data_format": "channels_last"}, "data_format is 'channels_last', expected one of 'NHWC', 'NCHW'"),
        ({"box_format": "xywh"}, "box_format is 'xywh', expected one of 'xyxy', 'yxyx'"),
    )
    def test_bad_options(self, bad, message):
        with self.assertRaisesRegex(ValueError, message):
            tfo.layers.RoIPool(**{"output_size": 2, **bad})

    def test_boxes_by_image_belong_to_the_images(self):
        layer = tfo.layers.RoIPool(2)
        features = tf.zeros([4, 8, 8, 3])
        for images in (2, 6):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "must have features' N"):
                layer(features, tf.zeros([images, 5, 4]))
        with self.assertRaisesRegex(ValueError, r"boxes are \(5, 4\), expected \[N, R, 4\]"):
            layer(features, tf.zeros([5, 4]))

    def test_is_not_compiled_by_xla(self):
        layer = tfo.layers.RoIPool(2)
        self.assertFalse(layer.supports_jit)
        features, boxes = keras.Input([8, 8, 3]), keras.Input([3, 4])
        model = keras.Model([features, boxes], layer(features, boxes))
        model.compile(loss="mse")
        self.assertFalse(model.jit_compile)


class PolicyTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        ("float32", tf.float32),
        ("float64", tf.float64),
        ("float16", tf.float16),
        ("bfloat16", tf.bfloat16),
        ("mixed_float16", tf.float16),
        ("mixed_bfloat16", tf.bfloat16),
    )
    def test_features_are_cast_and_boxes_are_not(self, policy, dtype):
        # Pixels that half precision, which holds 2048 and 2052 here, cannot tell apart.
        features = np.reshape(np.arange(4096) % 32, [1, 1, 4096, 1]).astype(np.float32)
        boxes = np.array([[[2049.5, 0, 2049.5, 0], [2050, 0, 2050, 0], [2051, 0, 2051, 0]]], np.float32)
        layer = tfo.layers.RoIPool(1, dtype=policy)
        for result in (layer(features, boxes), tf.function(layer)(features, boxes)):
            self.assertEqual(result.dtype, dtype)
            self.assertAllEqual(tf.reshape(tf.cast(result, tf.int32), [-1]), [2, 2, 3])
        self.assertEqual(layer(features[:0], boxes[:0]).dtype, dtype)
        symbolic = layer(keras.Input([1, 4096, 1]), keras.Input([3, 4]))
        self.assertEqual(tf.as_dtype(symbolic.dtype), dtype)

    def test_mixed_precision_model(self):
        keras.mixed_precision.set_global_policy("mixed_float16")
        self.addCleanup(keras.mixed_precision.set_global_policy, "float32")
        model = _model()
        model.compile("sgd", "mse")
        features, boxes = _features([4, 8, 8, 3]), _boxes(3, images=4)
        result = model.predict([features, boxes], verbose=0)
        self.assertEqual(result.shape, (4, 3, 1))
        loss = model.train_on_batch([features, boxes], np.ones([4, 3, 1], np.float32))
        self.assertTrue(np.isfinite(loss))


def _model():
    """A convolution, regions of it, and a number for each."""
    image, boxes = keras.Input([None, None, 3]), keras.Input([None, 4])
    features = keras.layers.Conv2D(6, 3, padding="same", name="conv")(image)
    regions = tfo.layers.RoIPool((2, 2), name="pool")(features, boxes)
    outputs = keras.layers.Dense(1, dtype="float32")(keras.layers.Reshape([-1, 2 * 2 * 6])(regions))
    return keras.Model([image, boxes], outputs)


class ModelTest(parameterized.TestCase, tf.test.TestCase):
    def test_predict_of_a_functional_model(self):
        model = _model()
        images, boxes = _features([5, 8, 8, 3]), _boxes(3, images=5)
        features = keras.Model(model.input, model.get_layer("conv").output).predict([images, boxes], verbose=0)
        regions = keras.Model(model.input, model.get_layer("pool").output)
        expected = _reference(features, boxes.reshape(-1, 4), np.repeat(np.arange(5), 3), (2, 2))
        result = regions.predict([images, boxes], batch_size=2, verbose=0)
        self.assertAllClose(result.reshape(expected.shape), expected)

    def test_gradient_reaches_the_layer_below(self):
        model = _model()
        images, boxes = _features([2, 8, 8, 3]), _boxes(3)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model([images, boxes]))
        d_kernel, d_bias, *_ = tape.gradient(loss, model.trainable_variables)
        # A bias moves every maximum with it: its gradient is that of the regions, summed.
        dense_kernel = np.reshape(model.trainable_variables[2], [4, 6])
        self.assertAllClose(d_bias, 2 * 3 * dense_kernel.sum(axis=0), rtol=1e-4)
        self.assertGreater(np.abs(d_kernel).max(), 0)

    def test_fit_learns(self):
        model = _model()
        model.compile(keras.optimizers.SGD(0.01), "mse")
        images, boxes = _features([4, 8, 8, 3]), _boxes(3, images=4)
        before = model.get_layer("conv").get_weights()[0]
        history = model.fit([images, boxes], np.ones([4, 3, 1]), batch_size=2, epochs=8, verbose=0).history["loss"]
        self.assertLess(history[-1], history[0])
        self.assertNotAllClose(model.get_layer("conv").get_weights()[0], before)

    def test_flat_boxes_in_a_functional_model(self):
        features = keras.Input([None, None, 3])
        boxes, box_indices = keras.Input(batch_shape=[None, 4]), keras.Input(batch_shape=[None], dtype="int32")
        model = keras.Model([features, boxes, box_indices], tfo.layers.RoIPool(2)(features, boxes, box_indices))
        images, values, indices = _features([2, 8, 8, 3]), _boxes(3).reshape(-1, 4)[:5], np.array([1, 0, 0, 1, 1])
        self.assertEqual(model.output_shape, (None, 2, 2, 3))
        self.assertAllClose(model([images, values, indices]), _reference(images, values, indices, (2, 2)))

    def test_saved_models_in_a_new_process(self):
        directory = self.get_temp_dir()
        model = _model()
        model.save(os.path.join(directory, "model.keras"))
        model.export(os.path.join(directory, "exported"), verbose=False)
        images, boxes = _features([2, 8, 8, 3]), _boxes(3)
        np.savez(os.path.join(directory, "inputs.npz"), images=images, boxes=boxes)
        script = """
            import keras
            import numpy as np
            import tensorflow as tf
            import tensorflow_ops as tfo

            inputs = list(np.load("inputs.npz").values())
            model = keras.saving.load_model("model.keras")
            assert isinstance(model.get_layer("pool"), tfo.layers.RoIPool)
            exported = tf.saved_model.load("exported")
            np.savez("outputs.npz", keras=model(inputs), exported=exported.serve(inputs))
            """
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", textwrap.dedent(script)]
        done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        expected = model([images, boxes])
        with np.load(os.path.join(directory, "outputs.npz")) as outputs:
            self.assertAllClose(outputs["keras"], expected)
            self.assertAllClose(outputs["exported"], expected)


if __name__ == "__main__":
    tf.test.main()
