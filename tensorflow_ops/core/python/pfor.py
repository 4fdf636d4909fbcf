"""Vectorization: tf.vectorized_map, GradientTape.jacobian and batch_jacobian call one op for all iterations.

Without a converter TensorFlow calls the op once for each iteration, in a loop.
"""

from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

# TensorFlow has no public API to register converters; a wheel fits one TensorFlow release.
from tensorflow.python.ops.parallel_for import pfor as pfor_lib

from tensorflow_ops.core.python.type_aliases import IntLike

ConversionNotImplementedError = pfor_lib.ConversionNotImplementedError
register = pfor_lib.RegisterPFor


def call(pfor_input: Any, inputs: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Calls the converted op, with its own attrs, on other inputs. Returns the outputs."""
    op = pfor_input.op
    dtypes = [output.dtype for output in op.outputs]
    return pfor_lib._create_op(op.type, inputs, dtypes, attrs=op.node_def.attr).outputs


def stacked(output: tf.Tensor) -> Any:
    """Declares that dim 0 of an output is the iterations."""
    return pfor_lib.wrap(output, True)


def forwarded(output: tf.Tensor, value: Any) -> Any:
    """Declares that an output is one of the inputs."""
    return pfor_lib.wrap(output, value.is_stacked)


def convert_batched(pfor_input: Any, unstacked: Collection[int] = ()) -> list[Any]:
    """Converts an op that takes any batch dims: the iterations become the first one.

    Args:
      pfor_input: the op and its inputs.
      unstacked: indices of outputs without batch dims, equal in all iterations.
    """
    pfor_input.stack_inputs()
    outputs = call(pfor_input, [value.t for value in pfor_input.inputs])
    return [pfor_lib.wrap(output, i not in unstacked) for i, output in enumerate(outputs)]


def loop(pfor_input: Any) -> list[Any]:
    """Calls an op once for each iteration."""
    pfor_input.stack_inputs()
    dtypes = [output.dtype for output in pfor_input.op.outputs]
    tensors = [value.t for value in pfor_input.inputs]
    outputs = tf.map_fn(lambda inputs: list(call(pfor_input, inputs)), tensors, fn_output_signature=dtypes)
    return [stacked(y) for y in outputs]


def convert_folded(pfor_input: Any, shared: Collection[int] = ()) -> list[Any]:
    """Converts an op of inputs and outputs whose dim 0 is a batch: the iterations become part of it.

    Args:
      pfor_input: the op and its inputs.
      shared: indices of inputs without a batch. If one of them differs between iterations, the op runs once for each.
    """
    if any(pfor_input.inputs[i].is_stacked for i in shared):
        return loop(pfor_input)
    batched = [i for i in range(pfor_input.num_inputs) if i not in shared]
    pfor_input.stack_inputs(batched)
    tensors = [value.t for value in pfor_input.inputs]
    shape = tf.shape(tensors[batched[0]])
    outputs = call(pfor_input, [fold(t) if i in batched else t for i, t in enumerate(tensors)])
    return [stacked(unfold(y, shape[0], size=shape[1])) for y in outputs]


def fold(tensor: tf.Tensor, axis: int = 0) -> tf.Tensor:
    """Merges the iterations, dim 0, into a dim of the rest: [P, M, ...] becomes [P * M, ...] for axis 0."""
    tensor = tf.experimental.numpy.moveaxis(tensor, 0, axis) if axis else tensor
    shape = tf.shape(tensor)
    return tf.reshape(tensor, tf.concat([shape[:axis], [shape[axis] * shape[axis + 1]], shape[axis + 2 :]], 0))


def unfold(tensor: tf.Tensor, iterations: IntLike, axis: int = 0, size: IntLike | None = None) -> tf.Tensor:
    """Reverts `fold`.

    Args:
      tensor: [P * M, ...] for axis 0.
      iterations: P, an int32 scalar.
      axis: the axis that `fold` merged the iterations into.
      size: M, which no iterations (P = 0) leave unknown. None: P * M / P, or 0.
    """
    shape = tf.shape(tensor)
    size = shape[axis] // tf.maximum(iterations, 1) if size is None else size
    split = tf.stack([iterations, size])
    tensor = tf.reshape(tensor, tf.concat([shape[:axis], split, shape[axis + 1 :]], 0))
    return tf.experimental.numpy.moveaxis(tensor, axis, 0) if axis else tensor
