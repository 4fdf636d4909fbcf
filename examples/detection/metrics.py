"""The quality of refined boxes and of detections."""

from collections.abc import Sequence

import numpy as np
from data import Scene, images_of, targets
from model import Detections, Detector, detect, refine

import tensorflow_ops as tfo


def average_precision(scenes: Sequence[Scene], found: Sequence[Detections]) -> dict[str, float]:
    """Returns COCO's numbers, such as "AP", "AP50" and "AP75", of the detections of each image."""
    metric = tfo.metrics.MeanAveragePrecision()
    for scene, detections in zip(scenes, found, strict=True):
        truth = {"boxes": scene.boxes[np.newaxis], "classes": scene.classes[np.newaxis]}
        metric.update_state(truth, {name: x[np.newaxis] for name, x in detections._asdict().items()})
    return {name: float(value) for name, value in metric.result().items()}


def measure(detector: Detector, scenes: Sequence[Scene], proposals: np.ndarray) -> dict[str, float]:
    """Measures the refinement of proposals [N, R, 4] near the signs of N scenes, and detections from the grid.

    The IoU is a mean over proposals of signs, the accuracy is that of all proposals, with
    background as a class.
    """
    images = images_of(scenes)
    refined, probabilities = (x.numpy() for x in refine(detector.network, images, proposals))
    labels, signs, overlap = (np.stack(x) for x in zip(*map(targets, scenes, proposals), strict=True))
    foreground = labels > 0
    iou_loss = tfo.detection.box_iou_loss(refined[foreground], signs[foreground], mode="iou")
    precision = average_precision(scenes, list(detect(detector, images)))
    return {
        "IoU of proposals": overlap[foreground].mean(),
        "IoU of refined boxes": 1 - iou_loss.numpy().mean(),
        "class accuracy": (probabilities.argmax(-1) == labels).mean(),
        **{f"{name} of detections": precision[name] for name in ("AP", "AP50", "AP75")},
    }
