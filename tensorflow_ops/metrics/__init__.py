"""Keras 3 metrics of detections and of sequences."""

from tensorflow_ops.metrics.python.ops.edit_distance import EditDistance
from tensorflow_ops.metrics.python.ops.mean_average_precision import MeanAveragePrecision
from tensorflow_ops.metrics.python.ops.tag_accuracy import TagAccuracy

__all__ = ["EditDistance", "MeanAveragePrecision", "TagAccuracy"]
