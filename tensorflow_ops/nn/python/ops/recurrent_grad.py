"""Gradients and vectorization of lstm and gru.

Second derivatives, and forward mode, which needs them, do not exist.
"""

import tensorflow as tf

from tensorflow_ops.core.python import pfor
from tensorflow_ops.core.python.gradients import call, input_names, inputs_by_name, is_needed, refuse
from tensorflow_ops.core.python.library import ops


def _rows(tensor):
    """Returns [batch, steps, ..] as a matrix of rows."""
    shape = tf.shape(tensor)
    return tf.reshape(tensor, [shape[0] * shape[1], tf.reduce_prod(shape[2:])])


def _rows_before(outputs, h0, masks):
    """Returns the states before all steps, [batch * steps, units]."""
    before = tf.concat([h0[:, tf.newaxis], outputs], 1)[:, :-1]
    for mask in masks:
        # Until an example's first step, its state is h0, and its outputs are 0.
        has_begun = tf.cumsum(tf.cast(mask, tf.int32), 1, exclusive=True) > 0
        before = tf.where(has_begun[..., tf.newaxis], before, h0[:, tf.newaxis])
    return _rows(before)


@tf.RegisterGradient("TensorflowOps>Lstm")
def _lstm_grad(op, d_outputs, d_h, d_c, *_):
    inputs, names = inputs_by_name(op), input_names(op)
    outputs, _, _, gates, cells = op.outputs
    recurrent_kernel, h0 = inputs["recurrent_kernel"], inputs["h0"]
    d = call(
        ops.tensorflow_ops_lstm_grad,
        op,
        *(gates, recurrent_kernel, inputs["c0"], cells, d_outputs, d_h, d_c, inputs["mask"]),
    )
    gradients = {"gate_inputs": d.d_gate_inputs, "h0": d.d_h0, "c0": d.d_c0}
    if is_needed(op, names.index("recurrent_kernel")):
        before = _rows_before(outputs, h0, inputs["mask"])
        d_kernel = tf.matmul(before, _rows(d.d_gate_inputs), transpose_a=True)
        gradients["recurrent_kernel"] = tf.reshape(d_kernel, tf.shape(recurrent_kernel))
    if is_needed(op, names.index("bias")):
        gradients["bias"] = tf.reduce_sum(d.d_gate_inputs, [0, 1])
    return [gradients.get(name) for name in names]


@tf.RegisterGradient("TensorflowOps>Gru")
def _gru_grad(op, d_outputs, d_h, *_):
    inputs, names = inputs_by_name(op), input_names(op)
    outputs, _, gates, resets = op.outputs
    recurrent_kernel, h0 = inputs["recurrent_kernel"], inputs["h0"]
    d = call(
        ops.tensorflow_ops_gru_grad,
        op,
        *(gates, recurrent_kernel, h0, outputs, resets, d_outputs, d_h, inputs["mask"]),
    )
    gradients = {"gate_inputs": d.d_gate_inputs, "h0": d.d_h0}
    if is_needed(op, names.index("recurrent_kernel")):
        before, d_sums = _rows_before(outputs, h0, inputs["mask"]), _rows(d.d_recurrent_sums)
        if op.get_attr("reset_after"):
            d_kernel = tf.matmul(before, d_sums, transpose_a=True)
        else:
            units = tf.shape(recurrent_kernel)[0]
            parts = zip((before, _rows(resets)), tf.split(d_sums, [2 * units, units], 1), strict=True)
            d_kernel = tf.concat([tf.matmul(*pair, transpose_a=True) for pair in parts], 1)
        gradients["recurrent_kernel"] = tf.reshape(d_kernel, tf.shape(recurrent_kernel))
    if is_needed(op, names.index("bias")):
        gradients["bias"] = tf.stack([tf.reduce_sum(x, [0, 1]) for x in (d.d_gate_inputs, d.d_recurrent_sums)])
    return [gradients.get(name) for name in names]


def _refuse(op, *upstream):
    name = "lstm" if "Lstm" in op.type else "gru"
    reason = f"{name} has no second derivatives, which forward mode (tf.autodiff.ForwardAccumulator) needs, too"
    floats = [x.dtype.is_floating for x in op.inputs]
    return [refuse(op, i, reason, upstream) if is_float else None for i, is_float in enumerate(floats)]


for _op in ("Lstm", "Gru"):
    tf.RegisterGradient(f"TensorflowOps>{_op}Grad")(_refuse)
    pfor.register(f"TensorflowOps>{_op}")(lambda pfor_input: pfor.convert_folded(pfor_input, shared=[1, 2]))
    pfor.register(f"TensorflowOps>{_op}Grad")(lambda pfor_input: pfor.convert_folded(pfor_input, shared=[1]))
