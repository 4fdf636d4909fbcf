"""Moves the axis that an op works on, or the channels of images, to the end, where kernels expect them."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import tensorflow as tf

from tensorflow_ops.core.python import arguments

DataFormat: TypeAlias = Literal["NHWC", "NCHW"]
DATA_FORMATS = get_args(DataFormat)


def check_axis(name: str, shape: tf.TensorShape, axis: Any) -> None:
    """Raises ValueError unless the static shape can have the axis."""
    if not arguments.is_int(axis):
        raise ValueError(f"axis is {axis!r}, expected an int")
    if shape.rank == 0:
        raise ValueError(f"{name} are a scalar, expected at least one dim")
    if shape.rank is not None and not -shape.rank <= axis < shape.rank:
        text = arguments.shape_text(shape)
        raise ValueError(f"axis is {axis}, expected [{-shape.rank}, {shape.rank}): {name} are {text}")


def _run_time_axis(tensor: tf.Tensor, axis: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (axis counted from the front, rank) as tensors, for a tensor of unknown rank."""
    rank = tf.rank(tensor)
    exists = (-rank <= axis) & (axis < rank)
    checked = arguments.checked("axis", tf.constant(axis), exists, "an axis of the tensor")
    # An axis that exists even so: XLA transposes when it compiles, before the check runs.
    checked = tf.where(exists, checked, 0 if axis >= 0 else -1)
    return checked if axis >= 0 else rank + checked, rank


def move_axis_last(tensor: tf.Tensor, axis: int) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Returns the tensor with the axis last, and the function that moves it back. Call `check_axis` before."""
    rank = tensor.shape.rank
    if axis == -1 or (rank is not None and axis % rank == rank - 1):
        return tensor, lambda result: result
    there: Any
    back: Any
    if rank is None:
        last, rank = _run_time_axis(tensor, axis)
        before, after = tf.range(last), tf.range(last, rank - 1)
        there, back = (before, after + 1, [last]), (before, [rank - 1], after)
        there, back = tf.concat(there, 0), tf.concat(back, 0)
    else:
        axis %= rank
        there = [*range(axis), *range(axis + 1, rank), axis]
        back = [*range(axis), rank - 1, *range(axis, rank - 1)]
    return tf.transpose(tensor, there), lambda result: tf.transpose(result, back)


def to_channels_last(name: str, tensor: tf.Tensor, data_format: DataFormat) -> tf.Tensor:
    """Returns [N, C, H, W] as [N, H, W, C] if data_format is "NCHW", else the tensor.

    Raises ValueError if a tensor that is to be transposed has another static rank.
    """
    if data_format != "NCHW":
        return tensor
    if not tensor.shape.is_compatible_with([None] * 4):
        raise ValueError(f"{name} must be [N, C, H, W], got {arguments.shape_text(tensor.shape)}")
    return tf.transpose(tensor, [0, 2, 3, 1])


def from_channels_last(tensor: tf.Tensor, data_format: DataFormat) -> tf.Tensor:
    """Returns [N, d1, ..., dk, C] as [N, C, d1, ..., dk] if data_format is "NCHW", else the tensor."""
    if data_format != "NCHW":
        return tensor
    rank = tensor.shape.rank
    if rank is None:
        rank = tf.rank(tensor)
        order: Any = tf.concat([[0, rank - 1], tf.range(1, rank - 1)], 0)
        return tf.transpose(tensor, order)
    return tf.transpose(tensor, [0, rank - 1, *range(1, rank - 1)])
