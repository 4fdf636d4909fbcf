"""Compositions: what each op of this package computes, as a graph of TensorFlow's own ops. Files here register them."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tensorflow_ops.core.python import registration

PREFIX = "TensorflowOps>"


class Composition(NamedTuple):
    """The function of an op, and what tracing it needs to know."""

    # Takes an op's inputs in order, a list of inputs as a list, and by keyword its attrs, but those of types and counts
    # only if it names them; returns a tensor, or a tuple in the order of the outputs.
    function: Callable
    # The rank of each input; None where it varies. Lists have one rank for all.
    ranks: Sequence[int | None]


_REGISTERED: dict[str, Composition] = {}


def composition(op: str, ranks: Sequence[int | None]):
    """Registers the decorated function as the composition of `op`, a name without the prefix."""

    def register(function):
        _REGISTERED[op] = Composition(function, ranks)
        return function

    return register


@functools.cache
def compositions() -> dict[str, Composition]:
    """Returns the compositions by the names of ops, without the prefix."""
    registration.import_all(__package__)
    return _REGISTERED
