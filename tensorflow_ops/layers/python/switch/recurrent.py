"""Keras's recurrent layers."""

import functools
from typing import get_args

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.layers.python.switch.served import Original, served
from tensorflow_ops.nn.python.ops import recurrent
from tensorflow_ops.nn.python.ops.gru import gru as fused_gru
from tensorflow_ops.nn.python.ops.lstm import lstm as fused_lstm


def _for_all(inputs, tensor):
    """Returns a tensor of all examples of inputs, which Keras also takes of one; None if it has other examples."""
    batch, size = inputs.shape[0], tensor.shape[0]
    if size == batch and size is not None:
        return tensor
    if None not in (batch, size) and size != 1:
        return None
    count = tf.where(tf.equal(tf.shape(tensor)[0], 1), tf.shape(inputs)[0], 1)
    repeated = tf.tile(tensor, [count] + [1] * (tensor.shape.rank - 1))
    repeated.set_shape([batch if size == 1 else None, *tensor.shape[1:]])
    return repeated


def _layer(function, original, layer, sequences, initial_state, mask, training=False, **options):
    """Serves `inner_loop` of LSTM and GRU; function(inputs, *weights, ...) returns outputs and states."""
    del original
    names = {getattr(keras.activations, name): name for name in get_args(recurrent.Activation)}
    activations = [names.get(of) for of in (layer.activation, layer.recurrent_activation)]
    mask = mask[0] if isinstance(mask, list | tuple) else mask
    # cuDNN is faster than ours with many units.
    if tf.config.list_logical_devices("GPU"):
        return Original("GPU")
    if layer.use_cudnn is True:
        return Original("use_cudnn=True")
    # Keras masks the outputs of a layer that goes backward by other steps.
    if layer.unroll:
        return Original("unroll=True")
    if layer.recurrent_dropout:
        return Original("recurrent_dropout")
    if None in activations:
        return Original("another activation")
    inputs = tf.convert_to_tensor(sequences)
    if inputs.dtype not in arguments.FLOAT_DTYPES:
        return Original(f"{inputs.dtype.name} inputs")
    if inputs.shape.rank != 3:
        return Original("inputs of another rank")
    if mask is not None:
        mask = tf.cast(mask, tf.bool)
        is_mask = mask.shape.rank == 2 and mask.shape[1:].is_compatible_with(inputs.shape[1:2])
        mask = _for_all(inputs, mask) if is_mask else None
        if mask is None:
            return Original("a mask of another shape")
    states = [tf.convert_to_tensor(x) for x in tf.nest.flatten(initial_state)]
    states = [_for_all(inputs, x) if x.shape.rank == 2 else None for x in states]
    if any(x is None for x in states):
        return Original("states of another shape")
    initial_state = tf.nest.pack_sequence_as(initial_state, states)
    if training and layer.dropout:
        if layer.cell.implementation == 1:  # a mask for each gate
            return Original("dropout with implementation=1")
        inputs *= layer.cell.get_dropout_mask(inputs[:, 0])[:, tf.newaxis]
    cell = layer.cell
    weights = (x if x is None else tf.convert_to_tensor(x) for x in (cell.kernel, cell.recurrent_kernel, cell.bias))
    outputs, *states = function(
        inputs,
        *weights,
        initial_state=initial_state,
        mask=mask,
        activation=activations[0],
        recurrent_activation=activations[1],
        reverse=layer.go_backwards,
        **options,
    )
    if layer.zero_output_for_mask and mask is not None:
        is_step = tf.reverse(mask, [1]) if layer.go_backwards else mask
        outputs = tf.where(is_step[..., tf.newaxis], outputs, tf.zeros([], outputs.dtype))
    last = outputs[:, -1]
    outputs = outputs if layer.return_sequences else last[:, tf.newaxis]
    return last, outputs, [tf.cast(x, outputs.dtype) for x in states]


served("lstm", "layers.LSTM", "inner_loop")(functools.partial(_layer, fused_lstm))


@served("gru", "layers.GRU", "inner_loop")
def gru(original, layer, sequences, initial_state, *args, **kwargs):
    (state,) = tf.nest.flatten(initial_state)
    options = kwargs | {"reset_after": layer.reset_after}
    return _layer(fused_gru, original, layer, sequences, state, *args, **options)
