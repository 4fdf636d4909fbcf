"""Composition of lstm: a loop over the steps."""

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import expand, zero_if
from tensorflow_ops.export.python.nn_sequences import stacked

ACTIVATIONS = {
    b"tanh": tf.tanh,
    b"sigmoid": tf.sigmoid,
    b"relu": tf.nn.relu,
    b"linear": tf.identity,
    b"hard_sigmoid": lambda x: tf.clip_by_value(x / 6 + 0.5, 0, 1),
}


def states_before(h0, states):
    """Returns the states [batch, steps, units] that steps begin with, from those after them."""
    return tf.concat([expand(h0, 1), states], 1)[:, : tf.shape(states)[1]]


def zero_before_first(states, mask):
    """Returns outputs [batch, steps, units]: states, and 0 before an example's first step."""
    for x in mask:
        states = zero_if(expand(tf.cumsum(tf.cast(x, tf.int32), 1) < 1, -1), states)
    return states


@composition("Lstm", [4, 3, 2, 2, 2, 2])
def _lstm(gate_inputs, recurrent_kernel, bias, h0, c0, mask, *, activation, recurrent_activation):
    activate, open_gate = (ACTIVATIONS[tf.compat.as_bytes(name)] for name in (activation, recurrent_activation))
    batch, steps, units = tf.shape(gate_inputs)[0], tf.shape(gate_inputs)[1], tf.shape(recurrent_kernel)[0]
    weights = tf.reshape(recurrent_kernel, [units, 4 * units])
    sums = tf.reshape(gate_inputs + bias, [batch, steps, 4 * units])

    def gates_of(sums, h):
        """Returns i, f, g, o [rows, units], from sums [rows, 4 * units] and states [rows, units]."""
        i, f, g, o = tf.split(sums + tf.matmul(h, weights), 4, 1)
        return open_gate(i), open_gate(f), activate(g), open_gate(o)

    by_steps = tf.transpose(sums, [1, 0, 2])
    kept = [tf.transpose(x) for x in mask]

    def step(t, h, c):
        i, f, g, o = gates_of(by_steps[t], h)
        new_c = f * c + i * g
        new_h = o * activate(new_c)
        for x in kept:
            is_step = expand(x[t], 1)
            new_h, new_c = tf.where(is_step, new_h, h), tf.where(is_step, new_c, c)
        return tf.concat([new_h, new_c], 1), new_h, new_c

    rows, h, c = stacked(by_steps[..., : 2 * units], step, h0, c0)
    outputs, cells = tf.split(tf.transpose(rows, [1, 0, 2]), 2, 2)
    before, count = states_before(h0, outputs), batch * steps
    gates = gates_of(tf.reshape(sums, [count, 4 * units]), tf.reshape(before, [count, units]))
    gates = tf.reshape(tf.stack(gates, 1), tf.shape(gate_inputs))
    for x in mask:
        gates = zero_if(expand(tf.logical_not(x), -1, -1), gates)
    return zero_before_first(outputs, mask), h, c, gates, cells
