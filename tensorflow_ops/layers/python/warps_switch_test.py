"""Tests of warps by tfo.layers.use_fused_ops."""

import itertools

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_MINOR = int(keras.__version__.split(".")[1])
_RNG = np.random.default_rng(0)


def _normal(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


_MODES = ("nearest", "wrap") + ("constant",) * (_MINOR > 10)  # the one of earlier releases fails


class WarpsTest(tf.test.TestCase, parameterized.TestCase):
    def _is_keras(self, function, *args, tolerance=1e-5, **options):
        """Compares values and gradients; returns the values."""
        # Keras adds gradients in 16 bits.
        floats = [x for x in args if tf.is_tensor(x) and x.dtype.is_floating and x.dtype.size > 2]

        def run():
            with tf.GradientTape() as tape:
                tape.watch(floats)
                y = function(*args, **options)
            gradients = tape.gradient(y, floats, unconnected_gradients="zero")
            return [y, *map(tf.convert_to_tensor, gradients)]

        expected = run()
        with tfo.layers.use_fused_ops():
            actual = run()
            self.assertEqual(tfo.layers.fused_ops()[function.__name__], {"fused": 1, "original": 0})
        self.assertEqual((actual[0].dtype, actual[0].shape), (expected[0].dtype, expected[0].shape))
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(tf.cast(one, tf.float32), tf.cast(other, tf.float32), tolerance, tolerance)
        return actual[0]

    @parameterized.parameters(*itertools.product(_MODES, (0, 1)))
    def test_map_coordinates(self, fill_mode, order):
        places = _RNG.uniform(-4, 11, [2, 3, 50])
        for dtype, other in (("float32", "float32"), ("float16", "float32"), ("float32", "float64"),
                             ("float64", "float64"), ("uint8", "float32"), ("bfloat16", "float32")):  # fmt: skip
            args = tf.cast(_RNG.uniform(0, 8, [7, 5]), dtype), tf.constant(places, other), order
            tolerance = {"bfloat16": 1e-2, "float16": 1e-3}.get(dtype, 1e-5)
            options = {"fill_mode": fill_mode, "fill_value": 3}
            self._is_keras(keras.ops.image.map_coordinates, *args, tolerance=tolerance, **options)

    def test_modes_that_keras_computes_wrongly(self):
        line, places = np.array([[1.0, 2, 3, 4]], np.float32), [[0.0] * 4, [-2.0, -1.0, 4.0, 5.0]]
        with tfo.layers.use_fused_ops():
            for mode, expected in (("reflect", [2, 1, 4, 3]), ("mirror", [3, 2, 3, 2])):
                self.assertAllEqual(keras.ops.image.map_coordinates(line, places, 1, mode), expected)

    def test_falls_back_to_keras(self):
        volume, places = _normal(3, 4, 5), _RNG.uniform(0, 2, [3, 6])
        plane = volume[0]
        calls = (
            (volume, places, 1),
            (plane, places[:2].astype(int), 0),
            (plane.astype(int), places[:2], 1, "constant", 7),
            (plane, places[:2], 1, "constant", tf.constant(0.5)),
            (plane.astype(int), places[:2] - 1, 1, "constant", 7.5),
        )
        expected = [keras.ops.image.map_coordinates(*args) for args in calls]
        with tfo.layers.use_fused_ops():
            actual = [keras.ops.image.map_coordinates(*args) for args in calls]
            calls = tfo.layers.fused_ops()["map_coordinates"]
            self.assertEqual((calls["fused"], calls["original"], sum(calls["reasons"].values())), (1, 4, 4))
            for args in ((plane, places[:2], 2), (plane, places[:2], 1, "grid-wrap"), (plane, places, 1)):
                with self.assertRaises((NotImplementedError, ValueError, AttributeError)):
                    keras.ops.image.map_coordinates(*args)
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, 1e-6, 1e-6)

    def test_elastic_transform(self):
        if _MINOR < 10:
            with self.assertRaisesRegex(ValueError, "'elastic_transform', which Keras 3.* does not have"):
                tfo.layers.use_fused_ops(["elastic_transform"])
            return
        function = keras.ops.image.elastic_transform
        images = tf.constant(_RNG.uniform(size=[2, 20, 30, 3]).astype(np.float32))
        for mode in _MODES:
            for options in ({"alpha": 5.0, "sigma": 2.5}, {"alpha": tf.constant(9.0), "sigma": tf.constant(1.5)}):
                options |= {"fill_mode": mode, "fill_value": 0.3}
                self._is_keras(function, images, tolerance=2e-4, seed=7, **options)
        self._is_keras(function, images[0], tolerance=2e-4, seed=7, fill_mode="nearest")
        planes = tf.transpose(images, [0, 3, 1, 2])
        channels_first = {"fill_mode": "nearest", "data_format": "channels_first"}
        y = self._is_keras(function, planes, tolerance=2e-4, seed=7, **channels_first)
        # Keras computes places in 16 bits.
        with tfo.layers.use_fused_ops():
            half = function(tf.cast(planes, tf.bfloat16), seed=7, **channels_first)
            self.assertEqual((half.dtype, half.shape), ("bfloat16", y.shape))
            nearest = function(images, seed=7, interpolation="nearest")
            self.assertAllInSet(nearest, images.numpy().ravel())
            self.assertAllClose(function(images, sigma=tf.constant(0.0)), images)

    def test_random_elastic_transform(self):
        if _MINOR < 10:
            self.skipTest("since Keras 3.10")
        layer = keras.layers.RandomElasticTransform(factor=1.0, scale=(0.5, 0.5), fill_mode="nearest", seed=3)
        images = _RNG.uniform(0, 255, [4, 24, 24, 3]).astype(np.float32)
        layer(images)
        with tfo.layers.use_fused_ops(["elastic_transform"]):
            batches = tf.data.Dataset.from_tensor_slices(images).batch(3).map(layer)
            self.assertEqual([batch.shape[0] for batch in batches], [3, 1])
            self.assertEqual(tfo.layers.fused_ops(), {"elastic_transform": {"fused": 1, "original": 0}})


if __name__ == "__main__":
    tf.test.main()
