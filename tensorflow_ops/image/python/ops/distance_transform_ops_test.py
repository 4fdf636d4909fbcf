"""Tests of tfo.image.euclidean_distance_transform against a search over all zero pixels."""

import ml_dtypes
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_TYPES = (
    np.bool_,
    *(np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64),
    *(np.float16, ml_dtypes.bfloat16, np.float32, np.float64),
)


def _reference(images, spacing=(1.0, 1.0)):
    """Returns distances in float64 of images [..., H, W]."""
    if images.ndim > 2:
        return np.stack([_reference(image, spacing) for image in images])
    y, x = np.mgrid[: images.shape[0], : images.shape[1]]
    distances = np.full(images.shape, np.inf)
    for v, u in np.argwhere(images == 0):
        distances = np.minimum(distances, np.sqrt((spacing[0] * (y - v)) ** 2 + (spacing[1] * (x - u)) ** 2))
    return distances


def _noise(shape, density=0.9, seed=0):
    return np.random.default_rng(seed).random(shape) < density


class ValuesTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(((13, 33),), ((3, 9, 40),))
    def test_equals_the_definition(self, shape):
        for density in (0.0, 0.5, 0.97, 0.999, 1.0):
            images = _noise(shape, density)
            expected = _reference(images).astype(np.float32)
            self.assertAllEqual(tfo.image.euclidean_distance_transform(images), expected)

    def test_channels_are_planes(self):
        images = _noise((2, 3, 30, 20), 0.95)  # [N, C, H, W]
        result = tfo.image.euclidean_distance_transform(np.moveaxis(images, 1, -1))
        self.assertEqual(result.shape, [2, 30, 20, 3])
        self.assertAllEqual(np.moveaxis(result, -1, 1), _reference(images).astype(np.float32))

    @parameterized.parameters(*_TYPES)
    def test_pixels_of_any_dtype(self, dtype):
        images = _noise((12, 20), 0.9).astype(dtype)
        if dtype is not np.bool_:
            images = images * np.array(3, dtype)
        self.assertAllEqual(tfo.image.euclidean_distance_transform(images), _reference(images != 0).astype(np.float32))

    def test_only_zero_is_zero(self):
        images = np.array([[0.0, -0.0, np.nan, 1e-45, -1e-45, np.inf, -3.0]], np.float32)
        self.assertAllEqual(tfo.image.euclidean_distance_transform(images), [[0, 0, 1, 2, 3, 4, 5]])
        self.assertAllEqual(
            tfo.image.euclidean_distance_transform(np.array([[0, -128, 64, 1]], np.int8)), [[0, 1, 2, 3]]
        )
        big = np.array([[0, 2**63, 1 << 40]], np.uint64)
        self.assertAllEqual(tfo.image.euclidean_distance_transform(big), [[0, 1, 2]])

    @parameterized.parameters(tf.bfloat16, "float32", np.float64)
    def test_distances_are_rounded_once(self, dtype):
        images = np.ones((3, 300), bool)
        images[1, 7] = False
        result = tfo.image.euclidean_distance_transform(images, dtype=dtype)
        self.assertEqual(result.dtype, tf.as_dtype(dtype))
        self.assertAllEqual(result, _reference(images).astype(tf.as_dtype(dtype).as_numpy_dtype))

    @parameterized.parameters(((0.5, 3.0),), ((1e-38, 1e38),))
    def test_spacing(self, spacing):
        for density in (0.7, 0.995):
            images = _noise((2, 25, 130), density)
            result = tfo.image.euclidean_distance_transform(images, spacing=spacing, dtype=tf.float64)
            self.assertAllClose(result, _reference(images, spacing), rtol=1e-14, atol=0)
            tensor = tfo.image.euclidean_distance_transform(images, spacing=tf.constant(spacing, tf.float64))
            self.assertAllEqual(tensor, tf.cast(result, tf.float32))


class GraphTest(parameterized.TestCase, tf.test.TestCase):
    def test_one_trace_serves_every_rank_and_spacing(self):
        @tf.function(input_signature=[tf.TensorSpec(None, tf.bool), tf.TensorSpec(None, tf.float32)])
        def transform(images, spacing):
            return tfo.image.euclidean_distance_transform(images, spacing=spacing, dtype=tf.float64)

        for shape in ((9, 20), (2, 9, 20)):
            images = _noise(shape)
            self.assertAllClose(transform(images, [2.0, 0.5]), _reference(images, (2.0, 0.5)), rtol=1e-14)
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, r"images must be \[H, W\].*with input shapes \[4\]"
        ):
            transform(tf.zeros([4], tf.bool), [1.0, 1.0])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"spacing\[1\] is 0, expected \[1e-38, 1e\+38\]"):
            transform(images, [1.0, 0.0])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"spacing must be \[2\].*with input shapes"):
            transform(images, [1.0, 1.0, 1.0])


class ErrorTest(parameterized.TestCase, tf.test.TestCase):
    def test_too_long_sides(self):
        transform = tf.function(tfo.image.euclidean_distance_transform)
        with self.assertRaisesRegex(ValueError, r"images are \[2,1073741824\], expected height and width below"):
            transform.get_concrete_function(tf.TensorSpec([2, 2**30], tf.bool))


if __name__ == "__main__":
    tf.test.main()
