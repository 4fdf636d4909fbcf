"""Checks and conversions that the nn functions share: logits, labels, axes, options."""

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments, axes

# The kernels read integers of 32 and 64 bits.
_INT_DTYPES = {
    tf.int8: tf.int32,
    tf.uint8: tf.int32,
    tf.int16: tf.int32,
    tf.uint16: tf.int32,
    tf.int32: tf.int32,
    tf.uint32: tf.int64,
    tf.int64: tf.int64,
}


def static_axis(axis):
    """Returns the axis, converted to an int if it is a tensor of known value. Raises ValueError."""
    if isinstance(axis, tf.Tensor | np.ndarray) and axis.shape == () and tf.as_dtype(axis.dtype).is_integer:
        known = tf.get_static_value(axis)
        if known is None:
            raise ValueError("axis is a tensor without a known value, expected an int")
        return known.item()
    return axis


def softcap_or_none(softcap):
    """Returns a float, or None. Raises ValueError.

    The range leaves room in float32: at 1e38 a quotient of 1 is no normal number, and flushed to 0.
    """
    if softcap is None:
        return None
    return arguments.static_number(
        "softcap", softcap, "a number above 0, from 1e-30 to 1e30, or None", lambda x: 1e-30 <= x <= 1e30
    )


def capped(logits, softcap):
    """Returns softcap * tanh(logits / softcap), computed in float32 for 16-bit logits."""
    return logits if softcap is None else tf.cast(softcap * _tanh(logits, softcap), logits.dtype)


def capped_grad(d_capped, logits, softcap):
    """Returns the gradient of `capped` to logits, for the upstream gradient d_capped."""
    if softcap is None:
        return d_capped
    slope = 1 - tf.square(_tanh(logits, softcap))
    return tf.cast(tf.cast(d_capped, slope.dtype) * slope, d_capped.dtype)


def _tanh(logits, softcap):
    return tf.tanh(tf.cast(logits, arguments.at_least_float32(logits.dtype)) / softcap)


def class_weights_tensor(class_weights, logits, dtype):
    """Returns class weights [V] of a dtype, or None. Raises ValueError.

    The last dim of `logits` is V: logits [..., V], or the matrix [D, V] that makes them.
    """
    if class_weights is None:
        return None
    weights = arguments.cast_tensor("class_weights", class_weights, dtype)
    classes = logits.shape[-1] if logits.shape.rank else None
    arguments.check_shape("class_weights", weights, [classes], "one for each class")
    size = tf.shape(logits)[-1] if classes is None else classes
    return arguments.with_shape("class_weights", weights, [size], "one for each class")


def weights_of_labels(weights, labels):
    """Returns the class weight of each label; 1 for a label that is no class, whose loss is 0 or NaN."""
    count = tf.shape(weights, labels.dtype)[0]
    is_class = (labels >= 0) & (labels < count)
    return tf.where(is_class, tf.gather(weights, tf.where(is_class, labels, 0)), tf.ones([], weights.dtype))


def logits_tensor(logits, axis):
    """Returns logits as a tensor with at least one class on the axis. Raises ValueError."""
    logits = arguments.float_tensor("logits", logits)
    axes.check_axis("logits", logits.shape, axis)
    if logits.shape.rank is not None and logits.shape[axis] == 0:
        text = arguments.shape_text(logits.shape)
        raise ValueError(f"logits are {text}, expected at least one class on axis {axis}")
    return logits


def axis_last(logits, axis):
    """Returns logits with the axis last, and the function that moves it back. Raises ValueError."""
    axis = static_axis(axis)
    return axes.move_axis_last(logits_tensor(logits, axis), axis)


def integers(name, value):
    """Returns labels or lengths as int32 or int64. Raises ValueError."""
    tensor = arguments.int_tensor(name, value)
    dtype = _INT_DTYPES.get(tensor.dtype)
    if dtype is None:
        raise ValueError(f"{name} are {tensor.dtype.name}, expected int32 or int64")
    return tf.cast(tensor, dtype)


def smoothing_attr(label_smoothing):
    """Returns label_smoothing as attrs of an op. Raises ValueError."""
    number = arguments.static_number("label_smoothing", label_smoothing, "a number in [0, 1]", lambda x: 0 <= x <= 1)
    return {"label_smoothing": arguments.float32_parts(number)}


def label_loss_attrs(ignore_index, label_smoothing, z_loss):
    """Returns the options of a loss of labels as attrs of its op. Raises ValueError."""
    z_loss = arguments.static_number(
        "z_loss", z_loss, "a finite number that is not negative", lambda x: 0 <= x <= arguments.MAX_FLOAT32
    )
    attrs = {**smoothing_attr(label_smoothing), "z_loss": arguments.float32_parts(z_loss)}
    if ignore_index is None:
        return attrs
    if not arguments.is_int(ignore_index) or not -(2**63) <= ignore_index < 2**63:
        raise ValueError(f"ignore_index is {ignore_index!r}, expected a 64-bit int or None")
    return {**attrs, "ignores": True, "ignore_index": int(ignore_index)}
