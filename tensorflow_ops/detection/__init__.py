"""Overlap and suppression of boxes, matching, and region pooling, for detection models."""

from tensorflow_ops.detection.python.ops import box_iou_grad, roi_grad  # noqa: F401  (registrations)
from tensorflow_ops.detection.python.ops.assignment import Assignment, linear_sum_assignment
from tensorflow_ops.detection.python.ops.box_iou import box_iou, box_iou_loss
from tensorflow_ops.detection.python.ops.nms import Detections, SoftNms, batched_nms, multiclass_nms, nms, soft_nms
from tensorflow_ops.detection.python.ops.ps_roi import ps_roi_align, ps_roi_pool
from tensorflow_ops.detection.python.ops.roi_align import multiscale_roi_align, roi_align
from tensorflow_ops.detection.python.ops.roi_pool import RoIPoolWithArgmax, roi_pool, roi_pool_with_argmax

__all__ = [
    "Assignment",
    "Detections",
    "RoIPoolWithArgmax",
    "SoftNms",
    "batched_nms",
    "box_iou",
    "box_iou_loss",
    "linear_sum_assignment",
    "multiclass_nms",
    "multiscale_roi_align",
    "nms",
    "ps_roi_align",
    "ps_roi_pool",
    "roi_align",
    "roi_pool",
    "roi_pool_with_argmax",
    "soft_nms",
]
