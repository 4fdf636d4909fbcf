"""The public functions gelu and silu."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike


def activated(features, bias, activation, name=None):
    """Returns the activation of features plus a bias, which may be None. Raises ValueError."""
    features = arguments.float_tensor("features", features)
    if bias is None:
        if features.shape.rank:
            return ops.tensorflow_ops_bias_activation(features, [], activation=activation, name=name)
        flat = ops.tensorflow_ops_bias_activation(tf.reshape(features, [-1]), [], activation=activation, name=name)
        return tf.ensure_shape(tf.reshape(flat, tf.shape(features)), features.shape)
    if features.shape.rank == 0:
        raise ValueError("features are a scalar, expected [..., channels], one for each number of bias")
    bias = arguments.cast_tensor("bias", bias, features.dtype)
    arguments.check_shape("bias", bias, [features.shape[-1] if features.shape.rank else None], "one for each channel")
    return ops.tensorflow_ops_bias_activation(features, [bias], activation=activation, name=name)


@autograph.op_function
def gelu(
    features: TensorLike, bias: TensorLike | None = None, *, approximate: bool = False, name: str | None = None
) -> tf.Tensor:
    """Gaussian error linear units, x Phi(x), of features plus a bias, in one pass.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> tfo.nn.gelu([[-1.0, 2.0]], [0.5, -1.0]).numpy().round(5)
    array([[-0.15427,  0.84134]], dtype=float32)

    Phi is the cumulative distribution function of the standard normal distribution (Hendrycks
    and Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415). Negative numbers do not cancel,
    approximated ones included: of -10, these are -1.2e-37, and -0 in `tf.nn.gelu`. The gradient to
    bias is summed in the pass of the gradient to features, in float32 for 16 bits.

    Args:
      features: [..., channels]; float16, bfloat16, float32 or float64. NaN stays NaN; -inf gives
        -0 (NaN in `tf.nn.gelu`).
      bias: [channels], added to features first, or None. Cast to features' dtype.
      approximate: whether to compute x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 instead.
      name: name of the op.

    Returns:
      features' shape and dtype, computed in float32 for 16 bits. Differentiable to any order.

    Raises:
      ValueError: a wrong dtype, a bias that does not have features' last dim, features without
        dims and with a bias.
      InvalidArgumentError: the same errors, found at run time.
    """
    approximate = arguments.static_bool("approximate", approximate)
    return activated(features, bias, "gelu_tanh" if approximate else "gelu", name)


@autograph.op_function
def silu(features: TensorLike, bias: TensorLike | None = None, *, name: str | None = None) -> tf.Tensor:
    """Sigmoid linear units (swish), x / (1 + e^-x), of features plus a bias, in one pass.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> tfo.nn.silu([[-1.0, 2.0]], [0.5, -1.0]).numpy().round(5)
    array([[-0.18877,  0.73106]], dtype=float32)

    Elfwing et al., "Sigmoid-Weighted Linear Units" (arXiv:1702.03118). The gradient to bias is
    summed in the pass of the gradient to features, in float32 for 16 bits.

    Args:
      features: [..., channels]; float16, bfloat16, float32 or float64. NaN stays NaN; -inf gives
        -0 (NaN in `tf.nn.silu`).
      bias: [channels], added to features first, or None. Cast to features' dtype.
      name: name of the op.

    Returns:
      features' shape and dtype, computed in float32 for 16 bits. Differentiable to any order.

    Raises:
      ValueError: a wrong dtype, a bias that does not have features' last dim, features without
        dims and with a bias.
      InvalidArgumentError: the same errors, found at run time.
    """
    return activated(features, bias, "silu", name)
