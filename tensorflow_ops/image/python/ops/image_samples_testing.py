"""Samples of tfo.image for opcheck."""

import tensorflow as tf
from sample_testing import IN_ANOTHER_SAMPLE, RNG, bind, normal, sample

from tensorflow_ops import image

# Masks. Nothing has a gradient.

_MASK = tf.constant(RNG.random([2, 5, 7, 3]) < 0.7)
_VALUES = tf.constant(RNG.integers(0, 3, [2, 5, 7]), tf.int32)
SAMPLES = {
    "image.euclidean_distance_transform": sample(
        bind(image.euclidean_distance_transform, spacing=(0.5, 2.0)),
        tf.cast(_MASK, tf.float32) * normal(2, 5, 7, 3),
        non_differentiable=0,
        output_dtype="float32",
        bad_args=[((tf.zeros([3]),), r"images (are|must be) .*\[N, H, W\]")],
    ),
    "image.euclidean_distance_transform (bool)": sample(image.euclidean_distance_transform, _MASK),
    "image.connected_components": sample(
        image.connected_components,
        _VALUES,
        bad_args=[((tf.zeros([5, 7]),), "images are float32, expected bool or an integer")],
    ),
    "image.connected_components (8 neighbors)": sample(bind(image.connected_components, connectivity=8), _MASK),
}

# Sampling. Places, in pixels, are away from whole ones, where gradients have kinks.
_PLACES = tf.constant(RNG.integers(-1, 5, [2, 3, 2]) + RNG.uniform(0.25, 0.75, [2, 3, 2]), tf.float32)


def _grid_sample(features, **options):
    return sample(
        bind(image.grid_sample, normalized=False, **options),
        features,
        _PLACES,
        # 16 bits round places.
        fixed_dtype=1,
        bad_args=[
            ((features, tf.tile(_PLACES, [2, 1, 1])), "grid must be"),
            ((features[0], _PLACES), "features must be 4-D"),
        ],
    )


SAMPLES |= {
    "image.grid_sample": _grid_sample(normal(2, 4, 5, 3)),
    "image.grid_sample (bicubic)": _grid_sample(normal(2, 4, 5, 3), mode="bicubic", padding_mode="reflection"),
    "image.dense_image_warp": sample(
        image.dense_image_warp,
        normal(2, 4, 5, 3),
        tf.constant(RNG.integers(-2, 2, [2, 4, 5, 2]) + RNG.uniform(0.25, 0.75, [2, 4, 5, 2]), tf.float32),
        fixed_dtype=1,
        bad_args=[((tf.zeros([2, 4, 5, 3]), tf.zeros([2, 4, 5, 3])), r"flow must be \[N, H, W, 2\]")],
    ),
    "image.correlation_cost": sample(
        bind(image.correlation_cost, max_displacement=2, padding=2),
        normal(2, 4, 5, 3),
        normal(2, 4, 5, 3),
        second_order=True,
        bad_args=[((tf.zeros([2, 4, 5, 3]), tf.zeros([2, 4, 5, 4])), "features_b must have features_a's shape")],
    ),
    "image.correlation_cost (NCHW, windows, strides)": sample(
        bind(
            image.correlation_cost,
            max_displacement=3,
            kernel_size=3,
            stride_1=2,
            stride_2=2,
            padding=4,
            data_format="NCHW",
        ),
        normal(2, 3, 4, 5),
        normal(2, 3, 4, 5),
        skip=IN_ANOTHER_SAMPLE,
    ),
}
