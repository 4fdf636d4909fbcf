"""Gradients and vectorization of deform_conv2d and multiscale_deformable_attention.

Second derivatives, and forward mode, which needs them, do not exist.
"""

import tensorflow as tf

from tensorflow_ops.core.python import pfor
from tensorflow_ops.core.python.gradients import attrs, refuse
from tensorflow_ops.core.python.library import ops

_CONV_ATTRS = ("strides", "dilations", "padding", "paddings", "has_mask", "has_bias")
_NO_SECOND = "has no second derivatives, which forward mode (tf.autodiff.ForwardAccumulator) needs, too"


@tf.RegisterGradient("TensorflowOps>DeformConv2d")
def _deform_conv_grad(op, d_output):
    features, offsets, filters, mask, _ = op.inputs
    options = attrs(op, _CONV_ATTRS)
    d = ops.tensorflow_ops_deform_conv2d_grad(d_output, features, offsets, filters, mask, **options)
    return [
        d.d_features,
        d.d_offsets,
        d.d_filters,
        d.d_mask if options["has_mask"] else None,
        d.d_bias if options["has_bias"] else None,
    ]


@tf.RegisterGradient("TensorflowOps>MultiscaleDeformableAttention")
def _attention_grad(op, d_output):
    d = ops.tensorflow_ops_multiscale_deformable_attention_grad(d_output, *op.inputs, **attrs(op, ("num_points",)))
    return [d.d_values, None, d.d_sampling_locations, d.d_attention_weights]


@tf.RegisterGradient("TensorflowOps>DeformConv2dGrad")
def _deform_conv_grad_grad(op, *upstream):
    return [refuse(op, i, f"deform_conv2d {_NO_SECOND}", upstream) for i in range(len(op.inputs))]


@tf.RegisterGradient("TensorflowOps>MultiscaleDeformableAttentionGrad")
def _attention_grad_grad(op, *upstream):
    reason = f"multiscale_deformable_attention {_NO_SECOND}"
    return [None if i == 2 else refuse(op, i, reason, upstream) for i in range(len(op.inputs))]


def _loop(pfor_input):
    """Calls an op once for each iteration."""
    pfor_input.stack_inputs()
    dtypes = [output.dtype for output in pfor_input.op.outputs]
    tensors = [value.t for value in pfor_input.inputs]
    outputs = tf.map_fn(lambda inputs: list(pfor.call(pfor_input, inputs)), tensors, fn_output_signature=dtypes)
    return [pfor.stacked(y) for y in outputs]


def _convert(pfor_input, batched):
    """Makes the iterations of an op part of the batch. `batched` are the indices of inputs that have one."""
    if any(value.is_stacked and i not in batched for i, value in enumerate(pfor_input.inputs)):
        return _loop(pfor_input)
    pfor_input.stack_inputs(batched)
    tensors = [value.t for value in pfor_input.inputs]
    iterations, size = tf.shape(tensors[batched[0]])[0], tf.shape(tensors[batched[0]])[1]
    tensors = [pfor.fold(t) if i in batched else t for i, t in enumerate(tensors)]
    outputs = pfor.call(pfor_input, tensors)
    return [pfor.stacked(pfor.unfold(y, iterations, size=size)) for y in outputs]


@pfor.register("TensorflowOps>DeformConv2d")
def _convert_deform_conv(pfor_input):
    # The gradient has no converter: its sums over the batch would join the iterations.
    return _convert(pfor_input, [0, 1, 3] if pfor_input.get_attr("has_mask") else [0, 1])


@pfor.register("TensorflowOps>MultiscaleDeformableAttention")
def _convert_attention(pfor_input):
    return _convert(pfor_input, [0, 2, 3])


@pfor.register("TensorflowOps>MultiscaleDeformableAttentionGrad")
def _convert_attention_grad(pfor_input):
    return _convert(pfor_input, [0, 1, 3, 4])
