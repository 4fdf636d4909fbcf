"""Affine transforms of images, as tensors [N, 2, 3], sampled with `tfo.image.grid_sample`.

A transform T maps places of the output to places of the input: the output's pixel at
(x, y) is the input's at T (x, y, 1). Both go from -1 to 1, from edge to edge of the image.
"""

from typing import Literal

import tensorflow as tf

import tensorflow_ops as tfo

IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))


def grid(transforms: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the places [N, size, size, 2], each (x, y), in the input of the output's pixels."""
    centers = (2 * tf.range(size, dtype=tf.float32) + 1) / size - 1
    x, y = tf.meshgrid(centers, centers)
    pixels = tf.stack([x, y, tf.ones_like(x)], -1)  # [size, size, 3]
    return tf.einsum("nij,hwj->nhwi", transforms, pixels)


def warp(
    images: tf.Tensor, transforms: tf.Tensor, size: int, mode: Literal["bilinear", "bicubic"] = "bilinear"
) -> tf.Tensor:
    """Returns the transformed images [N, size, size, C], with zeros outside of the images."""
    return tfo.image.grid_sample(images, grid(transforms, size), mode=mode, padding_mode="zeros")


def place(angle: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
    """Returns the transforms [N, 2, 3] that turn, then scale, then shift an image.

    Args:
      angle: [N], in radians, clockwise on the screen, as y points downwards.
      scale: [N], the size in the output, as a part of the output's size.
      shift: [N, 2], the (x, y) of the image's centre in the output.
    """
    # An output place p shows the input place R(-angle) (p - shift) / scale.
    cos, sin = tf.cos(angle) / scale, tf.sin(angle) / scale
    linear = tf.stack([tf.stack([cos, sin], -1), tf.stack([-sin, cos], -1)], 1)
    return tf.concat([linear, -tf.linalg.matvec(linear, shift)[..., tf.newaxis]], -1)


def compose(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Returns the transforms of images that are warped with `first`, and then with `second`."""
    linear = first[..., :2] @ second
    return linear + tf.pad(first[..., 2:], [[0, 0], [0, 0], [2, 0]])


def angle_of(transforms: tf.Tensor) -> tf.Tensor:
    """Returns the angles [N] of the rotations closest to the transforms, as `place` counts them."""
    a = transforms
    return tf.atan2(a[:, 0, 1] - a[:, 1, 0], a[:, 0, 0] + a[:, 1, 1])


def invert(transforms: tf.Tensor) -> tf.Tensor:
    """Returns the transforms that undo these."""
    linear = tf.linalg.inv(transforms[..., :2])
    return tf.concat([linear, -linear @ transforms[..., 2:]], -1)
