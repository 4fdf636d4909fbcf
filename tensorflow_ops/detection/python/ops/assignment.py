"""The public function linear_sum_assignment."""

from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, pfor
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike

tf.no_gradient("TensorflowOps>LinearSumAssignment")
pfor.register("TensorflowOps>LinearSumAssignment")(pfor.convert_batched)


class Assignment(NamedTuple):
    """The result of `linear_sum_assignment`.

    Attributes:
      columns: int32 [..., rows], the column of each row; -1: none.
      rows: int32 [..., columns], the row of each column; -1: none.
    """

    columns: tf.Tensor
    rows: tf.Tensor


@autograph.op_function
def linear_sum_assignment(
    costs: TensorLike, *, counts: TensorLike | None = None, maximize: bool = False, name: str | None = None
) -> Assignment:
    """Matches rows with columns one to one, at the smallest sum of costs.

    Matches as many rows and columns as possible, and of all such matchings finds one with
    the smallest sum: the Hungarian matching, for example of DETR's queries and an image's
    objects (arXiv:2005.12872). Q rows, T columns.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> costs = [[4.0, 1.0], [2.0, 0.0], [4.0, 2.0]]
    >>> columns, rows = tfo.detection.linear_sum_assignment(costs)
    >>> columns.numpy(), rows.numpy()    # 1 + 2
    (array([ 1,  0, -1], dtype=int32), array([1, 0], dtype=int32))

    NaN and +infinity (with maximize, -infinity) forbid a pair, so rows or columns may stay
    without one. The other infinity counts as the lowest (with maximize, the greatest) finite
    number of costs' dtype. Where several matchings have the same sum, all devices find the
    same one. Sums are compared in float64. Each example takes O(n^2 m) time for n = min(Q,
    T), m = max(Q, T), mostly less, with the shortest augmenting paths of D. F. Crouse, "On
    implementing 2D rectangular assignment algorithms", doi.org/10.1109/TAES.2016.140952.

    Args:
      costs: [..., Q, T]: float16, bfloat16, float32, float64, or an integer dtype, converted
        to float64.
      counts: int32 or int64 [...], in [0, T]: only the first columns of each example count,
        the others are padding, and may hold anything. None: all.
      maximize: whether to find the largest sum instead.
      name: name of the op.

    Returns:
      Assignment(columns int32 [..., Q], rows int32 [..., T]): each row's column, and each
      column's row; -1 for none, such as for padding. No gradient: gather costs with them.

    Raises:
      ValueError: a wrong shape, dtype or option.
      InvalidArgumentError: the same errors, found at run time; on the CPU also counts out of
        their range (a GPU matches nothing in such an example).
    """
    costs = arguments.dense_tensor("costs", costs)
    if costs.dtype.is_integer:
        costs = tf.cast(costs, tf.float64)
    if costs.dtype not in arguments.FLOAT_DTYPES:
        raise ValueError(
            f"costs are {costs.dtype.name}, expected float16, bfloat16, float32, float64 or an integer dtype"
        )
    counts = [] if counts is None else [arguments.tensor_of_kind("counts", counts, tf.int64)]
    maximize = arguments.static_bool("maximize", maximize)
    return Assignment(*ops.tensorflow_ops_linear_sum_assignment(costs, counts, maximize=maximize, name=name))
