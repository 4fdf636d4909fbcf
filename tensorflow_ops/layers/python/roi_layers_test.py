"""Tests of the region pooling layers: beside their functions, shapes, config, models."""

import inspect
import itertools
import json
import os

import keras
import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

# For each layer: (function, options other than the defaults, features' channels per output channel).
_BINS = (2, 3)
_ALIGN = {"sampling_ratio": 3, "aligned": False}
_PS = {"channel_order": "bin_major"}
_LAYERS = {
    "RoIPool": (tfo.detection.roi_pool, {"spatial_scale": 0.5}, 1),
    "RoIAlign": (tfo.detection.roi_align, {"spatial_scale": 0.5, **_ALIGN, "mode": "max"}, 1),
    "PSRoIPool": (tfo.detection.ps_roi_pool, {"spatial_scale": 0.5, **_PS}, 6),
    "PSRoIAlign": (tfo.detection.ps_roi_align, {"spatial_scale": 0.5, **_PS, "sampling_ratio": 3}, 6),
    "MultiScaleRoIAlign": (
        tfo.detection.multiscale_roi_align,
        {"strides": (2.0, 4.0), **_ALIGN, "canonical_box_size": 8.0, "canonical_stride": 4.0},
        1,
    ),
}
_EACH_LAYER = parameterized.parameters(*_LAYERS)
# By image, in images of 16 x 16 pixels; float16 and bfloat16 cannot represent them.
_CORNERS = np.random.default_rng(4).uniform(0, 16, [2, 3, 2, 2])
_BOXES = np.concatenate([_CORNERS.min(axis=2), _CORNERS.max(axis=2)], -1).astype(np.float32)
_LIST, _INDICES = _BOXES.reshape(-1, 4), np.array([0, 0, 0, 1, 1, 1], np.int32)


def _layer(kind, **options):
    return getattr(tfo.layers, kind)(_BINS, **{**_LAYERS[kind][1], **options})


def _normal(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _features(name, data_format="NHWC"):
    """Returns a map of stride 2, for a pyramid also one of stride 4."""
    channels = 5 * _LAYERS[name][2]
    fine, coarse = _normal(2, 8, 8, channels), _normal(2, 4, 4, channels, seed=3)
    if data_format == "NCHW":
        fine, coarse = np.moveaxis(fine, 3, 1), np.moveaxis(coarse, 3, 1)
    return [fine, coarse] if name == "MultiScaleRoIAlign" else fine


def _model_of_every_layer():
    image, boxes = keras.Input([16, 16, 3]), keras.Input([None, 4])
    fine = keras.layers.Conv2D(30, 3, strides=2, padding="same")(image)
    coarse = keras.layers.Conv2D(30, 3, strides=2, padding="same")(fine)
    outputs = [
        _layer(name, name=name)([fine, coarse] if name == "MultiScaleRoIAlign" else fine, boxes) for name in _LAYERS
    ]
    return keras.Model([image, boxes], outputs)


class RoILayersTest(parameterized.TestCase, tf.test.TestCase):
    def test_every_layer_has_a_case(self):
        self.assertCountEqual(_LAYERS, [name for name in tfo.layers.__all__ if "RoI" in name])

    @pairwise(name=tuple(_LAYERS), data_format=("NHWC", "NCHW"), box_format=("xyxy", "yxyx"))
    def test_equals_its_function(self, name, data_format, box_format):
        function, options, _ = _LAYERS[name]
        features = _features(name, data_format)
        formats = {"data_format": data_format, "box_format": box_format}
        layer = _layer(name, **formats)
        expected = function(features, _LIST, _INDICES, _BINS, **options, **formats)
        self.assertGreater(np.count_nonzero(expected), 100)

        flat = layer(features, _LIST, _INDICES)
        self.assertAllEqual(flat, expected)
        by_image = layer(features, _BOXES)
        self.assertAllEqual(by_image, tf.reshape(expected, [2, 3, *expected.shape[1:]]))
        shapes = tf.nest.map_structure(lambda f: f.shape, features)
        self.assertEqual(layer.compute_output_shape(shapes, (6, 4), (6,)), flat.shape)
        self.assertEqual(layer.compute_output_shape(shapes, _BOXES.shape), by_image.shape)

    @_EACH_LAYER
    def test_casts_features_and_not_boxes(self, name):
        function, options, _ = _LAYERS[name]
        features = _features(name)
        layer = _layer(name, dtype="mixed_bfloat16")
        cast = tf.nest.map_structure(lambda f: tf.cast(f, tf.bfloat16), features)
        expected = function(cast, _LIST, _INDICES, _BINS, **options)
        for result in (layer(features, _BOXES), tf.function(layer)(features, _BOXES)):
            self.assertEqual(result.dtype, tf.bfloat16)
            self.assertAllEqual(tf.reshape(result, expected.shape), expected)

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

    @parameterized.parameters(([2, 3], (2, 3)), (2, (2, 2)))
    def test_output_size_may_be_a_constant(self, values, expected):
        size, in_graph = tf.constant(values, tf.int8), []
        tf.function(lambda: in_graph.append(tfo.layers.RoIPool(size)), autograph=False)()
        for layer in (tfo.layers.RoIPool(size), *in_graph):
            self.assertEqual(layer.output_size, expected)

    def test_boxes_by_image_require_one_entry_per_image(self):
        layer, features = tfo.layers.RoIPool(2), tf.zeros([4, 8, 8, 3])
        with self.assertRaisesRegex(ValueError, r"boxes are \[2,5,4\], .* features' N = 4"):
            layer(features, tf.zeros([2, 5, 4]))
        for compiled in {False, library.xla_error is None}:
            signature = [tf.TensorSpec([None, 8, 8, 3]), tf.TensorSpec([None, 5, 4])]
            unknown = tf.function(layer, input_signature=signature, jit_compile=compiled)
            self.assertEqual(unknown(features, tf.zeros([4, 5, 4])).shape, [4, 5, 2, 2, 3])
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "dim 0 of boxes is 6, expected features' N"):
                unknown(features, tf.zeros([6, 5, 4]))

    @_EACH_LAYER
    def test_config_recreates_the_layer(self, name):
        options = {**_LAYERS[name][1], "data_format": "NCHW", "box_format": "yxyx"}
        layer = _layer(name, **options, name="pool")
        config = layer.get_config()
        self.assertEqual({**config, "output_size": _BINS, **options, "name": "pool"}, config)
        through_json = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        copy = keras.saving.deserialize_keras_object(through_json)
        self.assertIs(type(copy), type(layer))
        self.assertEqual(copy.get_config(), config)

    @_EACH_LAYER
    def test_defaults_equal_those_of_the_function(self, name):
        layer = inspect.signature(getattr(tfo.layers, name).__init__).parameters
        for option, parameter in inspect.signature(_LAYERS[name][0]).parameters.items():
            if parameter.kind == parameter.KEYWORD_ONLY and option != "name":
                self.assertEqual(layer[option].default, parameter.default)

    @parameterized.parameters(
        ("RoIAlign", {"mode": "max", "sampling_ratio": 0}, r"sampling_ratio is 0, expected an int in \[1, 1024\]"),
        ("PSRoIPool", {"channel_order": "NHWC"}, "channel_order is 'NHWC', expected one of 'channel_major', 'bin_maj"),
        ("MultiScaleRoIAlign", {"strides": None}, "strides are None"),
        ("MultiScaleRoIAlign", {"canonical_stride": float("inf")}, "canonical_stride is inf"),
    )
    def test_bad_options(self, name, bad, message):
        with self.assertRaisesRegex(ValueError, message):
            _layer(name, **bad)

    @parameterized.parameters([[]], [[8]], [[8, 8, 3, 1]])
    def test_features_of_wrong_rank(self, sizes):
        features = keras.Input(sizes) if sizes else tf.zeros([])
        for name in ("PSRoIAlign", "MultiScaleRoIAlign"):
            layer = _layer(name, strides=(4,)) if name == "MultiScaleRoIAlign" else _layer(name)
            with self.assertRaisesRegex(ValueError, r"features are \(.*\), expected \[N, H, W, C\]"):
                layer([features] if name == "MultiScaleRoIAlign" else features, keras.Input([None, 4]))

    @parameterized.parameters(
        ((2, 4), 0, "expected a list of"),
        ((2, 4), [0], "expected one for each of the 1 feature maps"),
        ((2, 4), [0, 1, 1], "expected one for each of the 3 feature maps"),
        ((2, 4, 8, 16), 0, "expected a list of"),  # as many strides as a map has dims
    )
    def test_one_map_for_each_stride(self, strides, maps, message):
        layer = _layer("MultiScaleRoIAlign", strides=strides)
        features = tf.nest.map_structure(lambda i: _features("MultiScaleRoIAlign")[i], maps)
        symbolic = tf.nest.map_structure(lambda f: keras.Input(f.shape[1:]), features)
        for inputs in ((features, _BOXES), (symbolic, keras.Input([3, 4]))):
            with self.assertRaisesRegex(ValueError, message):
                layer(*inputs)

    @parameterized.parameters("PSRoIPool", "PSRoIAlign")
    def test_channels_for_each_bin(self, name):
        message = r"features (must have a multiple of ph \* pw channels|have 10 channels, expected a multiple of 2)"
        for inputs in ((keras.Input([8, 8, 10]), keras.Input([3, 4])), (_normal(2, 8, 8, 10), _BOXES)):
            with self.assertRaisesRegex(ValueError, message):
                _layer(name)(*inputs)

    @parameterized.parameters(*zip(_LAYERS, itertools.cycle((False, True))))
    def test_follows_keras_build_protocol(self, name, flat):
        arguments = (_features(name), _LIST, _INDICES) if flat else (_features(name), _BOXES)
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
            self.assertAllEqual(again(*arguments), expected)

    def test_steps_compiled_by_xla_train_alike(self):
        if library.xla_error:
            self.skipTest(library.xla_error)
        images, boxes = _normal(3, 16, 16, 3), _BOXES[[0, 1, 0]]
        model = _model_of_every_layer()
        targets = [np.ones_like(y) for y in model([images, boxes])]
        start, results = model.get_weights(), []
        for jit_compile in (False, True):
            model.set_weights(start)
            model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=jit_compile)
            history = model.fit([images, boxes], targets, batch_size=2, epochs=2, shuffle=False, verbose=0).history
            results.append([history["loss"], *model.predict([images, boxes], verbose=0), *model.get_weights()])
        for plain, compiled in zip(*results, strict=True):
            self.assertAllClose(plain, compiled, rtol=1e-5, atol=1e-5)

    def test_saved_models_in_a_new_process(self):
        directory = self.get_temp_dir()
        model = _model_of_every_layer()
        model.save(os.path.join(directory, "model.keras"))
        model.export(os.path.join(directory, "exported"), verbose=False)
        images = _normal(2, 16, 16, 3)
        np.savez(os.path.join(directory, "inputs.npz"), images=images, boxes=_BOXES)
        script = """
            import keras
            import numpy as np
            import tensorflow as tf
            import tensorflow_ops as tfo

            inputs = list(np.load("inputs.npz").values())
            model = keras.saving.load_model("model.keras")
            for name in [name for name in tfo.layers.__all__ if "RoI" in name]:
                layer = model.get_layer(name)
                assert isinstance(layer, getattr(tfo.layers, name))
                assert tuple(layer.get_build_config()["shapes_dict"]["boxes_shape"]) == (None, None, 4)
            exported = tf.saved_model.load("exported")
            np.savez("keras.npz", *model(inputs))
            np.savez("exported.npz", *exported.serve(inputs))
            """
        process_testing.output(directory, script)
        for file in ("keras.npz", "exported.npz"):
            with np.load(os.path.join(directory, file)) as outputs:
                for result, expected in zip(outputs.values(), model([images, _BOXES]), strict=True):
                    self.assertAllClose(result, expected)
                    self.assertGreater(np.count_nonzero(expected), 100)


if __name__ == "__main__":
    tf.test.main()
