"""Samples of correlation_cost."""

import tensorflow as tf
from sample_testing import IN_ANOTHER_SAMPLE, normal, sample, seed

from tensorflow_ops import image

seed(__name__)
SAMPLES = {
    "image.correlation_cost": sample(
        image.correlation_cost,
        normal(2, 4, 5, 3),
        normal(2, 4, 5, 3),
        kwargs={"max_displacement": 2, "padding": 2},
        variants=[
            {"max_displacement": 0, "padding": 0},
            {"max_displacement": 1, "kernel_size": 3, "stride_1": 4, "padding": 7},
            {"max_displacement": 3, "kernel_size": 3, "stride_1": 2, "stride_2": 2, "padding": 4},
            {"stride_1": 3, "padding": 3},
        ],
        bad=[
            ({"max_displacement": -1}, r"max_displacement is -1, expected an int in \[0, 1048576\]"),
            ({"kernel_size": 2}, r"kernel_size is 2, expected .* and odd"),
            ({"stride_1": 0}, "stride_1 is 0"),
            ({"stride_2": 1.0}, "stride_2 is 1.0"),
            ({"padding": -1}, "padding is -1"),
            ({"data_format": "CHWN"}, "data_format is 'CHWN'"),
            (
                {"max_displacement": 5},
                r"features are \[2,4,5,3\], too small for max_displacement 5: .* 7 with",
            ),
            ({"features_b": tf.zeros([2, 4, 5, 4])}, "features_b must have features_a's shape"),
            ({"features_b": tf.zeros([1, 4, 5, 3])}, "features_b must have features_a's shape"),
            (
                {"features_b": tf.zeros([2, 4, 5, 3], tf.float64)},
                "features_b are float64, expected features_a's float32",
            ),
            ({"features_a": tf.zeros([4, 5, 3])}, "features_a must be 4-D"),
            ({"features_a": tf.zeros([4, 5, 3]), "data_format": "NCHW"}, r"features_a must be \[N, C, H, W\]"),
            ({"features_a": tf.zeros([2, 4, 5, 3], tf.int32)}, "features_a are int32"),
        ],
        second_order=True,
    ),
    "image.correlation_cost (NCHW, windows, strides)": sample(
        image.correlation_cost,
        normal(2, 3, 4, 5),
        normal(2, 3, 4, 5),
        kwargs={
            **{"max_displacement": 3, "kernel_size": 3, "stride_1": 2, "stride_2": 2},
            **{"padding": 4, "data_format": "NCHW"},
        },
        skip=IN_ANOTHER_SAMPLE,
    ),
}
