"""What the public functions of recurrent layers share."""

from typing import Literal, NamedTuple, get_args

import tensorflow as tf

from tensorflow_ops.core.python import arguments, ragged

Activation = Literal["tanh", "sigmoid", "relu", "linear", "hard_sigmoid"]


def activations(activation, recurrent_activation):
    """Returns attrs of the op. Raises ValueError."""
    return {
        "activation": arguments.one_of("activation", activation, get_args(Activation)),
        "recurrent_activation": arguments.one_of("recurrent_activation", recurrent_activation, get_args(Activation)),
    }


class Sequences(NamedTuple):
    """The inputs of a layer, in the order of its steps.

    Attributes:
      inputs: [batch, steps, features], 0 where masked.
      masks: no or one bool tensor [batch, steps].
      lengths: those of rows, where inputs were a RaggedTensor; else None.
      batch, steps, features: ints, or tensors of unknown sizes.
      dtype: that of states, weights and sums.
    """

    inputs: tf.Tensor
    masks: list
    lengths: tf.Tensor | None
    batch: int | tf.Tensor
    steps: int | tf.Tensor
    features: int | tf.Tensor
    dtype: tf.DType


def _size(tensor, axis):
    """Returns the size of a dim: an int, or a tensor if it is unknown."""
    static = tensor.shape[axis] if tensor.shape.rank is not None else None
    return tf.shape(tensor)[axis] if static is None else static


def to_sequences(inputs):
    """Returns Sequences as the user gives them: without a mask, in the order of time. Raises ValueError."""
    lengths, masks = None, []
    if isinstance(inputs, tf.RaggedTensor):
        ragged.rows("inputs", inputs, "[B, (T), D]")
        lengths, inputs = inputs.row_lengths(), inputs.to_tensor()
        masks = [tf.sequence_mask(lengths, tf.shape(inputs)[1])]
    inputs = arguments.float_tensor("inputs", inputs)
    inputs = arguments.with_shape("inputs", inputs, [None, None, None], "[B, T, features]")
    batch, steps, features = (_size(inputs, axis) for axis in range(3))
    return Sequences(inputs, masks, lengths, batch, steps, features, arguments.at_least_float32(inputs.dtype))


def masked(sequences, mask, reverse):
    """Returns Sequences with a mask, or None, in the order of steps. Raises ValueError."""
    inputs, masks = sequences.inputs, sequences.masks
    if mask is not None:
        if sequences.lengths is not None:
            raise ValueError("mask is given, expected None: inputs are a RaggedTensor, which has lengths")
        mask = tensor("mask", mask, [sequences.batch, sequences.steps], "[B, T]", tf.bool)
        # NaN in padding would reach the gradient to the kernel.
        inputs, masks = tf.where(mask[..., tf.newaxis], inputs, tf.zeros([], inputs.dtype)), [mask]
    if not arguments.static_bool("reverse", reverse):
        return sequences._replace(inputs=inputs, masks=masks)
    if sequences.lengths is not None:
        return sequences._replace(inputs=tf.reverse_sequence(inputs, sequences.lengths, seq_axis=1))
    return sequences._replace(inputs=tf.reverse(inputs, [1]), masks=[tf.reverse(x, [1]) for x in masks])


def weights(kernel, recurrent_kernel, gates, sequences):
    """Returns kernel, recurrent kernel and units, of so many gates and Sequences. Raises ValueError."""
    recurrent_kernel = arguments.tensor_of_kind("recurrent_kernel", recurrent_kernel, sequences.dtype)
    meaning = f"[units, {gates} * units]"
    recurrent_kernel = arguments.with_shape("recurrent_kernel", recurrent_kernel, [None, None], meaning)
    units = _size(recurrent_kernel, 0)
    recurrent_kernel = arguments.with_shape("recurrent_kernel", recurrent_kernel, [units, gates * units], meaning)
    kernel = arguments.tensor_of_kind("kernel", kernel, sequences.dtype)
    kernel = arguments.with_shape("kernel", kernel, [sequences.features, gates * units], f"[features, {gates} * units]")
    return kernel, recurrent_kernel, units


def tensor(name, value, shape, meaning, dtype):
    """Returns a tensor. Raises ValueError."""
    return arguments.with_shape(name, arguments.tensor_of_kind(name, value, dtype), shape, meaning)


def gate_inputs(sequences, kernel, gates, units):
    """Returns the products of all inputs and the kernel, [batch, steps, gates, units]."""
    # A product of matrices: the gradient of one with a batch would sum a kernel of each example.
    flat = tf.reshape(
        arguments.cast(sequences.inputs, sequences.dtype), [sequences.batch * sequences.steps, sequences.features]
    )
    return tf.reshape(tf.matmul(flat, kernel), [sequences.batch, sequences.steps, gates, units])


def like_inputs(outputs, sequences):
    """Returns outputs in the inputs' dtype, and ragged where those are."""
    outputs = arguments.cast(outputs, sequences.inputs.dtype)
    return outputs if sequences.lengths is None else tf.RaggedTensor.from_tensor(outputs, sequences.lengths)
