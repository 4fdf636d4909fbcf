"""What the seq2seq functions check and convert: options, ids, the tensors of a step."""

from collections.abc import Iterable
from numbers import Integral, Real

import numpy as np
import tensorflow as tf

_FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_LARGEST_INT = 2**31 - 1


def text(shape):
    """A static shape as the kernels print it: [2,?]."""
    if shape.rank is None:
        return "of unknown rank"
    return f"[{','.join('?' if n is None else str(n) for n in shape)}]"


def score_dtype(dtype):
    """Of log probabilities and scores, for logits of a dtype."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def logits_tensor(logits, expected, meaning):
    """Logits as a tensor of a dtype that has a kernel, of the expected shape. Raises ValueError."""
    logits = tf.convert_to_tensor(logits)
    if logits.dtype not in _FLOATS:
        raise ValueError(f"logits are {logits.dtype.name}, expected float16, bfloat16, float32 or float64")
    check_shape("logits", logits, expected, meaning)
    if logits.shape.rank is not None and logits.shape[-1] == 0:
        raise ValueError(f"logits are {text(logits.shape)}, expected at least one token")
    return logits


def check_shape(name, tensor, expected, meaning):
    """Raises ValueError if the static shape cannot be the expected one."""
    expected = tf.TensorShape(expected)
    if not tensor.shape.is_compatible_with(expected):
        raise ValueError(f"{name} are {text(tensor.shape)}, expected {text(expected)}: {meaning}")


def converted(name, value, dtype):
    """A tensor of the dtype, from one of another dtype of its kind, too. Raises ValueError."""
    try:
        tensor = tf.convert_to_tensor(value, None if hasattr(value, "dtype") else dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be {dtype.name}: {error}") from None
    kinds = (lambda d: d.is_floating, lambda d: d.is_integer, lambda d: d.is_bool)
    if not any(kind(tensor.dtype) and kind(dtype) for kind in kinds):
        raise ValueError(f"{name} are {tensor.dtype.name}, expected {dtype.name}")
    return tf.cast(tensor, dtype)


def _is_tensor(value):
    return isinstance(value, tf.Tensor | tf.Variable)


def _scalar(name, tensor):
    if not tensor.shape.is_compatible_with([]):
        raise ValueError(f"{name} is of shape {text(tensor.shape)}, expected a scalar")
    return tensor


def static_int(name, value, least):
    """A Python int that is at least `least`. Raises ValueError."""
    is_int = isinstance(value, Integral) and not isinstance(value, bool | np.bool_)
    if not is_int or not least <= value <= _LARGEST_INT:
        raise ValueError(f"{name} is {value!r}, expected an int that is at least {least}")
    return int(value)


def int_scalar(name, value, least):
    """An int, or an int32 scalar tensor, that is at least `least`. Raises ValueError."""
    if not _is_tensor(value):
        return static_int(name, value, least)
    known = tf.get_static_value(value)
    if known is not None and known.ndim == 0:
        return static_int(name, known.item(), least)
    tensor = _scalar(name, converted(name, value, tf.int32))
    check = tf.debugging.assert_greater_equal(tensor, least, f"{name} is too small, expected at least {least}")
    with tf.control_dependencies([check]):
        return tf.identity(tensor)


def number(name, value, expected="a finite number", fits=lambda value: True):
    """A float, or a float64 scalar tensor, whose value the run may check. Raises ValueError."""
    if _is_tensor(value):
        known = tf.get_static_value(value)
        if known is None or known.ndim != 0:
            tensor = _scalar(name, converted(name, value, tf.float64))
            return tf.debugging.assert_all_finite(tensor, f"{name}, expected a finite number")
        value = known
    value = value.item() if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0 else value
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not np.isfinite(value) or not fits(value):
        raise ValueError(f"{name} is {value!r}, expected {expected}")
    return float(value)


def number_in_range(name, value, expected, fits):
    """A float, or a float64 scalar tensor that is checked when it runs. Raises ValueError."""
    result = number(name, value, expected, fits)
    if isinstance(result, float):
        return result
    check = tf.debugging.assert_equal(fits(result), True, f"{name} is out of its range, expected {expected}")
    with tf.control_dependencies([check]):
        return tf.identity(result)


def of_dtype(value, dtype):
    """A number or a tensor in the dtype."""
    # tf.cast would make a float32 of a Python float first.
    return tf.cast(value, dtype) if _is_tensor(value) else tf.constant(value, dtype)


def eos_tuple(eos_ids):
    """Ids of end tokens as a tuple of ints, each once. Raises ValueError."""
    known = tf.get_static_value(eos_ids) if _is_tensor(eos_ids) else eos_ids
    if known is None:
        raise ValueError("eos_ids are a tensor without a known value, expected ints")
    ids = np.reshape(known, -1).tolist() if isinstance(known, np.ndarray | np.generic) else known
    ids = list(ids) if isinstance(ids, Iterable) else [ids]
    return tuple(dict.fromkeys(static_int("eos_ids: an id", i, 0) for i in ids))


def function_or_none(name, value):
    """A function of the caller's, or None. Raises ValueError."""
    if value is not None and not callable(value):
        raise ValueError(f"{name} is {value!r}, expected a function or None")
    return value


def pad(pad_id, eos_ids):
    """The id to pad with: by default the first end token, or 0 without one. Raises ValueError."""
    if pad_id is None:
        return eos_ids[0] if eos_ids else 0
    is_int = isinstance(pad_id, Integral) and not isinstance(pad_id, bool)
    if not is_int or not -(2**31) <= pad_id <= _LARGEST_INT:
        raise ValueError(f"pad_id is {pad_id!r}, expected an int of 32 bits, or None")
    return int(pad_id)
