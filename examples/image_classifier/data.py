"""Handwritten digits, and batches that can resume at any sample.

Their order and distortions are functions of the seed and the sample's number in the run.
There is no shuffle buffer and no generator state to save.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SIZE = 8  # pixels per side
CLASSES = tuple("0123456789")
HELD_OUT, VALIDATION = 0.2, 0.1  # fractions of all digits


class Examples(NamedTuple):
    """Images and their labels."""

    images: np.ndarray  # uint8 [N, SIZE, SIZE, 1], white on black
    labels: np.ndarray  # int32 [N], indices into CLASSES


class Splits(NamedTuple):
    """The data in three parts: for training, for early stopping, and for the final evaluation."""

    training: Examples
    validation: Examples
    held_out: Examples


def load() -> Splits:
    """Returns scikit-learn's 1797 digits, always split in the same way.

    To train on other images, return them here and set SIZE and CLASSES.
    """
    digits = load_digits()
    images = np.round(digits.images[..., np.newaxis] * (255 / 16)).astype(np.uint8)
    labels = digits.target.astype(np.int32)
    rest, held_out = train_test_split(np.arange(len(labels)), test_size=HELD_OUT, stratify=labels, random_state=0)
    training, validation = train_test_split(
        rest, test_size=VALIDATION / (1 - HELD_OUT), stratify=labels[rest], random_state=0
    )
    return Splits(*(Examples(images[part], labels[part]) for part in (training, validation, held_out)))


def distort(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Shifts an image [H, W, C] by up to a pixel. Depends on `seed`, int [2], only."""
    return tf.image.stateless_random_crop(tf.pad(image, [[1, 1], [1, 1], [0, 0]]), tf.shape(image), seed)


def training_batches(examples: Examples, *, seed: int, batch_size: int, first_step: int, steps: int) -> tf.data.Dataset:
    """Returns batches for steps `first_step` to `steps`, reshuffled in each pass over the examples.

    Each is a dict of image uint8 [batch_size, H, W, C], label int32 [batch_size] and
    sample int64 [batch_size], the numbers of the samples in the run.
    """
    count = len(examples.labels)
    images, labels = tf.constant(examples.images), tf.constant(examples.labels)

    def example(sample):
        epoch, place = sample // count, sample % count
        index = tf.random.experimental.index_shuffle(place, tf.stack([seed, epoch]), count - 1)
        image = distort(images[index], tf.stack([seed, sample]))
        return {"image": image, "label": labels[index], "sample": sample}

    samples = tf.data.Dataset.range(first_step * batch_size, steps * batch_size)
    batches = samples.map(example, num_parallel_calls=tf.data.AUTOTUNE).batch(batch_size, drop_remainder=True)
    return batches.prefetch(tf.data.AUTOTUNE)
