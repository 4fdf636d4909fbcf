"""Handwritten digits, each warped in a new way whenever it occurs."""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tensorflow_ops as tfo

SIZE, CLASSES, BATCH_SIZE = 8, 10, 64


def batches(steps: int) -> tf.data.Dataset:
    """Returns `steps` batches of images [BATCH_SIZE, SIZE, SIZE] and labels, always the same ones."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images = np.float32(images[order] / 16).reshape(-1, SIZE, SIZE)
    batches = tf.data.Dataset.from_tensor_slices((images, labels[order])).repeat().batch(BATCH_SIZE)

    def warp(step, batch):
        images, labels = batch
        seed = tf.stack([0, step])
        return tfo.image.elastic_transform(images[..., tf.newaxis], seed=seed, alpha=1.5, sigma=2.0)[..., 0], labels

    return batches.take(steps).enumerate().map(warp)
