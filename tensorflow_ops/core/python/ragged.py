"""RaggedTensors and SparseTensors as arguments of functions whose ops take dense tensors."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph

_Function = TypeVar("_Function", bound=Callable[..., Any])


def rows(name, ragged, dims):
    """Returns a RaggedTensor's values, which are dense. Raises ValueError unless only dim 1 is ragged."""
    if ragged.ragged_rank != 1:
        raise ValueError(f"{name} has {ragged.ragged_rank} ragged dims, expected one: {dims}")
    return ragged.values


def on_flat_values(function: _Function) -> _Function:
    """Lets a function of rows [..., n] take RaggedTensors, whose last dim is not ragged; a decorator.

    The function gets their flat values, and its results the rows of the first RaggedTensor.
    """

    @functools.wraps(function)
    def call(*args, **kwargs):
        if autograph.is_among(tf.RaggedTensor, args, kwargs):
            return _call_on_flat_values(function, args, kwargs)
        return function(*args, **kwargs)

    return cast(_Function, call)


def _call_on_flat_values(function, args, kwargs):
    if kwargs.get("axis", -1) != -1:
        raise ValueError(f"axis is {kwargs['axis']}, expected -1: a tensor is ragged")
    ragged = [value for value in tf.nest.flatten((args, kwargs)) if isinstance(value, tf.RaggedTensor)]
    for value in ragged:
        # Floats have the dim of a row's numbers, integers are a row's label.
        if value.dtype.is_floating and value.flat_values.shape.rank == 1:
            raise ValueError(f"a RaggedTensor has shape {value.shape}, expected a last dim of one size")
    splits = ragged[0].nested_row_splits
    checks = []
    for other in ragged[1:]:
        if other.ragged_rank != len(splits):
            raise ValueError(f"RaggedTensors have {len(splits)} and {other.ragged_rank} ragged dims, expected as many")
        for ours, theirs in zip(splits, other.nested_row_splits, strict=True):
            if ours is not theirs:
                message = "RaggedTensors have rows of different lengths"
                checks.append(tf.debugging.assert_equal(tf.cast(ours, theirs.dtype), theirs, message))
    with tf.control_dependencies([check for check in checks if check is not None]):
        flat = tf.nest.map_structure(_flat_values, (args, kwargs))
    result = function(*flat[0], **flat[1])
    return tf.nest.map_structure(ragged[0].with_flat_values, result)


def _flat_values(value):
    return tf.identity(value.flat_values) if isinstance(value, tf.RaggedTensor) else value


def padded(name, value, lengths_name, lengths, padding):
    """Returns a dense tensor and lengths [N]: of a RaggedTensor [N, (T), ...], or of padded labels if lengths are None.

    Args:
      name: the argument's name, for errors.
      value: a tensor; a RaggedTensor, or a SparseTensor of labels [N, T].
      lengths_name: the name of `lengths`, for errors.
      lengths: as the user gives them, or None.
      padding: None: without lengths, all of dim 1 counts. A number: fills labels, which end
        before their first negative one.

    Raises:
      ValueError: lengths of a RaggedTensor, deeper ragged dims.
    """
    if isinstance(value, tf.RaggedTensor):
        if lengths is not None:
            raise ValueError(f"{lengths_name} are given, expected None: {name} is a RaggedTensor, which has lengths")
        rows(name, value, "[N, (T), ...]")
        return value.to_tensor(padding), value.row_lengths()
    if isinstance(value, tf.SparseTensor) and padding is not None:
        value = tf.sparse.to_dense(value, padding)
    if lengths is not None:
        return value, lengths
    tensor = arguments.int_tensor(name, value) if padding is not None else arguments.dense_tensor(name, value)
    if tensor.shape.rank is not None and tensor.shape.rank < 2:
        text = arguments.shape_text(tensor.shape)
        raise ValueError(f"{lengths_name} are None, expected lengths, or {name} of at least two dims, not {text}")
    if padding is None:
        sizes = tf.shape(tensor)
        return tensor, tf.fill(sizes[:1], sizes[1])
    is_label = tf.cast(tensor, tf.int64) >= 0
    return tensor, tf.reduce_sum(tf.math.cumprod(tf.cast(is_label, tf.int32), 1), 1)
