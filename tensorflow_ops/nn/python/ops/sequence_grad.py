"""Gradients and vectorization of the ops of label sequences. The gradients are kernels'.

Second derivatives do not exist. The gradient ops have a gradient to their upstream gradient, in which they are linear:
forward mode needs it.

The losses pass two numbers of each row of logits, `largest` and `rest`, to their gradient ops. They are no public
results: gradients to them are dropped.
"""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, pfor
from tensorflow_ops.core.python.gradients import call, is_needed, refuse
from tensorflow_ops.core.python.library import ops


def _sum_products(dd_logits, d_logits, dtype):
    """Returns the sums of products of each example, in the dtype."""
    product = tf.cast(dd_logits, dtype) * tf.cast(d_logits, dtype)
    return tf.reduce_sum(product, tf.range(1, tf.rank(product)))


def _register(name, grad, function):
    @tf.RegisterGradient(f"TensorflowOps>{name}")
    def _loss_grad(op, d_loss, *_):
        d_logits = call(grad, op, *op.inputs, d_loss, *op.outputs[1:])
        return [None, d_logits, None, None]

    @tf.RegisterGradient(f"TensorflowOps>{name}Grad")
    def _loss_grad_grad(op, dd_logits):
        dtype = arguments.at_least_float32(dd_logits.dtype)
        inputs, d_loss, sums = op.inputs[:4], op.inputs[4], op.inputs[5:]
        to_upstream = None
        if is_needed(op, 4):
            d_logits = call(grad, op, *inputs, tf.ones_like(d_loss), *sums)
            to_upstream = _sum_products(dd_logits, d_logits, dtype)
        refused = refuse(op, 1, f"{function} has no second derivatives", [dd_logits])
        return [None, refused, None, None, to_upstream, None, None]

    for op in (name, f"{name}Grad"):
        pfor.register(f"TensorflowOps>{op}")(pfor.convert_folded)


_register("CtcLoss", ops.tensorflow_ops_ctc_loss_grad, "ctc_loss")
_register("RnntLoss", ops.tensorflow_ops_rnnt_loss_grad, "rnnt_loss")
