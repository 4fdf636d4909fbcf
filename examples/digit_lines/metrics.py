"""The distance of texts."""

from collections.abc import Sequence


def edit_distance(a: Sequence, b: Sequence) -> int:
    """Returns how many insertions, deletions and replacements change a into b (Levenshtein)."""
    distances = list(range(len(b) + 1))  # from no items of a to the first j of b
    for i, item in enumerate(a, 1):
        diagonal, distances[0] = distances[0], i
        for j, other in enumerate(b, 1):
            replaced = diagonal + (item != other)
            diagonal = distances[j]
            distances[j] = min(replaced, distances[j] + 1, distances[j - 1] + 1)
    return distances[-1]


def label_error_rate(texts: Sequence[Sequence], truth: Sequence[Sequence]) -> float:
    """Returns the edit distance of texts to the true ones, as a fraction of the true labels."""
    errors = sum(edit_distance(text, true) for text, true in zip(texts, truth, strict=True))
    return errors / sum(map(len, truth))
