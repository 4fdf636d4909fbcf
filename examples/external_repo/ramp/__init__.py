"""An op in a separate repository."""

import os

import tensorflow as tf

_ops = tf.load_op_library(os.path.join(os.path.dirname(os.path.abspath(__file__)), "_ramp_ops.so"))


def ramp(x: tf.Tensor, *, limit: float = 1.0, name: str | None = None) -> tf.Tensor:
    """Clips values to [0, limit].

    Args:
      x: a tensor of any shape: float16, bfloat16, float32 or float64.
      limit: a Python number, at least 0.
      name: name of the op.

    Returns:
      A tensor of x's shape and dtype, differentiable in x: the gradient passes
      where 0 < x < limit. NaN stays NaN.

    Raises:
      InvalidArgumentError: limit is negative.
    """
    return _ops.ramp_ops_ramp(x=x, limit=limit, name=name)


@tf.RegisterGradient("RampOps>Ramp")
def _ramp_grad(op, dy):
    x = op.inputs[0]
    passes = tf.logical_and(x > 0, x < tf.cast(op.get_attr("limit"), x.dtype))
    return tf.where(passes, dy, tf.zeros_like(dy))
