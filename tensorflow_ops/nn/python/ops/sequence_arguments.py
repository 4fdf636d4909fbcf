"""Checks and conversions of labels and lengths."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, ragged
from tensorflow_ops.nn.python.ops import nn_arguments


def both_lengths(label_lengths, logit_lengths):
    """Returns both lengths, of one dtype: int64 if either is. Raises ValueError."""
    lengths = [
        nn_arguments.integers("label_lengths", label_lengths),
        nn_arguments.integers("logit_lengths", logit_lengths),
    ]
    # fits: int32 or int64
    return lengths if lengths[0].dtype == lengths[1].dtype else [tf.cast(t, tf.int64) for t in lengths]


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
    labels, label_lengths = ragged.padded(
        "labels", labels, "label_lengths", label_lengths, padding=-1, drop_padding=True
    )
    logits, logit_lengths = ragged.padded("logits", logits, "logit_lengths", logit_lengths, padding=None)
    logits = arguments.float_tensor("logits", logits)
    attrs = {"blank_index": blank_index(index), "Tvalue": arguments.at_least_float32(logits.dtype)}
    return (nn_arguments.integers("labels", labels), logits, *both_lengths(label_lengths, logit_lengths)), attrs
