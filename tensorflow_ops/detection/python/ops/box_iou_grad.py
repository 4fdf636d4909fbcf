"""Gradients and vectorization of box_iou and box_iou_loss.

Second derivatives do not exist. The gradient ops have a gradient to their upstream gradient, in which they are linear:
forward mode needs it.
"""

import tensorflow as tf

from tensorflow_ops.core.python import pfor
from tensorflow_ops.core.python.gradients import call, is_needed, refuse
from tensorflow_ops.core.python.library import ops


@tf.RegisterGradient("TensorflowOps>BoxIou")
def _box_iou_grad(op, d_iou):
    if tf.compat.as_str(op.get_attr("box_format")) == "cxcywhr":
        reason = "box_iou of rotated boxes (box_format='cxcywhr') has no gradient"
        return [refuse(op, i, reason, [d_iou]) for i in range(2)]
    return call(ops.tensorflow_ops_box_iou_grad, op, d_iou, *op.inputs)


@tf.RegisterGradient("TensorflowOps>BoxIouLoss")
def _box_iou_loss_grad(op, d_loss):
    return call(ops.tensorflow_ops_box_iou_loss_grad, op, d_loss, *op.inputs)


def _along(op, boxes1, boxes2, dd_boxes1, dd_boxes2):
    """Returns the derivative of each pair's overlap as the boxes, [..., 4] each, move along dd_boxes."""
    ones = tf.ones_like(boxes1[..., 0])
    d_boxes1, d_boxes2 = call(ops.tensorflow_ops_box_iou_loss_grad, op, -ones, boxes1, boxes2)
    return tf.reduce_sum(d_boxes1 * dd_boxes1 + d_boxes2 * dd_boxes2, -1)


def _second_order(op, upstream, to_upstream):
    """Returns gradients of a gradient op, which is linear in its first input; those to boxes are refused."""
    name = "box_iou_loss" if op.type.endswith("LossGrad") else "box_iou"
    reason = f"{name} has no second derivatives"
    return [to_upstream() if is_needed(op, 0) else None, *(refuse(op, i, reason, upstream) for i in (1, 2))]


@tf.RegisterGradient("TensorflowOps>BoxIouLossGrad")
def _box_iou_loss_grad_grad(op, dd_boxes1, dd_boxes2):
    return _second_order(op, [dd_boxes1, dd_boxes2], lambda: -_along(op, *op.inputs[1:], dd_boxes1, dd_boxes2))


@tf.RegisterGradient("TensorflowOps>BoxIouGrad")
def _box_iou_grad_grad(op, dd_boxes1, dd_boxes2):
    def to_upstream():
        """Forms all pairs, in tensors of [..., N, M, 4]."""
        _, boxes1, boxes2 = op.inputs
        shape = tf.concat([tf.shape(op.inputs[0]), [4]], 0)
        rows = [tf.broadcast_to(t[..., :, tf.newaxis, :], shape) for t in (boxes1, dd_boxes1)]
        columns = [tf.broadcast_to(t[..., tf.newaxis, :, :], shape) for t in (boxes2, dd_boxes2)]
        return _along(op, rows[0], columns[0], rows[1], columns[1])

    return _second_order(op, [dd_boxes1, dd_boxes2], to_upstream)


# Ops of any batch dims: the iterations become the first one.
for _name in ("BoxIou", "BoxIouGrad", "BoxIouLoss", "BoxIouLossGrad"):
    pfor.register(f"TensorflowOps>{_name}")(pfor.convert_batched)
