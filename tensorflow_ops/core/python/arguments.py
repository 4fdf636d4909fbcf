"""Checks and conversions of arguments that the op families share.

A check raises ValueError with a text of the form "NAME is VALUE, expected ...". A value
that only the run knows is checked by an op (`checked`), which raises InvalidArgumentError.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Collection, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import autograph, integers, pfor
from tensorflow_ops.core.python.library import ops, shape_text
from tensorflow_ops.core.python.type_aliases import IntLike, NumberLike, TensorLike

# The most frequent one first: comparing two different DTypes takes 0.5 microseconds.
FLOAT_DTYPES = (tf.float32, tf.float16, tf.bfloat16, tf.float64)
# `numbertype` of op definitions.
_NUMBER_DTYPES = (
    *(*FLOAT_DTYPES, tf.int32, tf.int64, tf.uint8, tf.int8, tf.int16, tf.uint16, tf.uint32, tf.uint64),
    *(tf.complex64, tf.complex128, tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32),
)
MAX_FLOAT32 = float(np.finfo(np.float32).max)
MAX_INT32 = 2**31 - 1
_MAX_FLOAT64 = float(np.finfo(np.float64).max)


# On a GPU, TensorFlow would compute constants that kernels read in host memory, and checks, all but those of int32, in
# device memory; the copy back waits for all of its work. Eager calls without GPUs need no scope, which takes longer
# than a small kernel.


@functools.cache
def _has_gpus() -> bool:
    return bool(tf.config.list_logical_devices("GPU"))


def _needs_host() -> bool:
    return not tf.executing_eagerly() or _has_gpus()


def _on_host() -> contextlib.AbstractContextManager[Any]:
    return tf.device("CPU:0") if _needs_host() else contextlib.nullcontext()


# Python values.


def is_int(value: Any) -> bool:
    """Returns whether the value is an integer, a NumPy one included; a bool is none."""
    # The type first: isinstance of an abstract class is slower.
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def to_python(value: Any) -> Any:
    """Converts a NumPy scalar or 0-d array to the Python number; returns other values as they are."""
    return value.item() if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value


def static_int(name: str, value: Any, minimum: int) -> int:
    """Returns an int in [minimum, 2^31 - 1]. Raises ValueError."""
    if not is_int(value) or not minimum <= value <= MAX_INT32:
        raise ValueError(f"{name} is {value!r}, expected an int in [{minimum}, {MAX_INT32}]")
    return int(value)


def static_number(
    name: str, value: Any, expected: str = "a finite number", fits: Callable[[Any], Any] = lambda value: True
) -> float:
    """Returns a finite float for which `fits` holds. Raises ValueError."""
    value = to_python(value)
    is_number = issubclass(type(value), Real) and not isinstance(value, bool)
    # A comparison, unlike isfinite, takes ints of any size.
    if not is_number or not -_MAX_FLOAT64 <= value <= _MAX_FLOAT64 or not fits(value):
        raise ValueError(f"{name} is {value!r}, expected {expected}")
    return float(value)


def static_bool(name: str, value: Any) -> bool:
    """Returns a bool. Raises ValueError."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} is {value!r}, expected True or False")
    return bool(value)


def float_dtype(name: str, value: Any) -> tf.DType:
    """Returns a floating DType that has a kernel. Raises ValueError."""
    try:
        dtype = tf.as_dtype(value)
    except TypeError:
        dtype = None
    if dtype not in FLOAT_DTYPES:
        raise ValueError(f"{name} is {value!r}, expected float16, bfloat16, float32 or float64")
    return dtype


def one_of(name: str, value: Any, options: Collection[str]) -> str:
    """Returns the value, one of some strings. Raises ValueError."""
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, options))}")
    return value


# Values that only the run knows.


def checked(
    name: str, tensor: tf.Tensor, valid: tf.Tensor, expected: str, on_gpu: bool = True, decides_shape: bool = False
) -> tf.Tensor:
    """Returns the tensor, which an op checks when it is used: TensorFlow's assertions vanish under XLA.

    In a graph, the checks of a public call wait for those before them, so that the first one that fails speaks.

    Args:
      name: the argument's name, for the error.
      tensor: of any dtype.
      valid: a bool tensor of the tensor's leading dims, such as a scalar or the tensor's own shape.
      expected: a text: which values are valid.
      on_gpu: whether to check on a GPU, too, which waits for a copy to the host. False for
        data with a neutral result there.
      decides_shape: whether the tensor decides a shape: XLA must know it when it compiles.

    Raises:
      InvalidArgumentError: "NAME[i,j] is VALUE, expected EXPECTED", where `valid` is False.
    """
    return autograph.after_last_check(
        lambda after: ops.tensorflow_ops_check_values(tensor, valid, after, name, expected, on_gpu, decides_shape)
    )


@tf.RegisterGradient("TensorflowOps>CheckValues")
def _checked_grad(op: Any, d_checked: tf.Tensor, *d_passed: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
    del op
    return d_checked, None, *(None for _ in d_passed)


@pfor.register("TensorflowOps>CheckValues")
def _convert_checked(pfor_input: Any) -> list[Any]:
    pfor_input.stack_inputs([0, 1])
    values, *passed = pfor.call(pfor_input, [value.t for value in pfor_input.inputs])
    return [pfor.stacked(values), *map(pfor.forwarded, passed, pfor_input.inputs[2:])]


def equal(a: TensorLike, b: TensorLike) -> tf.Tensor:
    """Returns where two tensors are equal, and a scalar False if their shapes do not fit.

    Not a == b: in graphs of TensorFlow 1 it compares identities, silently. tools/check_silent_errors.py finds it.
    """
    return tf.raw_ops.Equal(x=a, y=b, incompatible_shape_error=False)


# Numbers that may be tensors.


def is_tensor(value: Any) -> bool:
    """Returns whether the value is a dense tensor or a variable."""
    # tf.is_tensor takes 15 microseconds to return False: isinstance of a protocol.
    return isinstance(value, tf.Tensor | tf.Variable)


def static_value(value: Any) -> Any:
    """Returns what a tensor is known to be, or None; other values as they are."""
    return tf.get_static_value(value) if is_tensor(value) else value


def _scalar(name: str, tensor: tf.Tensor) -> tf.Tensor:
    if not tensor.shape.is_compatible_with([]):
        raise ValueError(f"{name} is of shape {shape_text(tensor.shape)}, expected a scalar")
    return with_shape(name, tensor, [], "a scalar")


def int_scalar(name: str, value: Any, minimum: int, decides_shape: bool = False) -> int | tf.Tensor:
    """Returns an int, or an int32 scalar tensor, that is at least the minimum. Raises ValueError."""
    if not is_tensor(value):
        return static_int(name, value, minimum)
    known = tf.get_static_value(value)
    # np.ndim: the value of a string is bytes, not an array.
    if known is not None and np.ndim(known) == 0:
        return static_int(name, to_python(known), minimum)
    with _on_host():
        wide = _scalar(name, tensor_of_kind(name, value, tf.int64))
        is_valid = (wide >= minimum) & (wide <= MAX_INT32)
        expected = f"an int in [{minimum}, {MAX_INT32}]"
        return tf.cast(checked(name, wide, is_valid, expected, decides_shape=decides_shape), tf.int32)


def number(
    name: str,
    value: Any,
    expected: str = "a finite number",
    fits: Callable[[Any], Any] = lambda value: True,
    decides_shape: bool = False,
) -> float | tf.Tensor:
    """Returns a float, or a float64 scalar tensor, that is finite and for which `fits` holds. Raises ValueError."""
    if is_tensor(value):
        known = tf.get_static_value(value)
        if known is None or np.ndim(known) != 0:
            with _on_host():
                tensor = _scalar(name, tensor_of_kind(name, value, tf.float64))
                valid = tf.math.is_finite(tensor) & fits(tensor)
                return checked(name, tensor, valid, expected, decides_shape=decides_shape)
        value = known
    return static_number(name, value, expected, fits)


def constant_or_cast(value: NumberLike, dtype: tf.DType) -> tf.Tensor:
    """Returns a number or a tensor as a tensor of the dtype."""
    # tf.cast would convert a Python float to float32 first.
    return tf.cast(value, dtype) if is_tensor(value) else tf.constant(value, dtype)


def in_host_memory(value: NumberLike, dtype: tf.DType) -> float | tf.Tensor:
    """Returns a number or a tensor as a tensor of the dtype, for an input that a GPU's kernels read in host memory.

    In an eager call without GPUs, returns a float as it is.
    """
    if isinstance(value, float) and not _needs_host():
        return value
    with _on_host():
        known = static_value(value)
        return constant_or_cast(value if known is None else known, dtype)


def float32_parts(number: float) -> list[float]:
    """Splits a float64 into float32 numbers that add up to it: attrs of ops have 32 bits. Zero has no parts."""
    parts = []
    for _ in range(3):
        parts.append(float(np.float32(number)))
        number -= parts[-1]
    return [part for part in parts if part]


# Tensors.


def at_least_float32(dtype: tf.DType) -> tf.DType:
    """Returns float64 for float64, float32 for all others: the dtype of sums, coordinates and scores."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def check_behavior() -> None:
    """Raises RuntimeError if dims of shapes are objects of TensorFlow 1, neither ints nor None."""
    if not isinstance(tf.TensorShape([1])[0], int):
        way_out = "call tf.compat.v1.enable_v2_tensorshape() after disable_v2_behavior()"
        raise RuntimeError(f"tensorflow_ops needs TensorFlow 2's behavior: {way_out}")


def native(value: Any) -> Any:
    """Returns an array in the machine's byte order, in which tf.constant reads all in a graph; else the value."""
    has_other_order = isinstance(value, np.ndarray) and not value.dtype.isnative
    return value.astype(value.dtype.newbyteorder("=")) if has_other_order else value


def dense_tensor(
    name: str, value: Any, dtype: tf.DType | str | None = None, dtype_hint: tf.DType | None = None
) -> tf.Tensor:
    """Returns a tensor, as tf.convert_to_tensor does. Raises ValueError, which names the argument.

    Refuses bools where integers are expected, as `static_int` does, and Python's integers that the dtype does not hold.
    """
    # What tf.convert_to_tensor returns, too, after 2 microseconds. A graph captures the tensors of others.
    if not tf.executing_eagerly():
        check_behavior()
        value = native(value)
    elif isinstance(value, tf.Tensor) and (dtype is None or dtype is value.dtype):
        return value
    wanted = dtype or dtype_hint
    kind = tf.as_dtype(wanted) if wanted else None
    if kind and kind.is_integer:
        value, dtype_hint = integers.held(name, value, kind, not dtype, tensor_of_kind)
    try:
        return tf.convert_to_tensor(value, dtype, dtype_hint)
    except (TypeError, ValueError) as error:
        check_dense(name, value)
        raise ValueError(f"{name} cannot be {tf.as_dtype(dtype).name if dtype else 'a tensor'}: {error}") from None


def check_dense(name: str, value: Any) -> None:
    """Raises ValueError for None, a RaggedTensor and a SparseTensor."""
    if value is None:
        raise ValueError(f"{name} is None, expected a tensor")
    for kind, way_out in (
        (tf.RaggedTensor, f"{name}.to_tensor(...)"),
        (tf.SparseTensor, f"tf.sparse.to_dense({name}, ...)"),
    ):
        if isinstance(value, kind):
            raise ValueError(f"{name} is a {kind.__name__}, expected a dense tensor: pass {way_out}")


def float_tensor(name: str, value: Any) -> tf.Tensor:
    """Returns a tensor of a floating dtype that has a kernel. Raises ValueError."""
    tensor = dense_tensor(name, value)
    if tensor.dtype not in FLOAT_DTYPES:
        raise ValueError(f"{name} are {tensor.dtype.name}, expected float16, bfloat16, float32 or float64")
    return tensor


def number_tensor(name: str, value: Any, or_bools: bool = False) -> tf.Tensor:
    """Returns a tensor of numbers. Raises ValueError."""
    tensor = dense_tensor(name, value)
    if tensor.dtype not in _NUMBER_DTYPES and not (or_bools and tensor.dtype == tf.bool):
        raise ValueError(f"{name} are {tensor.dtype.name}, expected numbers{' or bools' if or_bools else ''}")
    return tensor


def int_tensor(name: str, value: Any) -> tf.Tensor:
    """Returns a tensor; Python ints, and an empty list, are int32. Raises ValueError."""
    return dense_tensor(name, value, dtype_hint=None if hasattr(value, "dtype") else tf.int32)


def whole_numbers(name: str, tensor: tf.Tensor, dtype: tf.DType, on_gpu: bool = False) -> tf.Tensor:
    """Returns numbers of any dtype as integers of another one, which must hold them; an op checks it.

    On a GPU without `on_gpu`, those it does not hold become the lowest or greatest integer.

    Raises:
      InvalidArgumentError: "NAME[i] is VALUE, expected a whole number of 32 bits", as `checked`.
    """
    given = tensor.dtype
    if not given.is_floating and (not given.is_integer or integers.holds(dtype, given)):
        return cast(tensor, dtype)
    limits = integers.limits(dtype)
    if given.is_integer:
        limits = max(limits[0], integers.limits(given)[0]), min(limits[1], integers.limits(given)[1])

    def is_valid(wide: Any, floor: Callable[[Any], Any]) -> tuple[Any, Any]:
        # In float64, the greatest of 64 bits is 2^63. NaN is not valid.
        is_below = wide < 2.0**63 if given.is_floating and dtype.size == 8 else wide <= limits[1]
        valid = (wide >= limits[0]) & is_below
        return valid & (floor(wide) >= wide) if given.is_floating else valid, is_below

    # Known values need no ops to check them, which take longer; those on a GPU would have to be awaited.
    is_known = not (tf.executing_eagerly() and _has_gpus() and "GPU" in tensor.device)
    values = tf.get_static_value(tensor) if is_known else None
    if values is not None:
        values = np.asarray(values, np.float64) if given.is_floating else values
        if np.all(is_valid(values, np.floor)[0]):
            return tf.cast(tensor, dtype)

    def wide(tensor: tf.Tensor) -> tf.Tensor:
        return tf.cast(tensor, tf.float64) if given.is_floating else tensor

    tensor = checked(name, tensor, is_valid(wide(tensor), tf.floor)[0], integers.range_text(dtype), on_gpu)
    # Of checked numbers: a graph would fold `where` of constants to its last branch, without the check.
    valid, is_below = is_valid(wide(tensor), tf.floor)
    return tf.where(valid, tf.cast(tensor, dtype), tf.where(is_below, tf.constant(dtype.min, dtype), dtype.max))


def int_of_each(name: str, value: Any, batch: Callable[[], IntLike]) -> tf.Tensor:
    """Returns int32 [batch()]; one number counts for all examples. The op checks the shape. Raises ValueError."""
    value = tensor_of_kind(name, value, tf.int32)
    if value.shape.rank in (None, 0):
        shape = tf.concat([[batch()], tf.shape(value)], 0)
        value = tf.broadcast_to(value, shape[-tf.maximum(tf.rank(value), 1) :])
    return value


def seed(value: Any) -> tf.Tensor:
    """Returns the lower 32 bits of two integers, int32 [2]: XLA would ignore the others. Raises ValueError."""
    tensor = int_tensor("seed", value)
    if not tensor.dtype.is_integer:
        raise ValueError(f"seed is {tensor.dtype.name}, expected two integers")
    return cast(with_shape("seed", tensor, [2], "two integers"), tf.int32)  # fits: the lower bits are the result


def cast(tensor: tf.Tensor, dtype: tf.DType | str) -> tf.Tensor:
    """Returns the tensor in a dtype, as tf.cast does, which takes a few microseconds even without a cast."""
    return tensor if tensor.dtype is dtype else tf.cast(tensor, dtype)


def cast_tensor(name: str, value: Any, dtype: tf.DType | str) -> tf.Tensor:
    """Returns a tensor of the dtype; casts from any other. Raises ValueError."""
    return cast(dense_tensor(name, value), dtype) if hasattr(value, "dtype") else dense_tensor(name, value, dtype)


def tensor_of_kind(name: str, value: Any, dtype: tf.DType) -> tf.Tensor:
    """Returns a tensor of the dtype; casts within floats, integers or bools only. Raises ValueError.

    Integers that the dtype does not hold raise InvalidArgumentError (`whole_numbers`).
    """
    tensor = dense_tensor(name, value, None if hasattr(value, "dtype") else dtype)
    if tensor.dtype is dtype:
        return tensor
    kinds = (lambda d: d.is_floating, lambda d: d.is_integer, lambda d: d.is_bool)
    if not any(kind(tensor.dtype) and kind(dtype) for kind in kinds):
        raise ValueError(f"{name} are {tensor.dtype.name}, expected {dtype.name}")
    return whole_numbers(name, tensor, dtype) if dtype.is_integer else tf.cast(tensor, dtype)


def check_shape(name: str, tensor: tf.Tensor, expected: tf.TensorShape | Sequence[int | None], meaning: str) -> None:
    """Raises ValueError if the static shape is not compatible with the expected one."""
    if not tensor.shape.is_compatible_with(expected):
        texts = shape_text(tensor.shape), shape_text(tf.TensorShape(expected))
        raise ValueError(f"{name} are {texts[0]}, expected {texts[1]}: {meaning}")


def with_shape(name: str, tensor: tf.Tensor, expected: Sequence[Any], meaning: str) -> tf.Tensor:
    """Returns the tensor; checks its shape, at once or when it is known. Raises ValueError.

    Args:
      name: the tensor's name in errors.
      tensor: of any static shape.
      expected: ints, int32 scalar tensors, or None for any size; with ... at the end, any dims may follow.
      meaning: of the expected shape, in errors.
    """
    sizes = [n for n in expected if n is not ...]
    has_more = len(sizes) < len(expected)
    static = [None if n is None else int(n) for n in map(static_value, sizes)]
    rank = tensor.shape.rank
    head = tensor.shape[: len(sizes)] if has_more else tensor.shape
    text = f"[{','.join('?' if n is None else str(n) for n in static)}{',...' if has_more else ''}]"
    if not head.is_compatible_with(static):
        raise ValueError(f"{name} has shape {shape_text(tensor.shape)}, expected {text}: {meaning}")
    if rank is not None and all(n is None or None not in pair for n, *pair in zip(sizes, static, head, strict=True)):
        return tensor
    shape = tf.shape(tensor)  # not on the host, where the tensor would have to go
    with _on_host():
        count = tf.size(shape)
        # More dims, for tensors of unknown rank with too few.
        found = tf.concat([shape, tf.fill([len(sizes)], -1)], 0)[: len(sizes)]
        wanted = tf.convert_to_tensor([found[i] if n is None else n for i, n in enumerate(sizes)], tf.int32)
        fits = count >= len(sizes) if has_more else tf.equal(count, len(sizes))
        valid = fits & tf.reduce_all(tf.equal(found, wanted))
        shape = checked(f"the shape of {name}", shape, valid, f"{text}: {meaning}")
    # Not a reshape, which TensorFlow removes where the rank decides the result.
    result = tf.slice(tensor, tf.zeros_like(shape), shape, name=re.sub(r"\W", "_", name))
    known = head.merge_with(static)
    return tf.ensure_shape(result, known.concatenate(tensor.shape[len(sizes) :]) if has_more else known)
