"""Handwritten digits, each turned, scaled and shifted on a larger canvas."""

from typing import NamedTuple

import affine
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SIZE = 32  # of the canvas, in pixels
CLASSES = 10
HELD_OUT = 0.25  # fraction of all digits

# The distortions, uniform in these ranges.
LARGEST_ANGLE = 60.0  # degrees, both ways
SCALES = (0.45, 0.7)  # size of the digit, as a part of the canvas
ROOM = 0.7  # of the way to the edge that a digit may move
NOISE = 0.05


class Digits(NamedTuple):
    """Upright digits."""

    images: np.ndarray  # float32 [N, 8, 8, 1], from 0 to 1, white on black
    labels: np.ndarray  # int32 [N]


def load(training: bool) -> Digits:
    """Returns scikit-learn's 1797 digits for training or for evaluation, always split in the same way."""
    digits = load_digits()
    chosen = train_test_split(np.arange(len(digits.target)), test_size=HELD_OUT, stratify=digits.target, random_state=0)
    chosen = chosen[0 if training else 1]
    return Digits(np.float32(digits.images[chosen, ..., np.newaxis] / 16), np.int32(digits.target[chosen]))


def draw_transforms(count: int, seed: tf.Tensor) -> tf.Tensor:
    """Draws random transforms [count, 2, 3] that put digits on the canvas. Depends on `seed`, int [2], only."""
    u = 2 * tf.random.stateless_uniform([count, 4], seed) - 1
    scale = tf.exp(tf.reduce_mean(tf.math.log(SCALES)) + u[:, 1] * np.log(SCALES[1] / SCALES[0]) / 2)
    shift = u[:, 2:] * ROOM * (1 - scale)[:, tf.newaxis]
    return affine.place(u[:, 0] * np.deg2rad(LARGEST_ANGLE), scale, shift)


def distort(images: tf.Tensor, transforms: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Puts digits [N, 8, 8, 1] on canvases [N, SIZE, SIZE, 1] with some noise."""
    canvas = affine.warp(images, transforms, SIZE, mode="bicubic")
    return canvas + NOISE * tf.random.stateless_normal(tf.shape(canvas), seed)


def training_batches(digits: Digits, seed: int, batch_size: int) -> tf.data.Dataset:
    """Endless batches of (canvases, labels). A digit has a new distortion each time it occurs."""

    def distorted(step, batch):
        images, labels = batch
        seeds = tf.stack([[tf.constant(seed, tf.int64), 2 * step], [tf.constant(seed, tf.int64), 2 * step + 1]])
        return distort(images, draw_transforms(batch_size, seeds[0]), seeds[1]), labels

    batches = tf.data.Dataset.from_tensor_slices(tuple(digits))
    batches = batches.shuffle(len(digits.labels), seed=seed).repeat().batch(batch_size, drop_remainder=True)
    options = tf.data.Options()
    options.experimental_optimization.map_parallelization = False  # deterministic ops would undo it, with a message
    return batches.enumerate().map(distorted).prefetch(2).with_options(options)


class Distorted(NamedTuple):
    """Digits on canvases, and how they got there."""

    images: tf.Tensor  # float32 [N, SIZE, SIZE, 1]
    labels: np.ndarray  # int32 [N]
    transforms: tf.Tensor  # float32 [N, 2, 3]


def evaluation_set(digits: Digits, seed: int, copies: int) -> Distorted:
    """Distorts each digit `copies` times."""
    images, labels = (np.concatenate([x] * copies) for x in digits)
    transforms = draw_transforms(len(labels), [seed, 0])
    return Distorted(distort(images, transforms, [seed, 1]), labels, transforms)
