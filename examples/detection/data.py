"""Traffic signs on real photographs, with proposals and targets for the second stage of a detector.

Training uses the left halves of two photographs, evaluation the right halves, so that
they share no background.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont, ImageOps
from sklearn.datasets import load_sample_image

import tensorflow_ops as tfo

PHOTOS = ("china.jpg", "flower.jpg")
CLASSES = ("stop", "yield", "no entry", "priority")
SIZE = 256  # of a scene, in pixels
SIGN_SIZES = (20, 150)
MOST_SIGNS = 4
FOREGROUND_IOU = 0.5  # proposals with a lower overlap are background

RED, YELLOW, WHITE = (190, 25, 35), (250, 200, 30), (245, 245, 245)


class Scene(NamedTuple):
    """A photograph with signs."""

    image: np.ndarray  # uint8 [SIZE, SIZE, 3]
    boxes: np.ndarray  # float32 [M, 4], x1 y1 x2 y2
    classes: np.ndarray  # int32 [M], indices into CLASSES


def backgrounds(training: bool) -> list[Image.Image]:
    """Returns the halves of the photographs for training or for evaluation."""
    photos = [Image.fromarray(load_sample_image(name)) for name in PHOTOS]
    left, right = (0, 1) if training else (1, 2)
    return [photo.crop((left * photo.width // 2, 0, right * photo.width // 2, photo.height)) for photo in photos]


def draw_sign(name: str, size: int = 256) -> Image.Image:
    """Draws a sign as RGBA, seen from the front."""
    sign = Image.new("RGBA", (size, size))
    draw = ImageDraw.Draw(sign)
    half = size / 2

    def polygon(corners, radius, color, rotation, y=half):
        draw.regular_polygon((half, y, radius), corners, rotation, color)

    match name:
        case "stop":
            polygon(8, half, WHITE, 22.5)
            polygon(8, 0.92 * half, RED, 22.5)
            font = ImageFont.load_default(0.36 * size)
            draw.text((half, half), "STOP", WHITE, font, anchor="mm", stroke_width=0.012 * size)
        case "yield":
            polygon(3, half, RED, 180, 0.75 * half)
            polygon(3, 0.6 * half, WHITE, 180, 0.75 * half)
        case "no entry":
            draw.ellipse((0, 0, size - 1, size - 1), RED)
            draw.rectangle((0.17 * size, 0.4 * size, 0.83 * size, 0.6 * size), WHITE)
        case "priority":
            polygon(4, half, WHITE, 45)
            polygon(4, 0.75 * half, YELLOW, 45)
    return sign.crop(sign.getbbox())


def change_light(rng: np.random.Generator, image: Image.Image, darkest: float) -> Image.Image:
    """Returns the image with weaker colours, darker or slightly brighter."""
    image = ImageEnhance.Color(image).enhance(rng.uniform(0.4, 1))
    return ImageEnhance.Brightness(image).enhance(rng.uniform(darkest, 1.1))


def view(rng: np.random.Generator, sign: Image.Image) -> Image.Image:
    """Simulates a camera: random distance, perspective, rotation, light and blur."""
    size = math.exp(rng.uniform(*map(math.log, SIGN_SIZES)))
    width, height = (round(size * rng.uniform(0.75, 1)) for _ in range(2))
    sign = sign.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=2)
    sign = sign.rotate(rng.uniform(-20, 20), Image.Resampling.BICUBIC, expand=True)
    alpha = sign.getchannel("A")
    sign = change_light(rng, sign, darkest=0.5)
    sign.putalpha(alpha)
    blur = rng.uniform(0, 0.02) * size
    sign = ImageOps.expand(sign, math.ceil(2 * blur))
    # Premultiplies alpha; otherwise the edge would darken.
    return sign.convert("RGBa").filter(ImageFilter.GaussianBlur(blur)).convert("RGBA")


def draw_scene(rng: np.random.Generator, photo: Image.Image, signs: list[Image.Image], turned: bool) -> Scene:
    """Pastes signs without overlap on a random square of a photograph."""
    side = int(rng.uniform(0.4, 1) * min(photo.size))
    x, y = rng.integers(photo.width - side + 1), rng.integers(photo.height - side + 1)
    image = photo.resize((SIZE, SIZE), Image.Resampling.BICUBIC, (x, y, x + side, y + side))
    if turned:  # gives more backgrounds than the two photographs have
        image = image.transpose(rng.choice(Image.Transpose))
    image = change_light(rng, image, darkest=0.7)
    boxes, classes = [], []
    while len(boxes) < MOST_SIGNS and (not boxes or rng.random() < 0.8):
        label = rng.integers(len(CLASSES))
        sign = view(rng, signs[label])
        left, top, right, bottom = sign.getchannel("A").point(lambda a: 255 * (a > 127)).getbbox()
        x, y = rng.integers(SIZE - right + 1), rng.integers(SIZE - bottom + 1)
        box = np.float32([x + left, y + top, x + right, y + bottom])
        if boxes and np.any(tfo.detection.box_iou([box], boxes) > 0):
            continue
        image.paste(sign, (x, y), sign)
        boxes.append(box)
        classes.append(label)
    pixels = np.asarray(image) + 3 * rng.standard_normal([SIZE, SIZE, 1], np.float32)
    return Scene(pixels.clip(0, 255).astype(np.uint8), np.stack(boxes), np.int32(classes))


def draw_scenes(count: int, training: bool, seed: int | Sequence[int]) -> list[Scene]:
    """Draws scenes on the photographs' halves for training or evaluation, in turn. Depends on the seed only."""
    rng = np.random.default_rng(seed)
    photos, signs = backgrounds(training), [draw_sign(name) for name in CLASSES]
    return [draw_scene(rng, photos[i % len(photos)], signs, turned=training) for i in range(count)]


def images_of(scenes: Sequence[Scene]) -> np.ndarray:
    """Returns the scenes' images as one batch."""
    return np.stack([scene.image for scene in scenes])


def jitter(rng: np.random.Generator, boxes: np.ndarray, shift: float, scales: tuple[float, float]) -> np.ndarray:
    """Moves the boxes' centres by up to `shift` of their size, and scales sizes by a factor in `scales`."""
    size = boxes[:, 2:] - boxes[:, :2]
    center = (boxes[:, :2] + boxes[:, 2:]) / 2 + size * rng.uniform(-shift, shift, size.shape)
    scale = np.exp(rng.uniform(*np.log(scales), [len(boxes), 1]) + rng.uniform(-0.2, 0.2, size.shape))
    return np.concatenate([center - size * scale / 2, center + size * scale / 2], -1)


def propose(rng: np.random.Generator, boxes: np.ndarray, count: int) -> np.ndarray:
    """Draws boxes [count, 4] like those of a first stage: near signs, on parts of signs, and anywhere."""
    near, part = count // 2, count // 4
    signs = boxes[rng.integers(len(boxes), size=near + part)]
    scene = np.tile(np.float32([0, 0, SIZE, SIZE]), [count - near - part, 1])
    proposals = [
        jitter(rng, signs[:near], shift=0.3, scales=(0.6, 1.7)),
        jitter(rng, signs[near:], shift=0.5, scales=(0.15, 0.7)),
        jitter(rng, scene, shift=0.5, scales=(0.08, 0.6)),
    ]
    return np.clip(np.concatenate(proposals), 0, SIZE).astype(np.float32)


def grid() -> np.ndarray:
    """Returns square boxes [R, 4] of many sizes over the whole scene: proposals without prior knowledge."""
    boxes = []
    size = float(SIGN_SIZES[0])
    while size < 1.2 * SIGN_SIZES[1]:
        starts = np.linspace(0, SIZE - size, round(2 * (SIZE - size) / size) + 1)
        y, x = np.meshgrid(starts, starts, indexing="ij")
        corners = np.stack([x, y], -1).reshape(-1, 2)
        boxes.append(np.concatenate([corners, corners + size], -1))
        size *= 1.5
    return np.concatenate(boxes).astype(np.float32)


def targets(scene: Scene, proposals: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the class of each proposal and the sign that it belongs to.

    Returns:
      labels int32 [R], 0 for background and 1 + class; the boxes [R, 4] of the signs
      that the proposals overlap most; and that overlap [R].
    """
    overlap = tfo.detection.box_iou(proposals, scene.boxes).numpy()
    best = overlap.argmax(-1)
    overlap = overlap.max(-1)
    labels = np.where(overlap >= FOREGROUND_IOU, 1 + scene.classes[best], 0)
    return labels.astype(np.int32), scene.boxes[best], overlap


def training_batches(scenes: Sequence[Scene], seed: int, batch_size: int, proposals: int) -> tf.data.Dataset:
    """Endless batches of (inputs, targets, weights) as `keras.Model.fit` takes them.

    A scene has new proposals each time it occurs. The weights restrict the box targets to
    proposals of signs.
    """

    def samples():
        rng = np.random.default_rng(seed)
        while True:
            for i in rng.permutation(len(scenes)):
                candidates = propose(rng, scenes[i].boxes, proposals)
                labels, signs, _ = targets(scenes[i], candidates)
                foreground = (labels > 0).astype(np.float32)
                yield (
                    {"image": scenes[i].image, "proposals": candidates},
                    {"classes": labels, "boxes": signs},
                    {"classes": np.ones_like(foreground), "boxes": foreground},
                )

    boxes, rois = tf.TensorSpec([proposals, 4], tf.float32), tf.TensorSpec([proposals], tf.float32)
    signature = (
        {"image": tf.TensorSpec([SIZE, SIZE, 3], tf.uint8), "proposals": boxes},
        {"classes": tf.TensorSpec([proposals], tf.int32), "boxes": boxes},
        {"classes": rois, "boxes": rois},
    )
    dataset = tf.data.Dataset.from_generator(samples, output_signature=signature)
    return dataset.batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
