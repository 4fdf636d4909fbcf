"""The quality of refined boxes and of detections."""

from collections.abc import Sequence

import numpy as np
from data import Scene, targets
from model import Detections

import tensorflow_ops as tfo


def refinement(
    scenes: Sequence[Scene], proposals: np.ndarray, refined: np.ndarray, probabilities: np.ndarray
) -> dict[str, float]:
    """Compares proposals and refined boxes, both [N, R, 4], with the signs of N scenes.

    Returns:
      the mean IoU of proposals of signs, and of their refined boxes; and the accuracy of all
      proposals, with background as a class.
    """
    labels, signs, overlap = (np.stack(x) for x in zip(*map(targets, scenes, proposals), strict=True))
    foreground = labels > 0
    iou_loss = tfo.detection.box_iou_loss(refined[foreground], signs[foreground], mode="iou")
    return {
        "IoU of proposals": overlap[foreground].mean(),
        "IoU of refined boxes": 1 - iou_loss.numpy().mean(),
        "class accuracy": (probabilities.argmax(-1) == labels).mean(),
    }


def average_precision(scenes: Sequence[Scene], found: Sequence[Detections]) -> dict[str, float]:
    """Returns COCO's numbers, such as "AP", "AP50" and "AP75", of the detections of each image."""
    metric = tfo.metrics.MeanAveragePrecision()
    for scene, detections in zip(scenes, found, strict=True):
        truth = {"boxes": scene.boxes[np.newaxis], "classes": scene.classes[np.newaxis]}
        metric.update_state(truth, {name: x[np.newaxis] for name, x in detections._asdict().items()})
    return {name: float(value) for name, value in metric.result().items()}
