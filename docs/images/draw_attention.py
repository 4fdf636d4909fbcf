"""Draws the figure of docs/attention.md.

    python docs/images/draw_attention.py

Needs matplotlib and nothing of this package, as draw.py.
"""

import draw
import numpy as np

_QUERIES, _KEYS = 5, 8


def draw_attention() -> draw.plt.Figure:
    """The pairs of queries and keys that options leave."""
    page = draw.Page(2.75)
    t, j = np.arange(_QUERIES)[:, np.newaxis], np.arange(_KEYS)
    beside = t + _KEYS - _QUERIES  # The last query beside the last key.
    panels = (
        ("causal", "the last query beside the last key", j <= beside),
        ("causal, query_offset=0", "the first beside the first", j <= t),
        ("window=(2, 1)", "2 keys before, 1 after", (beside - 2 <= j) & (j <= beside + 1)),
        ("causal, key_lengths=6", "key 5 is the last", (j <= t + 6 - _QUERIES) & (j < 6)),
    )
    for i, (title, words, attends) in enumerate(panels):
        left = 0.45 + 2.58 * i
        page.title(left + 1.1, title)
        axes = page.picture(left, 0.62, 2.2, (-0.55, _KEYS - 0.45), (-0.55, _QUERIES - 0.45))
        for y, x in np.ndindex(_QUERIES, _KEYS):
            color = draw.SAMPLE if attends[y, x] else "white"
            draw.rectangle(axes, x - 0.5, y - 0.5, x + 0.5, y + 0.5, facecolor=color, edgecolor=draw.LIGHT)
        page.write(left + 1.1, 0.5, "keys", 9.5, color=draw.GREY)
        page.write(left - 0.14, 1.3, "queries", 9.5, color=draw.GREY, rotation=90)
        page.write(left + 1.1, 2.3, words)
    page.write(5.25, 2.6, "blue: the query attends to the key")
    return page.figure


if __name__ == "__main__":
    draw_attention().savefig(draw.FOLDER / "attention.png", dpi=160, facecolor="white")
