"""Quality of logits: loss, accuracy and confusion matrix, as text and as pictures in TensorBoard."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from data import CLASSES

import tensorflow_ops as tfo


class Metrics(NamedTuple):
    """Metrics of a set of examples."""

    loss: float  # mean cross entropy, nats
    accuracy: float
    confusion: np.ndarray  # int [classes, classes]: rows are labels, columns predictions


def measure(labels: np.ndarray, logits: tf.Tensor) -> Metrics:
    """Returns the metrics of logits [N, classes] of any float dtype."""
    loss = tf.reduce_mean(tfo.nn.sparse_softmax_cross_entropy(labels, logits))
    confusion = tf.math.confusion_matrix(labels, tf.argmax(logits, -1), num_classes=logits.shape[-1]).numpy()
    return Metrics(float(loss), np.trace(confusion) / len(labels), confusion)


def table(confusion: np.ndarray, classes: Sequence[str]) -> str:
    """Returns the confusion matrix as text, with each class's recall and precision."""
    recall, precision = (np.diag(confusion) / np.maximum(confusion.sum(axis), 1) for axis in (1, 0))
    lines = [f"{'label':>9}  " + "".join(f"{name:>5}" for name in classes) + f"{'recall':>9}"]
    for name, row, one in zip(classes, confusion, recall, strict=True):
        lines.append(f"{name:>9}  " + "".join(f"{count or '.':>5}" for count in row) + f"{one:9.3f}")
    return "\n".join([*lines, "precision  " + "".join(f"{one:5.2f}" for one in precision)])


def draw_confusion(figure, confusion: np.ndarray) -> None:
    """Draws a confusion matrix: colours show fractions of each row's sum, numbers the counts."""
    axes = figure.add_subplot()
    axes.imshow(confusion / np.maximum(confusion.sum(1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="prediction", ylabel="label")
    axes.set_xticks(range(len(CLASSES)), CLASSES)
    axes.set_yticks(range(len(CLASSES)), CLASSES)
    for (row, column), count in np.ndenumerate(confusion):
        if count:
            axes.text(column, row, count, ha="center", va="center", color="white" if row == column else "black")


def write_pictures(step: int, images: np.ndarray, labels: np.ndarray, logits: tf.Tensor, shown: int = 12) -> None:
    """Writes the least certain images with label and prediction, and the confusion matrix."""
    unsure = tf.argsort(tfo.nn.label_log_prob(labels, logits))[:shown]
    tfo.summary.labeled_images(
        "validation/hardest",
        tf.gather(images, unsure),
        tf.gather(labels, unsure),
        predictions=tfo.nn.softmax(tf.gather(logits, unsure)),
        max_outputs=shown,
        step=step,
        class_names=CLASSES,
    )
    tfo.summary.figure("validation/confusion", draw_confusion, [measure(labels, logits).confusion], step=step)
