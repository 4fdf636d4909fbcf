"""Samples of conditional random fields."""

import numpy as np
import tensorflow as tf
from sample_testing import RNG, ROW_DTYPES, normal, sample, seed, without_gradient

from tensorflow_ops import nn

seed("nn.crf")
TAG_LOGITS, _TRANSITIONS = normal(3, 4, 5), normal(5, 5)
_TAGS, _TAG_LENGTHS = tf.constant([[1, 3, 0, 4], [2, 2, 1, 9], [9, 9, 9, 9]]), tf.constant([4, 3, 0])


def _crf(fn, *labels, variants=(), bad=(), **options):
    return sample(
        fn,
        *labels,
        TAG_LOGITS,
        _TRANSITIONS,
        kwargs={"lengths": _TAG_LENGTHS},
        variants=[{"lengths": tf.constant([4, 1, 0], tf.int64)}, {"transitions": tf.fill([5, 5], -np.inf)}, *variants],
        edge=[
            {"logits": TAG_LOGITS[:0], "lengths": _TAG_LENGTHS[:0], **({"labels": _TAGS[:0]} if labels else {})},
        ],
        bad=[
            ({"transitions": _TRANSITIONS[:4]}, r"transitions must be \[tags, tags\]"),
            ({"transitions": tf.zeros([5, 5], tf.int32)}, "transitions are int32, expected float32"),
            ({"lengths": _TAG_LENGTHS + 1}, r"lengths\[0\] is 5, expected \[0, 4\]"),
            ({"lengths": tf.zeros([3])}, "lengths are float32, expected int32 or int64"),
            ({"logits": TAG_LOGITS[..., :0], "transitions": _TRANSITIONS[:0, :0]}, "at least one tag"),
            *bad,
        ],
        ragged=True,
        output_dtype=ROW_DTYPES,
        **options,
    )


SAMPLES = {
    "nn.crf_log_likelihood": _crf(
        nn.crf_log_likelihood,
        _TAGS,
        bad=[
            ({"lengths": tf.constant([4, 4, 0])}, r"labels\[1, 3\] is 9, expected \[0, 5\)"),
            ({"labels": _TAGS[:, :3]}, "(labels|logits) must be"),
        ],
        sparse=True,
        second_order=False,
    ),
    "nn.crf_decode": _crf(
        nn.crf_decode,
        variants=[  # Many paths have the best score.
            {"logits": tf.constant(RNG.integers(0, 2, [3, 4, 5]), tf.float32), "transitions": tf.zeros([5, 5])},
            {"logits": TAG_LOGITS[..., :1], "transitions": _TRANSITIONS[:1, :1]},
        ],
    ),
    "nn.crf_marginals": _crf(without_gradient(nn.crf_marginals), non_differentiable=(0, 1)),
}
