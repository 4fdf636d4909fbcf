"""Samples of linear_sum_assignment."""

import numpy as np
import tensorflow as tf
from sample_testing import sample

from tensorflow_ops import detection

_COSTS = tf.constant(np.random.default_rng(1).permutation(40).reshape(2, 5, 4) / 8, tf.float32)
SAMPLES = {
    "detection.linear_sum_assignment": sample(
        detection.linear_sum_assignment,
        _COSTS,
        kwargs={"counts": tf.constant([4, 2])},
        edge=[
            {"costs": _COSTS[:0], "counts": tf.zeros([0], tf.int32)},
            {"costs": _COSTS[:, :0], "counts": tf.constant([4, 2])},
            {"costs": _COSTS[..., :0], "counts": tf.constant([0, 0])},
        ],
        bad=[
            ({"costs": _COSTS[0, 0]}, r"costs must be \[\.\.\., rows, columns\]"),
            ({"counts": tf.constant([4])}, r"counts must be \[\.\.\.\], the leading dims of costs"),
            ({"counts": tf.constant([4.0, 2.0])}, "counts are float32, expected int64"),
            ({"counts": tf.constant([4, 5])}, r"counts\[1\] is 5, expected \[0, 4\]: the columns of costs"),
            ({"costs": _COSTS > 1}, "costs are bool, expected float16, bfloat16, float32, float64 or an integer dtype"),
            ({"maximize": 1}, "maximize is 1, expected True or False"),
        ],
        non_differentiable=(0,),
    ),
}
