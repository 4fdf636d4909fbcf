"""The text of Python's help, which Python ships, as bytes."""

from pydoc_data.topics import topics
from typing import NamedTuple

import numpy as np
import tensorflow as tf

HELD_OUT = 0.1


class Text(NamedTuple):
    """Bytes to train on, and those that follow them."""

    training: np.ndarray  # uint8
    held_out: np.ndarray


def load() -> Text:
    """Loads the text. Topics contain each other, so a paragraph counts once."""
    paragraphs = dict.fromkeys(paragraph for topic in topics.values() for paragraph in topic.split("\n\n"))
    text = np.frombuffer("\n\n".join(paragraphs).encode(), np.uint8)
    return Text(*np.split(text, [round((1 - HELD_OUT) * len(text))]))


def batches(text: np.ndarray, context: int, batch_size: int, seed: int) -> tf.data.Dataset:
    """Yields pieces of the text and the bytes that follow each of their bytes, [batch_size, context], without end."""
    rng = np.random.default_rng(seed)

    def draw():
        while True:
            starts = rng.integers(len(text) - context, size=[batch_size, 1])
            pieces = text[starts + np.arange(context + 1)]
            yield pieces[:, :-1], pieces[:, 1:]

    return tf.data.Dataset.from_generator(
        draw, output_signature=2 * (tf.TensorSpec([batch_size, context], tf.uint8),)
    ).prefetch(2)


def in_order(text: np.ndarray, context: int, batch_size: int) -> tf.data.Dataset:
    """Yields the same for each piece of the text; drops the end."""
    count = (len(text) - 1) // context
    pieces = tuple(text[start : start + count * context].reshape(count, context) for start in (0, 1))
    return tf.data.Dataset.from_tensor_slices(pieces).batch(batch_size)
