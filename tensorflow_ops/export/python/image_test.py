"""Compositions of image ops, compared with the ops."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise
from rewrite_testing import assert_same

import tensorflow_ops as tfo

_FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_RNG = np.random.default_rng(0)


def _random(*shape, dtype=tf.float32):
    return tf.cast(_RNG.normal(size=shape), dtype)


class GridSampleTest(parameterized.TestCase):
    @pairwise(
        mode=("bilinear", "nearest", "bicubic"),
        padding_mode=("zeros", "border", "reflection"),
        align_corners=(False, True),
        normalized=(False, True),
        dtype=_FLOATS,
    )
    def test_option(self, dtype, **options):
        places = _RNG.normal(size=[2, 40, 2]) * (1 if options["normalized"] else 5)
        places[0, :6] = [[np.nan, 0], [np.inf, 0], [-np.inf, 0.3], [1e30, -1e30], [-1, 1], [1, -1]]
        features = _RNG.normal(size=[2, 5, 6, 3])
        features[0, 0, 0] = np.nan
        assert_same(
            lambda features, grid: tfo.image.grid_sample(features, grid, **options),
            tf.cast(features, dtype),
            tf.cast(places, tf.float64 if dtype == tf.float64 else tf.float32),
        )

    @parameterized.parameters("bilinear", "nearest", "bicubic")
    def test_one_pixel_and_two_grid_dims(self, mode):
        for align_corners in (False, True):
            for padding_mode in ("zeros", "reflection"):
                assert_same(
                    lambda features, grid: tfo.image.grid_sample(
                        features,
                        grid,
                        mode=mode,
                        padding_mode=padding_mode,  # noqa: B023  (called at once)
                        align_corners=align_corners,  # noqa: B023
                    ),
                    _random(2, 1, 1, 3),
                    2 * _random(2, 3, 4, 2),
                )

    @parameterized.parameters(((0, 4, 5, 3), (0, 6, 2)), ((2, 4, 5, 3), (2, 0, 2)), ((2, 4, 5, 0), (2, 6, 2)))
    def test_empty(self, features, grid):
        assert_same(tfo.image.grid_sample, _random(*features), _random(*grid))

    def test_flow(self):
        assert_same(tfo.image.dense_image_warp, _random(2, 5, 6, 3), 3 * _random(2, 5, 6, 2))


class CorrelationCostTest(parameterized.TestCase):
    @parameterized.product(
        options=(
            {"max_displacement": 0},
            {"max_displacement": 2, "padding": 2},
            {"max_displacement": 3, "kernel_size": 3, "stride_1": 2, "stride_2": 2, "padding": 4},
            {"max_displacement": 1, "kernel_size": 3, "stride_1": 4, "padding": 7},
        ),
        shape=((2, 5, 6, 3), (0, 5, 6, 3), (2, 5, 6, 0)),
    )
    def test_option(self, options, shape):
        a, b = _random(*shape), _random(*shape)
        # Pixels outside are 0, also beside infinity.
        assert_same(
            lambda a, b: tfo.image.correlation_cost(a, b, **options), a, tf.where(b > 1, tf.constant(np.inf), b)
        )

    @parameterized.parameters(*_FLOATS)
    def test_dtype(self, dtype):
        assert_same(
            lambda a, b: tfo.image.correlation_cost(a, b, max_displacement=1),
            _random(1, 4, 5, 3, dtype=dtype),
            _random(1, 4, 5, 3, dtype=dtype),
        )


_INTEGERS = (tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64)
_SHAPES = ((7, 9), (3, 7, 9), (2, 7, 9, 3), (0, 3, 4), (2, 0, 3, 2), (4, 0))


class MasksTest(parameterized.TestCase):
    @parameterized.parameters(*zip(_INTEGERS, itertools.cycle(_SHAPES)))
    def test_shape_and_dtype(self, dtype, shape):
        values = _RNG.integers(0, 2, shape)
        # A value that no other dtype has.
        images = tf.constant(values.astype(np.uint64) << 63) if dtype == tf.uint64 else tf.cast(values, dtype)
        assert_same(
            lambda images: (
                *(tfo.image.connected_components(images, connectivity=connectivity) for connectivity in (4, 8)),
                tfo.image.euclidean_distance_transform(images),
            ),
            images,
        )

    @pairwise(dtype=_FLOATS, to=_FLOATS)
    def test_distances_of_floats(self, dtype, to):
        values = np.where(_RNG.random([3, 6, 7]) < 0.7, _RNG.normal(size=[3, 6, 7]), 0)
        values[0, 0, 0], values[2] = -0.0, np.nan
        assert_same(
            lambda images: tfo.image.euclidean_distance_transform(images, spacing=(0.7, 2.3), dtype=to),
            tf.cast(values, dtype),
        )

    def test_components_of_winding_shapes(self):
        spiral = np.zeros([15, 15], np.int32)
        for i in range(0, 7, 2):
            spiral[i, i : 15 - i] = spiral[i : 15 - i, 14 - i] = spiral[14 - i, i : 15 - i] = 1
            spiral[i + 2 : 15 - i, i] = spiral[i + 2, i : i + 3] = 1
        for images in (spiral, spiral[::-1, ::-1], _RNG.integers(0, 3, [2, 40, 40])):
            assert_same(lambda images: tuple(tfo.image.connected_components(images)), images)


if __name__ == "__main__":
    tf.test.main()
