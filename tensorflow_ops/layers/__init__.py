"""Keras 3 layers of the ops."""

from tensorflow_ops.layers.python.attention import GroupedQueryAttention as GroupQueryAttention
from tensorflow_ops.layers.python.attention import MultiHeadAttention
from tensorflow_ops.layers.python.compare_fused import compare_fused
from tensorflow_ops.layers.python.correlation_cost import CorrelationCost
from tensorflow_ops.layers.python.crf import CRF
from tensorflow_ops.layers.python.deform_conv import DeformConv2D
from tensorflow_ops.layers.python.deformable_attention import MultiScaleDeformableAttention
from tensorflow_ops.layers.python.fused_ops import fused_ops, use_fused_ops
from tensorflow_ops.layers.python.grid_sample import GridSample
from tensorflow_ops.layers.python.merge import Merge
from tensorflow_ops.layers.python.nms import NMS
from tensorflow_ops.layers.python.roi_layers import MultiScaleRoIAlign, PSRoIAlign, PSRoIPool, RoIAlign, RoIPool

__all__ = [
    "CRF",
    "NMS",
    "CorrelationCost",
    "DeformConv2D",
    "GridSample",
    "GroupQueryAttention",
    "Merge",
    "MultiHeadAttention",
    "MultiScaleDeformableAttention",
    "MultiScaleRoIAlign",
    "PSRoIAlign",
    "PSRoIPool",
    "RoIAlign",
    "RoIPool",
    "compare_fused",
    "fused_ops",
    "use_fused_ops",
]
