"""NumPy functions as ops: prototypes of what gets a kernel later."""

from tensorflow_ops.prototyping.python.python_op import python_op

__all__ = ["python_op"]
