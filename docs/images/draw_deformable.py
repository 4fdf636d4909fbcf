"""Draws the figure of docs/deformable.md.

    python docs/images/draw_deformable.py

Needs matplotlib and nothing of this package, as draw.py.
"""

import draw
import numpy as np


def draw_deformable() -> draw.plt.Figure:
    """Taps of a convolution that move, and a query's points on three levels."""
    page = draw.Page(3.9)
    generator = np.random.default_rng(3)
    page.title(2.2, "deform_conv2d: taps and their offsets")
    axes = page.picture(0.7, 0.5, 3.0, (-0.6, 7.6), (-0.6, 7.6))
    for y, x in np.ndindex(8, 8):
        draw.rectangle(axes, x - 0.5, y - 0.5, x + 0.5, y + 0.5, edgecolor=draw.LIGHT, linewidth=0.8)
    taps = np.array([(y, x) for y in (2, 3, 4) for x in (2, 3, 4)], float)
    moved = taps * 1.35 - (0.3, 0.6) + generator.normal(0, 0.35, taps.shape)
    for (y, x), (to_y, to_x) in zip(taps, moved, strict=True):
        axes.annotate(
            "", (to_x, to_y), (x, y), arrowprops={"arrowstyle": "-|>", "color": draw.SAMPLE, "linewidth": 1.3}
        )
    axes.scatter(taps[:, 1], taps[:, 0], s=36, facecolor="white", edgecolor=draw.INK, zorder=3)
    axes.scatter(moved[:, 1], moved[:, 0], s=40, color=draw.SAMPLE, zorder=4)
    page.write(2.2, 3.82, "black: taps of conv2d; blue: where the features are read")

    page.title(7.3, "multiscale_deformable_attention: points of one query")
    reference = (0.42, 0.55)
    for level, (pixels, color) in enumerate(zip((16, 8, 4), draw.LEVELS, strict=False)):
        left = 4.35 + 2.02 * level
        axes = page.picture(left, 1.0, 1.88, (-0.03, 1.03), (-0.03, 1.03))
        lines = {"color": color, "linewidth": 0.7, "alpha": 0.6}
        axes.vlines(np.arange(pixels + 1) / pixels, 0, 1, **lines)
        axes.hlines(np.arange(pixels + 1) / pixels, 0, 1, **lines)
        points = reference + generator.normal(0, 0.06 * 2 ** (level / 2), [4, 2])
        axes.scatter(*points.T, s=40 + 160 * generator.dirichlet(np.ones(4)), color=color, zorder=3)
        axes.scatter(*reference, s=70, marker="x", color=draw.INK, zorder=4)
        page.write(left + 0.94, 3.1, f"{pixels} x {pixels} pixels", 11, color=color)
    page.write(7.3, 3.45, "cross: the query's reference point; sizes of points: attention weights")
    return page.figure


if __name__ == "__main__":
    draw_deformable().savefig(draw.FOLDER / "deformable.png", dpi=160, facecolor="white")
