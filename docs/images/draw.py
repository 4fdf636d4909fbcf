"""Draws the figures of docs/ whose numbers follow from a definition.

    python docs/images/draw.py [--output FOLDER]

Needs matplotlib and nothing of this package: numbers in the figures are computed here,
from the ops' definitions. The history of this file has the programs of other figures.
"""

import argparse
import pathlib

import matplotlib

matplotlib.use("Agg")  # draws into files and needs no screen

import numpy as np
from matplotlib import patches
from matplotlib import pyplot as plt

FOLDER = pathlib.Path(__file__).parent
WIDTH = 10.5  # inches, of every figure: text of 11 points is as large as a page's
INK, GREY, LIGHT = "#222222", "#8a8a8a", "#d6d6d6"
BOX, SAMPLE = "#d62728", "#1f5fbf"
PIXELS = ("#f2b134", "#6aa84f", "#8e63ce", "#e06666")  # the four around a sample


class Page:
    """A figure that is laid out in inches from its left upper corner."""

    def __init__(self, height: float):
        self.height = height
        self.figure = plt.figure(figsize=(WIDTH, height))

    def axes(self, left: float, top: float, width: float, height: float) -> plt.Axes:
        """Adds axes without ticks."""
        place = (left / WIDTH, 1 - (top + height) / self.height, width / WIDTH, height / self.height)
        axes = self.figure.add_axes(place)
        axes.set_axis_off()
        return axes

    def picture(self, left: float, top: float, width: float, x: tuple, y: tuple) -> plt.Axes:
        """Adds axes that show the ranges x and y, to one scale, y downwards as in an image."""
        axes = self.axes(left, top, width, width * (y[1] - y[0]) / (x[1] - x[0]))
        axes.set(xlim=x, ylim=y[::-1])
        return axes

    def write(self, left: float, top: float, words: str, size: float = 11, **style) -> None:
        """Writes centred words."""
        style = {"ha": "center", "va": "center", "fontsize": size, "color": INK, **style}
        self.figure.text(left / WIDTH, 1 - top / self.height, words, **style)

    def title(self, left: float, words: str, top: float = 0.22) -> None:
        """Writes what a part of the figure shows."""
        self.write(left, top, words, 12.5, fontweight="bold")


def text(axes: plt.Axes, x: float, y: float, words: str, size: float = 11, **style) -> None:
    """Writes centred words."""
    axes.text(x, y, words, **{"ha": "center", "va": "center", "fontsize": size, "color": INK, **style})


def rectangle(axes: plt.Axes, x1: float, y1: float, x2: float, y2: float, **style) -> None:
    """Draws a box between two corners, an outline unless it has a facecolor."""
    axes.add_patch(patches.Rectangle((x1, y1), x2 - x1, y2 - y1, **{"facecolor": "none", **style}))


def sample_places(start: float, end: float, bins: int, samples: int) -> np.ndarray:
    """RoIAlign's samples on an axis, [bins, samples], in pixels whose centres are at i + 0.5."""
    at = np.arange(bins)[:, np.newaxis] + (np.arange(samples) + 0.5) / samples
    return start + at * (end - start) / bins


def weights(places: np.ndarray, pixels: int) -> np.ndarray:
    """Returns the weight of each pixel on the axis in a bin with these samples."""
    low = np.floor(places - 0.5).astype(int)
    fraction = places - 0.5 - low
    result = np.zeros(pixels)
    np.add.at(result, low, (1 - fraction) / places.size)
    np.add.at(result, low + 1, fraction / places.size)
    return result


def draw_roi_align() -> plt.Figure:
    """Box, bins and samples; a sample's four weights; a bin's weights."""
    page = Page(4.0)
    width, height, bins, samples = 8, 6, 2, 2
    x1, y1, x2, y2 = box = (1.2, 0.6, 6.8, 5.4)
    xs, ys = sample_places(x1, x2, bins, samples), sample_places(y1, y2, bins, samples)
    x, y = xs[0, 0], ys[0, 0]  # the sample that is looked at
    column, row = int(x - 0.5), int(y - 0.5)
    corners = ((0, 0), (1, 0), (0, 1), (1, 1))

    page.title(2.2, "2 x 2 bins of 2 x 2 samples each")
    axes = page.picture(0.15, 0.45, 4.1, (-0.03, width + 0.03), (-0.03, height + 0.03))
    axes.vlines(range(width + 1), 0, height, color=LIGHT, linewidth=1)
    axes.hlines(range(height + 1), 0, width, color=LIGHT, linewidth=1)
    rectangle(axes, x1, y1, (x1 + x2) / 2, (y1 + y2) / 2, facecolor=SAMPLE, alpha=0.1)
    for (i, j), color in zip(corners, PIXELS, strict=True):
        rectangle(axes, column + i, row + j, column + i + 1, row + j + 1, facecolor=color, alpha=0.45)
    axes.scatter(*np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5), s=11, color=GREY, linewidths=0)
    rectangle(axes, *box, edgecolor=BOX, linewidth=2.6)
    axes.vlines((x1 + x2) / 2, y1, y2, color=BOX, linewidth=1.6, linestyle=(0, (5, 3)))
    axes.hlines((y1 + y2) / 2, x1, x2, color=BOX, linewidth=1.6, linestyle=(0, (5, 3)))
    for i, j in corners:
        axes.plot([x, column + i + 0.5], [y, row + j + 0.5], color=SAMPLE, linewidth=1.3, zorder=3)
    axes.scatter(*np.meshgrid(xs, ys), s=56, color=SAMPLE, edgecolors="white", linewidths=1, zorder=4)
    page.write(2.2, 3.76, "pixels and their centres grey, the box red, samples blue")

    # Between the centres of the four pixels: each weight is the area across from its pixel.
    page.title(5.85, "one sample: four pixels")
    axes = page.picture(4.75, 0.5, 2.2, (-0.2, 1.2), (-0.32, 1.62))
    fx, fy = x - 0.5 - column, y - 0.5 - row
    areas = ((fx, fy, 1, 1), (0, fy, fx, 1), (fx, 0, 1, fy), (0, 0, fx, fy))
    for area, (i, j), color in zip(areas, corners, PIXELS, strict=True):
        weight = (area[2] - area[0]) * (area[3] - area[1])
        rectangle(axes, *area, facecolor=color, alpha=0.45, edgecolor="white", linewidth=2)
        text(axes, (area[0] + area[2]) / 2, (area[1] + area[3]) / 2, f"{weight:.2f}", 13, fontweight="bold")
        axes.scatter(i, j, s=170, color=color, edgecolors=INK, linewidths=1, zorder=4)
        text(axes, i, j + (0.19 if j else -0.19), f"({row + j}, {column + i})")
    axes.scatter(fx, fy, s=120, color=SAMPLE, edgecolors="white", linewidths=1.2, zorder=5)
    page.write(5.85, 3.65, "a pixel's weight is the area\nof its colour")

    # The whole bin.
    page.title(8.95, "one bin: rows times columns")
    by_x, by_y = weights(xs[0], width), weights(ys[0], height)
    columns, rows = np.flatnonzero(by_x), np.flatnonzero(by_y)
    axes = page.picture(7.5, 0.5, 2.85, (-0.85, len(columns)), (-0.55, len(rows)))
    most = by_x.max() * by_y.max()
    for j, v in enumerate(rows):
        text(axes, -0.42, j + 0.5, f"{by_y[v]:.2f}", 12, color=SAMPLE, fontweight="bold")
        for i, u in enumerate(columns):
            weight = by_x[u] * by_y[v]
            color = plt.get_cmap("Blues")(0.1 + 0.4 * weight / most)
            rectangle(axes, i, j, i + 1, j + 1, facecolor=color, edgecolor="white", linewidth=2)
            text(axes, i + 0.5, j + 0.5, f"{weight:.3f}", 12)
    for i, u in enumerate(columns):
        text(axes, i + 0.5, -0.25, f"{by_x[u]:.2f}", 12, color=SAMPLE, fontweight="bold")
    words = f"{samples**2} samples of 4 pixels are {4 * samples**2} reads;\n{len(rows) * len(columns)} pixels differ"
    page.write(8.95, 3.65, words + ": each is read once")
    return page.figure


def draw_coming_from() -> plt.Figure:
    """Draws how pooling functions sample a box from 2 to 6 on eight pixels."""
    page = Page(4.25)
    pixels, low, high, bins = 8, 2.0, 6.0, 4
    ends = np.linspace(0, 1, bins)  # tf.image's samples: the first and the last are the corners
    last = pixels - 1  # and its 0 and 1 are the centres of the first and the last pixel
    rows = (
        ("roi_align, ps_roi_align", "aligned=True, as detectron2 and mmcv", sample_places(low, high, bins, 1), None),
        ("roi_align", "aligned=False, as torchvision by default", sample_places(low, high, bins, 1) + 0.5, None),
        ("tf.image.crop_and_resize", "of 2/8 and 6/8", (low + (high - low) * ends) / pixels * last + 0.5, None),
        ("tf.image.crop_and_resize", "of 2/7 and 5/7", low + (high - 1 - low) * ends + 0.5, None),
        ("roi_pool", "whole pixels, both ends", None, (low, high + 1)),
        ("ps_roi_pool", "whole pixels, without the end", None, (low, high)),
    )
    left, top, pixel = 3.75, 0.42, 6.6 / (pixels + 0.1)  # inches
    step, bottom = 0.67, 0.3 + 0.67 * (len(rows) - 1) + 0.35
    axes = page.picture(left, top, 6.6, (-0.05, pixels + 0.05), (-0.7, bottom))
    page.title(left + 3.3, f"a box from {low:.0f} to {high:.0f}: {bins} samples, or whole pixels")
    axes.vlines(np.arange(pixels) + 0.5, -0.08, bottom, color=LIGHT, linewidth=1, linestyle=(0, (3, 3)), zorder=0)
    for i in range(pixels):
        rectangle(axes, i, -0.62, i + 1, -0.08, facecolor="#f0f0f0", edgecolor=GREY)
        text(axes, i + 0.5, -0.35, str(i), 11.5)
    axes.vlines((low, high), -0.62, bottom, color=BOX, linewidth=2.4, zorder=2)
    for i, (name, words, places, whole) in enumerate(rows):
        y = 0.3 + step * i
        middle = top + (y + 0.7) * pixel
        page.write(0.15, middle - 0.11, name, 11, ha="left", fontweight="bold", family="monospace")
        page.write(0.15, middle + 0.11, words, 11, ha="left", color="#666666")
        if whole:
            rectangle(axes, whole[0], y - 0.16, whole[1], y + 0.16, facecolor=SAMPLE, alpha=0.75)
        else:
            axes.scatter(places, np.full(bins, y), s=64, color=SAMPLE, edgecolors="white", linewidths=1, zorder=3)
    return page.figure


def fill_places(places: np.ndarray, size: int, mode: str) -> np.ndarray:
    """Returns which place of an axis a place outside stands for, by SciPy's modes; NaN for fill_value."""
    last = size - 1
    if mode == "constant":
        return np.where((places >= 0) & (places <= last), places, np.nan)
    if mode == "grid-constant":
        return np.where((places > -1) & (places < size), places, np.nan)
    if mode == "nearest":
        return np.clip(places, 0, last)
    if mode == "reflect":
        places = (places + 0.5) % (2 * size)
        return np.clip(np.minimum(places, 2 * size - places) - 0.5, 0, last)
    if mode == "mirror":
        places = places % (2 * last)
        return np.minimum(places, 2 * last - places)
    return places % last if mode == "wrap" else places % size


def draw_fill_modes() -> plt.Figure:
    """An image and what is around it, for each fill mode of map_coordinates."""
    size, steps = 5, 16
    image = np.add.outer(np.linspace(0, 0.55, size), np.linspace(0.1, 0.45, size))
    image[1, 1:4] = image[2:4, 1] = 1.0  # a corner: turned, it looks different
    # One pixel more, which "grid-constant" fades to and "grid-wrap" leads to.
    modes = ("constant", "grid-constant", "nearest", "reflect", "mirror", "wrap", "grid-wrap")
    places = (np.arange(3 * size * steps) + 0.5) / steps - size - 0.5
    page = Page(1.95)
    for i, mode in enumerate(modes):
        padded = np.pad(image, 1, "wrap") if mode == "grid-wrap" else np.pad(image, 1)
        own = fill_places(places, size, mode) + 1
        low = np.floor(np.nan_to_num(own)).astype(int)
        weights = np.zeros([len(places), size + 2])
        np.add.at(weights, (np.arange(len(places)), low), 1 - (own - low))
        np.add.at(weights, (np.arange(len(places)), np.minimum(low + 1, size + 1)), own - low)
        weights[np.isnan(own)] = 0
        axes = page.picture(0.1 + 1.49 * i, 0.45, 1.36, (places[0], places[-1]), (places[0], places[-1]))
        edges = (places[0], places[-1], places[-1], places[0])
        axes.imshow(weights @ padded @ weights.T, cmap="magma", vmin=0, vmax=1, extent=edges)
        rectangle(axes, -0.5, -0.5, size - 0.5, size - 0.5, facecolor="none", edgecolor="white", linewidth=1.5)
        page.title(0.78 + 1.49 * i, mode)
    return page.figure


def draw_attention() -> plt.Figure:
    """The pairs of queries and keys that options leave."""
    page = Page(2.75)
    queries, keys = 5, 8
    t, j = np.arange(queries)[:, np.newaxis], np.arange(keys)
    beside = t + keys - queries  # The last query beside the last key.
    panels = (
        ("causal", "the last query beside the last key", j <= beside),
        ("causal, query_offset=0", "the first beside the first", j <= t),
        ("window=(2, 1)", "2 keys before, 1 after", (beside - 2 <= j) & (j <= beside + 1)),
        ("causal, key_lengths=6", "key 5 is the last", (j <= t + 6 - queries) & (j < 6)),
    )
    for i, (title, words, attends) in enumerate(panels):
        left = 0.45 + 2.58 * i
        page.title(left + 1.1, title)
        axes = page.picture(left, 0.62, 2.2, (-0.55, keys - 0.45), (-0.55, queries - 0.45))
        for y, x in np.ndindex(queries, keys):
            color = SAMPLE if attends[y, x] else "white"
            rectangle(axes, x - 0.5, y - 0.5, x + 0.5, y + 0.5, facecolor=color, edgecolor=LIGHT)
        page.write(left + 1.1, 0.5, "keys", 9.5, color=GREY)
        page.write(left - 0.14, 1.3, "queries", 9.5, color=GREY, rotation=90)
        page.write(left + 1.1, 2.3, words)
    page.write(5.25, 2.6, "blue: the query attends to the key")
    return page.figure


FIGURES = {
    "roi_align": draw_roi_align,
    "coming_from": draw_coming_from,
    "fill_modes": draw_fill_modes,
    "attention": draw_attention,
}


def main() -> None:
    """Draws all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=FOLDER, help="the folder for the figures")
    folder = parser.parse_args().output
    for name, draw in FIGURES.items():
        figure = draw()
        figure.savefig(folder / f"{name}.png", dpi=160, facecolor="white")
        plt.close(figure)
        print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
