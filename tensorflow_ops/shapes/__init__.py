"""Shapes as numbers where they are known, as tensors where they are not."""

from tensorflow_ops.shapes.python.shapes import get_shape, reshape

__all__ = ["get_shape", "reshape"]
