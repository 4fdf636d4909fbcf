"""Films shown to users who typed a few words, with the true probability of each click.

A click depends on how much the user likes the film's genre, on how many of the words hint at
it, and on the film's quality. Names are strings, and a few of them make up most clicks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Each with what its words are about.
GENRES = {
    "animation": "mouse",
    "comedy": "clown",
    "crime": "detective",
    "fantasy": "dragon",
    "history": "emperor",
    "horror": "ghost",
    "romance": "wedding",
    "western": "saloon",
}
COUNTS = {"user": 200_000, "film": 100_000, "words": 200_000}
TYPED = 3  # words
STEEPNESS = 1.2  # the k-th most frequent name has a probability proportional to 1 / k ** STEEPNESS


class World(NamedTuple):
    """What clicks depend on. Of each film or word, `genres` has an index into GENRES."""

    names: dict[str, np.ndarray]  # of COUNTS, the most frequent first
    genres: dict[str, np.ndarray]
    tastes: np.ndarray  # [users, genres]
    qualities: np.ndarray  # [films]


class Clicks(NamedTuple):
    """Films that were shown."""

    inputs: dict[str, np.ndarray]  # names: "user" and "film" [..., 1], "words" [..., TYPED]
    clicked: np.ndarray  # float32 [..., 1], 0 or 1
    probabilities: np.ndarray  # float32 [..., 1], of a click


def create_world(seed: int | Sequence[int]) -> World:
    """Draws a world. Depends on the seed only."""
    rng = np.random.default_rng(seed)
    genres = {name: rng.integers(len(GENRES), size=COUNTS[name]) for name in ("film", "words")}
    prefixes = {
        "user": ["user"] * COUNTS["user"],
        "film": np.array(list(GENRES))[genres["film"]],
        "words": np.array(list(GENRES.values()))[genres["words"]],
    }
    names = {key: np.array([f"{prefix}{i}" for i, prefix in enumerate(prefixes[key])], object) for key in COUNTS}
    return World(names, genres, rng.normal(size=[COUNTS["user"], len(GENRES)]), rng.normal(size=COUNTS["film"]))


def draw_ids(rng: np.random.Generator, count: int, shape: Sequence[int]) -> np.ndarray:
    """Draws integers from 0 to `count` - 1; the smaller, the more frequent."""
    sums = np.cumsum(np.arange(1, 1 + count) ** -STEEPNESS)
    return np.searchsorted(sums / sums[-1], rng.random(shape))


def draw_clicks(world: World, shape: Sequence[int], seed: int | Sequence[int]) -> Clicks:
    """Draws clicks of this shape, such as [batches, batch size]. Depends on the world and the seed only."""
    rng = np.random.default_rng(seed)
    widths = {"user": 1, "film": 1, "words": TYPED}
    ids = {key: draw_ids(rng, COUNTS[key], [*shape, width]) for key, width in widths.items()}
    genre = world.genres["film"][ids["film"]]
    hints = (world.genres["words"][ids["words"]] == genre).mean(-1, keepdims=True)
    logits = 1.5 * world.tastes[ids["user"], genre] + world.qualities[ids["film"]] + 4 * hints - 1.5
    probabilities = 1 / (1 + np.exp(-logits))
    clicked = rng.random(probabilities.shape) < probabilities
    inputs = {key: world.names[key][ids[key]] for key in ids}
    return Clicks(inputs, clicked.astype(np.float32), probabilities.astype(np.float32))
