"""Samples of zero_out and zero_out_with_index for opcheck."""

import tensorflow as tf
from sample_testing import bind, normal, sample

from tensorflow_ops.zero_out.python.ops.zero_out_ops import zero_out, zero_out_with_index

SAMPLES = {
    "zero_out": sample(zero_out, normal(2, 3), second_order=True, vectorize=False),
    "zero_out_with_index": sample(
        bind(zero_out_with_index, preserve_index=4),
        normal(2, 3),
        bad_args=[((tf.zeros([1, 3]),), r"preserve_index is 4, expected \[0, 3\)")],
        # preserve_index must exist.
        empty=False,
        vectorize=False,
    ),
}
