"""The public function lstm."""

from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import autograph
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import recurrent
from tensorflow_ops.nn.python.ops.recurrent import Activation


class LSTM(NamedTuple):
    """The result of `lstm`.

    Attributes:
      outputs: [B, T, U], h after each step; a RaggedTensor if the inputs are one.
      h: [B, U], the state after the last step; float32 for 16-bit inputs.
      c: [B, U], the cell state after the last step; float32 for 16-bit inputs.
    """

    outputs: tf.Tensor
    h: tf.Tensor
    c: tf.Tensor


def _initial_state(initial_state, shape, dtype):
    """Returns h and c, zeros for None. Raises ValueError."""
    if initial_state is None:
        zeros = tf.zeros(shape, dtype)
        return zeros, zeros
    if not isinstance(initial_state, list | tuple) or len(initial_state) != 2:
        kind = type(initial_state).__name__
        found = f"{len(initial_state)} tensors" if isinstance(initial_state, list | tuple) else f"a {kind}"
        raise ValueError(f"initial_state is {found}, expected a pair (h, c)")
    names = "initial_state's h", "initial_state's c"
    return [recurrent.tensor(name, x, shape, "[B, units]", dtype) for name, x in zip(names, initial_state, strict=True)]


@autograph.op_function
def lstm(
    inputs: TensorLike,
    kernel: TensorLike,
    recurrent_kernel: TensorLike,
    bias: TensorLike | None = None,
    *,
    initial_state: tuple[TensorLike, TensorLike] | None = None,
    mask: TensorLike | None = None,
    activation: Activation = "tanh",
    recurrent_activation: Activation = "sigmoid",
    reverse: bool = False,
    name: str | None = None,
) -> LSTM:
    """A long short-term memory layer over sequences, with Keras's weights.

    From the state (h, c), step t computes (Hochreiter and Schmidhuber 1997; the forget gate is of
    Gers et al. 2000)

        i, f, g, o = split(inputs[:, t] @ kernel + h @ recurrent_kernel + bias, 4)
        c = recurrent_activation(f) * c + recurrent_activation(i) * activation(g)
        h = recurrent_activation(o) * activation(c)

    as one op for all steps; i, f, g and o are Keras's order of gates.

    >>> import keras, tensorflow as tf, tensorflow_ops as tfo
    >>> layer = keras.layers.LSTM(3, return_sequences=True)
    >>> inputs = tf.random.stateless_normal([2, 5, 4], [1, 2])
    >>> expected = layer(inputs)
    >>> result = tfo.nn.lstm(inputs, *layer.weights)
    >>> bool(tf.reduce_max(tf.abs(result.outputs - expected)) < 1e-6), result.c.shape
    (True, TensorShape([2, 3]))

    Args:
      inputs: [B, T, D], or a RaggedTensor [B, (T), D]: float16, bfloat16, float32 or float64.
      kernel: [D, 4U]. This and all states and weights below are cast to float32, for float64
        inputs to float64.
      recurrent_kernel: [U, 4U].
      bias: [4U], added to the gates. None: zeros.
      initial_state: a pair (h, c) of [B, U]. None: zeros.
      mask: bool [B, T]. Where it is False, the step keeps the state and repeats the output
        before, which is 0 before the example's first step; inputs may be anything there. None for
        RaggedTensors.
      activation: of g and of c: "tanh", "sigmoid", "relu", "linear", or "hard_sigmoid",
        which is min(max(x / 6 + 0.5, 0), 1).
      recurrent_activation: of i, f and o.
      reverse: whether steps go from the last to the first. Outputs are in the order in which
        they are computed, as Keras's `go_backwards` returns them. Each row of a RaggedTensor
        is reversed.
      name: name of the op.

    Returns:
      LSTM(outputs [B, T, U], h [B, U], c [B, U]). Outputs have the inputs' dtype, and are ragged
      where inputs are. States and sums are float32 for 16-bit inputs, float64 for float64: Keras
      rounds 16-bit states in each step. Differentiable once in inputs, kernel,
      recurrent_kernel, bias and initial_state. Second derivatives raise LookupError, in a graph
      UnimplementedError, which forward mode raises everywhere.

    Raises:
      ValueError: a wrong dtype, shapes that do not fit, another activation.
      InvalidArgumentError: shapes that do not fit, found at run time.
    """
    attrs = recurrent.activations(activation, recurrent_activation)
    sequences = recurrent.to_sequences(inputs)
    kernel, recurrent_kernel, units = recurrent.weights(kernel, recurrent_kernel, 4, sequences)
    if bias is None:
        bias = tf.zeros([4, units], sequences.dtype)
    else:
        bias = tf.reshape(recurrent.tensor("bias", bias, [4 * units], "[4 * units]", sequences.dtype), [4, units])
    states = _initial_state(initial_state, [sequences.batch, units], sequences.dtype)
    sequences = recurrent.masked(sequences, mask, reverse)
    outputs, h, c, _, _ = ops.tensorflow_ops_lstm(
        recurrent.gate_inputs(sequences, kernel, 4, units),
        tf.reshape(recurrent_kernel, [units, 4, units]),
        bias,
        *states,
        sequences.masks,
        **attrs,
        name=name,
    )
    return LSTM(recurrent.like_inputs(outputs, sequences), h, c)
