"""Tests of tfo.image.euclidean_distance_transform: dtypes, ranks, planes, spacing. Its C++ test proves values."""

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
_IMAGES = np.random.default_rng(0).random((2, 12, 20, 3)) < 0.9


def _reference(image, spacing=(1.0, 1.0)):
    """Returns distances in float64 of an image [H, W]."""
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    distances = np.full(image.shape, np.inf)
    for v, u in np.argwhere(image == 0):
        distances = np.minimum(distances, np.sqrt((spacing[0] * (y - v)) ** 2 + (spacing[1] * (x - u)) ** 2))
    return distances


class DistanceTransformTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_TYPES)
    def test_pixels_of_any_dtype(self, dtype):
        image = _IMAGES[0, ..., 0].astype(dtype)
        if dtype is not np.bool_:
            image = image * np.array(3, dtype)
        self.assertAllEqual(tfo.image.euclidean_distance_transform(image), _reference(image).astype(np.float32))

    def test_only_zero_is_zero(self):
        images = np.array([[0.0, -0.0, np.nan, 1e-45, -1e-45, np.inf, -3.0]], np.float32)
        self.assertAllEqual(tfo.image.euclidean_distance_transform(images), [[0, 0, 1, 2, 3, 4, 5]])

    @parameterized.parameters(tf.bfloat16, "float32", np.float64)
    def test_distances_of_any_dtype(self, dtype):
        image = np.ones((3, 300), bool)
        image[1, 7] = False
        result = tfo.image.euclidean_distance_transform(image, dtype=dtype)
        self.assertEqual(result.dtype, tf.as_dtype(dtype))
        self.assertAllEqual(result, _reference(image).astype(tf.as_dtype(dtype).as_numpy_dtype))

    def test_one_trace_serves_every_rank_and_spacing(self):
        @tf.function(input_signature=[tf.TensorSpec(None, tf.bool), tf.TensorSpec(None, tf.float64)])
        def transform(images, spacing):
            return tfo.image.euclidean_distance_transform(images, spacing=spacing, dtype=tf.float64)

        for spacing in ((2.0, 0.5), (1e-38, 1e38)):
            result = transform(_IMAGES, spacing)
            known = tfo.image.euclidean_distance_transform(_IMAGES, spacing=spacing, dtype=tf.float64)
            self.assertAllEqual(result, known)
            self.assertAllEqual(transform(_IMAGES[..., 0], spacing), result[..., 0])
            self.assertAllEqual(transform(_IMAGES[1, ..., 0], spacing), result[1, ..., 0])
            for n in range(2):
                for c in range(3):
                    self.assertAllClose(result[n, ..., c], _reference(_IMAGES[n, ..., c], spacing), rtol=1e-14, atol=0)
        for spacing, message in (
            ([1.0, 0.0], r"spacing\[1\] is 0, expected \[1e-38, 1e\+38\]"),
            ([1.0, 1.0, 1.0], r"spacing must be \[2\].*: Dimension must be 2 but is 3, got \[3\]"),
        ):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                transform(_IMAGES, spacing)

    def test_too_long_sides(self):
        transform = tf.function(tfo.image.euclidean_distance_transform)
        with self.assertRaisesRegex(ValueError, r"images are \[2,1073741824\], expected height and width below"):
            transform.get_concrete_function(tf.TensorSpec([2, 2**30], tf.bool))


if __name__ == "__main__":
    tf.test.main()
