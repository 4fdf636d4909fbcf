"""Writes a run's TensorBoard summaries."""

import pathlib
from collections.abc import Sequence

import metrics
import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo


def writer(run: pathlib.Path) -> tf.summary.SummaryWriter:
    """Returns a writer to the run's folder. A resumed run rewrites some steps with the same values."""
    return tf.summary.create_file_writer(str(run / "events"))


def write_scalars(step: int, values: dict[str, float]) -> None:
    """Writes curves. Names such as "training/loss" and "validation/loss" group them."""
    for name, value in values.items():
        tf.summary.scalar(name, value, step=step)


def draw_confusion(figure, confusion: np.ndarray, classes: Sequence[bytes]) -> None:
    """Draws a confusion matrix: colours show fractions of each row's sum, numbers the counts."""
    axes = figure.add_subplot()
    axes.imshow(confusion / np.maximum(confusion.sum(1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1)
    names = [name.decode() for name in classes]
    axes.set(xlabel="prediction", ylabel="label", xticks=range(len(names)), yticks=range(len(names)))
    axes.set_xticklabels(names)
    axes.set_yticklabels(names)
    for (row, column), count in np.ndenumerate(confusion):
        if count:
            axes.text(column, row, count, ha="center", va="center", color="white" if row == column else "black")


def write_pictures(
    step: int, images: np.ndarray, labels: np.ndarray, logits: tf.Tensor, classes: Sequence[str], shown: int = 12
) -> None:
    """Writes the least certain images with label and prediction, and the confusion matrix."""
    unsure = tf.argsort(tfo.nn.label_log_prob(labels, logits))[:shown]
    tfo.summary.labeled_images(
        "validation/hardest",
        tf.gather(images, unsure),
        tf.gather(labels, unsure),
        predictions=tfo.nn.softmax(tf.gather(logits, unsure)),
        max_outputs=shown,
        step=step,
        class_names=classes,
    )
    confusion = metrics.measure(labels, logits).confusion
    tfo.summary.figure("validation/confusion", draw_confusion, [confusion, tf.constant(classes)], step=step)
