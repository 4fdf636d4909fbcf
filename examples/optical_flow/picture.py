"""Draws pairs of views, their flows in the colours of a wheel, and the second view moved back onto the first."""

import data
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import tensorflow_ops as tfo

SCALE = 2.5  # picture pixels per pixel of a view
TILE = round(SCALE * data.SIZE)
GAP, HEADING = 6, 30
FASTEST = 12.0  # pixels; faster flows have the same colours


def color(flow: np.ndarray) -> np.ndarray:
    """Returns colours uint8 [..., 3] of a flow [..., 2]: the hue is the direction, white is no motion."""
    x, y = flow[..., 0], flow[..., 1]
    hue = np.arctan2(y, x) / (2 * np.pi) % 1
    saturation = np.clip(np.hypot(x, y) / FASTEST, 0, 1)
    hsv = np.stack([hue, saturation, np.ones_like(hue)], -1)
    pixels = Image.fromarray(np.round(255 * hsv).astype(np.uint8).reshape(-1, 1, 3), "HSV").convert("RGB")
    return np.asarray(pixels).reshape(hsv.shape)


def wheel() -> np.ndarray:
    """Draws the legend: each place has the colour of the flow from the centre to it."""
    axis = np.linspace(-FASTEST, FASTEST, data.SIZE)
    flow = np.stack(np.meshgrid(axis, axis), -1)
    inside = np.hypot(flow[..., 0], flow[..., 1])[..., np.newaxis] <= FASTEST
    return np.where(inside, color(flow), np.uint8(255))


def tile(image: np.ndarray) -> Image.Image:
    """Draws one image [H, W, 3], uint8 or with values from 0 to 1."""
    if image.dtype != np.uint8:
        image = np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)
    return Image.fromarray(image).resize((TILE, TILE), Image.Resampling.BICUBIC)


def draw(pairs: data.Pair, estimates: dict[str, np.ndarray]) -> Image.Image:
    """Draws a row for each pair; `estimates` are flows by their headings. The last one moves the second view back."""
    best = list(estimates.values())[-1]
    columns = {
        "first view": pairs.first.numpy(),
        "second view": pairs.second.numpy(),
        "true flow": color(pairs.flow.numpy()),
        **{heading: color(flow) for heading, flow in estimates.items()},
        "second, moved back": tfo.image.dense_image_warp(pairs.second, -best[..., ::-1]).numpy(),
    }
    rows = len(pairs.flow)
    size = (1 + len(columns)) * (TILE + GAP) + GAP, HEADING + rows * (TILE + GAP)
    picture = Image.new("RGB", size, "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(16)
    for column, (heading, images) in enumerate(columns.items()):
        left = GAP + column * (TILE + GAP)
        pen.text((left, HEADING / 2), heading, "black", font, anchor="lm")
        for row, image in enumerate(images):
            picture.paste(tile(image), (left, HEADING + row * (TILE + GAP)))
    left = GAP + len(columns) * (TILE + GAP)
    pen.text((left, HEADING / 2), f"up to {FASTEST:.0f} pixels", "black", font, anchor="lm")
    picture.paste(tile(wheel()), (left, HEADING))
    return picture
