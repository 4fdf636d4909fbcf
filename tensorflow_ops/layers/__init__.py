"""Keras 3 layers of the ops."""

from tensorflow_ops.layers.python.correlation_cost import CorrelationCost
from tensorflow_ops.layers.python.crf import CRF
from tensorflow_ops.layers.python.deform_conv import DeformConv2D
from tensorflow_ops.layers.python.merge import Merge
from tensorflow_ops.layers.python.roi_layers import MultiScaleRoIAlign, PSRoIAlign, PSRoIPool, RoIAlign, RoIPool

__all__ = [
    "CRF",
    "CorrelationCost",
    "DeformConv2D",
    "Merge",
    "MultiScaleRoIAlign",
    "PSRoIAlign",
    "PSRoIPool",
    "RoIAlign",
    "RoIPool",
]
