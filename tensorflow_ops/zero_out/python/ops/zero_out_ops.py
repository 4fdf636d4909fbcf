"""The public functions of this family."""

from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.zero_out.python.ops import zero_out_grad  # noqa: F401  (registers the gradients)


class ZeroOutWithIndex(NamedTuple):
    """The result of `zero_out_with_index`."""

    zeroed: tf.Tensor
    index: tf.Tensor


@autograph.op_function
def zero_out(x: TensorLike, name: str | None = None) -> tf.Tensor:
    """Keeps the first element of a tensor and zeros the rest.

    The op of TensorFlow's guide to custom ops, for any shape and numeric dtype.

    >>> import tensorflow_ops as tfo
    >>> tfo.zero_out([[5, 4], [3, 2]]).numpy()
    array([[5, 0],
           [0, 0]], dtype=int32)

    Args:
      x: a tensor of any numeric dtype and any shape, a scalar or an empty one
        included. The first element is the first in row-major order.
      name: name of the op.

    Returns:
      A tensor of x's shape and dtype, differentiable in x to any order.
    """
    return ops.tensorflow_ops_zero_out(x=arguments.number_tensor("x", x), name=name)


@autograph.op_function
def zero_out_with_index(x: TensorLike, *, preserve_index: int = 0, name: str | None = None) -> ZeroOutWithIndex:
    """Keeps one element of a tensor, zeros the rest, and returns the element's index.

    >>> import tensorflow_ops as tfo
    >>> zeroed, index = tfo.zero_out_with_index([[5, 4], [3, 2]], preserve_index=2)
    >>> zeroed.numpy()
    array([[0, 0],
           [3, 0]], dtype=int32)
    >>> index.numpy()
    array([2], dtype=int32)

    Args:
      x: a tensor of any numeric dtype, with at least one element.
      preserve_index: a Python integer, the index in row-major order of the element to
        keep, in [0, number of elements) and below 2**31.
      name: name of the op.

    Returns:
      `(zeroed, index)`: x's shape and dtype, differentiable in x to any order; and int32 [1].

    Raises:
      ValueError: preserve_index is not an integer.
      InvalidArgumentError: preserve_index is out of range.
    """
    x = arguments.number_tensor("x", x)
    if not arguments.is_int(preserve_index):  # TensorFlow would cut a fraction
        raise ValueError(f"preserve_index is {preserve_index!r}, expected an int")
    return ZeroOutWithIndex(*ops.tensorflow_ops_zero_out_with_index(x=x, preserve_index=preserve_index, name=name))
