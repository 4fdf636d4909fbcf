"""Quality of logits: loss, accuracy and confusion matrix."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo


class Metrics(NamedTuple):
    """Metrics of a set of examples."""

    loss: float  # mean cross entropy, nats
    accuracy: float
    confusion: np.ndarray  # int [classes, classes]: rows are labels, columns predictions


def measure(labels: np.ndarray, logits: tf.Tensor) -> Metrics:
    """Returns the metrics of logits [N, classes] of any float dtype."""
    losses = tfo.nn.sparse_softmax_cross_entropy(labels, logits)
    predictions = tf.argmax(logits, -1)
    confusion = tf.math.confusion_matrix(labels, predictions, num_classes=logits.shape[-1])
    return Metrics(
        loss=float(tf.reduce_mean(losses)),
        accuracy=float(tf.reduce_mean(tf.cast(tf.equal(tf.cast(labels, tf.int64), predictions), tf.float32))),
        confusion=confusion.numpy(),
    )


def table(confusion: np.ndarray, classes: Sequence[str]) -> str:
    """Returns the confusion matrix as text, with each class's recall and precision."""
    right = np.diag(confusion)
    recall, precision = (right / np.maximum(confusion.sum(axis), 1) for axis in (1, 0))
    lines = [f"{'label':>9}  " + "".join(f"{name:>5}" for name in classes) + f"{'recall':>9}"]
    for name, row, one in zip(classes, confusion, recall, strict=True):
        lines.append(f"{name:>9}  " + "".join(f"{count or '.':>5}" for count in row) + f"{one:9.3f}")
    return "\n".join([*lines, "precision  " + "".join(f"{one:5.2f}" for one in precision)])
