"""Arithmetic on boxes [..., 4], x1 y1 x2 y2 in pixels."""

import keras
import numpy as np

# Deltas are multiplied by these, so that their magnitude is like that of the logits. The
# values are the standard deviations that Fast R-CNN measured on its data.
DELTA_SCALES = np.float32([0.1, 0.1, 0.2, 0.2])
MAX_LOG_SCALE = float(np.log(1000 / 16))  # Detectron's bound: keeps exp() of bad predictions finite


def clip(boxes: np.ndarray, size: float) -> np.ndarray:
    """Clips boxes to a square image."""
    return np.clip(boxes, 0, size).astype(np.float32)


def decode(proposals, deltas):
    """Moves and scales boxes by R-CNN's deltas (dx, dy, log dw, log dh). Both are tensors of Keras or TensorFlow."""
    size = proposals[..., 2:] - proposals[..., :2]
    center = proposals[..., :2] + size / 2
    deltas = deltas * DELTA_SCALES
    center = center + deltas[..., :2] * size
    size = size * keras.ops.exp(keras.ops.minimum(deltas[..., 2:], MAX_LOG_SCALE))
    return keras.ops.concatenate([center - size / 2, center + size / 2], -1)
