"""SavedModels that run without this package, in TensorFlow's own ops."""

from tensorflow_ops.export.python.standard_ops import to_standard_ops

__all__ = ["to_standard_ops"]
