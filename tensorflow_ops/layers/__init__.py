"""Keras 3 layers of the ops."""

from tensorflow_ops.layers.python.roi_layers import RoIPool

__all__ = ["RoIPool"]
