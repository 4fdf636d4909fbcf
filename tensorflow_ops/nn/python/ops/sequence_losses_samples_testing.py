"""Samples of CTC and RNN-T. The last example has no labels, and fewer frames. Padding may be anything."""

import tensorflow as tf
from sample_testing import ROW_DTYPES, normal, sample, seed

from tensorflow_ops import nn

seed("nn.ctc_loss")
SEQUENCE_LABELS = tf.constant([[1, 3], [2, 2], [0, 0]])
_LABEL_LENGTHS, _LOGIT_LENGTHS = tf.constant([2, 2, 0]), tf.constant([4, 3, 2])
_NO_LENGTHS = tf.zeros([0], tf.int32)


def _label_sequences(fn, *dims, variants=(), bad=(), **options):
    logits = normal(3, *dims)
    shapes = "labels|logits|label_lengths|logit_lengths"
    return sample(
        fn,
        SEQUENCE_LABELS,
        logits,
        _LABEL_LENGTHS,
        _LOGIT_LENGTHS,
        variants=[
            {"blank_index": -1, "labels": tf.constant([[1, 0], [2, 2], [-7, -7]], tf.int64)},
            {"blank_index": 1, "labels": tf.constant([[3, 3], [2, 0], [-7, 99]])},
            *variants,
        ],
        edge=[
            {
                **{"labels": SEQUENCE_LABELS[:0], "logits": logits[:0]},
                **{"label_lengths": _NO_LENGTHS, "logit_lengths": _NO_LENGTHS},
            }
        ],
        bad=[
            ({"labels": tf.constant([[1, 9], [2, 2], [0, 0]])}, r"labels\[0, 1\] is 9, expected \[0, 4\)"),
            ({"labels": tf.constant([[-1, 1], [2, 2], [0, 0]])}, r"labels\[0, 0\] is -1, expected \[0, 4\)"),
            (
                {"labels": tf.constant([[1, 0], [2, 2], [0, 0]])},
                r"labels\[0, 1\] is 0, expected a class other than blan",
            ),
            ({"label_lengths": _LABEL_LENGTHS + 1}, r"label_lengths\[0\] is 3, expected \[0, 2\]"),
            ({"logit_lengths": _LOGIT_LENGTHS + 1}, r"logit_lengths\[0\] is 5, expected"),
            ({"logit_lengths": _LOGIT_LENGTHS - 3}, r"logit_lengths\[2\] is -1, expected|logit_lengths\[1\] is 0, exp"),
            ({"logit_lengths": _LOGIT_LENGTHS[:2]}, "logit_lengths must be"),
            ({"labels": SEQUENCE_LABELS[:2]}, shapes),
            ({"labels": tf.zeros([3, 2])}, "labels are float32, expected int32 or int64"),
            ({"logits": tf.zeros(logits.shape, tf.int32)}, "logits are int32, expected float16"),
            ({"blank_index": 4}, r"blank_index is 4, expected \[0, 4\)"),
            ({"blank_index": -2}, "blank_index is -2, expected an int"),
            *bad,
        ],
        ragged=True,
        sparse=True,
        output_dtype=ROW_DTYPES,
        second_order=False,
        **options,
    )


SAMPLES = {
    "nn.ctc_loss": _label_sequences(
        nn.ctc_loss,
        *(4, 4),
        variants=[
            {"zero_infinity": True, "logit_lengths": tf.constant([1, 2, 2], tf.int64)},
            {"labels": SEQUENCE_LABELS[:, :0], "label_lengths": 0 * _LABEL_LENGTHS},
        ],
        bad=[({"zero_infinity": 2}, "zero_infinity is 2, expected True or False")],
    ),
    "nn.rnnt_loss": _label_sequences(
        nn.rnnt_loss,
        *(4, 3, 4),
        bad=[({"logits": tf.zeros([3, 4, 2, 4])}, r"logits must be \[batch, frames, labels \+ 1, classes\]")],
        empty=False,
    ),
}
