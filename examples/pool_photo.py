"""Pools regions of two photographs and shows where the gradient goes.

    python examples/pool_photo.py --output demo.png

`tfo.detection.roi_pool` converts five boxes of different sizes on two photographs to
patches of 14 x 14 bins: the maximum of each bin, separately for red, green and blue.
The gradient of the patches' sum is then 1 per bin, at the pixel of its maximum. The
picture shows the photographs, the patches and the gradient.

`bash tools/demo.sh` builds and installs the package and runs this file.
"""

import argparse
import os
import pathlib
from typing import NamedTuple

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import matplotlib

matplotlib.use("Agg")  # draws into files, without a display

import numpy as np
import tensorflow as tf
from matplotlib import colors
from matplotlib import pyplot as plt
from sklearn.datasets import load_sample_image

import tensorflow_ops as tfo

PHOTOS = ("china.jpg", "flower.jpg")
BINS = 14

WIDTH, HEIGHT = 16.0, 10.3  # size of the picture in inches
HEAT = colors.LinearSegmentedColormap.from_list("heat", ("#f03b20", "#feb24c", "#ffffcc"))


class Region(NamedTuple):
    """A box on a photograph."""

    name: str
    photo: int  # an index into PHOTOS
    box: tuple[int, int, int, int]  # x1, y1, x2, y2 in pixels, both ends included
    color: str


REGIONS = (
    Region("top roof", 0, (92, 30, 322, 137), "#ff5252"),
    Region("gallery", 0, (92, 190, 330, 236), "#ffb300"),
    Region("tree", 0, (546, 134, 638, 330), "#40c463"),
    Region("flower", 1, (166, 80, 448, 362), "#42a5f5"),
    Region("second flower", 1, (286, 372, 470, 426), "#e573ff"),
)


def load_photos() -> np.ndarray:
    """Returns the photographs as one batch: float32 [2, 427, 640, 3] in [0, 1]."""
    return np.stack([load_sample_image(name) for name in PHOTOS]).astype(np.float32) / 255


def pool(photos: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pooled regions [5, 14, 14, 3], and their sum's gradient to the photographs."""
    photos = tf.constant(photos)
    with tf.GradientTape() as tape:
        tape.watch(photos)
        pooled = tfo.detection.roi_pool(photos, [r.box for r in REGIONS], [r.photo for r in REGIONS], output_size=BINS)
        total = tf.reduce_sum(pooled)
    return pooled.numpy(), tape.gradient(total, photos).numpy()


def check(photos: np.ndarray, pooled: np.ndarray, gradient: np.ndarray) -> None:
    """Exits with an error if the results are wrong."""
    total, expected = gradient.sum(dtype=np.float64), pooled.size
    if total != expected:
        raise SystemExit(f"CHECK FAILED: the gradient sums to {total}, expected {expected}: 1 for each pooled value")
    inside = np.zeros(photos.shape[:3], bool)
    for region, values in zip(REGIONS, pooled, strict=True):
        x1, y1, x2, y2 = region.box
        inside[region.photo, y1 : y2 + 1, x1 : x2 + 1] = True
        pixels = photos[region.photo, y1 : y2 + 1, x1 : x2 + 1]
        if not np.array_equal(values.max((0, 1)), pixels.max((0, 1))):
            raise SystemExit(f"CHECK FAILED: the largest pooled values of {region.name!r} are not the box's largest")
    if gradient[~inside].any():
        raise SystemExit("CHECK FAILED: pixels outside of all boxes have a gradient")
    print(f"check: the gradient sums to {total:.0f} = {expected} pooled values, all of it inside the boxes")


def heading(axes: plt.Axes, text: str) -> None:
    """Writes a column's title."""
    axes.set_title(text, fontsize=16, fontweight="bold", pad=12)


def outline(axes: plt.Axes, region: Region) -> None:
    """Draws a region's box."""
    x1, y1, x2, y2 = region.box
    size = (x2 - x1 + 1, y2 - y1 + 1)
    axes.add_patch(plt.Rectangle((x1 - 0.5, y1 - 0.5), *size, fill=False, edgecolor=region.color, linewidth=2.5))


def draw_photo(axes: plt.Axes, photo: np.ndarray, index: int) -> None:
    """Draws a photograph with its boxes and their names."""
    axes.imshow(photo)
    for region in REGIONS:
        if region.photo == index:
            outline(axes, region)
            frame = {"facecolor": region.color, "edgecolor": region.color, "pad": 2.5}
            x, y = region.box[:2]
            axes.text(x + 2, y - 5, region.name, va="bottom", fontsize=12, fontweight="bold", bbox=frame)


def draw_pooled(axes: plt.Axes, region: Region, values: np.ndarray) -> None:
    """Draws the bins of a region in a frame of its colour."""
    axes.set_axis_on()
    axes.imshow(values)
    axes.set(xticks=[], yticks=[])
    x1, y1, x2, y2 = region.box
    axes.set_xlabel(f"{region.name}, {x2 - x1 + 1} x {y2 - y1 + 1} pixels", fontsize=11, labelpad=3)
    for spine in axes.spines.values():
        spine.set(color=region.color, linewidth=4)


def draw_gradient(axes: plt.Axes, photo: np.ndarray, bins: np.ndarray, index: int, norm: colors.Normalize):
    """Draws a dot at each pixel that was a maximum, coloured by count; returns the dots."""
    axes.imshow(0.4 * photo.mean(-1), cmap="gray", vmin=0, vmax=1)
    for region in REGIONS:
        if region.photo == index:
            outline(axes, region)
    y, x = np.nonzero(bins)
    order = np.argsort(bins[y, x], kind="stable")  # draws the largest last
    y, x = y[order], x[order]
    return axes.scatter(x, y, c=bins[y, x], s=3 + 3 * bins[y, x], linewidths=0, cmap=HEAT, norm=norm, zorder=3)


def draw(photos: np.ndarray, pooled: np.ndarray, gradient: np.ndarray, output: pathlib.Path) -> None:
    """Draws photographs, pooled regions and gradient from left to right into a file."""
    figure = plt.figure(figsize=(WIDTH, HEIGHT), facecolor="white")

    def place(left, top, width, height):
        """Adds axes at a position in inches from the upper left corner."""
        axes = figure.add_axes((left / WIDTH, 1 - (top + height) / HEIGHT, width / WIDTH, height / HEIGHT))
        axes.set_axis_off()
        return axes

    def write(left, top, text, **style):
        return figure.text(left / WIDTH, 1 - top / HEIGHT, text, ha="center", va="center", **style)

    write(WIDTH / 2, 0.42, "RoI pooling: every box becomes 14 x 14 bins, whatever its size", fontsize=24)
    write(
        WIDTH / 2,
        0.92,
        "Each bin keeps the largest of its pixels, for red, green and blue apart. "
        "Going back, its gradient lands on exactly that pixel.",
        fontsize=14,
        color="0.35",
    )
    bins = gradient.sum(axis=-1)  # sums over red, green and blue
    norm = colors.LogNorm(1, bins.max())
    for i, photo in enumerate(photos):
        top = 1.85 + i * 4.12
        left, right = place(0.2, top, 6, 4), place(9.0, top, 6, 4)
        draw_photo(left, photo, i)
        dots = draw_gradient(right, photo, bins[i], i, norm)
        if i == 0:
            heading(left, "two photographs, five boxes")
            heading(right, "where the gradient landed")
    for i, (region, values) in enumerate(zip(REGIONS, pooled, strict=True)):
        axes = place(6.96, 1.85 + i * 1.648, 1.28, 1.28)
        draw_pooled(axes, region, values)
        if i == 0:
            heading(axes, "what was pooled")
    for left in (6.58, 8.62):
        write(left, 5.79, "\u2192", fontsize=34, color="0.35")
    bar = figure.colorbar(dots, cax=place(15.15, 3.9, 0.16, 4), ticks=[1, 2, 4, 8])
    bar.ax.set_axis_on()
    bar.ax.set_yticklabels(["1", "2", "4", "8"])
    bar.ax.minorticks_off()
    bar.set_label("gradient: how many bins took this pixel", fontsize=12)
    figure.savefig(output, dpi=100)
    plt.close(figure)


def main() -> None:
    """Runs the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("demo.png"), help="the picture's path")
    output = parser.parse_args().output.resolve()

    print(f"tensorflow_ops {tfo.__version__} from {pathlib.Path(tfo.__file__).parent}")
    photos = load_photos()
    print(f"reading {' and '.join(PHOTOS)}: {len(photos)} photographs of {photos.shape[2]} x {photos.shape[1]} pixels")
    pooled, gradient = pool(photos)
    for region in REGIONS:
        x1, y1, x2, y2 = region.box
        print(f"pooling {region.name}: {x2 - x1 + 1} x {y2 - y1 + 1} pixels -> {BINS} x {BINS} bins")
    check(photos, pooled, gradient)
    print("drawing")
    draw(photos, pooled, gradient, output)
    print(output)


if __name__ == "__main__":
    main()
