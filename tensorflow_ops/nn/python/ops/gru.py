"""The public function gru."""

from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import recurrent
from tensorflow_ops.nn.python.ops.recurrent import Activation


class GRU(NamedTuple):
    """The result of `gru`.

    Attributes:
      outputs: [B, T, U], h after each step; a RaggedTensor if the inputs are one.
      h: [B, U], the state after the last step; float32 for 16-bit inputs.
    """

    outputs: tf.Tensor
    h: tf.Tensor


def _bias(bias, units, reset_after, dtype):
    """Returns the biases of inputs and of states, [2, 3, units]. Raises ValueError."""
    if bias is None:
        return tf.zeros([2, 3, units], dtype)
    if reset_after:
        return tf.reshape(recurrent.tensor("bias", bias, [2, 3 * units], "[2, 3 * units]", dtype), [2, 3, units])
    bias = recurrent.tensor("bias", bias, [3 * units], "[3 * units] without reset_after", dtype)
    return tf.reshape(tf.stack([bias, tf.zeros_like(bias)]), [2, 3, units])


@autograph.op_function
def gru(
    inputs: TensorLike,
    kernel: TensorLike,
    recurrent_kernel: TensorLike,
    bias: TensorLike | None = None,
    *,
    initial_state: TensorLike | None = None,
    mask: TensorLike | None = None,
    activation: Activation = "tanh",
    recurrent_activation: Activation = "sigmoid",
    reverse: bool = False,
    reset_after: bool = True,
    name: str | None = None,
) -> GRU:
    """A layer of gated recurrent units over sequences, with Keras's weights.

    From the state h, step t computes (Cho et al. 2014)

        x = split(inputs[:, t] @ kernel + bias[0], 3), y = split(h @ recurrent_kernel + bias[1], 3)
        z = recurrent_activation(x[0] + y[0])
        r = recurrent_activation(x[1] + y[1])
        g = activation(x[2] + r * y[2])
        h = z * h + (1 - z) * g

    as one op for all steps; z, r and g are Keras's order of gates. With `reset_after=False`,
    as in the paper, y[2] is (r * h) @ recurrent_kernel[:, 2 * units :], g is activation(x[2] + y[2]),
    and bias is that of x only.

    >>> import keras, tensorflow as tf, tensorflow_ops as tfo
    >>> layer = keras.layers.GRU(3, return_sequences=True)
    >>> inputs = tf.random.stateless_normal([2, 5, 4], [1, 2])
    >>> expected = layer(inputs)
    >>> result = tfo.nn.gru(inputs, *layer.weights)
    >>> bool(tf.reduce_max(tf.abs(result.outputs - expected)) < 1e-6), result.h.shape
    (True, TensorShape([2, 3]))

    Args:
      inputs: [B, T, D], or a RaggedTensor [B, (T), D]: float16, bfloat16, float32 or float64.
      kernel: [D, 3U]. This and all states and weights below are cast to float32, for float64
        inputs to float64.
      recurrent_kernel: [U, 3U].
      bias: [2, 3U]; [3U] without `reset_after`. None: zeros.
      initial_state: h, [B, U]. None: zeros.
      mask: bool [B, T]. Where it is False, the step keeps the state and repeats the output
        before, which is 0 before the example's first step; inputs may be anything there. None for
        RaggedTensors.
      activation: of g: "tanh", "sigmoid", "relu", "linear", or "hard_sigmoid",
        which is min(max(x / 6 + 0.5, 0), 1).
      recurrent_activation: of z and r.
      reverse: whether steps go from the last to the first. Outputs are in the order in which
        they are computed, as Keras's `go_backwards` returns them. Each row of a RaggedTensor
        is reversed.
      reset_after: whether r multiplies after the product with the recurrent kernel, as Keras's
        layer, cuDNN and PyTorch do, or the state before it.
      name: name of the op.

    Returns:
      GRU(outputs [B, T, U], h [B, U]). Outputs have the inputs' dtype, and are ragged where
      inputs are. States and sums are float32 for 16-bit inputs, float64 for float64: Keras
      rounds 16-bit states in each step. Differentiable once in inputs, kernel,
      recurrent_kernel, bias and initial_state. Second derivatives raise LookupError, in a graph
      UnimplementedError, which forward mode raises everywhere.

    Raises:
      ValueError: a wrong dtype, shapes that do not fit, another activation.
      InvalidArgumentError: shapes that do not fit, found at run time.
    """
    attrs = recurrent.activations(activation, recurrent_activation)
    reset_after = arguments.static_bool("reset_after", reset_after)
    sequences = recurrent.to_sequences(inputs)
    kernel, recurrent_kernel, units = recurrent.weights(kernel, recurrent_kernel, 3, sequences)
    bias = _bias(bias, units, reset_after, sequences.dtype)
    if initial_state is None:
        h0 = tf.zeros([sequences.batch, units], sequences.dtype)
    else:
        h0 = recurrent.tensor("initial_state", initial_state, [sequences.batch, units], "[B, units]", sequences.dtype)
    sequences = recurrent.masked(sequences, mask, reverse)
    outputs, h, _, _ = ops.tensorflow_ops_gru(
        recurrent.gate_inputs(sequences, kernel, 3, units),
        tf.reshape(recurrent_kernel, [units, 3, units]),
        bias,
        h0,
        sequences.masks,
        reset_after=reset_after,
        **attrs,
        name=name,
    )
    return GRU(recurrent.like_inputs(outputs, sequences), h)
