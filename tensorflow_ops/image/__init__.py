"""Ops on images and masks."""

from tensorflow_ops.masks.python.ops import masks_pfor  # noqa: F401  (registers vectorization)
from tensorflow_ops.masks.python.ops.connected_components import ConnectedComponents, connected_components
from tensorflow_ops.masks.python.ops.distance_transform import euclidean_distance_transform

__all__ = ["ConnectedComponents", "connected_components", "euclidean_distance_transform"]
