"""Pairs of views of real photographs, and the flow between them, which is known because it made the first view.

Training uses the upper halves of two photographs, evaluation the lower halves.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_sample_images

import tensorflow_ops as tfo

# The parts of the photographs with a temple and a flower; the rest is sky, and leaves out of focus.
LEFT, WIDTH = (0, 120), 400
HEIGHT = 128  # of a half, in pixels, once it is made smaller

SIZE = 64  # of a view, in pixels
MARGIN = 12  # around the view, so that most of what moves into it exists
LARGEST_SHIFT = 6.0  # of a whole view, in pixels, on each axis
BEND = 1.5  # pixels, the standard deviation of the local motion
KNOTS = 4  # of the local motion, along each axis
NOISE = 0.01


class Pair(NamedTuple):
    """Two views, or N pairs of views."""

    first: tf.Tensor  # float32 [SIZE, SIZE, 3], from 0 to 1
    second: tf.Tensor
    flow: tf.Tensor  # float32 [SIZE, SIZE, 2]: first at (x, y) shows what second shows at (x, y) + flow


def photographs(training: bool) -> tf.Tensor:
    """Returns the upper halves [2, HEIGHT, W, 3] of scikit-learn's photographs for training, or the lower halves."""
    parts = [photo[:, left : left + WIDTH] for photo, left in zip(load_sample_images().images, LEFT, strict=True)]
    photos = np.stack(parts).astype(np.float32) / 255
    photos = tf.image.resize(photos, [2 * HEIGHT, 2 * HEIGHT * WIDTH // photos.shape[1]], "area")
    return photos[:, :HEIGHT] if training else photos[:, HEIGHT:]


def draw_flow(size: int, seeds: tf.Tensor) -> tf.Tensor:
    """Draws a smooth flow [size, size, 2] in (x, y): a shift of the whole, and random bends."""
    shift = tf.random.stateless_uniform([2], seeds[0], -LARGEST_SHIFT, LARGEST_SHIFT)
    knots = tf.random.stateless_normal([KNOTS, KNOTS, 2], seeds[1], stddev=BEND)
    return shift + tf.image.resize(knots, [size, size], "bicubic")


def draw_pair(photos: tf.Tensor, seed: tf.Tensor) -> Pair:
    """Draws a pair of views. Depends on `seed`, int [2], only."""
    seeds = tf.random.split(seed, 8)
    photo = photos[tf.random.stateless_uniform([], seeds[0], 0, len(photos), tf.int32)]
    size = SIZE + 2 * MARGIN
    second = tf.image.stateless_random_crop(photo, [size, size, 3], seeds[1])
    second = tf.image.stateless_random_flip_left_right(second, seeds[2])
    second = tf.image.rot90(second, tf.random.stateless_uniform([], seeds[3], 0, 4, tf.int32))
    flow = draw_flow(size, seeds[4:6])
    # dense_image_warp subtracts its flow, which is (y, x).
    first = tfo.image.dense_image_warp(second[tf.newaxis], -flow[tf.newaxis, :, :, ::-1])[0]
    views = tf.stack([first, second])
    views *= tf.random.stateless_uniform([2, 1, 1, 1], seeds[6], 0.9, 1.1)  # the light changes between the views
    views += tf.random.stateless_normal(tf.shape(views), seeds[7], stddev=NOISE)
    inside = slice(MARGIN, MARGIN + SIZE)
    return Pair(views[0, inside, inside], views[1, inside, inside], flow[inside, inside])


def pairs(photos: tf.Tensor, seed: int, batch_size: int) -> tf.data.Dataset:
    """Endless batches of pairs, all different. Depends on the seed only."""

    def draw(number):
        return draw_pair(photos, tf.stack([tf.constant(seed, tf.int64), number]))

    options = tf.data.Options()
    options.experimental_optimization.map_parallelization = False  # deterministic ops would undo it, with a message
    batches = tf.data.Dataset.counter().map(draw).batch(batch_size, drop_remainder=True)
    return batches.prefetch(2).with_options(options)
