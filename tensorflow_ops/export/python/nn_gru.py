"""Composition of gru: a loop over the steps."""

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import expand, zero_if
from tensorflow_ops.export.python.nn_lstm import ACTIVATIONS
from tensorflow_ops.export.python.nn_sequences import loop, with_row


@composition("Gru", [4, 3, 3, 2, 2])
def _gru(gate_inputs, recurrent_kernel, bias, h0, mask, *, activation, recurrent_activation, reset_after):
    activate, open_gate = (ACTIVATIONS[tf.compat.as_bytes(name)] for name in (activation, recurrent_activation))
    units = tf.shape(recurrent_kernel)[0]
    weights = tf.reshape(recurrent_kernel, [units, 3 * units])
    of_states = tf.reshape(bias[1], [3 * units])

    def gates_of(sums, h):
        """Returns z, r, g and resets [rows, units], from sums [rows, 3, units] and states [rows, units]."""
        x_z, x_r, x_g = tf.unstack(sums + bias[0], num=3, axis=1)
        if reset_after:
            y_z, y_r, resets = tf.split(tf.matmul(h, weights) + of_states, 3, 1)
        else:
            y_z, y_r = tf.split(tf.matmul(h, weights[:, : 2 * units]) + of_states[: 2 * units], 2, 1)
        z, r = open_gate(x_z + y_z), open_gate(x_r + y_r)
        if reset_after:
            return z, r, activate(x_g + r * resets), resets
        resets = r * h
        return z, r, activate(x_g + tf.matmul(resets, weights[:, 2 * units :]) + of_states[2 * units :]), resets

    by_steps = tf.transpose(gate_inputs, [1, 0, 2, 3])
    kept = [tf.transpose(x) for x in mask]

    def step(t, rows, h, output):
        z, _, g, _ = gates_of(by_steps[t], h)
        new_h = new_output = z * h + (1 - z) * g
        for x in kept:
            is_step = expand(x[t], 1)
            new_h, new_output = tf.where(is_step, new_h, h), tf.where(is_step, new_output, output)
        # What a step begins with, and its output.
        return with_row(rows, t, tf.stack([h, new_output])), new_h, new_output

    shape = tf.shape(by_steps)
    rows = tf.zeros([shape[0], 2, shape[1], shape[3]], gate_inputs.dtype)
    # Rows without numbers cannot be replaced.
    steps = tf.where(tf.size(h0) > 0, shape[0], 0)
    rows, h, _ = loop(steps, step, rows, h0, tf.zeros_like(h0))
    before, outputs = (tf.transpose(x, [1, 0, 2]) for x in tf.unstack(rows, num=2, axis=1))
    count = shape[0] * shape[1]
    *gates, resets = gates_of(tf.reshape(gate_inputs, [count, 3, shape[3]]), tf.reshape(before, [count, shape[3]]))
    gates = tf.reshape(tf.stack(gates, 1), tf.shape(gate_inputs))
    resets = tf.reshape(resets, tf.shape(outputs))
    for x in mask:
        is_masked = tf.logical_not(x)
        gates, resets = zero_if(expand(is_masked, -1, -1), gates), zero_if(expand(is_masked, -1), resets)
    return outputs, h, gates, resets
