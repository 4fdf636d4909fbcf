"""What the nn functions check and convert: logits, labels, axes, options."""

from collections.abc import Callable
from numbers import Integral, Real

import numpy as np
import tensorflow as tf

_FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
# The kernels read labels of 32 and 64 bits.
_LABEL_DTYPES = {
    tf.int8: tf.int32,
    tf.uint8: tf.int32,
    tf.int16: tf.int32,
    tf.uint16: tf.int32,
    tf.int32: tf.int32,
    tf.uint32: tf.int64,
    tf.int64: tf.int64,
}
_LARGEST = float(np.finfo(np.float32).max)


def text(shape):
    """A static shape as the kernels print it: [2,?]."""
    if shape.rank is None:
        return "of unknown rank"
    return f"[{','.join('?' if n is None else str(n) for n in shape)}]"


def value_dtype(dtype):
    """Of results with one number for each row: what rows of the dtype are computed in."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def floating(name, value):
    """A tensor of a dtype that has a kernel. Raises ValueError."""
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype not in _FLOATS:
        raise ValueError(f"{name} are {tensor.dtype.name}, expected float16, bfloat16, float32 or float64")
    return tensor


def converted(value, dtype):
    """A tensor of the dtype, from one of another dtype, too."""
    return tf.cast(value, dtype) if hasattr(value, "dtype") else tf.convert_to_tensor(value, dtype)


def static_axis(axis):
    """The axis, an int also where it is given as a tensor with a known value."""
    if isinstance(axis, tf.Tensor | np.ndarray) and axis.shape == () and tf.as_dtype(axis.dtype).is_integer:
        known = tf.get_static_value(axis)
        if known is None:
            raise ValueError("axis is a tensor without a known value, expected an int")
        return known.item()
    return axis


def check_axis(name, shape, axis):
    """Raises ValueError unless the static shape may have the axis."""
    if not isinstance(axis, Integral) or isinstance(axis, bool):
        raise ValueError(f"axis is {axis!r}, expected an int")
    if shape.rank == 0:
        raise ValueError(f"{name} are a scalar, expected at least one dim")
    if shape.rank is not None and not -shape.rank <= axis < shape.rank:
        raise ValueError(f"axis is {axis}, expected [{-shape.rank}, {shape.rank}): {name} are {text(shape)}")


def _run_time_axis(tensor, axis):
    """(axis, rank) as tensors, the axis from the front."""
    rank = tf.rank(tensor)
    expected = "expected an axis of the tensor"
    checks = [
        tf.debugging.assert_less(axis, rank, f"axis is {axis}, {expected}"),
        tf.debugging.assert_less_equal(-rank, axis, f"axis is {axis}, {expected}"),
    ]
    with tf.control_dependencies(checks):
        return tf.identity(axis) if axis >= 0 else rank + axis, rank


def move_axis_last(tensor, axis) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """The tensor with the axis as its last, and the function that moves it back; `check_axis` has checked it."""
    rank = tensor.shape.rank
    if axis == -1 or (rank is not None and axis % rank == rank - 1):
        return tensor, lambda result: result
    if rank is None:
        axis, rank = _run_time_axis(tensor, axis)
        before, after = tf.range(axis), tf.range(axis, rank - 1)
        there, back = (before, after + 1, [axis]), (before, [rank - 1], after)
        there, back = tf.concat(there, 0), tf.concat(back, 0)
    else:
        axis %= rank
        there = [*range(axis), *range(axis + 1, rank), axis]
        back = [*range(axis), rank - 1, *range(axis, rank - 1)]
    return tf.transpose(tensor, there), lambda result: tf.transpose(result, back)


def softcap_or_none(softcap):
    """A float, or None. Raises ValueError."""
    if softcap is None:
        return None
    softcap = _number("softcap", softcap, _LARGEST, "a number above 0, or None")
    if softcap == 0:
        raise ValueError("softcap is 0.0, expected a number above 0, or None")
    return softcap


def capped(logits, softcap):
    """The logits softcap * tanh(x / softcap), computed in float32 for 16-bit logits."""
    return logits if softcap is None else tf.cast(softcap * _tanh(logits, softcap), logits.dtype)


def capped_grad(d_capped, logits, softcap):
    """What comes in to `capped` as what comes in to its logits."""
    if softcap is None:
        return d_capped
    slope = 1 - tf.square(_tanh(logits, softcap))
    return tf.cast(tf.cast(d_capped, slope.dtype) * slope, d_capped.dtype)


def _tanh(logits, softcap):
    return tf.tanh(tf.cast(logits, value_dtype(logits.dtype)) / softcap)


def class_weights_tensor(class_weights, logits, dtype):
    """Weights [V] of a dtype for logits [..., V], or a matrix that gives them; or None. Raises ValueError."""
    if class_weights is None:
        return None
    weights = converted(class_weights, dtype)
    classes = logits.shape[-1] if logits.shape.rank else None
    check_shape("class_weights", weights, tf.TensorShape([classes]), "one for each class")
    if classes is not None and weights.shape == [classes]:
        return weights
    check = tf.debugging.assert_equal(
        tf.shape(weights), tf.shape(logits)[-1:], "class_weights, expected one for each class"
    )
    with tf.control_dependencies([check]):
        return tf.identity(weights)


def weights_of_labels(weights, labels):
    """Of each row; 1 where its label is no class, whose loss is 0 or NaN."""
    count = tf.shape(weights, labels.dtype)[0]
    is_class = (labels >= 0) & (labels < count)
    return tf.where(is_class, tf.gather(weights, tf.where(is_class, labels, 0)), tf.ones([], weights.dtype))


def logits_tensor(logits, axis):
    """Logits as a tensor with at least one class on the axis. Raises ValueError."""
    logits = floating("logits", logits)
    check_axis("logits", logits.shape, axis)
    if logits.shape.rank is not None and logits.shape[axis] == 0:
        raise ValueError(f"logits are {text(logits.shape)}, expected at least one class on axis {axis}")
    return logits


def axis_last(logits, axis):
    """Logits with the axis as their last, and the function that moves it back. Raises ValueError."""
    axis = static_axis(axis)
    return move_axis_last(logits_tensor(logits, axis), axis)


def check_shape(name, tensor, expected, meaning):
    """Raises ValueError if the static shape cannot be the expected one."""
    if not tensor.shape.is_compatible_with(expected):
        raise ValueError(f"{name} are {text(tensor.shape)}, expected {text(expected)}: {meaning}")


def integer_labels(labels):
    """Labels as int32 or int64. Raises ValueError."""
    # Python numbers: no label at all is an int, too.
    hint = None if hasattr(labels, "dtype") else tf.int32
    labels = tf.convert_to_tensor(labels, dtype_hint=hint)
    dtype = _LABEL_DTYPES.get(labels.dtype)
    if dtype is None:
        raise ValueError(f"labels are {labels.dtype.name}, expected int32 or int64")
    return tf.cast(labels, dtype)


def _number(name, value, largest, expected):
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value <= largest:
        raise ValueError(f"{name} is {value!r}, expected {expected}")
    return float(value)


def _float_parts(number):
    """Floats whose sum is the number: an attr has 32 bits, a number 64."""
    parts = []
    for _ in range(3):
        parts.append(float(np.float32(number)))
        number -= parts[-1]
    return [part for part in parts if part]


def smoothing_attr(label_smoothing):
    """As attrs of an op. Raises ValueError."""
    number = _number("label_smoothing", label_smoothing, 1, "a number in [0, 1]")
    return {"label_smoothing": _float_parts(number)}


def label_loss_attrs(ignore_index, label_smoothing, z_loss):
    """As attrs of an op. Raises ValueError."""
    z_loss = _number("z_loss", z_loss, _LARGEST, "a finite number that is not negative")
    attrs = {**smoothing_attr(label_smoothing), "z_loss": _float_parts(z_loss)}
    if ignore_index is None:
        return attrs
    is_int = isinstance(ignore_index, Integral) and not isinstance(ignore_index, bool)
    if not is_int or not -(2**63) <= ignore_index < 2**63:
        raise ValueError(f"ignore_index is {ignore_index!r}, expected an int or None")
    return {**attrs, "ignores": True, "ignore_index": int(ignore_index)}
