"""Arithmetic on boxes [..., 4], x1 y1 x2 y2 in pixels."""

import numpy as np

# Deltas are divided by these, so that their magnitude is like that of the logits. The
# values are the standard deviations that Fast R-CNN measured on its data.
DELTA_SCALES = np.float32([0.1, 0.1, 0.2, 0.2])
MAX_LOG_SCALE = np.log(1000 / 16)  # Detectron's bound: keeps exp() of bad predictions finite


def area(boxes: np.ndarray) -> np.ndarray:
    """Returns areas [...], 0 for inverted boxes."""
    return np.maximum(boxes[..., 2:] - boxes[..., :2], 0).prod(-1)


def iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the intersection over union of boxes that broadcast against each other."""
    low, high = np.maximum(a[..., :2], b[..., :2]), np.minimum(a[..., 2:], b[..., 2:])
    common = area(np.concatenate([low, high], -1))
    return common / (area(a) + area(b) - common)


def clip(boxes: np.ndarray, size: float) -> np.ndarray:
    """Clips boxes to a square image."""
    return np.clip(boxes, 0, size).astype(np.float32)


def _center_and_size(boxes):
    size = boxes[..., 2:] - boxes[..., :2]
    return boxes[..., :2] + size / 2, size


def encode(proposals: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Returns the deltas from proposals to boxes: R-CNN's (dx, dy, log dw, log dh), scaled."""
    (center, size), (to_center, to_size) = _center_and_size(proposals), _center_and_size(boxes)
    return np.concatenate([(to_center - center) / size, np.log(to_size / size)], -1) / DELTA_SCALES


def decode(proposals: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """Applies deltas to proposals: the inverse of `encode`."""
    center, size = _center_and_size(proposals)
    deltas = deltas * DELTA_SCALES
    center = center + deltas[..., :2] * size
    size = size * np.exp(np.minimum(deltas[..., 2:], MAX_LOG_SCALE))
    return np.concatenate([center - size / 2, center + size / 2], -1)
