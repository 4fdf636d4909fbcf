"""The quality of refined boxes and of detections."""

from collections.abc import Sequence
from typing import NamedTuple

import boxes as box_ops
import numpy as np
from data import CLASSES, Scene, targets
from model import Detections


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
        box_ops.iou(refined, signs)[foreground].mean(),
        (probabilities.argmax(-1) == labels).mean(),
    )


def average_precision(scenes: Sequence[Scene], found: Sequence[Detections], min_iou: float) -> float:
    """Returns the area under the precision-recall curve, averaged over classes, as in Pascal VOC since 2010."""
    areas = []
    for label in range(len(CLASSES)):
        scores, hits, signs = [], [], 0
        for scene, detections in zip(scenes, found, strict=True):
            truth = scene.boxes[scene.classes == label]
            signs += len(truth)
            is_free = np.ones(len(truth), bool)
            chosen = detections.classes == label
            for box, score in zip(detections.boxes[chosen], detections.scores[chosen], strict=True):
                overlap = box_ops.iou(box, truth) * is_free
                hits.append(overlap.max(initial=0) >= min_iou)
                if hits[-1]:
                    is_free[overlap.argmax()] = False  # a second box on the same sign counts as wrong
                scores.append(score)
        hits = np.array(hits, bool)[np.argsort(scores, kind="stable")[::-1]]
        precision = hits.cumsum() / np.arange(1, len(hits) + 1)
        best_from_here = np.maximum.accumulate(precision[::-1])[::-1]
        areas.append(best_from_here[hits].sum() / signs)
    return float(np.mean(areas))
