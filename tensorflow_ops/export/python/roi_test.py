"""Compositions of region pooling, compared with the ops."""

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise
from rewrite_testing import assert_same, composed

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)


def _pyramid(features, boxes, box_indices, output_size, **options):
    maps = [features, 2 * features[:, 1:5, 2:6], features[:, :1, :2]]
    return tfo.detection.multiscale_roi_align(
        maps,
        boxes,
        box_indices,
        output_size,
        strides=(1, 2, 4.0),
        canonical_box_size=6.0,
        canonical_stride=2,
        **options,
    )


_SAMPLING = {
    "average": functools.partial(tfo.detection.roi_align, spatial_scale=0.7),
    "pyramid": _pyramid,
}
_OTHERS = {
    "maximum": functools.partial(tfo.detection.roi_align, spatial_scale=0.7, sampling_ratio=3, mode="max"),
    "ps_roi_align": tfo.detection.ps_roi_align,
    "ps_roi_align, bins first": functools.partial(
        tfo.detection.ps_roi_align, sampling_ratio=2, channel_order="bin_major"
    ),
    "ps_roi_pool": functools.partial(tfo.detection.ps_roi_pool, spatial_scale=0.7),
    "ps_roi_pool, bins first": functools.partial(tfo.detection.ps_roi_pool, channel_order="bin_major"),
    "roi_pool": functools.partial(tfo.detection.roi_pool_with_argmax, spatial_scale=0.7),
}
_ALL = {**_SAMPLING, **_OTHERS}


def _inputs(dtype):
    """Returns features with NaN and infinity, and boxes that are malformed, huge, outside or empty, and others."""
    features = _RNG.normal(size=[2, 7, 9, 12])
    features[1, 3, 4, 2], features[0, 0, 0, 0] = np.nan, -np.inf
    corners = _RNG.uniform(-3, 6, [6, 2])
    boxes = [
        [np.nan, 0, 1, 1],
        [2, 2, 1, 3],
        [0, 0, np.inf, 3],
        [1, 1, 1, 1],
        [-1e3, -1e3, 1e3, 1e3],
        [1e30, 1e30, 2e30, 3e30],
        [-20, -20, -10, -10],
        [2.5, 2.5, 2.5, 7.5],
        *np.concatenate([corners, corners + _RNG.uniform(0, 7, [6, 2])], 1),
    ]
    box_indices = tf.constant(_RNG.integers(0, 2, len(boxes)), tf.int32)
    return tf.cast(features, dtype), tf.constant(boxes, tf.float64 if dtype == tf.float64 else tf.float32), box_indices


class RegionPoolingTest(parameterized.TestCase):
    @pairwise(
        pool=tuple(_SAMPLING),
        sampling_ratio=(0, 1, 3),
        aligned=(False, True),
        box_format=("xyxy", "yxyx"),
        dtype=(tf.float16, tf.bfloat16, tf.float32, tf.float64),
    )
    def test_sampling(self, pool, dtype, **options):
        assert_same(lambda *args: _SAMPLING[pool](*args, (2, 3), **options), *_inputs(dtype))

    @pairwise(pool=tuple(_OTHERS), box_format=("xyxy", "yxyx"), dtype=(tf.float16, tf.bfloat16, tf.float32, tf.float64))
    def test_others(self, pool, dtype, box_format):
        assert_same(lambda *args: _OTHERS[pool](*args, (2, 3), box_format=box_format), *_inputs(dtype))

    @parameterized.parameters(*_ALL)
    def test_empty(self, pool):
        features, boxes, box_indices = _inputs(tf.float32)
        call = lambda *args: _ALL[pool](*args, (2, 3))  # noqa: E731
        assert_same(call, features, boxes[:0], box_indices[:0])
        assert_same(call, features[:0], boxes[:0], box_indices[:0])
        assert_same(call, features[..., :0], boxes, box_indices)

    @parameterized.parameters(*sorted(set(_ALL) - {"pyramid"}))
    def test_no_pixels(self, pool):
        features, boxes, box_indices = _inputs(tf.float32)
        assert_same(lambda *args: _ALL[pool](*args, (2, 3)), features[:, :0], boxes, box_indices)

    def test_a_level_without_pixels(self):
        features, boxes, box_indices = _inputs(tf.float32)
        for empty in (0, 1):
            assert_same(
                lambda features, boxes, box_indices: tfo.detection.multiscale_roi_align(
                    [features[:, :0], features] if empty == 0 else [features, features[:, :, :0]],  # noqa: B023
                    boxes,
                    box_indices,
                    2,
                    strides=(1, 2),
                    canonical_box_size=6.0,
                    canonical_stride=2,
                ),
                features,
                boxes,
                box_indices,
            )

    @parameterized.parameters(*_ALL)
    def test_images_out_of_range_pool_zeros(self, pool):
        features = tf.ones([2, 7, 9, 12])
        boxes, box_indices = tf.constant([[0.0, 0, 5, 5]] * 3), tf.constant([-1, 2, 10**9])
        pooled = composed(lambda *args: _ALL[pool](*args, (2, 3)), features, boxes, box_indices)[0]
        np.testing.assert_array_equal(pooled, np.zeros_like(pooled))


if __name__ == "__main__":
    tf.test.main()
