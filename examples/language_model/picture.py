"""Draws the memory and the time of a training step over the length of the text."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

LABELS = {"fused": "tfo.layers.MultiHeadAttention", "composed": "keras.layers.MultiHeadAttention"}


def draw(measured: Mapping[str, Mapping[int, tuple[float, int]]], lengths: Sequence[int]) -> Figure:
    """Draws {attention: {length: (seconds, bytes)}}; a cross marks the first length that does not fit."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    for column, (axes, label, unit) in enumerate(zip(figure.subplots(1, 2), ("seconds", "GB"), (1, 1e9), strict=True)):
        for attention, points in measured.items():
            values = [point[column] / unit for point in points.values()]
            (line,) = axes.loglog(list(points), values, marker="o", label=LABELS[attention])
            if len(points) < len(lengths):
                # Both grow fourfold where the length doubles.
                at = lengths[len(points)], 4 * values[-1]
                axes.loglog(*at, marker="x", markersize=10, color=line.get_color())
                axes.annotate("out of memory", at, (-10, 0), textcoords="offset points", ha="right", va="center")
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, map(str, lengths))
        axes.set(xlabel="length of the text, bytes", ylabel=label)
        axes.grid(alpha=0.3)
    axes.legend()
    return figure
