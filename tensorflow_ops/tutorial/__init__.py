"""The op that tools/new_op copies; not public."""

from tensorflow_ops.tutorial.python.ops.hinge_loss import HingeLoss, hinge_loss

__all__ = ["HingeLoss", "hinge_loss"]
