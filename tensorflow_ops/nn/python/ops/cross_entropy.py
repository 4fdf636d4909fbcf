"""The public functions of logits and labels."""

from typing import Literal, overload

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, axes, ragged
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import nn_arguments


@overload
def softmax_cross_entropy(
    labels: TensorLike,
    logits: TensorLike,
    *,
    axis: int = -1,
    label_smoothing: float = 0.0,
    class_weights: TensorLike | None = None,
    softcap: float | None = None,
    return_log_sum_exp: Literal[False] = False,
    name: str | None = None,
) -> tf.Tensor: ...
@overload
def softmax_cross_entropy(
    labels: TensorLike,
    logits: TensorLike,
    *,
    axis: int = -1,
    label_smoothing: float = 0.0,
    class_weights: TensorLike | None = None,
    softcap: float | None = None,
    return_log_sum_exp: Literal[True],
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]: ...
@autograph.op_function
@ragged.on_flat_values("labels", "logits")
def softmax_cross_entropy(
    labels: TensorLike,
    logits: TensorLike,
    *,
    axis: int = -1,
    label_smoothing: float = 0.0,
    class_weights: TensorLike | None = None,
    softcap: float | None = None,
    return_log_sum_exp: bool = False,
    name: str | None = None,
) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
    """Cross entropy of label distributions and the softmax of logits, -sum t log p.

    t are the labels or, with label_smoothing e and V classes, (1 - e) labels + e / V, as
    in `keras.losses.CategoricalCrossentropy` ("Rethinking the Inception Architecture",
    arXiv:1512.00567).

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> logits = [[20.0, 0.0], [0.0, -float("inf")]]
    >>> loss = tfo.nn.softmax_cross_entropy([[1.0, 0.0], [1.0, 0.0]], logits)
    >>> [f"{x:.3g}" for x in loss]
    ['2.06e-09', '0']

    Differences from `tf.nn.softmax_cross_entropy_with_logits`: a masked class with label
    0 adds 0 (there NaN); confident predictions keep their loss (there 0 in the first row
    above); losses of 16-bit logits are float32; the gradient to logits is that of the
    loss for labels of any sum (there p - t, the gradient for a sum of 1); labels always
    have a gradient; labels are broadcast to logits' shape, but not logits to labels'.

    Args:
      labels: of logits' shape, or of one that broadcasts to it; other dtypes are cast to
        logits'. They need not sum to 1. A NaN makes its own row's loss and gradient to
        logits NaN.
      logits: [..., classes], also ragged before the classes, or with classes on another
        axis; float16, bfloat16, float32 or float64. A class at -inf, a mask, adds 0 if t
        is 0, else makes the loss +inf; its gradient is -t. A row with all classes at -inf
        has loss +inf, or 0 if all t are 0, and gradient 0. A NaN or +inf makes its own
        row NaN.
      axis: the axis of classes.
      label_smoothing: e, in [0, 1].
      class_weights: weights w [classes] of the terms, or None: the loss is -sum w t log p,
        with smoothing in t, as in `torch.nn.functional.cross_entropy`.
      softcap: c, from 1e-30 to 1e30, or None: logits are c tanh(x / c) ("Gemma 2",
        arXiv:2408.00118); a mask at -inf becomes -c.
      return_log_sum_exp: True: also return log sum e^x of each row.
      name: name of the op.

    Returns:
      Nats, of logits' shape without the axis; float32, for float64 logits float64.
      Differentiable in logits and labels, to any order. The gradient to logits is
      p sum t - t. The gradient to labels is -(1 - e) log p, and 0 for a class at -inf
      with t = 0. With return_log_sum_exp a pair of such tensors, the second one
      differentiable in logits.

    Raises:
      ValueError: an axis that logits do not have, a wrong dtype, no class, a
        label_smoothing outside of [0, 1], shapes that differ.
      InvalidArgumentError: the same errors, found at run time.
    """
    attrs = nn_arguments.smoothing_attr(label_smoothing)
    softcap = nn_arguments.softcap_or_none(softcap)
    axis = nn_arguments.static_axis(axis)
    logits = nn_arguments.logits_tensor(logits, axis)
    labels = _broadcast(arguments.cast_tensor("labels", labels, logits.dtype), logits)
    value_dtype = arguments.at_least_float32(logits.dtype)
    with tf.name_scope(name or "softmax_cross_entropy"):
        labels, logits = (axes.move_axis_last(tensor, axis)[0] for tensor in (labels, logits))
        weights = nn_arguments.class_weights_tensor(class_weights, logits, value_dtype)
        if weights is not None:
            wide, classes = tf.cast(labels, weights.dtype), tf.cast(tf.shape(logits)[-1], weights.dtype)
            smoothing = tf.constant(label_smoothing, weights.dtype)
            labels = tf.cast(weights * (wide * (1 - smoothing) + smoothing / classes), logits.dtype)
            attrs = nn_arguments.smoothing_attr(0.0)
        logits = nn_arguments.capped(logits, softcap)
        result = ops.tensorflow_ops_softmax_cross_entropy(labels, logits, Tvalue=value_dtype, **attrs)
        return _with_log_sum_exp(result.loss, logits, result) if return_log_sum_exp else result.loss


def _with_log_sum_exp(loss, logits, result):
    """Returns (loss, log sum e^x of each row), with its gradient, from the outputs of an op of losses."""

    @tf.custom_gradient
    def log_sum_exp(x):
        def gradient(d):
            p = tf.cast(ops.tensorflow_ops_softmax(x), d.dtype)
            return tf.cast(d[..., tf.newaxis] * p, x.dtype)

        # `rest` is the sum of e^(x - largest), less 1.
        return tf.stop_gradient(result.largest + tf.math.log1p(result.rest)), gradient

    return loss, log_sum_exp(logits)


def _broadcast(labels, logits):
    """Broadcasts labels to logits' shape, unless the static shapes can be equal. Raises ValueError."""
    labels_shape, logits_shape = labels.shape, logits.shape
    if labels_shape.rank is None or logits_shape.rank is None or labels_shape.rank > logits_shape.rank:
        arguments.check_shape("labels", labels, logits_shape, "logits' shape")
        return labels
    dims = [1] * (logits_shape.rank - labels_shape.rank) + labels_shape.as_list()
    expected = [1 if dim == 1 else logits_dim for dim, logits_dim in zip(dims, logits_shape, strict=True)]
    if not tf.TensorShape(dims).is_compatible_with(expected):
        arguments.check_shape("labels", labels, logits_shape, "logits' shape, or one that broadcasts to it")
    if labels_shape.rank == logits_shape.rank and expected == logits_shape.as_list():
        return labels  # the op checks the sizes that are unknown here
    return tf.broadcast_to(labels, tf.shape(logits))


@overload
def sparse_softmax_cross_entropy(
    labels: TensorLike,
    logits: TensorLike,
    *,
    axis: int = -1,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    class_weights: TensorLike | None = None,
    softcap: float | None = None,
    return_log_sum_exp: Literal[False] = False,
    name: str | None = None,
) -> tf.Tensor: ...
@overload
def sparse_softmax_cross_entropy(
    labels: TensorLike,
    logits: TensorLike,
    *,
    axis: int = -1,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    class_weights: TensorLike | None = None,
    softcap: float | None = None,
    return_log_sum_exp: Literal[True],
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]: ...
@autograph.op_function
@ragged.on_flat_values("labels", "logits")
def sparse_softmax_cross_entropy(
    labels: TensorLike,
    logits: TensorLike,
    *,
    axis: int = -1,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    class_weights: TensorLike | None = None,
    softcap: float | None = None,
    return_log_sum_exp: bool = False,
    name: str | None = None,
) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
    """Cross entropy of class labels and the softmax of logits, -log p[label].

    With lse = log sum e^x, label_smoothing e, V classes and z_loss z it is

        sum t (lse - x) + z lse^2,  t = (1 - e) onehot(label) + e / V

    (smoothing as in `keras.losses.CategoricalCrossentropy`; the z_loss of "PaLM",
    arXiv:2204.02311, keeps logits from drifting).

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> logits = [[20.0, 0.0], [1.0, 1.0], [0.0, 5.0]]
    >>> loss = tfo.nn.sparse_softmax_cross_entropy([0, 1, -1], logits, ignore_index=-1)
    >>> [f"{x:.3g}" for x in loss]
    ['2.06e-09', '0.693', '0']

    Differences from `tf.nn.sparse_softmax_cross_entropy_with_logits`: confident
    predictions keep their loss (there 0 in the first row above); losses of 16-bit logits
    are float32; the forward pass writes only numbers of each row, and the gradient
    recomputes probabilities from two of them; ignore_index, label_smoothing, z_loss.

    Args:
      labels: [...], ragged as logits are: each row's class, in [0, classes) or
        ignore_index; int32 or int64. Smaller integers are cast to int32, uint32 to int64.
      logits: [..., classes], also ragged before the classes, or with classes on another
        axis; float16, bfloat16, float32 or float64. A class at -inf, a mask, has
        probability 0 and gradient 0 if t is 0; else the loss is +inf and the gradient -t.
        A row with all classes at -inf has loss +inf and gradient 0. A NaN or +inf makes
        its own row NaN.
      axis: the axis of classes in logits; labels do not have it.
      ignore_index: the label of rows with loss 0 and gradient 0, whatever their logits.
      label_smoothing: e, in [0, 1].
      z_loss: z, not negative; 1e-4 is common.
      class_weights: [classes] or None; multiplies each row's loss by the weight of its
        label. (With label_smoothing, `torch.nn.functional.cross_entropy` weighs each
        class's term instead, as `softmax_cross_entropy` does.)
      softcap: c, from 1e-30 to 1e30, or None: logits are c tanh(x / c) ("Gemma 2",
        arXiv:2408.00118); a mask at -inf becomes -c.
      return_log_sum_exp: True: also return log sum e^x of each row, ignored ones included.
      name: name of the op.

    Returns:
      Nats, of labels' shape; float32, for float64 logits float64. Differentiable in
      logits and class_weights, to any order. With return_log_sum_exp a pair of such
      tensors.

    Raises:
      ValueError: a wrong dtype, no class, an option out of its range, shapes that do not
        fit.
      InvalidArgumentError: the same errors, found at run time; on the CPU also
        "labels[3] is 7, expected [0, 5)" (a GPU makes that row's loss and gradient NaN).
    """
    attrs = nn_arguments.label_loss_attrs(ignore_index, label_smoothing, z_loss)
    softcap = nn_arguments.softcap_or_none(softcap)
    with tf.name_scope(name or "sparse_softmax_cross_entropy"):
        logits, _ = nn_arguments.axis_last(logits, axis)
        labels = nn_arguments.integers("labels", labels)
        value_dtype = arguments.at_least_float32(logits.dtype)
        weights = nn_arguments.class_weights_tensor(class_weights, logits, value_dtype)
        logits = nn_arguments.capped(logits, softcap)
        result = _label_loss(labels, logits, attrs, None)
        loss = result.loss
        if weights is not None:
            loss *= nn_arguments.weights_of_labels(weights, labels)
        return _with_log_sum_exp(loss, logits, result) if return_log_sum_exp else loss


@autograph.op_function
@ragged.on_flat_values("labels", "logits")
def label_log_prob(labels: TensorLike, logits: TensorLike, *, name: str | None = None) -> tf.Tensor:
    """Log-probability of each row's label, x[label] - log sum e^x.

    Equals `log_prob_from_logits` at the labels, without a [..., classes] result. Scores
    language models, and policies in reinforcement learning.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> [f"{x:.3g}" for x in tfo.nn.label_log_prob([0, 1], [[20.0, 0.0], [1.0, 1.0]])]
    ['-2.06e-09', '-0.693']

    Args:
      labels: [...], ragged as logits are: each row's class, in [0, classes); int32 or
        int64. Smaller integers are cast to int32, uint32 to int64.
      logits: [..., classes], also ragged before the classes; float16, bfloat16, float32
        or float64. A label at -inf has log-probability -inf; so has any label in a row
        with all classes at -inf, whose gradient is 0. A NaN or +inf makes its own row
        NaN.
      name: name of the op.

    Returns:
      Nats, of labels' shape; float32, for float64 logits float64. Differentiable in
      logits, to any order.

    Raises:
      ValueError: a wrong dtype, no class, shapes that do not fit.
      InvalidArgumentError: the same errors, found at run time; on the CPU also
        "labels[3] is 7, expected [0, 5)" (a GPU makes that row and its gradient NaN).
    """
    logits = nn_arguments.logits_tensor(logits, -1)
    return _label_loss(nn_arguments.integers("labels", labels), logits, {"log_prob": True}, name).loss


def _label_loss(labels, logits, attrs, name):
    arguments.check_shape("labels", labels, logits.shape[:-1], "logits' shape without the classes")
    return ops.tensorflow_ops_sparse_softmax_cross_entropy(
        logits, labels, Tvalue=arguments.at_least_float32(logits.dtype), **attrs, name=name
    )
