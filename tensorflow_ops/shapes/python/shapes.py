"""Static dims where they are known, dynamic dims where they are not: get_shape, reshape."""

import math
from collections.abc import Sequence
from typing import overload

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.type_aliases import DTypeLike, TensorLike


def _dense(tensor):
    """Returns a dense tensor or a KerasTensor. Raises ValueError."""
    if isinstance(tensor, keras.KerasTensor):
        if tensor.sparse:
            raise ValueError("tensor is a sparse KerasTensor, expected a dense one")
        return tensor
    return arguments.dense_tensor("tensor", tensor)


@autograph.marked
def get_shape(
    tensor: TensorLike | keras.KerasTensor, *, out_type: DTypeLike = tf.int32, name: str | None = None
) -> list[int | tf.Tensor] | tf.Tensor:
    """Returns the dims of a tensor: ints for known dims, scalar tensors for unknown ones.

    A graph can check a known dim, fold it and plan memory with it; `tf.shape` hides it
    behind an op. This function reads `tensor.shape`, and adds one `tf.shape` only if a dim
    is unknown.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> tfo.shapes.get_shape(tf.zeros([2, 3]))
    [2, 3]
    >>> @tf.function(input_signature=[tf.TensorSpec([None, 32])])
    ... def halves(x):
    ...     batch, width = tfo.shapes.get_shape(x)
    ...     print(tf.is_tensor(batch), width)
    ...     return tf.reshape(x, [batch, 2, width // 2])
    >>> halves(tf.zeros([5, 32])).shape
    True 32
    TensorShape([5, 2, 16])

    The definition is the recipe of the same name in "Effective TensorFlow", extended to
    unknown ranks.

    Args:
      tensor: a dense tensor, or a value that converts to one. A KerasTensor must have
        known dims only: a symbolic input has no value to read others from.
      out_type: int32 or int64: the dtype of dims that are tensors.
      name: name of the op that reads unknown dims.

    Returns:
      A list with an int or a scalar tensor for each dim. If the rank is unknown,
      `tf.shape(tensor)`, a tensor [rank].

    Raises:
      ValueError: a RaggedTensor, SparseTensor, or a KerasTensor with unknown dims.
    """
    tensor = _dense(tensor)
    if out_type not in (tf.int32, tf.int64):
        raise ValueError(f"out_type is {out_type!r}, expected tf.int32 or tf.int64")
    known = tf.TensorShape(tensor.shape)
    if known.is_fully_defined():
        return known.as_list()
    if isinstance(tensor, keras.KerasTensor):
        raise ValueError(
            f"tensor is a KerasTensor of shape {tensor.shape}: its unknown dims have no value before the model runs. "
            "Call get_shape in the call method of a layer"
        )
    shape = tf.shape(tensor, out_type, name=name or "get_shape")
    if known.rank is None:
        return shape
    return [shape[axis] if n is None else n for axis, n in enumerate(known)]


def _groups(dims, shape):
    """Returns, for each dim of the result, the list of its axes in the tensor. Raises ValueError."""
    if not isinstance(dims, list | tuple):
        raise ValueError(f"dims is {dims!r}, expected a list of axes and lists of axes")
    groups = [list(dim) if isinstance(dim, list | tuple) else [dim] for dim in dims]
    axes = [axis for group in groups for axis in group]
    if not all(arguments.is_int(axis) for axis in axes):
        raise ValueError(f"dims is {dims!r}, expected a list of axes (ints) and lists of axes")
    # dims has each axis once, and so gives an unknown rank.
    rank = len(axes) if shape.rank is None else shape.rank
    meaning = f"the tensor is {shape}" if shape.rank is not None else f"{rank} axes are named"
    if any(not -rank <= axis < rank for axis in axes):
        raise ValueError(f"dims is {dims!r}, expected axes in [{-rank}, {rank}): {meaning}")
    if [axis % rank for axis in axes] != list(range(rank)):
        raise ValueError(
            f"dims is {dims!r}, expected each of the {rank} axes once and in order: {meaning}. "
            "For another order call tf.transpose first"
        )
    return [[int(axis) % rank for axis in group] for group in groups]


@overload
def reshape(
    tensor: keras.KerasTensor, dims: Sequence[int | Sequence[int]], name: str | None = None
) -> keras.KerasTensor: ...
@overload
def reshape(tensor: TensorLike, dims: Sequence[int | Sequence[int]], name: str | None = None) -> tf.Tensor: ...
@autograph.marked
def reshape(
    tensor: TensorLike | keras.KerasTensor, dims: Sequence[int | Sequence[int]], name: str | None = None
) -> tf.Tensor | keras.KerasTensor:
    """Merges neighbouring axes of a tensor.

    `dims` has an entry for each axis of the result: an axis of the tensor, or a list of
    neighbouring axes to merge. Known dims stay known.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> tfo.shapes.reshape(tf.zeros([2, 10, 32]), [0, [1, 2]]).shape
    TensorShape([2, 320])
    >>> @tf.function(input_signature=[tf.TensorSpec([None, None, 7, 3])])
    ... def by_row(images):
    ...     rows = tfo.shapes.reshape(images, [[0, 1], 2, 3])
    ...     print(rows.shape)
    ...     return rows
    >>> by_row(tf.zeros([4, 5, 7, 3])).shape
    (None, 7, 3)
    TensorShape([20, 7, 3])

    The definition is the recipe of the same name in "Effective TensorFlow". The recipe
    accepts axes in any order, and mixes up the elements; here another order is an error.

    Args:
      tensor: a dense tensor of any dtype, or a value that converts to one. A KerasTensor
        may have unknown dims in one axis of the result.
      dims: a list of ints and lists of ints. It has each axis of the tensor once, in
        increasing order; negative ones count from the back. An empty list adds an axis of
        size 1. A tensor of unknown rank must have as many axes as dims.
      name: name of the op.

    Returns:
      The tensor's elements in their order, with one axis for each entry of dims. Adds a
      `tf.shape` to the graph only if two or more axes of the result are unknown, or one
      beside an axis of size 0.

    Raises:
      ValueError: dims does not have each axis once and in order; a RaggedTensor or
        SparseTensor; a KerasTensor with unknown dims in two axes of the result.
      InvalidArgumentError: a tensor of unknown rank has another rank at run time.
    """
    tensor = _dense(tensor)
    groups = _groups(dims, tf.TensorShape(tensor.shape))
    if isinstance(tensor, keras.KerasTensor):
        return _reshape_symbolic(tensor, groups)
    with tf.name_scope(name or "reshape"):
        if tensor.shape.rank is None:
            tensor = tf.ensure_shape(tensor, [None] * sum(map(len, groups)))
        sizes = _known_sizes(tensor.shape, groups)
        static = tf.TensorShape(sizes)
        if sizes.count(None) == 1 and 0 not in sizes:
            sizes[sizes.index(None)] = -1
        elif None in sizes:
            shape = get_shape(tensor, out_type=tf.int64)
            for i, group in enumerate(groups):
                if sizes[i] is None:
                    sizes[i] = tf.reduce_prod([shape[axis] for axis in group]) if len(group) > 1 else shape[group[0]]
        result = tf.reshape(tensor, sizes)
        result.set_shape(static)
        return result


def _known_sizes(shape, groups):
    """Returns the sizes of the result's axes; None for an unknown dim, unless another dim of the axis is 0."""
    sizes = []
    for group in groups:
        dims = [shape[axis] for axis in group]
        sizes.append(0 if 0 in dims else None if None in dims else math.prod(dims))
    return sizes


def _reshape_symbolic(tensor, groups):
    sizes = _known_sizes(tensor.shape, groups)
    if sizes.count(None) > 1 or (None in sizes and 0 in sizes):
        raise ValueError(
            f"tensor is a KerasTensor of shape {tensor.shape}, and the result would be {sizes}: "
            "expected at most one unknown axis. Call reshape in the call method of a layer"
        )
    return keras.ops.reshape(tensor, [-1 if n is None else n for n in sizes])
