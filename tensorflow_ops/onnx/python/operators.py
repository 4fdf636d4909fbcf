"""Ops that ONNX has, too: how tf2onnx writes them as ONNX's own operators. Files here register them."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import registration
from tensorflow_ops.onnx.python.nodes import Nodes


class Operator(NamedTuple):
    """How to write an op as operators of ONNX."""

    # The first opset that has them; none below 13, whose reductions differ.
    opset: int
    # Returns whether ONNX's operators compute what this operation of a TensorFlow graph does.
    fits: Callable[[tf.Operation], bool]
    # Makes nodes that compute the outputs; None for an output without a consumer.
    convert: Callable[[Nodes], Sequence[str | None]]


_REGISTERED: dict[str, Operator] = {}


def operator(op: str, opset: int, fits: Callable[[tf.Operation], bool]):
    """Registers the decorated function as the `convert` of an op, a name without the prefix."""

    def register(convert):
        _REGISTERED[op] = Operator(opset, fits, convert)
        return convert

    return register


@functools.cache
def operators() -> dict[str, Operator]:
    """Returns how to write ops, by their names without the prefix."""
    registration.import_all(__package__)
    return _REGISTERED


def is_constant(tensor: tf.Tensor) -> bool:
    return tensor.op.type == "Const"


def dims(tensor: tf.Tensor, rank: int) -> list[int | None]:
    """Returns the sizes of a tensor's dims, None where unknown."""
    return tensor.shape.with_rank(rank).as_list()
