"""Samples of dropout."""

import tensorflow as tf
from sample_testing import normal, sample, seed

from tensorflow_ops import nn

seed(__name__)

_DRAWS = "each dtype draws other random numbers; dropout_test and dropout_switch_test have all"

SAMPLES = {
    "nn.dropout": sample(
        nn.dropout,
        normal(5, 7, 3),
        0.4,
        kwargs={"seed": [3, 4]},
        variants=[{"rate": 0.9}, {"inputs": normal(65)}, {"seed": tf.constant([-(2**40), 2**40], tf.int64)}],
        edge=[{"inputs": tf.zeros([0, 7, 3])}],
        bad=[
            ({"rate": 1.0}, r"rate is 1.0, expected a number in \[0, 1\)"),
            ({"rate": -0.1}, r"rate is -0.1, expected a number in \[0, 1\)"),
            ({"rate": "0.1"}, r"rate is '0.1', expected a number in \[0, 1\)"),
            ({"inputs": tf.ones([3], tf.int32)}, "inputs are int32, expected float16"),
            ({"seed": tf.constant([1, 2, 3])}, r"(seed has|the shape of seed).*expected \[2\]: two integers"),
            ({"seed": tf.constant([1.0, 2.0])}, "seed is float32, expected two integers"),
        ],
        onnx="ONNX draws other random numbers",
        second_order=True,
        skip=dict.fromkeys(("dtypes", "mixed_precision"), _DRAWS),
    ),
}
