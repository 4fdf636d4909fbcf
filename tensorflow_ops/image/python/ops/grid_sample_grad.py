"""Gradients and vectorization of grid_sample.

GridSample is linear in features: GridSampleGrad is its transpose, and each is the other's gradient. The gradient to
the grid has a gradient to its upstream gradient, in which it is linear: forward mode needs it. It has no other.
"""

import tensorflow as tf

from tensorflow_ops.core.python import pfor
from tensorflow_ops.core.python.gradients import call, is_needed, refuse
from tensorflow_ops.core.python.library import ops


def _to_grid(op, d_output, features, grid):
    return call(ops.tensorflow_ops_grid_sample_grid_grad, op, d_output, features, grid)


@tf.RegisterGradient("TensorflowOps>GridSample")
def _grid_sample_grad(op, d_output):
    features, grid = op.inputs
    d_features = d_grid = None
    if is_needed(op, 0):
        d_features = call(ops.tensorflow_ops_grid_sample_grad, op, d_output, grid, tf.shape(features))
    if is_needed(op, 1):
        d_grid = _to_grid(op, d_output, features, grid)
    return d_features, d_grid


@tf.RegisterGradient("TensorflowOps>GridSampleGrad")
def _grid_sample_grad_grad(op, dd_features):
    d_output, grid, _ = op.inputs
    dd_output = d_grid = None
    if is_needed(op, 0):
        dd_output = call(ops.tensorflow_ops_grid_sample, op, dd_features, grid)
    if is_needed(op, 1):
        d_grid = _to_grid(op, d_output, dd_features, grid)
    return dd_output, d_grid, None


@tf.RegisterGradient("TensorflowOps>GridSampleGridGrad")
def _grid_sample_grid_grad_grad(op, dd_grid):
    _, features, grid = op.inputs
    dd_output = None
    if is_needed(op, 0):
        dd_output = call(ops.tensorflow_ops_grid_sample_tangent, op, features, grid, dd_grid)
    reason = "the gradient of grid_sample to its grid has no gradient"
    return [dd_output, *(refuse(op, i, reason, [dd_grid]) for i in (1, 2))]


@tf.RegisterGradient("TensorflowOps>GridSampleTangent")
def _grid_sample_tangent_grad(op, d_output):
    features, grid, _ = op.inputs
    d_direction = _to_grid(op, d_output, features, grid) if is_needed(op, 2) else None
    reason = "the derivative of grid_sample along its grid has no gradient to features and grid"
    return [*(refuse(op, i, reason, [d_output]) for i in (0, 1)), d_direction]


def _convert(pfor_input):
    """Converts an op: the iterations become part of the batch, dim 0 of images, grids and samples."""
    op, inputs = pfor_input.op, pfor_input.inputs
    names = [arg.name for arg in op.op_def.input_arg]
    sizes_at = names.index("features_shape") if "features_shape" in names else None
    if sizes_at is not None and inputs[sizes_at].is_stacked:
        raise pfor.ConversionNotImplementedError(f"features_shape of {op.type} differs between iterations")
    pfor_input.stack_inputs([i for i in range(len(inputs)) if i != sizes_at])
    iterations = tf.cast(pfor_input.pfor.loop_len_vector[0], tf.int32)  # fits: a size
    tensors = [value.t for value in inputs]
    batch = tf.shape(tensors[names.index("grid")])[1]
    tensors = [t if i == sizes_at else pfor.fold(t) for i, t in enumerate(tensors)]
    if sizes_at is not None:
        tensors[sizes_at] *= tf.stack([iterations, 1, 1, 1])
    return [pfor.stacked(pfor.unfold(y, iterations, size=batch)) for y in pfor.call(pfor_input, tensors)]


for _name in ("GridSample", "GridSampleTangent", "GridSampleGrad", "GridSampleGridGrad"):
    pfor.register(f"TensorflowOps>{_name}")(_convert)
