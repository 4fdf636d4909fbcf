"""Gradients and vectorization of attention.

Second derivatives, and forward mode, which needs them, do not exist.
"""

import tensorflow as tf

from tensorflow_ops.core.python import pfor
from tensorflow_ops.core.python.gradients import call, input_names, inputs_by_name, is_needed, refuse
from tensorflow_ops.core.python.library import ops

_NO_GRADIENT = "decode_attention has no gradient; attention has"
_NO_SECOND = "attention has no second derivatives, which forward mode (tf.autodiff.ForwardAccumulator) needs, too"


@tf.RegisterGradient("TensorflowOps>Attention")
def _attention_grad(op, d_output, d_log_sum_exp):
    names, inputs = input_names(op), (*inputs_by_name(op).values(), *op.outputs, d_output, d_log_sum_exp)
    d = call(ops.tensorflow_ops_attention_grad, op, *inputs)
    gradients = {"query": d.d_query, "key": d.d_key, "value": d.d_value}
    if "sinks" in names:
        (gradients["sinks"],) = d.d_sinks
    if "bias" in names and is_needed(op, names.index("bias")):
        gradients["bias"] = call(ops.tensorflow_ops_attention_bias_grad, op, *inputs)
    return [gradients.get(name) for name in names]


def _refuse(op, *upstream):
    names = input_names(op)
    reason = _NO_GRADIENT if op.type.endswith("DecodeAttention") else _NO_SECOND
    floats = [i for i, x in enumerate(op.inputs) if x.dtype.is_floating and names[i] != "alibi_slopes"]
    return [refuse(op, i, reason, upstream) if i in floats else None for i in range(len(names))]


for _name in "AttentionGrad", "AttentionBiasGrad", "DecodeAttention":
    tf.RegisterGradient(f"TensorflowOps>{_name}")(_refuse)


def _convert(pfor_input):
    """Converts an op whose outputs all have a batch: the iterations become part of it."""
    op, names = pfor_input.op, input_names(pfor_input.op)
    # Dropout depends on the place in the batch, and the gradient to sinks is a sum over it.
    if (
        "query_splits" in names
        or "seed" in names
        or ("sinks" in names and (op.type.endswith("Grad") or pfor_input.inputs[names.index("sinks")].is_stacked))
    ):
        return pfor.loop(pfor_input)
    folded = [i for i, name in enumerate(names) if name != "sinks"]
    pfor_input.stack_inputs(folded)
    tensors = [value.t for value in pfor_input.inputs]
    iterations, batch = tf.unstack(tf.shape(tensors[0])[:2], num=2)
    for i, name in enumerate(names):
        if name in ("mask", "bias", "alibi_slopes"):
            shape = tf.shape(tensors[i])
            tensors[i] = tf.broadcast_to(tensors[i], tf.concat([[iterations, batch], shape[2:]], 0))
    outputs = pfor.call(pfor_input, [pfor.fold(t) if i in folded else t for i, t in enumerate(tensors)])
    return [pfor.stacked(pfor.unfold(y, iterations, size=batch)) for y in outputs]


for _name in "Attention", "AttentionGrad", "DecodeAttention":
    pfor.register(f"TensorflowOps>{_name}")(_convert)
pfor.register("TensorflowOps>AttentionBiasGrad")(pfor.loop)
