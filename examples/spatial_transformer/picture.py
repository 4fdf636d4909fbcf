"""Draws distorted digits above straightened ones."""

import data
import numpy as np
from PIL import Image, ImageDraw, ImageFont

SCALE = 3  # picture pixels per canvas pixel
TILE = SCALE * data.SIZE
GAP, HEADING = 6, 34


def tile(image: np.ndarray) -> Image.Image:
    """Draws one image [H, W, 1] with values from 0 to 1."""
    pixels = np.round(255 * np.clip(image[..., 0], 0, 1)).astype(np.uint8)
    return Image.fromarray(pixels).resize((TILE, TILE), Image.Resampling.BICUBIC)


def draw(digits: data.Distorted, straightened: np.ndarray) -> Image.Image:
    """Draws two digits of each class: two rows as the network sees them, each above the transformer's results."""
    columns = [np.flatnonzero(digits.labels == label)[:2] for label in range(data.CLASSES)]
    rows = []
    for i in range(2):
        chosen = [column[i] for column in columns]
        rows += [
            ("Turned, scaled and shifted, with noise", np.asarray(digits.images)[chosen]),
            ("What the classifier sees", straightened[chosen]),
        ]
    size = len(columns) * (TILE + GAP) + GAP, len(rows) * (TILE + HEADING) + GAP
    picture = Image.new("RGB", size, "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(18)
    for i, (heading, images) in enumerate(rows):
        top = i * (TILE + HEADING)
        pen.text((GAP, top + HEADING / 2), heading, "black", font, anchor="lm")
        for j, image in enumerate(images):
            picture.paste(tile(image), (GAP + j * (TILE + GAP), top + HEADING))
    return picture
