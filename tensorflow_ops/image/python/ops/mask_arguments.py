"""Checks of the arguments that the mask ops share."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments

_INTEGERS = (tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64)
DISCRETE_DTYPES = (tf.bool, *_INTEGERS)


def images_tensor(value, dtypes, expected):
    """Returns images as a tensor of rank 2 to 4 and one of the dtypes. Raises ValueError."""
    images = arguments.dense_tensor("images", value)
    if images.dtype not in dtypes:
        raise ValueError(f"images are {images.dtype.name}, expected {expected}")
    if images.shape.rank is not None and not 2 <= images.shape.rank <= 4:
        text = arguments.shape_text(images.shape)
        raise ValueError(f"images are {text}, expected [H, W], [N, H, W] or [N, H, W, C]")
    return images
