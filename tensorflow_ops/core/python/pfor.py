"""Vectorization: tf.vectorized_map, GradientTape.jacobian and batch_jacobian call one op for all iterations.

Without a converter TensorFlow calls the op once for each iteration, in a loop.
"""

import tensorflow as tf

# TensorFlow has no public API to register converters; a wheel fits one TensorFlow release.
from tensorflow.python.ops.parallel_for import pfor as pfor_lib

ConversionNotImplementedError = pfor_lib.ConversionNotImplementedError
register = pfor_lib.RegisterPFor


def call(pfor_input, inputs):
    """Calls the converted op, with its own attrs, on other inputs. Returns the outputs."""
    op = pfor_input.op
    dtypes = [output.dtype for output in op.outputs]
    return pfor_lib._create_op(op.type, inputs, dtypes, attrs=op.node_def.attr).outputs


def stacked(output):
    """Declares that dim 0 of an output is the iterations."""
    return pfor_lib.wrap(output, True)


def convert_batched(pfor_input, unstacked=()):
    """Converts an op that takes any batch dims: the iterations become the first one.

    Args:
      pfor_input: the op and its inputs.
      unstacked: indices of outputs without batch dims, equal in all iterations.
    """
    pfor_input.stack_inputs()
    outputs = call(pfor_input, [value.t for value in pfor_input.inputs])
    return [pfor_lib.wrap(output, i not in unstacked) for i, output in enumerate(outputs)]


def fold(tensor, axis=0):
    """Merges the iterations, dim 0, into a dim of the rest: [P, M, ...] becomes [P * M, ...] for axis 0."""
    tensor = tf.experimental.numpy.moveaxis(tensor, 0, axis) if axis else tensor
    shape = tf.shape(tensor)
    return tf.reshape(tensor, tf.concat([shape[:axis], [shape[axis] * shape[axis + 1]], shape[axis + 2 :]], 0))


def unfold(tensor, iterations, axis=0, size=None):
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
