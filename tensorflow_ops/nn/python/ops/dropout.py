"""The public function dropout, its gradients and vectorization."""

import math

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, gradients, pfor
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike

# Random bits of a number (dropout.h).
_BITS = {tf.float32: 23, tf.float64: 52, tf.float16: 10, tf.bfloat16: 7}


@autograph.op_function
def dropout(inputs: TensorLike, rate: float, *, seed: TensorLike, name: str | None = None) -> tf.Tensor:
    """Sets numbers to 0 with a probability, and scales the others: `tf.nn.experimental.stateless_dropout`, faster.

    A kept number becomes `inputs / (1 - rate)`. The seed decides which numbers are kept: the same as TensorFlow's
    function keeps on CPUs and GPUs, so that results have the same bits. The gradient reads a bit of each number. Under
    XLA, which reads the lower 32 bits of each seed, the numbers are these for seeds in [0, 2^32); TensorFlow's function
    draws others there.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> x = tf.reshape(tf.range(1.0, 11.0), [2, 5])
    >>> y = tfo.nn.dropout(x, 0.5, seed=[1, 0])
    >>> y.numpy()
    array([[ 2.,  0.,  6.,  0.,  0.],
           [ 0.,  0., 16.,  0., 20.]], dtype=float32)
    >>> bool(tf.reduce_all(y == tf.nn.experimental.stateless_dropout(x, 0.5, seed=[1, 0])))
    True

    The definition is Srivastava et al., "Dropout: a simple way to prevent neural networks from
    overfitting" (2014), with the scale at training.

    Args:
      inputs: a tensor of any shape, float16, bfloat16, float32 or float64.
      rate: a number in [0, 1), the probability of 0. In 16 bits, numbers are drawn from 2^10
        (float16) or 2^7 (bfloat16) values, as TensorFlow does.
      seed: two integers, int32 or int64.
      name: name of the op.

    Returns:
      A tensor of the inputs' shape and dtype; dropped numbers are 0, even NaN. Differentiable to any
      order in the inputs.

    Raises:
      ValueError: a wrong dtype or shape; a rate that is no number of the range, such as a tensor.
    """
    inputs = arguments.float_tensor("inputs", inputs)
    if arguments.is_tensor(rate):
        raise ValueError("rate is a tensor, expected a number in [0, 1): it is part of the op")
    number = arguments.static_number("rate", rate, "a number in [0, 1)", lambda rate: 0 <= rate < 1)
    rate = rate if isinstance(rate, np.floating) else number  # TensorFlow computes in the rate's own type
    seed = arguments.int_tensor("seed", seed)
    if seed.dtype not in (tf.int32, tf.int64):
        raise ValueError(f"seed is {seed.dtype.name}, expected two integers, int32 or int64")
    seed = arguments.with_shape("seed", seed, [2], "two integers")
    if rate == 0:
        return tf.identity(inputs, name)
    return with_seed(inputs, rate, seed, name)


def with_seed(inputs: tf.Tensor, rate: float, seed: tf.Tensor, name: str | None = None) -> tf.Tensor:
    """Returns `dropout` of checked arguments, with a rate above 0."""
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
    # As TensorFlow, which rounds both to the inputs' dtype.
    dtype, limit = inputs.dtype.as_numpy_dtype, 1 << _BITS[inputs.dtype]
    least = math.ceil(float(np.array(rate, dtype)) * limit)
    # Where the rate rounds to 1, nothing is kept, and the scale may be infinite.
    scale = arguments.float32_parts(float(np.array(1 / (1 - rate), dtype))) if least < limit else []
    return ops.tensorflow_ops_dropout(inputs, key, counter, least=least, scale=scale, name=name)[0]


@tf.RegisterGradient("TensorflowOps>Dropout")
def _dropout_grad(op, d_output, _):
    return gradients.call(ops.tensorflow_ops_dropout_grad, op, d_output, op.outputs[1]), None, None


@tf.RegisterGradient("TensorflowOps>DropoutGrad")
def _dropout_grad_grad(op, g):
    return gradients.call(ops.tensorflow_ops_dropout_grad, op, g, op.inputs[1]), None


# The iterations have one size, but not always whole bytes of the mask.
pfor.register("TensorflowOps>Dropout")(pfor.loop)
pfor.register("TensorflowOps>DropoutGrad")(pfor.loop)
