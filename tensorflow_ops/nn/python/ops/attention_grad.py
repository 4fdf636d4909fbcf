"""Gradients and vectorization of attention.

Second derivatives, and forward mode, which needs them, do not exist.
"""

import tensorflow as tf

from tensorflow_ops.core.python import pfor
from tensorflow_ops.core.python.gradients import call, is_needed, refuse
from tensorflow_ops.core.python.library import ops

_QUERY, _KEY, _VALUE, _MASK, _BIAS, _ALIBI_SLOPES, _SINKS = range(7)
_LENGTHS = (9, 10, 11)  # lengths, key_lengths, query_offset
_NUM_OPERANDS = 14
_NO_SECOND = "attention has no second derivatives, which forward mode (tf.autodiff.ForwardAccumulator) needs, too"


@tf.RegisterGradient("TensorflowOps>Attention")
def _attention_grad(op, d_output, d_log_sum_exp):
    inputs = (*op.inputs, *op.outputs, d_output, d_log_sum_exp)
    gradients = [None] * len(op.inputs)
    d = call(ops.tensorflow_ops_attention_grad, op, *inputs)
    gradients[_QUERY], gradients[_KEY], gradients[_VALUE] = d.d_query, d.d_key, d.d_value
    if op.get_attr("has_sinks"):
        gradients[_SINKS] = d.d_sinks
    if op.get_attr("has_bias") and is_needed(op, _BIAS):
        gradients[_BIAS] = call(ops.tensorflow_ops_attention_bias_grad, op, *inputs)
    return gradients


def _refuse(op, *upstream):
    floats = [i for i, tensor in enumerate(op.inputs) if tensor.dtype.is_floating and i != _ALIBI_SLOPES]
    return [refuse(op, i, _NO_SECOND, upstream) if i in floats else None for i in range(len(op.inputs))]


for _name in "AttentionGrad", "AttentionBiasGrad":
    tf.RegisterGradient(f"TensorflowOps>{_name}")(_refuse)


def _convert(pfor_input):
    """Converts an op whose outputs all have a batch: the iterations become part of it."""
    has_sinks = pfor_input.get_attr("has_sinks")
    # Dropout depends on the place in the batch, and the gradient to sinks is a sum over it.
    if (
        pfor_input.get_attr("is_ragged")
        or pfor_input.get_attr("has_dropout")
        or (has_sinks and (pfor_input.op.type.endswith("Grad") or pfor_input.inputs[_SINKS].is_stacked))
    ):
        return pfor.loop(pfor_input)
    given = {_MASK: "has_mask", _BIAS: "has_bias", _ALIBI_SLOPES: "has_alibi_slopes"}
    broadcast = [i for i, attr in given.items() if pfor_input.get_attr(attr)]
    given = dict(zip(_LENGTHS, ("has_lengths", "has_key_lengths", "has_query_offset"), strict=True))
    lengths = [i for i, attr in given.items() if pfor_input.get_attr(attr)]
    folded = [_QUERY, _KEY, _VALUE, *broadcast, *lengths, *range(_NUM_OPERANDS, pfor_input.num_inputs)]
    pfor_input.stack_inputs(folded)
    tensors = [value.t for value in pfor_input.inputs]
    iterations, batch = tf.unstack(tf.shape(tensors[_QUERY])[:2])
    for i in broadcast:
        shape = tf.shape(tensors[i])
        tensors[i] = tf.broadcast_to(tensors[i], tf.concat([[iterations, batch], shape[2:]], 0))
    outputs = pfor.call(pfor_input, [pfor.fold(t) if i in folded else t for i, t in enumerate(tensors)])
    results = [pfor.unfold(y, iterations, size=batch) for y in outputs[:3]]
    # The placeholder of the gradient to sinks.
    results += [tf.broadcast_to(y, [iterations, 0]) for y in outputs[3:]]
    return [pfor.stacked(y) for y in results]


for _name in "Attention", "AttentionGrad":
    pfor.register(f"TensorflowOps>{_name}")(_convert)
pfor.register("TensorflowOps>AttentionBiasGrad")(pfor.loop)
