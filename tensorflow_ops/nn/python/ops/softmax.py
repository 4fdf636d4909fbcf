"""The public functions of one tensor of logits: softmax, log-softmax, entropy."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, ragged
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import nn_arguments


@autograph.op_function
@ragged.on_flat_values("logits")
def softmax(logits: TensorLike, *, axis: int = -1, name: str | None = None) -> tf.Tensor:
    """Probabilities of classes, e^x / sum e^x along an axis.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> tfo.nn.softmax([[1000.0, 0.0], [0.0, -float("inf")]]).numpy()
    array([[1., 0.],
           [1., 0.]], dtype=float32)

    Subtracts each row's maximum before e^x (section 4.1 of Goodfellow et al., "Deep
    Learning", 2016), so that nothing overflows.

    Args:
      logits: [..., classes], also ragged before the classes, or with classes on another
        axis; float16, bfloat16, float32 or float64. A class at -inf, a mask, has
        probability 0 and gradient 0. In a row with all classes at -inf, all probabilities
        and gradients are 0. A NaN or +inf makes its own row NaN.
      axis: the axis of classes.
      name: name of the op.

    Returns:
      logits' shape and dtype, computed in float32 for 16-bit logits. Differentiable to
      any order.

    Raises:
      ValueError: an axis that logits do not have, a wrong dtype, no class.
      InvalidArgumentError: the same errors, found at run time.
    """
    logits, back = nn_arguments.axis_last(logits, axis)
    return back(ops.tensorflow_ops_softmax(logits, name=name))


@autograph.op_function
@ragged.on_flat_values("logits")
def log_prob_from_logits(logits: TensorLike, *, axis: int = -1, name: str | None = None) -> tf.Tensor:
    """Log-probabilities of classes, x - log sum e^x along an axis: the log-softmax.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> tfo.nn.log_prob_from_logits([[1000.0, 0.0], [0.0, -float("inf")]]).numpy()
    array([[    0., -1000.],
           [    0.,   -inf]], dtype=float32)

    Each row has its own log sum e^x. (The recipe that reduces over the whole tensor
    returns 0 for all classes of a row beside one with large logits.)

    Args:
      logits: [..., classes], also ragged before the classes, or with classes on another
        axis; float16, bfloat16, float32 or float64. A class at -inf, a mask, has
        log-probability -inf. So has each class of a row with all classes at -inf. A NaN
        or +inf makes its own row NaN.
      axis: the axis of classes.
      name: name of the op.

    Returns:
      Nats, of logits' shape and dtype, computed in float32 for 16-bit logits.
      Differentiable to any order.

    Raises:
      ValueError: an axis that logits do not have, a wrong dtype, no class.
      InvalidArgumentError: the same errors, found at run time.
    """
    logits, back = nn_arguments.axis_last(logits, axis)
    return back(ops.tensorflow_ops_softmax(logits, log=True, name=name))


@autograph.op_function
@ragged.on_flat_values("logits")
def softmax_entropy(logits: TensorLike, *, axis: int = -1, name: str | None = None) -> tf.Tensor:
    """Entropy of each row's softmax, -sum p log p, in nats.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> tfo.nn.softmax_entropy([[0.0, 0.0], [0.0, -float("inf")]]).numpy()
    array([0.6931472, 0.       ], dtype=float32)

    0 log 0 is 0 (Cover and Thomas, "Elements of Information Theory", section 2.1), in the
    gradient, too: `-tf.reduce_sum(p * tf.nn.log_softmax(x), -1)` is NaN for masked
    classes. The forward pass writes no tensor of logits' shape. The gradient is
    -p (log p + entropy).

    Args:
      logits: [..., classes], also ragged before the classes, or with classes on another
        axis; float16, bfloat16, float32 or float64. A class at -inf, a mask, adds nothing
        and has gradient 0. A row with all classes at -inf has entropy 0 and gradient 0. A
        NaN or +inf makes its own row NaN.
      axis: the axis of classes.
      name: name of the op.

    Returns:
      Nats, of logits' shape without the axis; float32, for float64 logits float64.
      Differentiable to any order.

    Raises:
      ValueError: an axis that logits do not have, a wrong dtype, no class.
      InvalidArgumentError: the same errors, found at run time.
    """
    logits, _ = nn_arguments.axis_last(logits, axis)
    value_dtype = arguments.at_least_float32(logits.dtype)
    return ops.tensorflow_ops_softmax_entropy(logits, Tvalue=value_dtype, name=name).entropy
