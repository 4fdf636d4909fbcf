"""Which of a user's integers a dtype holds: TensorFlow wraps others, silently."""

import array
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf


@functools.cache
def limits(dtype: tf.DType) -> tuple[int, int]:
    """Returns the least and the greatest number of a dtype."""
    return dtype.min, dtype.max  # which take 13 microseconds


def holds(dtype: tf.DType, numbers: tf.DType | Collection[int]) -> bool:
    """Returns whether an integer dtype holds Python's numbers, or all of another dtype."""
    least, greatest = limits(dtype)
    if isinstance(numbers, tf.DType):
        return numbers.is_integer and holds(dtype, limits(numbers))
    return least <= min(numbers) and max(numbers) <= greatest


def _is_array(value: Any) -> bool:
    return isinstance(value, tf.Tensor | tf.Variable | np.ndarray | np.generic)


def _lists_and_arrays(value: Any) -> Any:
    """Returns lists for sequences, such as ranges, at any depth, and arrays for other arrays, such as torch's."""
    if isinstance(value, str | bytes) or _is_array(value):
        return value
    if isinstance(value, Sequence | array.array):
        return [_lists_and_arrays(element) for element in value]
    is_other = hasattr(value, "__array__") and hasattr(value, "dtype") and not isinstance(value, keras.KerasTensor)
    return np.asarray(value) if is_other else value


def _leaves(value: Iterable[Any]) -> Iterator[Any]:
    for element in value:
        if isinstance(element, list | tuple):
            yield from _leaves(element)
        else:
            yield element


def held(
    name: str, value: Any, dtype: tf.DType, is_hint: bool, convert: Callable[[str, Any, tf.DType], tf.Tensor]
) -> tuple[Any, tf.DType | None]:
    """Returns a value whose integers a dtype holds, and the dtype; of a hint, int64 for wide ones, and None for floats.

    TensorFlow would wrap them, make 0 and 1 of bools, and cast tensors in lists, which `convert` converts. Raises
    ValueError.
    """
    numbers, has_arrays = list(_leaves([value])), False
    if set(map(type, numbers)) != {int}:
        value, numbers = _lists_and_arrays(value), []
        for leaf in _leaves([value]):
            given = tf.as_dtype(leaf.dtype) if _is_array(leaf) else None
            if isinstance(leaf, bool) or (given and given.is_bool):
                raise ValueError(f"{name} are bool, expected {dtype.name}")
            if given and given.is_floating and is_hint:
                return value, None
            if isinstance(leaf, int | np.integer):
                numbers.append(int(leaf))
            elif given and given.is_integer and isinstance(leaf, np.ndarray) and leaf.size:
                numbers += [int(leaf.min()), int(leaf.max())]
            elif given and given.is_integer and is_hint and not holds(dtype, given):
                dtype = tf.int64
            has_arrays |= given is not None and not isinstance(leaf, np.integer)
    if numbers and not holds(dtype, numbers):
        dtype = tf.int64 if is_hint else dtype
        for number in numbers:
            if not holds(dtype, [number]):
                raise ValueError(f"{name} is {number}, expected {range_text(dtype)}")
    if has_arrays and isinstance(value, list):
        # TensorFlow converts NumPy's integers in lists as it does Python's, and faster.
        is_cast = lambda x: _is_array(x) and not isinstance(x, np.integer)  # noqa: E731
        value = tf.nest.map_structure(lambda x: convert(name, x, dtype) if is_cast(x) else x, value)
    return value, dtype


def range_text(dtype: tf.DType) -> str:
    """Returns what an error says that it expects."""
    return f"a whole number of {8 * dtype.size} bits" if dtype.min else f"a whole number in [0, {dtype.max}]"
