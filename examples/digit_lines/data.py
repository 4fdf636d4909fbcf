"""Lines of handwritten digits: article numbers, whose last digit checks the others."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

DIGITS = 8
HEIGHT, WIDTH = 16, 136  # of a line, in pixels
SIZES = (11, 15)  # of a digit
GAPS = (-2, 4)  # between digits: they overlap or are apart
NOISE = 0.1
VARIANTS = 6  # of each digit
HELD_OUT = 0.2  # of scikit-learn's digits

# EAN-8: the sum of the digits times these is a multiple of 10.
CHECK_WEIGHTS = np.array([3, 1, 3, 1, 3, 1, 3, 1])


class Lines(NamedTuple):
    """N lines."""

    images: np.ndarray  # uint8 [N, HEIGHT, WIDTH, 1]
    numbers: np.ndarray  # int32 [N, DIGITS]


class Glyphs(NamedTuple):
    """Scaled and turned digits, white on black."""

    images: list[np.ndarray]  # float32 [height, width], in [0, 1]
    labels: np.ndarray


def glyphs(training: bool, seed: int | Sequence[int]) -> Glyphs:
    """Returns variants of scikit-learn's digits for training, or of those for evaluation."""
    rng = np.random.default_rng(seed)
    digits = load_digits()
    split = train_test_split(np.arange(len(digits.target)), test_size=HELD_OUT, random_state=0)
    part = split[0] if training else split[1]
    images = []
    for pixels in np.repeat(digits.images[part], VARIANTS, axis=0):
        height, width = rng.integers(SIZES[0], SIZES[1] + 1, 2)
        image = Image.fromarray(pixels.astype(np.float32) / 16).resize((width, height), Image.Resampling.BILINEAR)
        images.append(np.asarray(image.rotate(rng.uniform(-15, 15), Image.Resampling.BILINEAR)))
    return Glyphs(images, np.repeat(digits.target[part], VARIANTS))


def is_valid(numbers: np.ndarray) -> np.ndarray:
    """Returns whether the check digits of numbers [..., DIGITS] are right."""
    return (numbers * CHECK_WEIGHTS).sum(-1) % 10 == 0


def with_check_digit(numbers: np.ndarray) -> np.ndarray:
    """Returns numbers [..., DIGITS] with the last digit replaced by the right one."""
    numbers = numbers.copy()
    numbers[..., -1] = -(numbers[..., :-1] * CHECK_WEIGHTS[:-1]).sum(-1) % 10
    return numbers


def draw_line(rng: np.random.Generator, images: Sequence[np.ndarray]) -> np.ndarray:
    """Draws images of digits side by side: uint8 [HEIGHT, WIDTH, 1]."""
    widths = np.array([image.shape[1] for image in images])
    gaps = rng.integers(GAPS[0], GAPS[1] + 1, len(images) - 1)
    while widths.sum() + gaps.sum() > WIDTH:
        gaps = np.maximum(gaps - 1, GAPS[0])
    lefts = np.concatenate([[0], np.cumsum(widths[:-1] + gaps)])
    lefts += rng.integers(WIDTH - lefts[-1] - widths[-1] + 1)
    line = np.zeros([HEIGHT, WIDTH], np.float32)
    for image, left in zip(images, lefts, strict=True):
        top = rng.integers(HEIGHT - image.shape[0] + 1)
        place = line[top : top + image.shape[0], left : left + image.shape[1]]
        np.maximum(place, image, out=place)
    line = line * rng.uniform(0.6, 1) + NOISE * rng.standard_normal(line.shape, np.float32)
    return (255 * line.clip(0, 1)).astype(np.uint8)[..., np.newaxis]


def draw_lines(count: int, training: bool, seed: Sequence[int]) -> Lines:
    """Draws lines. Depends on the seed only.

    Those for training are random numbers: what knows of check digits is the search, not
    the network.
    """
    rng = np.random.default_rng(seed)
    images, labels = glyphs(training, seed)
    places = [np.flatnonzero(labels == digit) for digit in range(10)]
    numbers = rng.integers(10, size=[count, DIGITS])
    if not training:
        numbers = with_check_digit(numbers)
    lines = [draw_line(rng, [images[rng.choice(places[digit])] for digit in number]) for number in numbers]
    return Lines(np.stack(lines), numbers.astype(np.int32))
