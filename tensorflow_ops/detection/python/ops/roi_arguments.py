"""What the region pooling functions and layers check: their options, and the tensors they pass to the ops."""

from collections.abc import Iterable
from numbers import Integral, Real

import numpy as np
import tensorflow as tf

# kMaxLevels, kMaxSamplingRatio and kMaxOnAxis of the kernels.
_MOST_LEVELS = 16
_MOST_SAMPLES = 1024
_MOST_BINS = 2**20
_SMALLEST, _LARGEST = float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max)


def _is_positive(value):
    """Is it a number above zero that float32 can hold?"""
    value = value.item() if isinstance(value, np.generic) else value
    return isinstance(value, Real) and _SMALLEST <= value <= _LARGEST


def _positive(name, value):
    if not _is_positive(value):
        raise ValueError(f"{name} is {value!r}, expected a positive, finite number")
    return float(value)


def _one_of(*options):
    def check(name, value):
        if value not in options:
            raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, options))}")
        return value

    return check


def _boolean(name, value):
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} is {value!r}, expected True or False")
    return bool(value)


def _is_int(value):
    return isinstance(value, Integral) and not isinstance(value, bool)


def _samples(name, value):
    if not (_is_int(value) and 0 <= value <= _MOST_SAMPLES):
        raise ValueError(
            f"{name} is {value!r}, expected an int in [0, {_MOST_SAMPLES}]; 0: as many samples as a bin has pixels"
        )
    return int(value)


def _rising(name, values):
    numbers = tuple(values) if isinstance(values, Iterable) else (values,)
    if numbers and all(_is_positive(n) for n in numbers):
        numbers = tuple(float(n) for n in numbers)
        # The kernels hold them in float32, and scale by 1 / stride.
        if (np.diff(np.float32([0, *numbers])) > 0).all() and all(_is_positive(1 / n) for n in numbers):
            return numbers
    raise ValueError(f"{name} are {values!r}, expected positive, finite numbers, each above the one before")


_CHECKS = {
    "spatial_scale": _positive,
    "sampling_ratio": _samples,
    "aligned": _boolean,
    "mode": _one_of("avg", "max"),
    "channel_order": _one_of("channel_major", "bin_major"),
    "strides": _rising,
    "canonical_box_size": _positive,
    "canonical_stride": _positive,
    "data_format": _one_of("NHWC", "NCHW"),
    "box_format": _one_of("xyxy", "yxyx"),
}


def check_options(**options):
    """The options, by name, as the plain Python values that ops and configs take. Raises ValueError."""
    return {name: _CHECKS[name](name, value) for name, value in options.items()}


def _is_bin_count(n):
    return _is_int(n) and 1 <= n <= _MOST_BINS


def check_output_size(output_size):
    """An int or a pair as a pair (height, width). Raises ValueError; tensors in the pair are left to the kernel."""
    if isinstance(output_size, np.ndarray):
        output_size = output_size.tolist()
    pair = tuple(output_size) if isinstance(output_size, Iterable) else (output_size, output_size)
    if len(pair) != 2 or not all(tf.is_tensor(n) or _is_bin_count(n) for n in pair):
        raise ValueError(f"output_size is {output_size!r}, expected an int or (height, width) in [1, 2^20]")
    return pair


def _output_size(output_size):
    """An int, a pair or an int tensor as an int32 tensor (height, width)."""
    if not tf.is_tensor(output_size):
        output_size = check_output_size(output_size)
    output_size = tf.convert_to_tensor(output_size)
    if not output_size.dtype.is_integer:
        raise ValueError(f"output_size is {output_size.dtype.name}, expected integers")
    if output_size.dtype != tf.int32:
        output_size = tf.saturate_cast(output_size, tf.int32)  # the kernel refuses what is too large
    return tf.stack([output_size, output_size]) if output_size.shape.rank == 0 else output_size


def feature_map(features):
    """Features as a tensor. Raises ValueError for a dtype that has no kernel."""
    features = tf.convert_to_tensor(features)
    if features.dtype not in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
        raise ValueError(f"features are {features.dtype.name}, expected float16, bfloat16, float32 or float64")
    return features


def check_levels(features, strides):
    """Strides as a tuple. Raises ValueError unless features are a list of maps, and strides one for each."""
    maps = len(features) if isinstance(features, list | tuple) else 0
    if not 1 <= maps <= _MOST_LEVELS:
        got = f"{maps} maps" if isinstance(features, list | tuple) else f"a {type(features).__name__}"
        raise ValueError(f"features are {got}, expected a list of 1 to {_MOST_LEVELS} feature maps")
    numbers = _rising("strides", strides)
    if len(numbers) != maps:
        raise ValueError(f"strides are {strides!r}, expected one for each of the {maps} feature maps")
    return numbers


def feature_maps(features):
    """A list of feature maps as tensors. Raises ValueError unless they have one dtype."""
    maps = [feature_map(features_of_level) for features_of_level in features]
    dtypes = [m.dtype.name for m in maps]
    if len(set(dtypes)) > 1:
        raise ValueError(f"features are {', '.join(dtypes)}, expected one dtype")
    return maps


def pool(op, features, boxes, box_indices, output_size, name, **options):
    """Checks and converts what a region pooling op takes, and calls it; features are a tensor or a list of them."""
    dtype = features[0].dtype if isinstance(features, list) else features.dtype
    coordinates = tf.float64 if dtype == tf.float64 else tf.float32
    boxes = tf.cast(boxes, coordinates) if tf.is_tensor(boxes) else tf.convert_to_tensor(boxes, coordinates)
    if tf.is_tensor(box_indices) and box_indices.dtype != tf.int32:
        raise ValueError(f"box_indices are {box_indices.dtype.name}, expected int32")
    return op(
        features=features,
        boxes=boxes,
        box_indices=tf.convert_to_tensor(box_indices, tf.int32),
        output_size=_output_size(output_size),
        **check_options(**options),
        name=name,
    )
