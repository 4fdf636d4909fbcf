"""SavedModels that run without this package, in TensorFlow's own ops."""

__all__ = []
