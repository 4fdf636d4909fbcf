"""Tests of the region pooling layers."""

import inspect
import itertools
import json
import os
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise
from roi_layers_testing import (
    BINS,
    INDICES,
    LAYERS,
    STRIDES,
    fractional_boxes,
    layer_features,
    make_layer,
    model_of_every_layer,
    random_features,
    whole_boxes,
)

import tensorflow_ops as tfo
from tensorflow_ops.core.python import build_info, library


class RoIPoolTest(parameterized.TestCase, tf.test.TestCase):
    def test_bad_features(self):
        with self.assertRaisesRegex(ValueError, "features cannot be float32"):
            tfo.layers.RoIPool(2)({}, tf.zeros([1, 4]), tf.zeros([1], tf.int32))

    @parameterized.parameters(([2, 3], (2, 3)), (2, (2, 2)))
    def test_output_size_may_be_a_constant(self, values, expected):
        size, in_graph = tf.constant(values, tf.int8), []
        tf.function(lambda: in_graph.append(tfo.layers.RoIPool(size)), autograph=False)()
        self.assertEqual(tfo.layers.RoIPool(size).output_size, expected)
        self.assertEqual(in_graph[0].output_size, expected)

    def test_boxes_by_image_require_one_entry_per_image(self):
        layer = tfo.layers.RoIPool(2)
        features = tf.zeros([4, 8, 8, 3])
        for images in (2, 6):
            for call in (layer, tf.function(layer)):
                with self.assertRaisesRegex(ValueError, rf"boxes are \[{images},5,4\], .* features' N = 4"):
                    call(features, tf.zeros([images, 5, 4]))
            for compiled in {False, library.xla_error is None}:
                signature = [tf.TensorSpec([None, 8, 8, 3]), tf.TensorSpec([None, 5, 4])]
                unknown = tf.function(layer, input_signature=signature, jit_compile=compiled)
                self.assertEqual(unknown(features, tf.zeros([4, 5, 4])).shape, [4, 5, 2, 2, 3])
                message = f"dim 0 of boxes is {images}, expected features' N"
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                    unknown(features, tf.zeros([images, 5, 4]))
        with self.assertRaisesRegex(ValueError, r"boxes are \[5,4\], expected \[N, R, 4\]"):
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
        self.assertCountEqual(LAYERS, [name for name in tfo.layers.__all__ if "RoI" in name])

    @pairwise(name=tuple(LAYERS), data_format=("NHWC", "NCHW"), box_format=("xyxy", "yxyx"))
    def test_equals_its_function(self, name, data_format, box_format):
        function, options, _ = LAYERS[name]
        features, boxes = layer_features(name, data_format), fractional_boxes()
        formats = {"data_format": data_format, "box_format": box_format}
        layer = make_layer(name, **formats)
        expected = function(features, boxes.reshape(-1, 4), INDICES, BINS, **options, **formats)
        self.assertGreater(np.count_nonzero(expected), 100)

        flat = layer(features, boxes.reshape(-1, 4), INDICES)
        self.assertAllEqual(flat, expected)
        by_image = layer(features, boxes)
        self.assertAllEqual(by_image, tf.reshape(expected, [2, 3, *expected.shape[1:]]))
        shapes = tf.nest.map_structure(lambda f: f.shape, features)
        self.assertEqual(layer.compute_output_shape(shapes, (6, 4), (6,)), flat.shape)
        self.assertEqual(layer.compute_output_shape(shapes, boxes.shape), by_image.shape)

    @parameterized.product(name=tuple(LAYERS), data_format=("NHWC", "NCHW"))
    def test_output_shape_of_unknown_dims(self, name, data_format):
        factor = LAYERS[name][2]
        layer = make_layer(name, data_format=data_format)
        for n, size, channels, boxes in (
            (None, None, 5, (None, None, 4)),
            (2, 8, None, (2, 5, 4)),
            (2, 8, 5, (None, 4)),
            (None, None, None, (None, 5, 4)),
        ):
            in_channels = None if channels is None else channels * factor
            shape = (n, in_channels, size, size) if data_format == "NCHW" else (n, size, size, in_channels)
            pooled = (channels, *BINS) if data_format == "NCHW" else (*BINS, channels)
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

    @parameterized.parameters(*LAYERS)
    def test_config_recreates_the_layer(self, name):
        options = {**LAYERS[name][1], "data_format": "NCHW", "box_format": "yxyx"}
        layer = make_layer(name, **options, name="pool")
        config = layer.get_config()
        self.assertEqual({**config, "output_size": BINS, **options, "name": "pool"}, config)
        through_json = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        for copy in (type(layer).from_config(config), keras.saving.deserialize_keras_object(through_json)):
            self.assertIs(type(copy), type(layer))
            self.assertEqual(copy.get_config(), config)
            for option, value in options.items():
                self.assertEqual(getattr(copy, option), value)

    @parameterized.parameters(*LAYERS)
    def test_defaults_equal_those_of_the_function(self, name):
        layer = inspect.signature(getattr(tfo.layers, name).__init__).parameters
        for option, parameter in inspect.signature(LAYERS[name][0]).parameters.items():
            if parameter.kind == parameter.KEYWORD_ONLY and option != "name":
                self.assertEqual(layer[option].default, parameter.default)

    @parameterized.parameters(
        ("RoIAlign", {"sampling_ratio": -1}, r"sampling_ratio is -1, expected an int in \[0, 1024\]"),
        ("RoIAlign", {"mode": "mean"}, "mode is 'mean', expected one of 'avg', 'max'"),
        ("RoIAlign", {"mode": "max", "sampling_ratio": 0}, r"sampling_ratio is 0, expected an int in \[1, 1024\]"),
        ("PSRoIPool", {"channel_order": "NHWC"}, "channel_order is 'NHWC', expected one of 'channel_major', 'bin_maj"),
        ("PSRoIAlign", {"channel_order": None}, "channel_order is None"),
        (
            "MultiScaleRoIAlign",
            {"strides": (4, 2)},
            r"strides are \(4, 2\), expected positive, finite numbers in increasing order",
        ),
        ("MultiScaleRoIAlign", {"strides": None}, "strides are None"),
        ("MultiScaleRoIAlign", {"canonical_stride": float("inf")}, "canonical_stride is inf"),
    )
    def test_bad_options(self, name, bad, message):
        with self.assertRaisesRegex(ValueError, message):
            make_layer(name, **bad)

    def test_one_map_for_each_stride(self):
        map_2, map_4 = layer_features("MultiScaleRoIAlign")
        boxes = fractional_boxes()
        for strides, features, message in (
            (STRIDES, map_2, "expected a list of"),
            (STRIDES, [map_2], "expected one for each of the 1 feature maps"),
            (STRIDES, [map_2, map_4, map_4], "expected one for each of the 3 feature maps"),
            (STRIDES, [], "features has 0 maps, expected a list of 1 to 16"),
            ((2, 4, 8, 16), map_2, "expected a list of"),  # as many strides as a map has dims
        ):
            layer = make_layer("MultiScaleRoIAlign", strides=strides)
            if len(features) > 0:  # Keras cannot make a symbolic input from an empty list
                symbolic = tf.nest.map_structure(lambda f: keras.Input(f.shape[1:]), features)
                with self.assertRaisesRegex(ValueError, message):
                    layer(symbolic, keras.Input([3, 4]))
            with self.assertRaisesRegex(ValueError, message):
                layer(features, boxes)

    @parameterized.parameters("PSRoIPool", "PSRoIAlign")
    def test_channels_for_each_bin(self, name):
        message = r"features (must have a multiple of ph \* pw channels|have 10 channels, expected a multiple of 2)"
        with self.assertRaisesRegex(ValueError, message):
            make_layer(name)(keras.Input([8, 8, 10]), keras.Input([3, 4]))
        with self.assertRaisesRegex(ValueError, message):
            make_layer(name)(random_features([2, 8, 8, 10]), whole_boxes(3))

    @parameterized.parameters(*zip(LAYERS, itertools.cycle((False, True))))
    def test_follows_keras_build_protocol(self, name, flat):
        features, boxes = layer_features(name), fractional_boxes()
        arguments = (features, boxes.reshape(-1, 4), INDICES) if flat else (features, boxes)
        names = ("features_shape", "boxes_shape", "box_indices_shape")[: len(arguments)]
        shapes = dict(zip(names, (tf.nest.map_structure(np.shape, argument) for argument in arguments), strict=True))
        called, built, positional = make_layer(name), make_layer(name), make_layer(name)
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
        earlier = make_layer(name)  # files of earlier versions have the first shape only
        earlier.build_from_config({"input_shape": shapes["features_shape"]})
        self.assertAllEqual(earlier(*arguments), expected)

    def test_saved_models_keep_build_shapes(self):
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model_of_every_layer().save(path)
        loaded = keras.saving.load_model(path)
        for name in LAYERS:
            shapes = loaded.get_layer(name).get_build_config()["shapes_dict"]
            self.assertEqual(tuple(shapes["boxes_shape"]), (None, None, 4))

    @parameterized.parameters(*LAYERS)
    def test_lets_keras_compile_with_xla(self, name):
        layer = make_layer(name)
        self.assertEqual(layer.supports_jit, library.xla_error is None)
        with mock.patch.object(library, "xla_error", "built without XLA"):
            self.assertFalse(make_layer(name).supports_jit)
        gpus = [tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")]
        with (
            mock.patch.object(tf.config, "list_physical_devices", return_value=gpus),
            mock.patch.object(build_info, "CUDA_VERSION", ""),
        ):
            self.assertFalse(make_layer(name).supports_jit)


if __name__ == "__main__":
    tf.test.main()
