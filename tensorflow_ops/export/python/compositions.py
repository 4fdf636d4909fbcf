"""Compositions: what each op of this package computes, as a graph of TensorFlow's own ops."""

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

PREFIX = "TensorflowOps>"

# Modules of this folder that register compositions.
_MODULES = (
    "core",
    "detection",
    "hinge_loss",
    "image",
    "nn",
    "nn_attention",
    "nn_deformable",
    "nn_gru",
    "nn_lstm",
    "nn_quantized",
    "nn_sequences",
    "roi",
    "seq2seq",
    "seq2seq_ctc",
    "zero_out",
)


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
    for module in _MODULES:
        importlib.import_module(f"tensorflow_ops.export.python.{module}")
    return _REGISTERED
