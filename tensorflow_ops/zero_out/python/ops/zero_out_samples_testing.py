"""Samples of zero_out and zero_out_with_index."""

import tensorflow as tf
from sample_testing import normal, sample, seed

from tensorflow_ops.zero_out.python.ops.zero_out_ops import zero_out, zero_out_with_index

seed(__name__)
SAMPLES = {
    "zero_out": sample(
        zero_out,
        normal(2, 3),
        variants=[
            {"x": tf.cast(tf.reshape(tf.range(1, 7), [2, 3]), tf.uint64), "onnx": "ONNX Runtime lacks the dtype"},
            {"x": tf.constant([3 + 4j, 1 - 2j]), "onnx": "ONNX has no complex numbers"},
        ],
        second_order=True,
        vectorize=False,
    ),
    "zero_out_with_index": sample(
        zero_out_with_index,
        normal(2, 3),
        kwargs={"preserve_index": 4},
        variants=[{"x": tf.constant(7), "preserve_index": 0}],
        bad=[
            ({"x": tf.zeros([1, 3])}, r"preserve_index is 4, expected \[0, 3\)"),
            ({"preserve_index": 0.9}, "preserve_index is 0.9, expected an int"),
        ],
        # preserve_index must exist.
        empty=False,
        vectorize=False,
    ),
}
