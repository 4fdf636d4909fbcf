"""A call of hinge_loss for opcheck, and its definition in NumPy."""

import numpy as np
import tensorflow as tf
from sample_testing import bind, normal, sample

from tensorflow_ops.tutorial.python.ops.hinge_loss import hinge_loss

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
        bind(hinge_loss, ignore_index=4),
        LABELS,
        LOGITS,
        reference=reference,
        second_order=False,
        vectorize=False,
        edge_args=[(LABELS[:0], LOGITS[:0])],
        bad_args=[
            ((tf.constant([1, 7, 4]), LOGITS), r"labels\[1\] is 7, expected \[0, 5\) or ignore_index 4"),
            ((LABELS[:2], LOGITS), r"labels must be \[rows\]"),
            ((tf.cast(LABELS, tf.float32), LOGITS), "labels are float32, expected int32 or int64"),
            ((LABELS, LOGITS[0]), r"logits must be \[rows, classes\]"),
        ],
    ),
}
