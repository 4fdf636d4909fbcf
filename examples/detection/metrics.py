"""The quality of refined boxes and of detections."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from data import Scene, targets
from model import Detections

import tensorflow_ops as tfo


class Refinement(NamedTuple):
    """The quality of refined proposals whose signs are known."""

    proposal_iou: float  # mean over proposals of signs
    refined_iou: float  # mean over their refined boxes
    accuracy: float  # over all proposals, with background as a class


def refinement(
    scenes: Sequence[Scene], proposals: np.ndarray, refined: np.ndarray, probabilities: np.ndarray
) -> Refinement:
    """Compares proposals and refined boxes, both [N, R, 4], with the signs of N scenes."""
    labels, signs, overlap = (np.stack(x) for x in zip(*map(targets, scenes, proposals), strict=True))
    foreground = labels > 0
    return Refinement(
        overlap[foreground].mean(),
        1 - tfo.detection.box_iou_loss(refined[foreground], signs[foreground], mode="iou").numpy().mean(),
        (probabilities.argmax(-1) == labels).mean(),
    )


def average_precision(scenes: Sequence[Scene], found: Sequence[Detections]) -> dict[str, float]:
    """Returns COCO's numbers, such as "AP", "AP50" and "AP75", of the detections of each image."""
    metric = tfo.metrics.MeanAveragePrecision()
    for scene, detections in zip(scenes, found, strict=True):
        truth = {"boxes": scene.boxes[np.newaxis], "classes": scene.classes[np.newaxis]}
        metric.update_state(truth, {name: x[np.newaxis] for name, x in detections._asdict().items()})
    return {name: float(value) for name, value in metric.result().items()}
