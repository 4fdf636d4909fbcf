"""Region pooling for detection models."""

from tensorflow_ops.detection.python.ops.roi_ops import RoIPoolWithArgmax, roi_pool, roi_pool_with_argmax

__all__ = ["RoIPoolWithArgmax", "roi_pool", "roi_pool_with_argmax"]
