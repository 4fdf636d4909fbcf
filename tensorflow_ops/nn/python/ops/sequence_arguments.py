"""Checks and conversions of labels and lengths."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments

_INT_DTYPES = {
    tf.int8: tf.int32,
    tf.uint8: tf.int32,
    tf.int16: tf.int32,
    tf.uint16: tf.int32,
    tf.int32: tf.int32,
    tf.uint32: tf.int64,
    tf.int64: tf.int64,
}


def ints(name, value):
    """Returns labels or lengths as int32 or int64. Raises ValueError."""
    tensor = arguments.int_tensor(name, value)
    dtype = _INT_DTYPES.get(tensor.dtype)
    if dtype is None:
        raise ValueError(f"{name} are {tensor.dtype.name}, expected int32 or int64")
    return tf.cast(tensor, dtype)


def both_lengths(label_lengths, logit_lengths):
    """Returns both lengths, of one dtype: int64 if either is. Raises ValueError."""
    label_lengths, logit_lengths = ints("label_lengths", label_lengths), ints("logit_lengths", logit_lengths)
    if label_lengths.dtype != logit_lengths.dtype:
        label_lengths, logit_lengths = (tf.cast(t, tf.int64) for t in (label_lengths, logit_lengths))
    return label_lengths, logit_lengths


def blank_index(index):
    """Returns the attr blank_index: a class, or -1, the last one. Raises ValueError."""
    return arguments.static_int("blank_index", index, -1)


def blank_class(index, logits):
    """Returns the class, an int or int32 tensor, that attr blank_index stands for."""
    if index >= 0:
        return index
    return tf.shape(logits)[-1] - 1


def loss_inputs(labels, logits, label_lengths, logit_lengths, index):
    """Returns the inputs of an op of label sequences, and the attrs of all such ops. Raises ValueError."""
    logits = arguments.float_tensor("logits", logits)
    attrs = {"blank_index": blank_index(index), "Tvalue": arguments.at_least_float32(logits.dtype)}
    return (ints("labels", labels), logits, *both_lengths(label_lengths, logit_lengths)), attrs
