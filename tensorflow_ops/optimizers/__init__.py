"""Keras 3 optimizers."""

from tensorflow_ops.optimizers.python.ops.lazy_adam import LazyAdam

__all__ = ["LazyAdam"]
