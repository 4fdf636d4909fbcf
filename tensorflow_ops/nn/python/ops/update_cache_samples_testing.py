"""Samples of update_cache."""

import tensorflow as tf
from sample_testing import normal, sample, seed

from tensorflow_ops import nn

seed(__name__)


def _update_cache(cache, rows, positions):
    result = cache.copy()
    for of_example, new, position in zip(result, rows, positions, strict=True):
        of_example[position : position + len(new)] = new
    return result


SAMPLES = {
    "nn.update_cache": sample(
        nn.update_cache,
        normal(2, 5, 3),
        normal(2, 2, 3),
        tf.constant([3, 0]),
        variants=[
            {"positions": 1},
            {"cache": normal(2, 5, 2, 3), "rows": normal(2, 1, 2, 3)},
            {"cache": normal(2, 5), "rows": normal(2, 5), "positions": 0},
        ],
        edge=[
            {"rows": tf.zeros([2, 0, 3]), "positions": tf.constant([5, 2])},
            {"cache": tf.zeros([0, 5, 3]), "rows": tf.zeros([0, 2, 3]), "positions": tf.zeros([0], tf.int32)},
        ],
        bad=[
            ({"rows": tf.zeros([2, 2, 3], tf.float64)}, "rows are float64, expected float32: the cache's dtype"),
            ({"rows": tf.zeros([2, 6, 3])}, "rows have 6 positions, and the cache 5"),
            ({"rows": tf.zeros([2, 2, 4])}, r"rows must be \[batch, count, ...\]"),
            ({"rows": tf.zeros([3, 2, 3])}, r"rows must be \[batch, count, ...\]"),
            ({"cache": tf.zeros([5])}, r"cache must be \[batch, length, ...\]"),
            ({"positions": [1]}, r"positions must be \[batch\]"),
            ({"positions": 1.0}, "positions cannot be int32"),
            ({"positions": [0, 4]}, r"positions\[1\] is 4, expected \[0, 3\]"),
            ({"positions": -1}, r"positions\[0\] is -1, expected \[0, 3\]"),
            ({"positions": 2**40}, "positions is 1099511627776, expected a whole number of 32 bits"),
            ({"positions": tf.constant([0, 2**40])}, r"positions\[1\] is 1099511627776, expected a whole number"),
        ],
        reference=_update_cache,
        second_order=True,
    ),
}
