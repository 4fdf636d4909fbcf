"""Static dims where they are known, dynamic dims where they are not."""

from tensorflow_ops.shapes.python.shapes import get_shape, reshape

__all__ = ["get_shape", "reshape"]
