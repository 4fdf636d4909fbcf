"""The weather and the seasons of a planet whose seasons have no fixed length.

A hidden Markov model: each day the season stays or gives way to the next one, and the
weather depends on the season only. In spring and in autumn it is the same, so only their
neighbors tell them apart. All probabilities are known, and with them the best possible
tagger.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SEASONS = ("winter", "spring", "summer", "autumn")
LETTERS = "WPSA"  # of the seasons, in print
WEATHERS = ("snow", "frost", "rain", "clouds", "sun", "heat")

CHANGE = 1 / 20  # a season lasts 20 days on average
START = np.full([4], 1 / 4)
# From the row's season to the column's.
CHANGES = np.array(
    [
        [1 - CHANGE, CHANGE, 0, 0],
        [0, 1 - CHANGE, CHANGE, 0],
        [0, 0, 1 - CHANGE, CHANGE],
        [CHANGE, 0, 0, 1 - CHANGE],
    ]
)
# Of each weather, by season.
WEATHER = np.array(
    [
        [0.45, 0.30, 0.15, 0.07, 0.02, 0.01],
        [0.05, 0.12, 0.33, 0.33, 0.12, 0.05],
        [0.01, 0.02, 0.07, 0.15, 0.30, 0.45],
        [0.05, 0.12, 0.33, 0.33, 0.12, 0.05],
    ]
)
SHORTEST, LONGEST = 60, 160  # days of a record


class Records(NamedTuple):
    """The days of N records, padded to those of the longest, T."""

    weather: np.ndarray  # int32 [N, T], 1 + index into WEATHERS; 0 beyond the length
    seasons: np.ndarray  # int32 [N, T], index into SEASONS; -1 beyond the length
    lengths: np.ndarray  # int32 [N]


def choose(rng: np.random.Generator, probabilities: np.ndarray) -> np.ndarray:
    """Draws an index for each row of probabilities [N, K]."""
    return (rng.random([len(probabilities), 1]) > probabilities.cumsum(1)[:, :-1]).sum(1)


def draw_records(count: int, seed: int | Sequence[int]) -> Records:
    """Draws records. Depends on the seed only."""
    rng = np.random.default_rng(seed)
    days = [choose(rng, np.tile(START, [count, 1]))]
    while len(days) < LONGEST:
        days.append(choose(rng, CHANGES[days[-1]]))
    seasons = np.stack(days, 1)
    weather = 1 + choose(rng, WEATHER[seasons.reshape(-1)]).reshape(seasons.shape)
    lengths = rng.integers(SHORTEST, LONGEST + 1, count)
    inside = np.arange(LONGEST) < lengths[:, np.newaxis]
    arrays = np.where(inside, weather, 0), np.where(inside, seasons, -1), lengths
    return Records(*(array.astype(np.int32) for array in arrays))


def true_scores(records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Returns logits [N, T, seasons] and transitions [seasons, seasons] of a CRF with exactly these probabilities."""
    with np.errstate(divide="ignore"):  # a forbidden change: log 0 = -inf
        transitions = np.log(CHANGES)
    logits = np.log(WEATHER.T)[records.weather - 1]  # beyond the length: anything
    logits[:, 0] += np.log(START)
    return logits.astype(np.float32), transitions.astype(np.float32)


def as_digits(records: Records, i: int) -> str:
    """Returns the weather of record i as digits, from 1 for snow to 6 for heat."""
    return "".join(map(str, records.weather[i, : records.lengths[i]]))


def as_letters(seasons: Sequence[int], length: int) -> str:
    """Returns the first seasons as letters."""
    return "".join(LETTERS[season] for season in seasons[:length])
