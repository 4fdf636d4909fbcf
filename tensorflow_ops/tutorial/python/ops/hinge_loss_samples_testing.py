"""A call of hinge_loss for opcheck, and its definition in NumPy."""

import numpy as np
import tensorflow as tf
from sample_testing import normal, sample, seed

from tensorflow_ops.tutorial.python.ops.hinge_loss import hinge_loss

seed(__name__)
LABELS, LOGITS = tf.constant([1, 0, 4]), normal(3, 5)


def reference(labels, logits, ignore_index=4):
    """Returns loss and rank of rows."""
    has_loss = (labels != ignore_index)[:, np.newaxis]
    is_label = labels[:, np.newaxis] == np.arange(logits.shape[1])
    of_label = np.where(is_label, logits, 0).sum(1, keepdims=True)
    x = logits - of_label
    terms = np.where(1 + x < 0, 0, np.square(1 + x))
    return np.where(has_loss & ~is_label, terms, 0).sum(1), np.int32((has_loss & ~is_label & (x > 0)).sum(1))


SAMPLES = {
    "tutorial.hinge_loss": sample(
        hinge_loss,
        LABELS,
        LOGITS,
        kwargs={"ignore_index": 4},
        variants=[{"ignore_index": -1}],
        edge=[{"labels": LABELS[:0], "logits": LOGITS[:0]}],
        bad=[
            ({"labels": tf.constant([1, 7, 4])}, r"labels\[1\] is 7, expected \[0, 5\) or ignore_index 4"),
            ({"labels": LABELS[:2]}, r"labels must be \[rows\]"),
            ({"labels": tf.cast(LABELS, tf.float32)}, "labels are float32, expected int32 or int64"),
            ({"logits": LOGITS[0]}, r"logits must be \[rows, classes\]"),
        ],
        reference=reference,
        second_order=False,
        vectorize=False,
    ),
}
