"""Checks and conversions that the region pooling functions and layers share: options, boxes, feature maps."""

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments, axes
from tensorflow_ops.core.python.type_aliases import IntLike
from tensorflow_ops.detection.python.ops import box_iou

OutputSize: TypeAlias = IntLike | Sequence[IntLike]
BinValue: TypeAlias = Literal["avg", "max"]
ChannelOrder: TypeAlias = Literal["channel_major", "bin_major"]

# kMaxLevels, kMaxSamplingRatio and kMaxOnAxis of the kernels.
_MAX_LEVELS = 16
_MAX_SAMPLES = 1024
_MAX_BINS = 2**20
_SMALLEST, _LARGEST = float(np.finfo(np.float32).smallest_subnormal), arguments.MAX_FLOAT32


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
        numbers = tuple(_positive(name, n) for n in (values if isinstance(values, Iterable) else (values,)))
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
    "box_format": _one_of(box_iou.LOSS_FORMATS),
}


def check_options(**options):
    """Returns the options, by name, as Python values for attrs and layer configs. Raises ValueError."""
    return {name: _CHECKS[name](name, value) for name, value in options.items()}


def _is_bin_count(n):
    return arguments.is_int(n) and 1 <= n <= _MAX_BINS


def check_output_size(output_size):
    """Returns an int or a pair as (height, width). Raises ValueError, but leaves tensors to the kernel."""
    if isinstance(output_size, np.ndarray):
        output_size = output_size.tolist()
    pair = tuple(output_size) if isinstance(output_size, Iterable) else (output_size, output_size)
    if len(pair) != 2 or not all(tf.is_tensor(n) or _is_bin_count(n) for n in pair):
        raise ValueError(f"output_size is {output_size!r}, expected an int or (height, width) in [1, 2^20]")
    return pair


def _output_size_tensor(output_size):
    """Returns an int, a pair or an int tensor as an int32 tensor (height, width). Raises ValueError."""
    if not tf.is_tensor(output_size):
        output_size = check_output_size(output_size)
    output_size = arguments.dense_tensor("output_size", output_size)
    if not output_size.dtype.is_integer:
        raise ValueError(f"output_size is {output_size.dtype.name}, expected integers")
    if output_size.dtype != tf.int32:
        output_size = tf.saturate_cast(output_size, tf.int32)  # the kernel raises an error for large ones
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


def pool(op, features, boxes, box_indices, output_size, name, **options):
    """Calls a region pooling op with checked and converted arguments, and returns its outputs.

    Args:
      op: the generated function of the op.
      features: a tensor, or a list of tensors for a pyramid.
      boxes: as the public functions take them.
      box_indices: as the public functions take them.
      output_size: as the public functions take it.
      name: name of the op.
      **options: the op's attrs, and data_format: features and outputs are transposed if it is NCHW.

    Raises:
      ValueError: a wrong dtype, an option out of its range.
    """
    dtype = features[0].dtype if isinstance(features, list) else features.dtype
    # Other values that are no tensors, such as NumPy's int64, convert to int32.
    box_indices = arguments.dense_tensor("box_indices", box_indices, None if tf.is_tensor(box_indices) else tf.int32)
    if box_indices.dtype != tf.int32:
        raise ValueError(f"box_indices are {box_indices.dtype.name}, expected int32")
    boxes = arguments.cast_tensor("boxes", boxes, arguments.at_least_float32(dtype))
    if boxes.shape.rank == 3:
        way_out = "for [N, R, 4] call a layer, such as tfo.layers.RoIAlign, without box_indices"
        raise ValueError(f"boxes must be [K, 4], got {arguments.shape_text(boxes.shape)}: {way_out}")
    options = check_options(**options)
    data_format = options.pop("data_format")
    if isinstance(features, list):
        features = [axes.to_channels_last(f"features[{i}]", m, data_format) for i, m in enumerate(features)]
    else:
        features = axes.to_channels_last("features", features, data_format)
    outputs = op(
        features=features,
        boxes=boxes,
        box_indices=box_indices,
        output_size=_output_size_tensor(output_size),
        **options,
        name=name,
    )
    if isinstance(outputs, tf.Tensor):
        return axes.from_channels_last(outputs, data_format)
    return [axes.from_channels_last(y, data_format) for y in outputs]
