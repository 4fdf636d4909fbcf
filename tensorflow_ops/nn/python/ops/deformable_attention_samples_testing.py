"""Samples of multiscale_deformable_attention."""

import tensorflow as tf
from sample_testing import RNG, normal, sample, seed

from tensorflow_ops import nn

seed(__name__)
_LEVELS = tf.constant([[3, 4], [2, 1]])
_POINTS = tf.constant(RNG.uniform(0.1, 0.9, [2, 3, 2, 2, 3, 2]), tf.float32)
_POINT_WEIGHTS = normal(2, 3, 2, 2, 3)
_POINTS_OF_LEVELS = tf.constant(RNG.uniform(-0.3, 1.3, [2, 3, 2, 5, 2]), tf.float32)
SAMPLES = {
    "nn.multiscale_deformable_attention": sample(
        nn.multiscale_deformable_attention,
        normal(2, 14, 2, 5),
        _LEVELS,
        _POINTS,
        _POINT_WEIGHTS,
        variants=[
            {
                "sampling_locations": _POINTS_OF_LEVELS,
                "attention_weights": _POINT_WEIGHTS[..., 0, :1] * tf.ones([5]),
                "num_points": points,
            }
            for points in ([2, 3], [5, 0])
        ]
        + [{"sampling_locations": tf.round(_POINTS * 8) / 8}, {"spatial_shapes": tf.constant([[2, 3], [4, 2]])}],
        edge=[
            {
                **{"values": normal(0, 14, 2, 5), "sampling_locations": _POINTS[:0]},
                "attention_weights": _POINT_WEIGHTS[:0],
            }
        ],
        bad=[
            ({"values": normal(2, 13, 2, 5)}, "spatial_shapes have 14 pixels, expected the 13 of values"),
            (
                {"spatial_shapes": tf.constant([[3, 4], [0, 1]])},
                r"spatial_shapes\[1\] is \(0, 1\), expected a positive",
            ),
            ({"spatial_shapes": tf.constant([[2**40, 2**40], [1, 1]])}, r"spatial_shapes\[0\] is \(1099511627776"),
            (
                {"spatial_shapes": tf.constant([[3, 4], [2**24 + 1, 1]])},
                r"spatial_shapes\[1\] is \(16777217, 1\), .* 2\^24",
            ),
            ({"spatial_shapes": tf.constant([3, 4])}, "spatial_shapes must be"),
            ({"spatial_shapes": tf.constant([[3.0, 4.0]])}, "spatial_shapes are float32, expected integers"),
            ({"num_points": (2, 2)}, "attention_weights|num_points"),
            ({"num_points": 2}, "num_points is 2, expected None"),
            ({"num_points": (3, 4, -1)}, "num_points is -1, expected an int"),
        ],
        finite=["attention_weights"],
        second_order=False,
        forward_mode=False,
    ),
}
