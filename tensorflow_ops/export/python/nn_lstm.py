"""Composition of lstm: a loop over the steps."""

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import expand, zero_if
from tensorflow_ops.export.python.nn_sequences import loop, with_row

ACTIVATIONS = {
    b"tanh": tf.tanh,
    b"sigmoid": tf.sigmoid,
    b"relu": tf.nn.relu,
    b"linear": tf.identity,
    b"hard_sigmoid": lambda x: tf.clip_by_value(x / 6 + 0.5, 0, 1),
}


@composition("Lstm", [4, 3, 2, 2, 2, 2])
def _lstm(gate_inputs, recurrent_kernel, bias, h0, c0, mask, *, activation, recurrent_activation):
    activate, open_gate = (ACTIVATIONS[tf.compat.as_bytes(name)] for name in (activation, recurrent_activation))
    units = tf.shape(recurrent_kernel)[0]
    weights = tf.reshape(recurrent_kernel, [units, 4 * units])

    def gates_of(sums, h):
        """Returns the gates, stacked on axis -2, from sums [..., 4, units] and states [rows, units]."""
        i, f, g, o = tf.unstack(sums + tf.reshape(tf.matmul(h, weights), tf.shape(sums)) + bias, num=4, axis=-2)
        return open_gate(i), open_gate(f), activate(g), open_gate(o)

    by_steps = tf.transpose(gate_inputs, [1, 0, 2, 3])
    kept = [tf.transpose(x) for x in mask]

    def step(t, rows, h, c, output):
        i, f, g, o = gates_of(by_steps[t], h)
        new_c = f * c + i * g
        new_h = o * activate(new_c)
        new_output = new_h
        for x in kept:
            is_step = expand(x[t], 1)
            new_c, new_h = tf.where(is_step, new_c, c), tf.where(is_step, new_h, h)
            new_output = tf.where(is_step, new_output, output)
        # What a step begins with, its output and its cell.
        return with_row(rows, t, tf.stack([h, new_output, new_c])), new_h, new_c, new_output

    shape = tf.shape(by_steps)
    rows = tf.zeros([shape[0], 3, shape[1], shape[3]], gate_inputs.dtype)
    # Rows without numbers cannot be replaced.
    steps = tf.where(tf.size(h0) > 0, shape[0], 0)
    rows, h, c, _ = loop(steps, step, rows, h0, c0, tf.zeros_like(h0))
    before, outputs, cells = (tf.transpose(x, [1, 0, 2]) for x in tf.unstack(rows, num=3, axis=1))
    gates = tf.stack(gates_of(gate_inputs, tf.reshape(before, [shape[0] * shape[1], shape[3]])), -2)
    for x in mask:
        gates = zero_if(expand(tf.logical_not(x), -1, -1), gates)
    return outputs, h, c, gates, cells
