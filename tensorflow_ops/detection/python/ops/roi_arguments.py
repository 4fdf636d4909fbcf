"""Checks and conversions that the region pooling functions and layers share: options, boxes, feature maps."""

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments, axes, ragged
from tensorflow_ops.core.python.type_aliases import IntLike
from tensorflow_ops.detection.python.ops import box_formats

OutputSize: TypeAlias = IntLike | Sequence[IntLike]
BinValue: TypeAlias = Literal["avg", "max"]
ChannelOrder: TypeAlias = Literal["channel_major", "bin_major"]

# kMaxLevels, kMaxSamplingRatio and kMaxOnAxis of the kernels.
_MAX_LEVELS = 16
_MAX_SAMPLES = 1024
MAX_BINS = 2**20  # on an axis
_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), arguments.MAX_FLOAT32


def _fits_float32(value):
    return _SMALLEST <= value <= _LARGEST


def _positive(name, value):
    return arguments.static_number(name, value, "a positive, finite number", _fits_float32)


def _one_of(options):
    return lambda name, value: arguments.one_of(name, value, options)


def _sampling_ratio(name, value):
    if not (arguments.is_int(value) and 0 <= value <= _MAX_SAMPLES):
        raise ValueError(
            f"{name} is {value!r}, expected an int in [0, {_MAX_SAMPLES}]; 0: as many samples as a bin has pixels"
        )
    return int(value)


def _increasing(name, values):
    try:
        is_list = isinstance(values, Iterable) and not arguments.is_tensor(values)
        numbers = tuple(_positive(name, n) for n in (values if is_list else (values,)))
    except ValueError:
        numbers = ()
    # The kernels hold them in float32, and scale by 1 / stride.
    if numbers and (np.diff(np.float32([0, *numbers])) > 0).all() and all(_fits_float32(1 / n) for n in numbers):
        return numbers
    raise ValueError(f"{name} are {values!r}, expected positive, finite numbers in increasing order")


_CHECKS = {
    "spatial_scale": _positive,
    "sampling_ratio": _sampling_ratio,
    "aligned": arguments.static_bool,
    "mode": _one_of(get_args(BinValue)),
    "channel_order": _one_of(get_args(ChannelOrder)),
    "strides": _increasing,
    "canonical_box_size": _positive,
    "canonical_stride": _positive,
    "data_format": _one_of(axes.DATA_FORMATS),
    "box_format": _one_of(box_formats.UPRIGHT),
    "normalized": arguments.static_bool,
}


def check_options(**options):
    """Returns the options, by name, as Python values for attrs and layer configs. Raises ValueError."""
    checked = {name: _CHECKS[name](name, value) for name, value in options.items()}
    if checked.get("mode") == "max" and checked["sampling_ratio"] == 0:
        raise ValueError(
            f"sampling_ratio is 0, expected an int in [1, {_MAX_SAMPLES}]: mode='max' takes a fixed number of samples"
        )
    return checked


def _is_bin_count(n):
    return arguments.is_int(n) and 1 <= n <= MAX_BINS


def check_output_size(output_size):
    """Returns an int or a pair as (height, width). Raises ValueError, but leaves tensors to the kernel."""
    if isinstance(output_size, np.ndarray):
        output_size = output_size.tolist()
    pair = tuple(output_size) if isinstance(output_size, Iterable) else (output_size, output_size)
    if len(pair) != 2 or not all(_is_bin_count(n) or tf.is_tensor(n) for n in pair):
        raise ValueError(f"output_size is {output_size!r}, expected an int or (height, width) in [1, 2^20]")
    return pair


def _output_size_tensor(output_size):
    """Returns an int, a pair or an int tensor as an int32 tensor (height, width). Raises ValueError."""
    # The types first: tf.is_tensor is slow.
    if isinstance(output_size, int | list | tuple) or not tf.is_tensor(output_size):
        output_size = check_output_size(output_size)
    output_size = arguments.dense_tensor("output_size", output_size)
    if not output_size.dtype.is_integer:
        raise ValueError(f"output_size is {output_size.dtype.name}, expected integers")
    output_size = arguments.whole_numbers("output_size", output_size, tf.int32)
    return tf.stack([output_size, output_size]) if output_size.shape.rank == 0 else output_size


def check_levels(features, strides):
    """Returns strides as a tuple. Raises ValueError unless features are a list of maps, with a stride for each."""
    maps = len(features) if isinstance(features, list | tuple) else 0
    if not 1 <= maps <= _MAX_LEVELS:
        got = f"has {maps} maps" if isinstance(features, list | tuple) else f"is of type {type(features).__name__}"
        raise ValueError(f"features {got}, expected a list of 1 to {_MAX_LEVELS} feature maps")
    numbers = _increasing("strides", strides)
    if len(numbers) != maps:
        raise ValueError(f"strides are {strides!r}, expected one for each of the {maps} feature maps")
    return numbers


def feature_maps(features):
    """Returns a list of feature maps as tensors of one dtype. Raises ValueError."""
    maps = [arguments.float_tensor("features", m) for m in features]
    dtypes = [m.dtype.name for m in maps]
    if len(set(dtypes)) > 1:
        raise ValueError(f"features are {', '.join(dtypes)}, expected one dtype")
    return maps


def _box_indices(value):
    """Returns int32 box_indices. Raises ValueError."""
    indices = arguments.int_tensor("box_indices", value)
    if indices.dtype not in (tf.int32, tf.int64):
        raise ValueError(f"box_indices are {indices.dtype.name}, expected int32 or int64")
    return arguments.whole_numbers("box_indices", indices, tf.int32)


def _boxes_and_images(boxes, box_indices, features):
    """Returns boxes [K, 4], box_indices [K], and a function that gives [K, ...] the boxes' form. Raises ValueError."""
    dtype = arguments.at_least_float32(features.dtype)
    if isinstance(boxes, tf.RaggedTensor):
        rows = arguments.cast_tensor("boxes", ragged.rows("boxes", boxes, "[N, (R), 4]"), dtype)
        if box_indices is None:
            images = boxes.nrows(tf.int32)
            fit = tf.equal(images, tf.shape(features)[0])
            images = arguments.checked("dim 0 of boxes", images, fit, "features' N")
            return rows, tf.repeat(tf.range(images), boxes.row_lengths()), boxes.with_values
        boxes = "a RaggedTensor"
    else:
        boxes = arguments.cast_tensor("boxes", boxes, dtype)
        if box_indices is None:
            return _dense_boxes_of_images(boxes, features)
        if boxes.shape.rank != 3:
            return boxes, _box_indices(box_indices), lambda pooled: pooled
        boxes = arguments.shape_text(boxes.shape)
    raise ValueError(f"boxes must be [K, 4], got {boxes}: boxes of each image have no box_indices; pass None")


def _dense_boxes_of_images(boxes, features):
    """Returns what `_boxes_and_images` does, for [N, R, 4]."""
    if boxes.shape.rank != 3:
        text = arguments.shape_text(boxes.shape)
        raise ValueError(f"boxes are {text}, expected [N, R, 4], or [K, 4] with box_indices [K]")
    known = features.shape[0] if features.shape.rank else None
    if not boxes.shape[:1].is_compatible_with([known]):
        text = arguments.shape_text(boxes.shape)
        raise ValueError(f"boxes are {text}, expected [N, R, 4] with features' N = {known}")
    sizes = tf.shape(boxes)
    images = sizes[0]
    if None in (boxes.shape[0], known):
        fit = tf.equal(images, tf.shape(features)[0])
        images = arguments.checked("dim 0 of boxes", images, fit, "features' N")

    def restore(pooled):
        result = tf.reshape(pooled, tf.concat([sizes[:2], tf.shape(pooled)[1:]], 0))
        return tf.ensure_shape(result, boxes.shape[:2].concatenate(pooled.shape[1:]))

    rows = tf.ensure_shape(tf.reshape(boxes, [sizes[0] * sizes[1], sizes[2]]), [None, boxes.shape[2]])
    return rows, tf.repeat(tf.range(images), sizes[1]), restore


def _with_normalized(boxes, features, options):
    """Returns boxes in pixels of the input image; changes `options` to those of the op. Raises ValueError."""
    box_format = options["box_format"]
    boxes, options["box_format"] = box_formats.to_corners(boxes, box_format)
    if not options.pop("normalized") and box_format not in box_formats.RELATIVE:
        return boxes
    scale = options.get("spatial_scale", 1.0)
    if scale != 1.0:
        raise ValueError(f"spatial_scale is {scale}, expected 1: normalized boxes are fractions of the feature map")
    height_width = tf.cast(tf.shape(features)[1:3], boxes.dtype)
    size = height_width if options["box_format"] == "yxyx" else height_width[::-1]
    return boxes * tf.tile(size, [2]) * options.get("strides", [1.0])[0]


def pool(op, features, boxes, box_indices, output_size, name, **options):
    """Calls a region pooling op with checked and converted arguments, and returns its outputs.

    Args:
      op: the generated function of the op.
      features: a tensor, or a list of tensors for a pyramid.
      boxes: as the public functions take them.
      box_indices: as the public functions take them.
      output_size: as the public functions take it.
      name: name of the op.
      **options: the op's attrs; data_format: features and outputs are transposed if it is NCHW; normalized.

    Raises:
      ValueError: a wrong dtype, an option out of its range.
    """
    options = check_options(**options)
    data_format = options.pop("data_format")
    if isinstance(features, list):
        features = [axes.to_channels_last(f"features[{i}]", m, data_format) for i, m in enumerate(features)]
    else:
        features = axes.to_channels_last("features", features, data_format)
    first_map = features[0] if isinstance(features, list) else features
    boxes, box_indices, restore = _boxes_and_images(boxes, box_indices, first_map)
    boxes = _with_normalized(boxes, first_map, options)
    outputs = op(
        features=features,
        boxes=boxes,
        box_indices=box_indices,
        output_size=_output_size_tensor(output_size),
        **options,
        name=name,
    )
    if isinstance(outputs, tf.Tensor):
        return restore(axes.from_channels_last(outputs, data_format))
    return [restore(axes.from_channels_last(y, data_format)) for y in outputs]
