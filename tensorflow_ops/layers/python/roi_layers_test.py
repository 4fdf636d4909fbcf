"""Tests of the region pooling layers."""

import inspect
import json
import os

import keras
import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

# For each layer: (function, options other than the defaults, features' channels per output channel).
_BINS = (2, 3)
_ALIGN = {"sampling_ratio": 3, "aligned": False}
_PS = {"channel_order": "bin_major"}
_STRIDES = (2.0, 4.0)
_LAYERS = {
    "RoIPool": (tfo.detection.roi_pool, {"spatial_scale": 0.5}, 1),
    "RoIAlign": (tfo.detection.roi_align, {"spatial_scale": 0.5, **_ALIGN, "mode": "max"}, 1),
    "PSRoIPool": (tfo.detection.ps_roi_pool, {"spatial_scale": 0.5, **_PS}, 6),
    "PSRoIAlign": (tfo.detection.ps_roi_align, {"spatial_scale": 0.5, **_PS, "sampling_ratio": 3}, 6),
    "MultiScaleRoIAlign": (
        tfo.detection.multiscale_roi_align,
        {"strides": _STRIDES, **_ALIGN, "canonical_box_size": 8.0, "canonical_stride": 4.0},
        1,
    ),
}
_INDICES = np.array([0, 0, 0, 1, 1, 1], np.int32)


def _layer(kind, **options):
    return getattr(tfo.layers, kind)(_BINS, **{**_LAYERS[kind][1], **options})


def _layer_features(name, data_format="NHWC", images=2):
    """Returns features of images of 16 x 16 pixels: a map of stride 2, for a pyramid also one of stride 4."""
    channels = 5 * _LAYERS[name][2]
    fine, coarse = _features([images, 8, 8, channels]), _features([images, 4, 4, channels], seed=3)
    if data_format == "NCHW":
        fine, coarse = np.moveaxis(fine, 3, 1), np.moveaxis(coarse, 3, 1)
    return [fine, coarse] if name == "MultiScaleRoIAlign" else fine


def _fractional_boxes(images=2, count=3):
    """Returns boxes [images, count, 4] in images of 16 x 16 pixels that float16 and bfloat16 cannot represent."""
    corners = np.random.default_rng(4).uniform(0, 16, [images, count, 2, 2])
    return np.concatenate([corners.min(axis=2), corners.max(axis=2)], -1).astype(np.float32)


def _reference(features, boxes, box_indices, output_size, spatial_scale=1.0):
    """Returns each bin's maximum. Boxes are xyxy, inside the image, with integer coordinates."""
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
    """Returns boxes [images, count, 4] with integer coordinates inside the image."""
    corners = np.random.default_rng(seed).integers(0, size, [images, count, 2, 2])
    return np.concatenate([corners.min(axis=2), corners.max(axis=2)], -1).astype(np.float32)


class RoIPoolTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(data_format=("NHWC", "NCHW"), box_format=("xyxy", "yxyx"))
    def test_pools_boxes_in_both_forms(self, data_format, box_format):
        features, boxes = _features([2, 8, 8, 5]), _boxes(3)
        expected = _reference(features, boxes.reshape(-1, 4), [0, 0, 0, 1, 1, 1], (2, 3), spatial_scale=1)
        if data_format == "NCHW":
            features, expected = np.moveaxis(features, 3, 1), np.moveaxis(expected, 3, 1)
        # Image coordinates are twice the feature coordinates.
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

    def test_boxes_by_image_require_one_entry_per_image(self):
        layer = tfo.layers.RoIPool(2)
        features = tf.zeros([4, 8, 8, 3])
        for images in (2, 6):
            for call in (layer, tf.function(layer)):
                with self.assertRaisesRegex(ValueError, rf"boxes are \({images}, 5, 4\), .* features' N = 4"):
                    call(features, tf.zeros([images, 5, 4]))
            unknown = tf.function(layer, input_signature=[tf.TensorSpec([None, 8, 8, 3]), tf.TensorSpec([None, 5, 4])])
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "must have the N of features"):
                unknown(features, tf.zeros([images, 5, 4]))
        with self.assertRaisesRegex(ValueError, r"boxes are \(5, 4\), expected \[N, R, 4\]"):
            layer(features, tf.zeros([5, 4]))

    @parameterized.parameters([[]], [[8]], [[8, 8, 3, 1]])
    def test_features_of_wrong_rank(self, sizes):
        boxes = keras.Input([None, 4])
        features = keras.Input(sizes) if sizes else tf.zeros([])
        for layer, given in (
            (tfo.layers.RoIPool(2), features),
            (tfo.layers.PSRoIAlign(2), features),
            (tfo.layers.MultiScaleRoIAlign(2, strides=(4,)), [features]),
        ):
            with self.assertRaisesRegex(ValueError, r"features are \(.*\), expected \[N, H, W, C\]"):
                layer(given, boxes)


class EveryLayerTest(parameterized.TestCase, tf.test.TestCase):
    def test_every_layer_has_a_case(self):
        self.assertCountEqual([*_LAYERS, "Merge"], tfo.layers.__all__)  # merge_test.py tests Merge

    @parameterized.product(name=tuple(_LAYERS), data_format=("NHWC", "NCHW"), box_format=("xyxy", "yxyx"))
    def test_equals_its_function(self, name, data_format, box_format):
        function, options, _ = _LAYERS[name]
        features, boxes = _layer_features(name, data_format), _fractional_boxes()
        formats = {"data_format": data_format, "box_format": box_format}
        layer = _layer(name, **formats)
        expected = function(features, boxes.reshape(-1, 4), _INDICES, _BINS, **options, **formats)
        self.assertGreater(np.count_nonzero(expected), 100)

        flat = layer(features, boxes.reshape(-1, 4), _INDICES)
        self.assertAllEqual(flat, expected)
        by_image = layer(features, boxes)
        self.assertAllEqual(by_image, tf.reshape(expected, [2, 3, *expected.shape[1:]]))
        shapes = tf.nest.map_structure(lambda f: f.shape, features)
        self.assertEqual(layer.compute_output_shape(shapes, (6, 4), (6,)), flat.shape)
        self.assertEqual(layer.compute_output_shape(shapes, boxes.shape), by_image.shape)

    @parameterized.product(name=tuple(_LAYERS), data_format=("NHWC", "NCHW"))
    def test_output_shape_of_unknown_dims(self, name, data_format):
        factor = _LAYERS[name][2]
        layer = _layer(name, data_format=data_format)
        for n, size, channels, boxes in (
            (None, None, 5, (None, None, 4)),
            (2, 8, None, (2, 5, 4)),
            (2, 8, 5, (None, 4)),
            (None, None, None, (None, 5, 4)),
        ):
            in_channels = None if channels is None else channels * factor
            shape = (n, in_channels, size, size) if data_format == "NCHW" else (n, size, size, in_channels)
            pooled = (channels, *_BINS) if data_format == "NCHW" else (*_BINS, channels)
            expected = (*boxes[:-1], *pooled)
            shapes = [shape, shape] if name == "MultiScaleRoIAlign" else shape
            self.assertEqual(layer.compute_output_shape(shapes, boxes), expected)
            features = [keras.Input(batch_shape=shape) for _ in range(2)]
            inputs = [
                features if name == "MultiScaleRoIAlign" else features[0],
                keras.Input(batch_shape=boxes),
                *([keras.Input(batch_shape=boxes[:1], dtype="int32")] if len(boxes) == 2 else []),
            ]
            self.assertEqual(layer(*inputs).shape, expected)
            # The static shape in a graph.
            specs = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), inputs)
            concrete = tf.function(layer, input_signature=specs).get_concrete_function()
            self.assertEqual(concrete.output_shapes.as_list(), list(expected))

    @parameterized.parameters(*_LAYERS)
    def test_no_boxes(self, name):
        layer = _layer(name)
        features = _layer_features(name)
        self.assertEqual(layer(features, np.zeros([2, 0, 4], np.float32)).shape, (2, 0, 2, 3, 5))
        flat = layer(features, np.zeros([0, 4], np.float32), np.zeros([0], np.int32))
        self.assertEqual(flat.shape, (0, 2, 3, 5))
        features = _layer_features(name, images=0)
        self.assertEqual(layer(features, np.zeros([0, 3, 4], np.float32)).shape, (0, 3, 2, 3, 5))

    @parameterized.parameters(*_LAYERS)
    def test_config_recreates_the_layer(self, name):
        options = {**_LAYERS[name][1], "data_format": "NCHW", "box_format": "yxyx"}
        layer = _layer(name, **options, name="pool")
        config = layer.get_config()
        self.assertEqual({**config, "output_size": _BINS, **options, "name": "pool"}, config)
        through_json = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        for copy in (type(layer).from_config(config), keras.saving.deserialize_keras_object(through_json)):
            self.assertIs(type(copy), type(layer))
            self.assertEqual(copy.get_config(), config)
            for option, value in options.items():
                self.assertEqual(getattr(copy, option), value)

    @parameterized.parameters(*_LAYERS)
    def test_defaults_equal_those_of_the_function(self, name):
        layer = inspect.signature(getattr(tfo.layers, name).__init__).parameters
        for option, parameter in inspect.signature(_LAYERS[name][0]).parameters.items():
            if parameter.kind == parameter.KEYWORD_ONLY and option != "name":
                self.assertEqual(layer[option].default, parameter.default)

    @parameterized.parameters(
        ("RoIAlign", {"sampling_ratio": -1}, r"sampling_ratio is -1, expected an int in \[0, 1024\]"),
        ("RoIAlign", {"sampling_ratio": 1025}, "sampling_ratio is 1025"),
        ("RoIAlign", {"sampling_ratio": 2.0}, "sampling_ratio is 2.0"),
        ("RoIAlign", {"sampling_ratio": True}, "sampling_ratio is True"),
        ("RoIAlign", {"aligned": 1}, "aligned is 1, expected True or False"),
        ("RoIAlign", {"mode": "mean"}, "mode is 'mean', expected one of 'avg', 'max'"),
        ("PSRoIPool", {"channel_order": "NHWC"}, "channel_order is 'NHWC', expected one of 'channel_major', 'bin_maj"),
        ("PSRoIAlign", {"channel_order": None}, "channel_order is None"),
        ("PSRoIAlign", {"sampling_ratio": "2"}, "sampling_ratio is '2'"),
        (
            "MultiScaleRoIAlign",
            {"strides": (4, 2)},
            r"strides are \(4, 2\), expected positive, finite numbers, each abo",
        ),
        ("MultiScaleRoIAlign", {"strides": (2, 2)}, "strides are"),
        ("MultiScaleRoIAlign", {"strides": (0, 2)}, "strides are"),
        ("MultiScaleRoIAlign", {"strides": ()}, "strides are"),
        ("MultiScaleRoIAlign", {"strides": "24"}, "strides are '24'"),
        ("MultiScaleRoIAlign", {"strides": None}, "strides are None"),
        ("MultiScaleRoIAlign", {"strides": (2, float("inf"))}, "strides are"),
        ("MultiScaleRoIAlign", {"strides": (float("nan"), 2)}, "strides are"),
        ("MultiScaleRoIAlign", {"canonical_box_size": 0}, "canonical_box_size is 0, expected a positive, finite"),
        ("MultiScaleRoIAlign", {"canonical_stride": float("inf")}, "canonical_stride is inf"),
    )
    def test_bad_options(self, name, bad, message):
        with self.assertRaisesRegex(ValueError, message):
            _layer(name, **bad)

    def test_one_map_for_each_stride(self):
        map_2, map_4 = _layer_features("MultiScaleRoIAlign")
        boxes = _fractional_boxes()
        for strides, features, message in (
            (_STRIDES, map_2, "expected a list of"),
            (_STRIDES, [map_2], "expected one for each of the 1 feature maps"),
            (_STRIDES, [map_2, map_4, map_4], "expected one for each of the 3 feature maps"),
            (_STRIDES, [], "features are 0 maps, expected a list of 1 to 16"),
            ((2, 4, 8, 16), map_2, "expected a list of"),  # as many strides as a map has dims
        ):
            layer = _layer("MultiScaleRoIAlign", strides=strides)
            if len(features) > 0:  # Keras cannot make a symbolic input from an empty list
                symbolic = tf.nest.map_structure(lambda f: keras.Input(f.shape[1:]), features)
                with self.assertRaisesRegex(ValueError, message):
                    layer(symbolic, keras.Input([3, 4]))
            with self.assertRaisesRegex(ValueError, message):
                layer(features, boxes)

    @parameterized.parameters("PSRoIPool", "PSRoIAlign")
    def test_channels_for_each_bin(self, name):
        message = "features have 10 channels, expected a multiple of 2"
        with self.assertRaisesRegex(ValueError, message):
            _layer(name)(keras.Input([8, 8, 10]), keras.Input([3, 4]))
        with self.assertRaisesRegex(ValueError, message):
            _layer(name)(_features([2, 8, 8, 10]), _boxes(3))

    @parameterized.product(name=tuple(_LAYERS), flat=(False, True))
    def test_follows_keras_build_protocol(self, name, flat):
        features, boxes = _layer_features(name), _fractional_boxes()
        arguments = (features, boxes.reshape(-1, 4), _INDICES) if flat else (features, boxes)
        names = ("features_shape", "boxes_shape", "box_indices_shape")[: len(arguments)]
        shapes = dict(zip(names, (tf.nest.map_structure(np.shape, argument) for argument in arguments), strict=True))
        called, built, positional = _layer(name), _layer(name), _layer(name)
        expected = called(*arguments)
        built.build(**shapes)
        positional.build(*shapes.values())
        for layer in (called, built, positional):
            config = layer.get_build_config()["shapes_dict"]
            self.assertEqual({key: shape for key, shape in config.items() if shape is not None}, shapes)
            again = type(layer).from_config(layer.get_config())
            again.build_from_config(json.loads(json.dumps(layer.get_build_config())))
            self.assertTrue(layer.built and again.built)
            self.assertAllEqual(again(*arguments), expected)
        earlier = _layer(name)  # files of earlier versions have the first shape only
        earlier.build_from_config({"input_shape": shapes["features_shape"]})
        self.assertAllEqual(earlier(*arguments), expected)

    def test_saved_models_keep_build_shapes(self):
        path = os.path.join(self.get_temp_dir(), "model.keras")
        _model_of_every_layer().save(path)
        loaded = keras.saving.load_model(path)
        for name in _LAYERS:
            shapes = loaded.get_layer(name).get_build_config()["shapes_dict"]
            self.assertEqual(tuple(shapes["boxes_shape"]), (None, None, 4))

    @parameterized.parameters(*_LAYERS)
    def test_is_not_compiled_by_xla(self, name):
        layer = _layer(name)
        self.assertFalse(layer.supports_jit)
        features = [keras.Input([8, 8, 5 * _LAYERS[name][2]]) for _ in range(2)]
        features, boxes = features if name == "MultiScaleRoIAlign" else features[0], keras.Input([3, 4])
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

    @parameterized.product(name=tuple(_LAYERS), policy=("float64", "mixed_float16", "mixed_bfloat16"))
    def test_every_layer_casts_features_and_not_boxes(self, name, policy):
        function, options, _ = _LAYERS[name]
        dtype = {"float64": tf.float64, "mixed_float16": tf.float16, "mixed_bfloat16": tf.bfloat16}[policy]
        features, boxes = _layer_features(name), _fractional_boxes()
        layer = _layer(name, dtype=policy)
        cast = tf.nest.map_structure(lambda f: tf.cast(f, dtype), features)
        expected = function(cast, boxes.reshape(-1, 4), _INDICES, _BINS, **options)
        for result in (layer(features, boxes), tf.function(layer)(features, boxes)):
            self.assertEqual(result.dtype, dtype)
            self.assertAllEqual(tf.reshape(result, expected.shape), expected)

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
    """Returns a model of a convolution, region pooling, and one output per region."""
    image, boxes = keras.Input([None, None, 3]), keras.Input([None, 4])
    features = keras.layers.Conv2D(6, 3, padding="same", name="conv")(image)
    regions = tfo.layers.RoIPool((2, 2), name="pool")(features, boxes)
    outputs = keras.layers.Dense(1, dtype="float32")(keras.layers.Reshape([-1, 2 * 2 * 6])(regions))
    return keras.Model([image, boxes], outputs)


def _model_of_every_layer():
    """Returns a model that pools maps of strides 2 and 4 of images of 16 x 16 pixels with every layer."""
    image, boxes = keras.Input([16, 16, 3]), keras.Input([None, 4])
    fine = keras.layers.Conv2D(30, 3, strides=2, padding="same")(image)
    coarse = keras.layers.Conv2D(30, 3, strides=2, padding="same")(fine)
    outputs = [
        _layer(name, name=name)([fine, coarse] if name == "MultiScaleRoIAlign" else fine, boxes) for name in _LAYERS
    ]
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
        # The bias shifts every maximum, so its gradient is the sum of the regions' gradients.
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

    @parameterized.parameters(
        ("RoIAlign", {"mode": "avg"}), ("RoIAlign", {"mode": "max"}), ("PSRoIAlign", {}), ("MultiScaleRoIAlign", {})
    )
    def test_gradient_reaches_the_boxes(self, name, options):
        function, defaults, _ = _LAYERS[name]
        features, boxes = _layer_features(name), tf.constant(_fractional_boxes())
        head = keras.layers.Dense(4, kernel_initializer="identity", dtype="float32")
        layer = _layer(name, **options)
        with tf.GradientTape(persistent=True) as tape:
            moved = head(boxes)
            tape.watch(boxes)
            result = tf.reduce_sum(layer(features, moved) ** 2)
            flat = function(features, tf.reshape(boxes, [-1, 4]), _INDICES, _BINS, **{**defaults, **options})
            expected = tf.reduce_sum(flat**2)
        expected = tf.reduce_sum(tape.gradient(expected, boxes), [0, 1])
        self.assertAllClose(tape.gradient(result, head.bias), expected, rtol=1e-4)
        self.assertGreater(np.abs(expected).min(), 0)

    @parameterized.parameters("RoIPool", "PSRoIPool")
    def test_other_layers_have_no_gradient_to_boxes(self, name):
        layer, boxes = _layer(name), tf.constant(_fractional_boxes())
        with tf.GradientTape() as tape:
            tape.watch(boxes)
            result = layer(_layer_features(name), boxes)
        self.assertIsNone(tape.gradient(result, boxes))

    def test_fit_learns_boxes(self):
        """Learns the box of a bright square by maximizing the mean inside the box."""
        image = np.zeros([1, 16, 16, 1], np.float32)
        image[:, 4:9, 6:11] = 1
        features, boxes = keras.Input([16, 16, 1]), keras.Input([1, 4])
        moved = keras.layers.Dense(4, kernel_initializer="zeros", name="head")(boxes)
        moved = keras.layers.Add()([moved, boxes])
        model = keras.Model([features, boxes], tfo.layers.RoIAlign(3, sampling_ratio=2)(features, moved))
        model.compile(keras.optimizers.SGD(0.02), "mse")
        start = np.array([[[4, 2, 10, 8]]], np.float32)
        target = np.ones([1, 1, 3, 3, 1], np.float32)
        history = model.fit([image, start], target, epochs=60, verbose=0).history["loss"]
        self.assertGreater(history[0], 0.2)
        self.assertLess(history[-1], 0.01)

    def test_saved_models_in_a_new_process(self):
        directory = self.get_temp_dir()
        model = _model_of_every_layer()
        model.save(os.path.join(directory, "model.keras"))
        model.export(os.path.join(directory, "exported"), verbose=False)
        images, boxes = _features([2, 16, 16, 3]), _fractional_boxes()
        np.savez(os.path.join(directory, "inputs.npz"), images=images, boxes=boxes)
        script = """
            import keras
            import numpy as np
            import tensorflow as tf
            import tensorflow_ops as tfo

            inputs = list(np.load("inputs.npz").values())
            model = keras.saving.load_model("model.keras")
            for name in set(tfo.layers.__all__) - {"Merge"}:
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
