"""Helpers of registered gradients, on the op that they differentiate."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# TensorFlow has no public API to look up an op.
from tensorflow.python.framework import op_def_registry

from tensorflow_ops.core.python import pfor
from tensorflow_ops.core.python.library import ops


def _definition(op_type: str) -> Any:
    return op_def_registry.get(op_type)


@functools.cache
def _attr_names(op_type: str, function: Callable[..., Any]) -> list[str]:
    taken = inspect.signature(function).parameters
    return [attr.name for attr in _definition(op_type).attr if attr.name in taken and attr.type != "type"]


def call(function: Callable[..., Any], op: Any, *inputs: Any, **more: Any) -> Any:
    """Calls a generated function with the attrs of the op that it takes, too, and with more, which come first."""
    attrs = {name: op.get_attr(name) for name in _attr_names(op.type, function)}
    return function(*inputs, **(attrs | more))


def input_names(op: Any) -> list[str]:
    """Returns the name of each input; the tensors of a list all have the list's name."""
    args = _definition(op.type).input_arg
    return [arg.name for arg in args for _ in range(op.get_attr(arg.number_attr) if arg.number_attr else 1)]


def inputs_by_name(op: Any) -> dict[str, Any]:
    """Returns the inputs by name, as a generated function takes them: those of a list as a list."""
    inputs = iter(op.inputs)
    return {
        arg.name: [next(inputs) for _ in range(op.get_attr(arg.number_attr))] if arg.number_attr else next(inputs)
        for arg in _definition(op.type).input_arg
    }


def is_needed(op: Any, index: int) -> bool:
    """Returns whether a gradient to the input is used.

    An eager tape lists the inputs that it skips. A graph has no such list: it computes all
    gradients and prunes unused ones.
    """
    return index not in (getattr(op, "skip_input_indices", None) or ())


def refuse(op: Any, index: int, reason: str, upstream: Sequence[tf.Tensor]) -> tf.Tensor | None:
    """Returns the gradient to an input that has none, of a registered gradient that is itself differentiated.

    None would count as zero. An eager tape that uses the gradient raises LookupError. A graph
    may compute it without using it, or with an upstream of zeros: forward mode does for
    constants. There, a use raises UnimplementedError at run time if upstream is not zero.

    Args:
      op: the op that is differentiated.
      index: of the input.
      reason: the error's text.
      upstream: the upstream gradients. Forward mode differentiates to them.
    """
    if not is_needed(op, index):
        return None
    if tf.executing_eagerly():
        raise LookupError(reason)
    return ops.tensorflow_ops_refuse_gradient(op.inputs[index], upstream, reason=reason)


@tf.RegisterGradient("TensorflowOps>RefuseGradient")
def _refused_grad(op: Any, upstream: tf.Tensor) -> list[tf.Tensor | None]:
    reason = tf.compat.as_str(op.get_attr("reason"))
    return [refuse(op, i, reason, [upstream]) for i in range(len(op.inputs))]


pfor.register("TensorflowOps>RefuseGradient")(pfor.convert_batched)
