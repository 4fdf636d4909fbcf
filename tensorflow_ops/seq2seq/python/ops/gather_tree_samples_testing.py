"""Samples of gather_tree and batch_gather."""

import tensorflow as tf
from sample_testing import normal, sample, seed

from tensorflow_ops import seq2seq

seed(__name__)
_TOKENS = tf.constant([[[1, 2, 3], [3, 4, 0]], [[3, 4, 1], [0, 1, 2]], [[5, 6, 7], [2, 2, 2]], [[1, 1, 3], [4, 0, 4]]])
_PARENTS = tf.constant([[[0, 0, 0], [0, 0, 0]], [[1, 0, 2], [2, 1, 0]], [[0, 0, 1], [1, 2, 1]], [[2, 1, 0], [0, 2, 1]]])
_LENGTHS = tf.constant([[4, 2, 3], [1, 0, 4]])
SAMPLES = {
    "seq2seq.gather_tree": sample(
        seq2seq.gather_tree,
        _TOKENS,
        _PARENTS,
        _LENGTHS,
        kwargs={"pad_id": 9},
        variants=[
            {"token_ids": tf.cast(_TOKENS, tf.int64), "parent_ids": tf.cast(_PARENTS, tf.int64), "pad_id": -1},
            # The parents of the first step are not read.
            {"parent_ids": tf.concat([_PARENTS[:1] - 5, _PARENTS[1:]], 0)},
        ],
        bad=[
            ({"token_ids": tf.zeros([4, 2, 3])}, "token_ids are float32, expected int32 or int64"),
            (
                {"token_ids": _TOKENS[0]},
                r"token_ids are \[2,3\], expected \[\?,\?,\?\]|token_ids must be \[time, batch, beams\]",
            ),
            (
                {"parent_ids": _PARENTS[1:]},
                r"parent_ids are \[3,2,3\], expected \[4,2,3\]: token_ids' shape|parent_ids must be",
            ),
            ({"lengths": _LENGTHS[:1]}, r"lengths are \[1,3\], expected \[2,3\]|lengths must be \[batch, beams\]"),
            ({"pad_id": [0]}, r"pad_id are \[1\], expected \[\]: a scalar"),
            ({"lengths": _LENGTHS + 1}, r"lengths\[0, 0\] is 5, expected \[0, 4\]"),
            ({"lengths": _LENGTHS - 1}, r"lengths\[1, 1\] is -1, expected \[0, 4\]"),
            ({"parent_ids": _PARENTS + 1}, r"parent 3 in parent_ids\[\d, \d\], expected \[0, 3\)"),
            ({"parent_ids": _PARENTS - 1}, r"parent -1 in parent_ids\[\d, \d\], expected \[0, 3\)"),
        ],
    ),
    "seq2seq.batch_gather": sample(
        seq2seq.batch_gather,
        normal(2, 4, 3),
        tf.constant([[3, 0, 0, 1, 2], [1, 1, 2, 0, 3]]),
        variants=[{"params": normal(2, 4), "indices": tf.constant([[3], [1]], tf.int64)}],
        bad=[
            (
                {"indices": tf.constant([[3, 0, 0, 1, 7], [1] * 5])},
                r"indices\[0,4\] is 7, expected \[0, (4|params' size)\)",
            ),
            (
                {"indices": tf.constant([[3, 0, 0, 1, 0], [1, -1, 1, 1, 1]])},
                r"indices\[1,1\] is -1, expected \[0, (4|params' size)\)",
            ),
            ({"indices": tf.constant(0)}, "indices are a scalar|the shape of indices is .*expected at least one dim"),
            ({"indices": tf.zeros([2, 5])}, "indices are float32, expected int32 or int64"),
            ({"indices": tf.zeros([1, 5], tf.int32)}, "the same batch dims|expected the batch dims"),
            ({"params": normal(2)}, r"params are \[2\], expected at least 2 dims|expected at least (2|as many) dims"),
        ],
        second_order=True,
    ),
}
