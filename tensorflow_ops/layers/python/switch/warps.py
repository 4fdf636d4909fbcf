"""Warps of `keras.ops.image`."""

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.image.python.ops import warps
from tensorflow_ops.layers.python.switch.served import Original, served

_SCIPY_MODES = {"constant": "grid-constant", "wrap": "grid-wrap"}


def _warp_options(order, fill_mode, fill_value):
    """Returns options of map_coordinates, or None where it has none for Keras's."""
    options = {"order": order, "fill_mode": _SCIPY_MODES.get(fill_mode, fill_mode), "fill_value": fill_value}
    is_keras = fill_mode in ("constant", "nearest", "wrap", "mirror", "reflect")
    try:
        return options if is_keras and warps.attributes(**options) else None
    except ValueError:
        return None


@served("map_coordinates", "backend.image")
def map_coordinates(original, inputs, coordinates, order, fill_mode="constant", fill_value=0.0):
    del original
    image, places = map(tf.convert_to_tensor, (inputs, coordinates))
    options = _warp_options(order, fill_mode, fill_value)
    is_of_planes = image.shape.rank == 2 and (places.shape.rank or 0) >= 2 and places.shape[0] == 2
    is_integer = image.dtype.is_integer
    has_kernel = places.dtype in arguments.FLOAT_DTYPES and (is_integer or image.dtype in arguments.FLOAT_DTYPES)
    if options is None:
        return Original("fill options")
    if not is_of_planes:
        return Original("inputs of a rank other than 2")
    if not has_kernel:
        return Original(f"{image.dtype.name} inputs at {places.dtype.name} coordinates")
    if is_integer and fill_value % 1:
        return Original("a fraction as fill_value for inputs of integers")
    # Keras computes in the places' dtype.
    is_cast = is_integer or places.dtype == tf.float64
    images = tf.cast(image, arguments.at_least_float32(places.dtype) if is_cast else image.dtype)
    samples = warps.map_coordinates(
        images[tf.newaxis, ..., tf.newaxis], tf.stack(tf.unstack(places), -1)[tf.newaxis], **options
    )[0, ..., 0]
    return tf.cast(tf.round(samples) if is_integer else samples, image.dtype)


@served("elastic_transform", "backend.image")
def elastic_transform(
    original,
    images,
    alpha=20.0,
    sigma=5.0,
    interpolation="bilinear",
    fill_mode="reflect",
    fill_value=0.0,
    seed=None,
    data_format=None,
):
    del original
    from keras.src.random.seed_generator import draw_seed  # private: after check_keras

    images = tf.convert_to_tensor(images)
    dtype, rank = images.dtype, images.shape.rank
    options = _warp_options({"nearest": 0, "bilinear": 1}.get(interpolation), fill_mode, fill_value)
    if options is None:
        return Original("fill options")
    if rank not in (3, 4):
        return Original("images of a rank other than 3 and 4")
    if dtype not in arguments.FLOAT_DTYPES:
        return Original(f"{dtype.name} images")
    has_channels_first = (data_format or keras.config.image_data_format()) == "channels_first"
    images = images if rank == 4 else images[tf.newaxis]
    images = tf.transpose(images, [0, 2, 3, 1]) if has_channels_first else images
    wide = arguments.at_least_float32(dtype)
    alpha, sigma = (keras.ops.convert_to_tensor(number, wide) for number in (alpha, sigma))
    # Keras draws both axes from one seed.
    noise = tf.random.stateless_normal(tf.shape(images)[:3], draw_seed(seed), dtype=dtype)
    moved = warps.displaced(images, tf.cast(noise, wide)[tf.newaxis], alpha, sigma, warps.attributes(**options))
    moved = tf.transpose(moved, [0, 3, 1, 2]) if has_channels_first else moved
    return moved if rank == 4 else moved[0]
