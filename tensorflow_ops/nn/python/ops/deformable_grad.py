"""Gradients and vectorization of deform_conv2d and multiscale_deformable_attention.

Second derivatives, and forward mode, which needs them, do not exist.
"""

import tensorflow as tf

from tensorflow_ops.core.python import pfor
from tensorflow_ops.core.python.gradients import call, input_names, inputs_by_name, refuse
from tensorflow_ops.core.python.library import ops

_NO_SECOND = "has no second derivatives, which forward mode (tf.autodiff.ForwardAccumulator) needs, too"


@tf.RegisterGradient("TensorflowOps>DeformConv2d")
def _deform_conv_grad(op, d_output):
    d = call(ops.tensorflow_ops_deform_conv2d_grad, op, d_output, *inputs_by_name(op).values())
    return [d.d_features, d.d_offsets, d.d_filters, *d.d_mask, *d.d_bias]


@tf.RegisterGradient("TensorflowOps>MultiscaleDeformableAttention")
def _attention_grad(op, d_output):
    d = call(ops.tensorflow_ops_multiscale_deformable_attention_grad, op, d_output, *op.inputs)
    return [d.d_values, None, d.d_sampling_locations, d.d_attention_weights]


@tf.RegisterGradient("TensorflowOps>DeformConv2dGrad")
def _deform_conv_grad_grad(op, *upstream):
    # Of the bias, only the shape counts.
    return [
        None if name == "bias" else refuse(op, i, f"deform_conv2d {_NO_SECOND}", upstream)
        for i, name in enumerate(input_names(op))
    ]


@tf.RegisterGradient("TensorflowOps>MultiscaleDeformableAttentionGrad")
def _attention_grad_grad(op, *upstream):
    reason = f"multiscale_deformable_attention {_NO_SECOND}"
    return [None if i == 2 else refuse(op, i, reason, upstream) for i in range(len(op.inputs))]


@pfor.register("TensorflowOps>DeformConv2d")
def _convert_deform_conv(pfor_input):
    # The gradient has no converter: its sums over the batch would join the iterations.
    shared = [i for i, name in enumerate(input_names(pfor_input.op)) if name in ("filters", "bias")]
    return pfor.convert_folded(pfor_input, shared)


@pfor.register("TensorflowOps>MultiscaleDeformableAttention")
def _convert_attention(pfor_input):
    return pfor.convert_folded(pfor_input, shared=[1])


@pfor.register("TensorflowOps>MultiscaleDeformableAttentionGrad")
def _convert_attention_grad(pfor_input):
    return pfor.convert_folded(pfor_input, shared=[2])
