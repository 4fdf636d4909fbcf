"""For tests: pairwise, parameterized.product with far fewer cases."""

import itertools

from absl.testing import parameterized


def pairs_of(*values):
    """Returns tuples of one item of each sequence, such that each pair of items of two sequences occurs in one."""
    cases, chosen = list(itertools.product(*map(range, map(len, values)))), []
    missing = set().union(*map(_pairs, cases))
    while missing:
        chosen.append(max(cases, key=lambda case: len(missing & _pairs(case))))
        missing -= _pairs(chosen[-1])
    return [tuple(of[i] for of, i in zip(values, case, strict=True)) for case in chosen]


def _pairs(case):
    return set(itertools.combinations(enumerate(case), 2))


def pairwise(**values):
    """Like parameterized.product of at least two arguments, but with each pair of two arguments' values only."""
    return parameterized.parameters(*(dict(zip(values, case, strict=True)) for case in pairs_of(*values.values())))
