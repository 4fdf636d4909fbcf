"""Draws detections before and after training."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from data import CLASSES, SIZE, Scene, grid
from model import Detections
from PIL import Image, ImageDraw, ImageFont

import tensorflow_ops as tfo

COLORS = dict(zip(CLASSES, ("#00e5ff", "#76ff03", "#ff5cf4", "#ff9100"), strict=True))
SCALE = 1.5  # picture pixels per scene pixel
TILE = round(SCALE * SIZE)
GAP, HEADING = 8, 44


class Labeled(NamedTuple):
    """A box and its label."""

    box: np.ndarray  # [4], in pixels of the scene
    name: str  # one of CLASSES
    text: str


def draw_boxes(scene: Scene, labeled: Sequence[Labeled]) -> Image.Image:
    """Draws the scene with boxes in their classes' colours, and a text on the upper edge of each."""
    image = Image.fromarray(scene.image).resize((TILE, TILE), Image.Resampling.BICUBIC)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(15)
    corners = [(SCALE * item.box).round().clip(0, TILE - 1).tolist() for item in labeled]
    for item, corner in zip(labeled, corners, strict=True):
        draw.rectangle(corner, outline=COLORS[item.name], width=3)
    for item, (x, y, *_) in zip(labeled, corners, strict=True):  # above all boxes
        width = draw.textlength(item.text, font) + 8
        x, y = min(x, TILE - width), max(y - 16, 0)
        draw.rectangle((x, y, x + width, y + 18), fill=COLORS[item.name])
        draw.text((x + 4, y + 9), item.text, "black", font, anchor="lm")
    return image


def draw_nearest(scene: Scene, proposals: np.ndarray) -> Image.Image:
    """Draws the scene and, for each sign, the proposal with the largest overlap, and that overlap."""
    labeled = []
    overlaps = tfo.detection.box_iou(scene.boxes, proposals).numpy()
    for overlap, label in zip(overlaps, scene.classes, strict=True):
        labeled.append(Labeled(proposals[overlap.argmax()], CLASSES[label], f"{overlap.max():.2f}"))
    return draw_boxes(scene, labeled)


def draw_detections(scene: Scene, found: Detections) -> Image.Image:
    """Draws the scene and the detections, each box with its class and score."""
    labeled = []
    for box, label, score in zip(*found, strict=True):
        labeled.append(Labeled(box, CLASSES[label], f"{CLASSES[label]} {score:.2f}"))
    return draw_boxes(scene, labeled)


def draw_candidates(scene: Scene, boxes: np.ndarray, scores: np.ndarray, min_score: float) -> Image.Image:
    """Draws each box [R, 4] that has a class with at least a score, of scores [R, classes], in the class's colour."""
    image = Image.fromarray(scene.image).resize((TILE, TILE), Image.Resampling.BICUBIC)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(15)
    chosen = np.flatnonzero(scores.max(1) >= min_score)
    for box, label in zip(boxes[chosen], scores[chosen].argmax(1), strict=True):
        corners = (SCALE * box).round().clip(0, TILE - 1).tolist()
        draw.rectangle(corners, outline=COLORS[CLASSES[label]])
    text = f"{len(chosen)} boxes"
    draw.rectangle((0, TILE - 20, draw.textlength(text, font) + 8, TILE), fill="white")
    draw.text((4, TILE - 10), text, "black", font, anchor="lm")
    return image


def draw_rows(rows: Mapping[str, Iterable[Image.Image]]) -> Image.Image:
    """Draws rows of tiles, each row below its heading."""
    rows = {heading: list(tiles) for heading, tiles in rows.items()}
    columns = max(map(len, rows.values()))
    picture = Image.new("RGB", (columns * (TILE + GAP) + GAP, len(rows) * (HEADING + TILE) + GAP), "white")
    draw = ImageDraw.Draw(picture)
    for i, (heading, tiles) in enumerate(rows.items()):
        top = i * (HEADING + TILE)
        draw.text((GAP, top + HEADING / 2), heading, "black", ImageFont.load_default(24), anchor="lm")
        for j, image in enumerate(tiles):
            picture.paste(image, (GAP + j * (TILE + GAP), top + HEADING))
    return picture


def draw(scenes: Sequence[Scene], untrained: Sequence[Detections], trained: Sequence[Detections]) -> Image.Image:
    """Draws the proposals nearest to the signs, and the detections before and after training."""
    proposals = grid()
    return draw_rows(
        {
            f"Given: the same {len(proposals)} squares for each. Here the nearest to the signs, with their IoU": [
                draw_nearest(scene, proposals) for scene in scenes
            ],
            "Untrained: the three boxes it is surest of, with their scores": [
                draw_detections(scene, found.first(3)) for scene, found in zip(scenes, untrained, strict=True)
            ],
            "Trained: all with a score of 0.9 or more, on backgrounds it has not seen": [
                draw_detections(scene, found.at_least(0.9)) for scene, found in zip(scenes, trained, strict=True)
            ],
        }
    )


def draw_suppression(
    scenes: Sequence[Scene], boxes: np.ndarray, scores: np.ndarray, kept: Sequence[Detections]
) -> Image.Image:
    """Draws all boxes [N, R, 4] of N scenes, with their scores [N, R, classes], and what suppression keeps of them."""
    return draw_rows(
        {
            "All refined boxes of score 0.5 or more": [
                draw_candidates(*candidates, 0.5) for candidates in zip(scenes, boxes, scores, strict=True)
            ],
            "What multiclass_nms keeps of them, with their scores": [
                draw_detections(scene, found.at_least(0.5)) for scene, found in zip(scenes, kept, strict=True)
            ],
        }
    )
