"""The quality of refined boxes and of detections."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from data import CLASSES, Scene, targets
from model import Detections

import tensorflow_ops as tfo

# COCO's thresholds of IoU and of recall.
MIN_IOUS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)


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


def match(overlap: np.ndarray, min_iou: float) -> np.ndarray:
    """Returns which of M detections are right, [M], from their IoU with G objects, [M, G].

    In order, each detection takes the object that it overlaps most among those that no
    earlier one has taken. Call it with detections by decreasing score.
    """
    is_free = np.ones(overlap.shape[1], bool)
    is_right = np.zeros(len(overlap), bool)
    for i, row in enumerate(overlap):
        of_free = np.where(is_free, row, -1)
        if of_free.max(initial=-1) >= min_iou:
            is_right[i] = True
            is_free[of_free.argmax()] = False  # a second box on the same object counts as wrong
    return is_right


def interpolated_precision(is_right: np.ndarray, objects: int) -> float:
    """Returns the mean precision over 101 recalls, from detections by decreasing score, [M].

    The precision at a recall is the best at this or any higher recall, and 0 if no
    detection reaches it.
    """
    right = is_right.cumsum()
    precision = right / np.arange(1, len(right) + 1)
    best_from_here = np.maximum.accumulate(precision[::-1])[::-1]
    first = np.searchsorted(right / objects, RECALLS)
    return float(np.append(best_from_here, 0)[first].mean())


def average_precision(scenes: Sequence[Scene], found: Sequence[Detections]) -> np.ndarray:
    """Returns COCO's average precision at each of MIN_IOUS, [10], as the mean over classes.

    Args:
      scenes: the images and their objects.
      found: the detections of each image, by decreasing score.

    The mean of the result is COCO's "AP"; its first number is AP50, its sixth AP75.
    Classes without objects do not count.
    """
    areas = []
    for label in range(len(CLASSES)):
        scores, is_right, objects = [], [], 0
        for scene, detections in zip(scenes, found, strict=True):
            truth = scene.boxes[scene.classes == label]
            chosen = detections.classes == label
            overlap = tfo.detection.box_iou(detections.boxes[chosen], truth).numpy()
            scores.append(detections.scores[chosen])
            is_right.append([match(overlap, min_iou) for min_iou in MIN_IOUS])
            objects += len(truth)
        if objects:
            order = np.argsort(-np.concatenate(scores), kind="stable")
            is_right = np.concatenate(is_right, axis=1)[:, order]
            areas.append([interpolated_precision(row, objects) for row in is_right])
    return np.mean(areas, axis=0)
