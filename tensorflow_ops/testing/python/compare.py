"""Compares lists of tensors, and formats their differences."""

import numpy as np
import tensorflow as tf

# For results computed in two orders, or in a dtype and in float64: a few roundings, and those of a sum.
TOLERANCES = {
    tf.float16: 5e-3,
    tf.bfloat16: 4e-2,
    tf.float32: 2e-5,
    tf.float64: 1e-10,
    tf.complex64: 2e-5,
    tf.complex128: 1e-10,
}


def wide(x):
    """Returns a NumPy array, floats as float64 and complex numbers as complex128."""
    array = x.numpy() if hasattr(x, "numpy") else np.asarray(x)
    dtype = tf.as_dtype(array.dtype)
    if dtype.is_floating:
        return array.astype(np.float64)
    return array.astype(np.complex128) if dtype.is_complex else array


def bits(x):
    """Returns shape, dtype and bytes of a tensor or an array."""
    array = x.numpy() if hasattr(x, "numpy") else np.asarray(x)
    data = tuple(array.reshape(-1)) if array.dtype == object else np.ascontiguousarray(array).tobytes()
    return array.shape, array.dtype.name, data


def place(index):
    """Formats the index of an element."""
    return f"[{', '.join(str(int(i)) for i in index)}]"


def _number(value):
    value = value.item() if hasattr(value, "item") else value
    return f"{value:.9g}" if isinstance(value, float | complex) else repr(value)


def difference(name, actual, expected, tolerance):
    """Returns None if two arrays agree, else a sentence with the worst element."""
    actual, expected = wide(actual), wide(expected)
    if actual.shape != expected.shape:
        return f"{name} has shape {list(actual.shape)}, expected {list(expected.shape)}"
    if actual.dtype.kind not in "fc":
        unequal = np.argwhere(actual != expected)
        if not len(unequal):
            return None
        index = tuple(unequal[0])
        return f"{name}{place(index)} is {_number(actual[index])}, expected {_number(expected[index])}"
    with np.errstate(invalid="ignore", over="ignore"):
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        error = np.where(same, 0.0, np.abs(actual - expected) / (1 + np.abs(expected)))
    error = np.where(np.isnan(error), np.inf, error)
    if not error.size or error.max() <= tolerance:
        return None
    index = np.unravel_index(int(error.argmax()), error.shape)
    return (
        f"{name}{place(index)} is {_number(actual[index])}, expected {_number(expected[index])}; "
        f"{np.count_nonzero(error > tolerance)} of {error.size} elements differ by more than {tolerance:g}"
    )


def check_close(what, names, actual, expected, tolerances, dtypes=None):
    """Raises AssertionError unless two lists of tensors agree; None agrees with None only.

    The tolerance is that of the narrower dtype, or of `dtypes`.
    """
    if len(actual) != len(expected):
        raise AssertionError(f"{what}: {len(actual)} tensors, expected {len(expected)}")
    for k, (name, a, b) in enumerate(zip(names, actual, expected, strict=True)):
        if a is None or b is None:
            if a is not b:
                got, want = ("None" if t is None else "a tensor" for t in (a, b))
                raise AssertionError(f"{what}: {name} is {got}, expected {want}")
            continue
        pair = [tf.as_dtype(dtypes[k])] if dtypes else [tf.as_dtype(t.dtype) for t in (a, b)]
        tolerance = max(tolerances.get(dtype, 0) for dtype in pair)
        problem = difference(name, a, b, tolerance)
        if problem:
            raise AssertionError(f"{what}: {problem}")


def check_bits(what, names, actual, expected):
    """Raises AssertionError unless two lists of tensors have the same bits."""
    for name, a, b in zip(names, actual, expected, strict=True):
        if (a is None) != (b is None) or (a is not None and bits(a) != bits(b)):
            where = "" if a is None or b is None else f": {difference(name, a, b, 0) or 'signs of zeros or NaNs'}"
            raise AssertionError(f"{what}: {name} has other bits{where}")
