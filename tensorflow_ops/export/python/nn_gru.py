"""Composition of gru: a loop over the steps."""

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import expand, zero_if
from tensorflow_ops.export.python.nn_lstm import ACTIVATIONS, states_before, zero_before_first
from tensorflow_ops.export.python.nn_sequences import stacked


@composition("Gru", [4, 3, 3, 2, 2])
def _gru(gate_inputs, recurrent_kernel, bias, h0, mask, *, activation, recurrent_activation, reset_after):
    activate, open_gate = (ACTIVATIONS[tf.compat.as_bytes(name)] for name in (activation, recurrent_activation))
    batch, steps, units = tf.shape(gate_inputs)[0], tf.shape(gate_inputs)[1], tf.shape(recurrent_kernel)[0]
    weights = tf.reshape(recurrent_kernel, [units, 3 * units])
    of_states = tf.reshape(bias[1], [3 * units])
    sums = tf.reshape(gate_inputs + bias[0], [batch, steps, 3 * units])

    def gates_of(sums, h):
        """Returns z, r, g and resets [rows, units], from sums [rows, 3 * units] and states [rows, units]."""
        x, x_g = tf.split(sums, [2 * units, units], 1)
        if reset_after:
            y, resets = tf.split(tf.matmul(h, weights) + of_states, [2 * units, units], 1)
        else:
            y = tf.matmul(h, weights[:, : 2 * units]) + of_states[: 2 * units]
        z, r = tf.split(open_gate(x + y), 2, 1)
        if reset_after:
            return z, r, activate(x_g + r * resets), resets
        resets = r * h
        return z, r, activate(x_g + tf.matmul(resets, weights[:, 2 * units :]) + of_states[2 * units :]), resets

    by_steps = tf.transpose(sums, [1, 0, 2])
    kept = [tf.transpose(x) for x in mask]

    def step(t, h):
        z, _, g, _ = gates_of(by_steps[t], h)
        new_h = z * h + (1 - z) * g
        for x in kept:
            new_h = tf.where(expand(x[t], 1), new_h, h)
        return new_h, new_h

    rows, h = stacked(by_steps[..., :units], step, h0)
    states = tf.transpose(rows, [1, 0, 2])
    before, count = states_before(h0, states), batch * steps
    *gates, resets = gates_of(tf.reshape(sums, [count, 3 * units]), tf.reshape(before, [count, units]))
    gates = tf.reshape(tf.stack(gates, 1), tf.shape(gate_inputs))
    resets = tf.reshape(resets, tf.shape(states))
    for x in mask:
        is_masked = tf.logical_not(x)
        gates, resets = zero_if(expand(is_masked, -1, -1), gates), zero_if(expand(is_masked, -1), resets)
    return zero_before_first(states, mask), h, gates, resets
