"""Ops on images and masks."""

from tensorflow_ops.image.python.ops.connected_components import ConnectedComponents, connected_components
from tensorflow_ops.image.python.ops.correlation_cost import correlation_cost
from tensorflow_ops.image.python.ops.distance_transform import euclidean_distance_transform
from tensorflow_ops.image.python.ops.grid_sample import dense_image_warp, grid_sample
from tensorflow_ops.image.python.ops.warps import elastic_transform, map_coordinates

__all__ = [
    "ConnectedComponents",
    "connected_components",
    "correlation_cost",
    "dense_image_warp",
    "elastic_transform",
    "euclidean_distance_transform",
    "grid_sample",
    "map_coordinates",
]
