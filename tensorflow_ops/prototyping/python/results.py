"""Checks the values that a NumPy function returns against their declarations."""

import sys

import numpy as np
import tensorflow as tf

# TensorFlow may share the memory of an array that starts at a multiple of this number of bytes.
_ALIGNMENT = 64


class Declared:
    """A declared result: shape (None: any rank; None in it: any size), dtype, and its name in messages."""

    __slots__ = ("check_finite", "dtype", "name", "numpy_dtype", "shape")

    def __init__(self, shape, dtype, name, check_finite=False):
        self.shape = shape
        self.dtype = dtype
        self.numpy_dtype = np.dtype(dtype.as_numpy_dtype)
        self.name = name
        self.check_finite = check_finite and (dtype.is_floating or dtype.is_complex)


def fail(message, kind=tf.errors.InvalidArgumentError):
    """Raises an error of TensorFlow: its type is the same eagerly and in a graph."""
    raise kind(None, None, message)


def _fits(shape, declared):
    if declared is None:
        return True
    return len(shape) == len(declared) and all(d is None or d == s for s, d in zip(shape, declared, strict=True))


def _text(shape):
    if shape is None:
        return "of any rank"
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def _strings(value, stage_name, declared):
    """Converts strings to an array of bytes objects, which keeps their lengths."""
    # Python strings as objects: NumPy strings would lose trailing zeros.
    array = value if isinstance(value, np.ndarray) else np.asarray(value, object)
    if array.dtype.kind not in "OSU":
        fail(f"{stage_name}: {declared.name} has dtype {array.dtype}, declared string")
    result = np.empty(array.shape, object)
    for index, item in np.ndenumerate(array):
        if not isinstance(item, (bytes, str)):
            fail(f"{stage_name}: {declared.name} holds a {type(item).__name__}, declared string")
        result[index] = item.encode() if isinstance(item, str) else bytes(item)
    return result


def check(value, declared, batch, stage_name):
    """Checks a value. Returns it as an array that TensorFlow may keep.

    Args:
      value: a value that the function returned.
      declared: a Declared.
      batch: sizes of the axes before the declared shape.
      stage_name: name of the function in messages.
    """
    if declared.dtype == tf.string:
        array = _strings(value, stage_name, declared)
    else:
        array = value if type(value) is np.ndarray else np.asarray(value)
        if array.dtype != declared.numpy_dtype:
            fail(
                f"{stage_name}: {declared.name} has dtype {array.dtype}, declared {declared.dtype.name}"
                + ("" if array.dtype == object else f"; .astype({declared.dtype.name}) converts it")
            )
    shape = declared.shape if not batch or declared.shape is None else batch + declared.shape
    if array.shape != shape and not _fits(array.shape, shape):
        where = f" (vmap: {_text(batch)} calls in one)" if batch else ""
        fail(f"{stage_name}: {declared.name} has shape {_text(array.shape)}, declared {_text(shape)}{where}")
    if declared.check_finite and not np.isfinite(array).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        fail(f"{stage_name}: {declared.name} is {array[at]} at {list(at)}, expected finite values")
    if not array.flags.c_contiguous:
        return np.ascontiguousarray(array)
    shared = array.__array_interface__["data"][0] % _ALIGNMENT == 0 and array.dtype != object
    if shared and not (array.flags.owndata and sys.getrefcount(array) <= _sole_references):
        return array.copy()  # the function may keep this array, and change it
    return array


def check_all(leaves, declared, batch, stage_name):
    """Calls `check` for each leaf of a list or tuple, which must have no other reference."""
    return [check(leaf, expected, batch, stage_name) for leaf, expected in zip(leaves, declared, strict=True)]


def _count_sole_references():
    """Sets _sole_references: the reference count in `check` of an array without references elsewhere."""
    global _sole_references
    declared = [Declared((64,), tf.float32, "")]
    while True:
        arrays = [np.empty(64, np.float32) for _ in range(64)]
        addresses = [array.__array_interface__["data"][0] for array in arrays]
        aligned = [i for i, address in enumerate(addresses) if address % _ALIGNMENT == 0]
        if not aligned:
            return  # 0: all arrays are copied
        leaves = (arrays.pop(aligned[0]),)
        del arrays
        (result,) = check_all(leaves, declared, (), "")
        if result.__array_interface__["data"][0] == addresses[aligned[0]]:
            return
        _sole_references += 1


_sole_references = 0
_count_sole_references()
