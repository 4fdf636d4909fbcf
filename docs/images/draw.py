"""Draws the figures of docs/ that are not photographs.

    python docs/images/draw.py [--output FOLDER]

Needs matplotlib and nothing of this package: numbers in the figures are computed here,
from the ops' definitions.
"""

import argparse
import itertools
import pathlib

import matplotlib

matplotlib.use("Agg")  # draws into files and needs no screen

import numpy as np
from matplotlib import patches, ticker
from matplotlib import pyplot as plt

FOLDER = pathlib.Path(__file__).parent
WIDTH = 10.5  # inches, of every figure: text of 11 points is as large as a page's
INK, GREY, LIGHT = "#222222", "#8a8a8a", "#d6d6d6"
BOX, SAMPLE = "#d62728", "#1f5fbf"
PIXELS = ("#f2b134", "#6aa84f", "#8e63ce", "#e06666")  # the four around a sample
LEVELS = ("#2a9d8f", "#3a6fb0", "#d9822b", "#b5446e")


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

    def arrow(self, start: tuple, end: tuple) -> None:
        """Draws an arrow between two points."""
        points = [(x / WIDTH, 1 - y / self.height) for x, y in (start, end)]
        style = {"arrowstyle": "-|>", "mutation_scale": 18, "color": GREY, "linewidth": 1.8}
        self.figure.add_artist(patches.FancyArrowPatch(*points, transform=self.figure.transFigure, **style))


def text(axes: plt.Axes, x: float, y: float, words: str, size: float = 11, **style) -> None:
    """Writes centred words."""
    axes.text(x, y, words, **{"ha": "center", "va": "center", "fontsize": size, "color": INK, **style})


def rectangle(axes: plt.Axes, x1: float, y1: float, x2: float, y2: float, **style) -> None:
    """Draws a box between two corners, an outline unless it has a facecolor."""
    axes.add_patch(patches.Rectangle((x1, y1), x2 - x1, y2 - y1, **{"facecolor": "none", **style}))


def readable_on(color: np.ndarray) -> str:
    """The colour of text on it."""
    return INK if color[:3] @ (0.3, 0.59, 0.11) > 0.55 else "white"


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


def draw_ps_roi() -> plt.Figure:
    """Each bin reads channels of its own; the two orders of channels."""
    page = Page(5.6)
    bins, channels = 3, 2
    colors = plt.get_cmap("turbo")(np.linspace(0.08, 0.92, bins * bins))

    # Nine maps, one for each bin.
    page.title(3.15, f"features: {bins} x {bins} groups of channels")
    map_size, step, box = (2.4, 1.3), (2.55, 1.45), np.array((0.3, 0.2, 1.65, 1.1))
    extent = ((bins - 1) * step[0] + map_size[0], (bins - 1) * step[1] + map_size[1])
    axes = page.picture(0.15, 0.45, 6.0, (-0.02, extent[0] + 0.02), (-0.02, extent[1] + 0.02))
    for p, q in np.ndindex(bins, bins):
        color, corner = colors[p * bins + q], np.array((q * step[0], p * step[1]))
        plane = (*corner, *(corner + map_size))
        rectangle(axes, *plane, facecolor=color, alpha=0.2)
        rectangle(axes, *plane, edgecolor=color, linewidth=1.5)
        first, last = box[:2] + corner, box[2:] + corner
        of_bin = (last - first) / bins
        begin = first + of_bin * (q, p)
        rectangle(axes, *begin, *(begin + of_bin), facecolor=color)
        rectangle(axes, *first, *last, edgecolor=INK, linewidth=1.4)
        text(axes, *(plane[2:] - np.array((0.35, 0.17))), f"({p}, {q})")
    page.arrow((6.35, 2.1), (7.3, 2.1))
    page.title(8.8, f"output: {bins} x {bins} bins")
    axes = page.picture(7.75, 1.05, 2.1, (0, bins), (0, bins))
    for p, q in np.ndindex(bins, bins):
        color = colors[p * bins + q]
        rectangle(axes, q, p, q + 1, p + 1, facecolor=color, edgecolor="white", linewidth=2)
        text(axes, q + 0.5, p + 0.5, f"({p}, {q})", 11.5, color=readable_on(color))

    # The orders, with two channels in each group.
    count = bins * bins * channels
    page.title(6.2, f"the features' {count} channels, C = {channels}", 4.14)
    axes = page.axes(0, 4.33, WIDTH, 1.25)
    axes.set(xlim=(-5.0, count + 0.3), ylim=(4.1, -0.25))
    orders = (
        ("channel_major", "(c * ph + p) * pw + q", [(i % 9, i // 9) for i in range(count)]),
        ("bin_major", "(p * pw + q) * C + c", [(i // channels, i % channels) for i in range(count)]),
    )
    for line, (name, formula, cells) in enumerate(orders):
        y = line * 2.15
        text(axes, -0.3, y + 0.3, name, 11.5, ha="right", fontweight="bold")
        text(axes, -0.3, y + 1.1, formula, 10, ha="right", family="monospace")
        for i, (bin_number, c) in enumerate(cells):
            color = colors[bin_number]
            rectangle(axes, i, y, i + 1, y + 1.15, facecolor=color, edgecolor="white", linewidth=1.5)
            text(axes, i + 0.5, y + 0.58, f"c={c}", 10, color=readable_on(color))
            text(axes, i + 0.5, y + 1.5, str(i), 9, color=GREY)
    return page.figure


def draw_multiscale_roi_align() -> plt.Figure:
    """Boxes go to the level of their size, and come out in their own order."""
    page = Page(5.05)
    width, height, strides, canonical_size, canonical_stride = 960, 640, (4, 8, 16, 32), 224, 16
    boxes = (
        (40, 50, 98, 120),
        (40, 150, 560, 620),
        (590, 30, 740, 190),
        (600, 330, 925, 610),
        (250, 40, 380, 115),
        (800, 30, 880, 270),
    )
    limits = [stride * canonical_size / canonical_stride for stride in strides]
    sides = [np.sqrt((x2 - x1) * (y2 - y1)) for x1, y1, x2, y2 in boxes]
    levels = [max([0] + [i for i, limit in enumerate(limits) if side >= limit]) for side in sides]

    page.title(1.95, "boxes in the image")
    image = page.picture(0.15, 0.6, 3.6, (-3, width + 3), (-3, height + 3))
    rectangle(image, 0, 0, width, height, facecolor="#f6f6f6", edgecolor=GREY, linewidth=1.2)
    for k, (box, level) in enumerate(zip(boxes, levels, strict=True)):
        rectangle(image, *box, edgecolor=LEVELS[level], linewidth=2.6)
        text(image, box[0] + 28, box[1] + 32, str(k), 12, color=LEVELS[level], fontweight="bold")
    page.write(1.95, 3.22, f"{width} x {height} pixels")
    page.arrow((3.9, 1.8), (4.45, 1.8))

    page.title(6.55, "each in the map of its size")
    for level, (stride, color) in enumerate(zip(strides, LEVELS, strict=True)):
        left, top = 4.6 + 2.0 * (level % 2), 0.68 + 1.5 * (level // 2)
        page.write(left + 0.95, top - 0.12, f"stride {stride}", 11, color=color, fontweight="bold")
        axes = page.picture(left, top, 1.9, (-6, width + 6), (-6, height + 6))
        rectangle(axes, 0, 0, width, height, facecolor=color, alpha=0.09)
        lines = {"color": color, "linewidth": 0.7, "alpha": 0.6}
        axes.vlines(np.arange(0, width + 1, 8 * stride), 0, height, **lines)
        axes.hlines(np.arange(0, height + 1, 8 * stride), 0, width, **lines)
        rectangle(axes, 0, 0, width, height, edgecolor=color, linewidth=1.2)
        for k, (x1, y1, x2, y2) in enumerate(boxes):
            if levels[k] == level:
                rectangle(axes, x1, y1, x2, y2, edgecolor=color, facecolor="white", linewidth=2)
                inside = x2 - x1 > 70
                at = ((x1 + x2) / 2 if inside else x2 + 38, (y1 + y2) / 2)
                text(axes, *at, str(k), 10.5, color=color, fontweight="bold")
    page.write(6.55, 3.6, "a line every 8 pixels of the map")
    page.arrow((8.6, 1.8), (9.15, 1.8))

    page.title(9.75, "output")
    axes = page.picture(9.25, 0.6, 1.0, (0, 1), (0, 2.45))
    for k, level in enumerate(levels):
        y = k * 2.45 / len(boxes)
        rectangle(axes, 0, y + 0.03, 1, y + 0.38, facecolor=LEVELS[level])
        text(axes, 0.5, y + 0.2, f"output[{k}]", 11, color="white", fontweight="bold")

    low, high = 40, 1000
    axes = page.axes(0.5, 3.85, WIDTH - 1, 0.68)
    axes.set_axis_on()
    axes.set(xlim=(low, high), xscale="log", ylim=(0, 1), yticks=[])
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    shown = [*limits, 2 * limits[-1]]
    axes.set_xticks(shown, [f"{n:.0f}" for n in shown], fontsize=11)
    axes.set_xlabel(r"$\sqrt{w h}$ of the box, in pixels of the image", fontsize=11, color=INK, labelpad=1)
    for level, color in enumerate(LEVELS):
        begin = limits[level] if level > 0 else low
        end = limits[level + 1] if level < len(LEVELS) - 1 else high
        axes.axvspan(begin, end, color=color, alpha=0.2, linewidth=0)
        text(axes, begin * 1.03, 0.76, f"stride {strides[level]}", ha="left", color=color, fontweight="bold")
    for k, (side, level) in enumerate(zip(sides, levels, strict=True)):
        axes.scatter(side, 0.32, s=230, color=LEVELS[level], edgecolors="white", linewidths=1, zorder=3)
        text(axes, side, 0.305, str(k), 10.5, color="white", fontweight="bold", zorder=4)
    for spine in ("left", "right", "top"):
        axes.spines[spine].set_visible(False)
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


def label_components(mask: np.ndarray, steps: tuple) -> np.ndarray:
    """Labels the components of a mask by a flood fill; `steps` lead to neighbors."""
    labels, count = np.zeros(mask.shape, int), 0
    for start in map(tuple, np.argwhere(mask)):
        if labels[start] == 0:
            count += 1
            left = [start]
            while left:
                y, x = left.pop()
                inside = 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1]
                if inside and mask[y, x] and labels[y, x] == 0:
                    labels[y, x] = count
                    left += [(y + dy, x + dx) for dy, dx in steps]
    return labels


def draw_masks() -> plt.Figure:
    """A mask, its distances, its components with 4 and with 8 neighbors."""
    page = Page(3.5)
    rows = (
        ".########",
        ".########",
        ".#######.",
        "....###..",
        "##...#...",
        "##......#",
        "..##...##",
    )
    mask = np.array([[cell == "#" for cell in row] for row in rows])
    height, width = mask.shape
    zeros = np.argwhere(~mask)
    places = np.stack(np.mgrid[:height, :width], -1)[..., np.newaxis, :]
    distances = np.sqrt(((places - zeros) ** 2).sum(-1).min(-1))
    edges = ((-1, 0), (1, 0), (0, -1), (0, 1))
    corners = ((-1, -1), (-1, 1), (1, -1), (1, 1))
    four, eight = label_components(mask, edges), label_components(mask, edges + corners)
    colors = [np.array(matplotlib.colors.to_rgb(color)) for color in LEVELS]
    shades = plt.get_cmap("Blues")

    def show(left, words, paint):
        page.title(left + 1.6, words)
        axes = page.picture(left, 0.48, 3.2, (-0.03, width + 0.03), (-0.03, height + 0.03))
        for y, x in np.ndindex(height, width):
            color, number = paint(y, x)
            rectangle(axes, x, y, x + 1, y + 1, facecolor=color, edgecolor="white", linewidth=1.5)
            if mask[y, x]:
                text(axes, x + 0.5, y + 0.52, number, 9.5, color=readable_on(np.asarray(color)))

    def of_component(labels):
        return lambda y, x: (colors[(labels[y, x] - 1) % 4] if mask[y, x] else "#efefef", str(labels[y, x]))

    def of_distance(y, x):
        share = 0.15 + 0.75 * distances[y, x] / distances.max()
        return (shades(share) if mask[y, x] else "#efefef", f"{distances[y, x]:.3g}")

    show(0.1, "distances to zero pixels", of_distance)
    show(3.65, f"{four.max()} components, connectivity=4", of_component(four))
    show(7.2, f"{eight.max()} components, connectivity=8", of_component(eight))
    page.write(5.25, 3.27, "zero pixels are grey")
    return page.figure


def sample_row(row: np.ndarray, places: np.ndarray, padding: str) -> np.ndarray:
    """Samples a row of pixels linearly, as grid_sample with align_corners=True does."""
    last = len(row) - 1
    if padding == "border":
        places = np.clip(places, 0, last)
    elif padding == "reflection":
        places = last - np.abs(last - np.mod(places, 2 * last))
    padded = np.concatenate([[0, 0, 0, 0], row, [0, 0, 0, 0]])
    return np.interp(places, np.arange(-4, last + 5), padded)


def draw_sampling() -> plt.Figure:
    """The pixels of a bilinear sample; a row's samples with each padding; displacements of a correlation."""
    page = Page(3.5)
    page.title(1.6, "a bilinear sample")
    axes = page.picture(0.2, 0.48, 2.8, (-0.6, 3.6), (-0.6, 3.6))
    x, y = 1.3, 1.75
    for row, column in np.ndindex(4, 4):
        weight = max(1 - abs(x - column), 0) * max(1 - abs(y - row), 0)
        color = np.array(matplotlib.colors.to_rgb(SAMPLE)) * weight + np.array([0.94] * 3) * (1 - weight)
        rectangle(axes, column - 0.5, row - 0.5, column + 0.5, row + 0.5, facecolor=color, edgecolor="white")
        if weight:
            text(axes, column, row + (0.3 if row > y else -0.3), f"{weight:.3g}", 9.5, color=readable_on(color))
    axes.plot([x], [y], "o", color=BOX, markersize=7)

    page.title(5.3, "samples of a row")
    axes = page.axes(3.7, 0.6, 3.2, 2.5)
    row = np.array([2.0, 4.0, 1.0, 3.0])
    places = np.linspace(-3, 6, 361)
    for padding, color, style in (("zeros", BOX, "-"), ("border", SAMPLE, "--"), ("reflection", LEVELS[0], ":")):
        axes.plot(places, sample_row(row, places, padding), style, color=color, linewidth=2, label=padding)
    axes.plot(range(4), row, "o", color=INK, label="pixels")
    axes.set(xlim=(-3, 6), ylim=(-0.3, 5.6))
    axes.legend(fontsize=9, ncol=2, loc="upper center", frameon=False)

    page.title(8.8, "a correlation")
    for left, name in ((7.3, "features_a"), (8.95, "features_b")):
        axes = page.picture(left, 0.9, 1.45, (-0.1, 7.1), (-0.1, 7.1))
        for y, x in np.ndindex(7, 7):
            if name == "features_b" and 1 <= y <= 5 and 1 <= x <= 5:
                color = "#9dbbe3"
            else:
                color = "#efefef"
            if (y, x) == (3, 3):
                color = SAMPLE if name == "features_a" else "#5f8fd0"
            rectangle(axes, x, y, x + 1, y + 1, facecolor=color, edgecolor="white")
        page.write(left + 0.72, 2.55, name, 10)
    page.write(8.85, 2.95, "max_displacement=2: 25 costs for each pixel", 10)
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


def draw_sequence() -> plt.Figure:
    """Paths of CTC through frames and states, with their posteriors."""
    page = Page(3.4)
    labels, frames = "-c-a-t-", 12
    generator = np.random.default_rng(5)
    # Scores that favor a way from the first state to the last.
    states, times = np.mgrid[: len(labels), :frames]
    emissions = np.exp(-0.6 * np.abs(states - times * 6.4 / 11) + generator.normal(0, 0.7, states.shape))
    alpha, beta = np.zeros(states.shape), np.zeros(states.shape)
    alpha[:2, 0], beta[-2:, -1] = emissions[:2, 0], 1

    def steps(state):
        """Yields the states before one: itself, the one before, and the label before."""
        skips = state >= 2 and labels[state] != "-" and labels[state] != labels[state - 2]
        yield from (state - back for back in range(3 if skips else 2) if state >= back)

    for t in range(1, frames):
        for state in range(len(labels)):
            alpha[state, t] = emissions[state, t] * sum(alpha[before, t - 1] for before in steps(state))
    for t in range(frames - 2, -1, -1):
        for state in range(len(labels)):
            for before in steps(state):
                beta[before, t] += emissions[state, t + 1] * beta[state, t + 1]
    posterior = alpha * beta / (alpha * beta)[:, 0].sum()
    axes = page.picture(1.6, 0.5, 4.5, (-0.7, frames - 0.3), (-0.6, len(labels) - 0.4))
    for t in range(1, frames):
        for state in range(len(labels)):
            for before in steps(state):
                share = alpha[before, t - 1] * emissions[state, t] * beta[state, t] / (alpha * beta)[:, 0].sum()
                axes.plot([t - 1, t], [before, state], color=GREY, linewidth=0.2 + 3 * share, alpha=0.3 + 0.7 * share)
    for state, t in np.ndindex(posterior.shape):
        color = plt.get_cmap("Blues")(0.05 + 0.9 * posterior[state, t])
        axes.add_patch(patches.Circle((t, state), 0.3, facecolor=color, edgecolor=GREY, linewidth=0.6, zorder=3))
    for state, label in enumerate(labels):
        text(axes, -1, state, "blank" if label == "-" else label, 10, ha="right", clip_on=False)
    page.title(3.85, "CTC: all paths of 12 frames that leave c, a, t")
    page.write(3.85, 3.25, "frames: a path moves down by at most one label a frame")
    bars = page.axes(6.9, 0.75, 3.2, 2.1)
    for label, color in zip("cat", LEVELS, strict=False):
        bars.plot(posterior[labels.index(label)], color=color, linewidth=2, label=label)
    bars.plot(posterior[::2].sum(0), color=GREY, linewidth=2, label="blank")
    bars.set_axis_on()
    bars.set(ylim=(0, 1.02), xticks=[], yticks=[0, 1])
    bars.legend(frameon=False, loc="upper right", fontsize=9)
    page.title(8.5, "posterior of each class")
    page.write(8.5, 3.05, "frames")
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


def draw_deformable() -> plt.Figure:
    """Taps of a convolution that move, and a query's points on three levels."""
    page = Page(3.9)
    generator = np.random.default_rng(3)
    page.title(2.2, "deform_conv2d: taps and their offsets")
    axes = page.picture(0.7, 0.5, 3.0, (-0.6, 7.6), (-0.6, 7.6))
    for y, x in np.ndindex(8, 8):
        rectangle(axes, x - 0.5, y - 0.5, x + 0.5, y + 0.5, edgecolor=LIGHT, linewidth=0.8)
    taps = np.array([(y, x) for y in (2, 3, 4) for x in (2, 3, 4)], float)
    moved = taps * 1.35 - (0.3, 0.6) + generator.normal(0, 0.35, taps.shape)
    for (y, x), (to_y, to_x) in zip(taps, moved, strict=True):
        axes.annotate("", (to_x, to_y), (x, y), arrowprops={"arrowstyle": "-|>", "color": SAMPLE, "linewidth": 1.3})
    axes.scatter(taps[:, 1], taps[:, 0], s=36, facecolor="white", edgecolor=INK, zorder=3)
    axes.scatter(moved[:, 1], moved[:, 0], s=40, color=SAMPLE, zorder=4)
    page.write(2.2, 3.82, "black: taps of conv2d; blue: where the features are read")

    page.title(7.3, "multiscale_deformable_attention: points of one query")
    reference = (0.42, 0.55)
    for level, (pixels, color) in enumerate(zip((16, 8, 4), LEVELS, strict=False)):
        left = 4.35 + 2.02 * level
        axes = page.picture(left, 1.0, 1.88, (-0.03, 1.03), (-0.03, 1.03))
        lines = {"color": color, "linewidth": 0.7, "alpha": 0.6}
        axes.vlines(np.arange(pixels + 1) / pixels, 0, 1, **lines)
        axes.hlines(np.arange(pixels + 1) / pixels, 0, 1, **lines)
        points = reference + generator.normal(0, 0.06 * 2 ** (level / 2), [4, 2])
        axes.scatter(*points.T, s=40 + 160 * generator.dirichlet(np.ones(4)), color=color, zorder=3)
        axes.scatter(*reference, s=70, marker="x", color=INK, zorder=4)
        page.write(left + 0.94, 3.1, f"{pixels} x {pixels} pixels", 11, color=color)
    page.write(7.3, 3.45, "cross: the query's reference point; sizes of points: attention weights")
    return page.figure


def draw_matching() -> plt.Figure:
    """Predictions, objects and their costs: pairs by turns, and the pairs of the smallest sum."""
    page = Page(3.65)
    objects = np.array([(1.0, 1.2, 4.6, 5.6), (3.8, 1.6, 7.6, 5.9)])
    predictions = np.array([(0.2, 3.2, 2.6, 6.4), (2.5, 1.3, 6.2, 5.7), (6.4, 0.3, 8.7, 2.2), (5.5, 2.0, 8.9, 6.4)])
    low = np.maximum(predictions[:, np.newaxis, :2], objects[:, :2])
    high = np.minimum(predictions[:, np.newaxis, 2:], objects[:, 2:])
    both = np.prod(np.maximum(high - low, 0), -1)
    area, area_of_object = (np.prod(boxes[:, 2:] - boxes[:, :2], -1) for boxes in (predictions, objects))
    costs = 1 - both / (area[:, np.newaxis] + area_of_object - both)
    by_turns, left = [], costs.copy()
    for _ in range(2):
        i, j = np.unravel_index(left.argmin(), left.shape)
        by_turns.append((i, j))
        left[i], left[:, j] = np.inf, np.inf
    rows = min(itertools.permutations(range(4), 2), key=lambda rows: costs[list(rows), [0, 1]].sum())
    best = [(i, j) for j, i in enumerate(rows)]

    page.title(2.3, "objects and predictions")
    axes = page.picture(0.3, 0.45, 3.9, (0, 9), (0, 6.8))
    for (x1, y1, x2, y2), color, name in zip(objects, LEVELS[1:], "AB", strict=False):
        rectangle(axes, x1, y1, x2, y2, facecolor=color, alpha=0.3)
        text(axes, x1 + 0.35, y1 + 0.4, name, 15, color=color, fontweight="bold")
    for i, (x1, y1, x2, y2) in enumerate(predictions):
        rectangle(axes, x1, y1, x2, y2, edgecolor=INK, linewidth=1.5, linestyle=(0, (5, 3)))
        text(axes, x1 + 0.28, y1 + 0.33, str(i), 12, fontweight="bold")

    for middle, title, pairs in (5.7, "the cheapest pair first", by_turns), (8.75, "linear_sum_assignment", best):
        page.title(middle, title)
        axes = page.picture(middle - 0.95, 0.7, 1.9, (-0.5, 2.5), (-0.5, 3.5))
        for y, x in np.ndindex(4, 3):
            if x == 2:
                rectangle(axes, x - 0.5, y - 0.5, x + 0.5, y + 0.5, edgecolor=LIGHT, hatch="///", linewidth=0)
                continue
            rectangle(axes, x - 0.5, y - 0.5, x + 0.5, y + 0.5, edgecolor="white", facecolor=LEVELS[1 + x], alpha=0.2)
            is_pair = (y, x) in pairs
            if is_pair:
                axes.add_patch(patches.Ellipse((x, y), 0.86, 0.76, facecolor="none", edgecolor=BOX, linewidth=2.4))
            text(axes, x, y, f"{costs[y, x]:.2f}", 12, fontweight="bold" if is_pair else "normal")
        for j, name in enumerate("AB"):
            text(axes, j, -0.72, name, 12, color=LEVELS[1 + j], fontweight="bold", clip_on=False)
        for i in range(4):
            text(axes, -0.72, i, str(i), 12, fontweight="bold", clip_on=False)
        page.write(middle, 3.45, f"sum {sum(costs[pair] for pair in pairs):.2f}")
    page.write(2.3, 3.45, "costs: 1 - IoU; hatched: padding, of counts=[2]", 11)
    return page.figure


FIGURES = {
    "matching": draw_matching,
    "roi_align": draw_roi_align,
    "ps_roi": draw_ps_roi,
    "multiscale_roi_align": draw_multiscale_roi_align,
    "coming_from": draw_coming_from,
    "masks": draw_masks,
    "sampling": draw_sampling,
    "fill_modes": draw_fill_modes,
    "sequence": draw_sequence,
    "attention": draw_attention,
    "deformable": draw_deformable,
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
