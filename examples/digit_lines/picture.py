"""Draws lines above what the network sees in each frame, and above the alignment of the number read."""

from collections.abc import Mapping, Sequence

import data
import model
import numpy as np
import tensorflow as tf
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import tensorflow_ops as tfo


def alignments(logits: tf.Tensor, numbers: np.ndarray) -> tf.Tensor:
    """Returns how probable each class is at each frame, given the number of the line.

    That is the softmax minus the gradient of CTC's loss.
    """
    lengths = tf.fill([len(numbers)], data.DIGITS)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = tfo.nn.ctc_loss(model.labels_of(numbers), logits, lengths, model.all_frames(logits))
    return tfo.nn.softmax(logits) - tape.gradient(loss, logits)


def draw_classes(axes: Axes, probabilities: np.ndarray, name: str) -> None:
    """Draws probabilities [frames, classes], blank at the bottom."""
    axes.imshow(
        probabilities.T,
        cmap="magma",
        aspect="auto",
        vmin=0,
        vmax=1,
        origin="lower",
        extent=(0, data.WIDTH, -1.5, model.CLASSES - 1.5),
    )
    axes.set_yticks([-1, 0, 3, 6, 9], ["blank", "0", "3", "6", "9"], fontsize=8)
    axes.set_ylabel(name, fontsize=8)
    axes.set_xticks([])


def draw(lines: data.Lines, logits: tf.Tensor, texts: Mapping[str, Sequence[str]], shown: Sequence[int]) -> Figure:
    """Draws some lines, and their texts as different searches read them: {search: text of each line}."""
    figure = Figure(figsize=(13, 3.6 * len(shown) / 2), layout="constrained")
    logits = tf.gather(logits, shown)
    seen, aligned = tfo.nn.softmax(logits).numpy(), alignments(logits, lines.numbers[shown]).numpy()
    parts = figure.subfigures((len(shown) + 1) // 2, 2, squeeze=False)
    for place, (i, part) in enumerate(zip(shown, parts.flat, strict=False)):
        image, frames, alignment = part.subplots(3, height_ratios=[1, 1.2, 1.2])
        image.imshow(lines.images[i, :, :, 0], cmap="gray", aspect="auto", extent=(0, data.WIDTH, 0, 1))
        image.set_axis_off()
        truth = model.as_text(lines.numbers[i])
        marked = [f"{name} {text[i]} {'✓' if text[i] == truth else '✗'}" for name, text in texts.items()]
        image.set_title("    ".join(marked), fontsize=10)
        draw_classes(frames, seen[place], "network")
        draw_classes(alignment, aligned[place], "aligned")
    return figure
