"""Prototypes of ops: differentiable NumPy functions, to be replaced by kernels later."""

from tensorflow_ops.prototyping.python.python_op import python_op

__all__ = ["python_op"]
