"""The public function of HingeLoss, and its gradients."""

from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, gradients
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike


class HingeLoss(NamedTuple):
    """The result of `hinge_loss`."""

    loss: tf.Tensor
    rank: tf.Tensor


@autograph.op_function
def hinge_loss(labels: TensorLike, logits: TensorLike, *, ignore_index: int = -1, name: str | None = None) -> HingeLoss:
    """Squared hinge loss of class labels, the sum of max(0, 1 + x - x[label])^2 over the other classes.

    The multiclass loss of Weston and Watkins, 1999.

    >>> import tensorflow_ops as tfo
    >>> loss, rank = tfo.tutorial.hinge_loss([0, 2, -1], [[2.0, 1.5, 0.0], [1.0, 0.0, 0.5], [3.0, 0.0, 0.0]])
    >>> loss.numpy()
    array([0.25, 2.5 , 0.  ], dtype=float32)
    >>> rank.numpy()
    array([0, 1, 0], dtype=int32)

    Args:
      labels: int32 or int64 [rows]: each row's class, in [0, classes) or ignore_index.
      logits: float16, bfloat16, float32 or float64 [rows, classes].
      ignore_index: a Python integer below 2**31, the label of rows with loss, rank and gradient 0.
      name: name of the op.

    Returns:
      `(loss, rank)`, [rows]: the loss, of logits' dtype, computed in float32 for 16-bit logits and differentiable
      once in logits; and int32, how many classes have greater logits than the label.

    Raises:
      ValueError: a wrong dtype or shape; ignore_index is no such integer.
      InvalidArgumentError: shapes that do not fit, found at run time; on the CPU also
        "labels[3] is 7, expected [0, 5) or ignore_index -1" (a GPU makes that row's results 0).
    """
    labels = arguments.int_tensor("labels", labels)
    if labels.dtype not in (tf.int32, tf.int64):
        raise ValueError(f"labels are {labels.dtype.name}, expected int32 or int64")
    return HingeLoss(
        *ops.tensorflow_ops_hinge_loss(
            logits=arguments.float_tensor("logits", logits),
            labels=arguments.cast(labels, tf.int64),  # fits: int32 or int64
            ignore_index=arguments.static_int("ignore_index", ignore_index, -arguments.MAX_INT32),
            name=name,
        )
    )


@tf.RegisterGradient("TensorflowOps>HingeLoss")
def _hinge_loss_grad(op, d_loss, d_rank):
    """The gradient to logits. Integers, such as labels and `rank`, have none."""
    del d_rank
    return gradients.call(ops.tensorflow_ops_hinge_loss_grad, op, d_loss, *op.inputs), None


@tf.RegisterGradient("TensorflowOps>HingeLossGrad")
def _hinge_loss_grad_grad(op, dd_logits):
    """Each row of d_logits is d_loss times the row's slopes. Their derivative has no kernel."""
    d_loss, logits, labels = op.inputs
    slopes = gradients.call(ops.tensorflow_ops_hinge_loss_grad, op, tf.ones_like(d_loss), logits, labels)
    to_logits = gradients.refuse(op, 1, "hinge_loss has no second derivative", [dd_logits])
    return tf.reduce_sum(dd_logits * slopes, -1), to_logits, None
