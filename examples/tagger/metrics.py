"""A measure of tags [N, T]: of seasons as a whole."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEAST_OVERLAP = 0.5


class Span(NamedTuple):
    """Consecutive days of one tag: start <= day < end."""

    tag: int
    start: int
    end: int


def spans(tags: Sequence[int]) -> list[Span]:
    """Returns the runs of equal tags."""
    edges = [0, *(np.flatnonzero(np.diff(tags)) + 1), len(tags)]
    return [Span(int(tags[a]), int(a), int(b)) for a, b in itertools.pairwise(edges)]


def overlap(a: Span, b: Span) -> float:
    """Returns the days that two spans share, as a fraction of the days of both together."""
    shared = max(min(a.end, b.end) - max(a.start, b.start), 0)
    return shared / (a.end - a.start + b.end - b.start - shared)


def span_f1(tags: np.ndarray, truth: np.ndarray, lengths: np.ndarray) -> float:
    """Returns the harmonic mean of precision and recall of spans.

    A span is right if its overlap with a true span of the same tag is above LEAST_OVERLAP,
    so that no two spans can be right for the same true one.
    """
    right = found = there = 0
    for row, true_row, length in zip(tags, truth, lengths, strict=True):
        ours, theirs = spans(row[:length]), spans(true_row[:length])
        found, there = found + len(ours), there + len(theirs)
        right += sum(any(a.tag == b.tag and overlap(a, b) > LEAST_OVERLAP for b in theirs) for a in ours)
    return 2 * right / (found + there)
