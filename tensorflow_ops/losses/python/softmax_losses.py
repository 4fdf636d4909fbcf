"""Keras losses of logits."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.losses.python import op_loss
from tensorflow_ops.losses.python.op_loss import LossDType, Reduction
from tensorflow_ops.nn.python.ops import cross_entropy, nn_arguments


def _floats_or_none(class_weights):
    """Returns class weights as a list of floats, for get_config, or None."""
    return None if class_weights is None else [float(w) for w in class_weights]


def _mask(tensor):
    """Returns the Keras mask of a tensor, or None."""
    return getattr(tensor, "_keras_mask", None)


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class SparseSoftmaxCrossEntropy(op_loss.RowLoss):
    """Cross entropy of class labels and logits: `tfo.nn.sparse_softmax_cross_entropy` as a loss.

    Like `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`, with label
    smoothing and z_loss, faster, and in less memory.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> loss = tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=-1)
    >>> round(float(loss(np.array([1, -1]), np.array([[0.0, 0.0], [5.0, 0.0]], np.float32))), 4)
    0.6931

    y_true is [...] or [..., 1], as in Keras, of integers or of floats with integer values;
    y_pred is [..., classes]. Either may be a RaggedTensor, y_true [N, (T)] or y_pred
    [N, (T), classes], whose rows then count; so in `tfo.losses.SoftmaxCrossEntropy`.
    Unlike Keras's own losses, it reads 16-bit logits without a cast, and labels before
    Keras casts them to a dtype that may be too narrow; the losses of rows are float32 in
    both cases.

    Args:
      ignore_index: the label of rows to ignore: no loss, no gradient, and the means
        ("sum_over_batch_size", "mean") are over the other rows.
      label_smoothing: in [0, 1]; see `tfo.nn.sparse_softmax_cross_entropy`.
      z_loss: not negative; see `tfo.nn.sparse_softmax_cross_entropy`.
      class_weights: [classes] numbers or None; multiplies each row's loss by the weight of
        its label. Means are over rows, as with sample weights.
      softcap: a number, or None; see `tfo.nn.sparse_softmax_cross_entropy`.
      axis: the axis of classes in y_pred.
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight" or None,
        as in `keras.losses.Loss`.
      name: name of the loss.
      dtype: the dtype to cast logits of more than 16 bits, losses and sample weights to;
        None is `keras.config.floatx()`.

    Raises:
      ValueError: an option out of its range; shapes that do not fit.
    """

    _options = ("ignore_index", "label_smoothing", "z_loss", "class_weights", "softcap", "axis")

    def __init__(
        self,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        reduction: Reduction = "sum_over_batch_size",
        name: str = "sparse_softmax_cross_entropy",
        dtype: LossDType = None,
        class_weights: Sequence[float] | None = None,
        softcap: float | None = None,
        axis: int = -1,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        nn_arguments.label_loss_attrs(ignore_index, label_smoothing, z_loss)
        self.ignore_index, self.label_smoothing, self.z_loss = ignore_index, label_smoothing, z_loss
        self.class_weights, self.softcap = _floats_or_none(class_weights), nn_arguments.softcap_or_none(softcap)
        self.axis = axis

    def _call_on_rows(self, y_true, y_pred, sample_weight):
        losses = self.call(y_true, y_pred)
        masks = [m for m in (_mask(y_pred), _mask(losses)) if m is not None]
        if masks:
            losses._keras_mask = tf.logical_and(masks[0], masks[-1])
        return self._reduce(losses, sample_weight)

    def call(self, y_true, y_pred):
        """Returns the loss of each row."""
        self._check_jit()
        logits = self._logits(y_pred)
        labels = arguments.dense_tensor("y_true", y_true)
        if not labels.dtype.is_integer:
            labels = arguments.whole_numbers("y_true", labels, tf.int64)
        rank = labels.shape.rank or 0
        if rank == logits.shape.rank and -rank <= self.axis < rank and labels.shape[self.axis] in (1, None):
            labels = tf.squeeze(labels, self.axis)
        losses = cross_entropy.sparse_softmax_cross_entropy(
            labels,
            logits,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
            class_weights=self.class_weights,
            softcap=self.softcap,
            axis=self.axis,
        )
        if self.ignore_index is not None:
            # fits: the op takes no uint64
            losses._keras_mask = tf.not_equal(tf.cast(labels, tf.int64), self.ignore_index)
        return losses


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class SoftmaxCrossEntropy(op_loss.RowLoss):
    """Cross entropy of label distributions and logits: `tfo.nn.softmax_cross_entropy` as a loss.

    Like `keras.losses.CategoricalCrossentropy(from_logits=True)`, but exact for logits masked
    with -inf, and faster.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> loss = tfo.losses.SoftmaxCrossEntropy()
    >>> round(float(loss(np.array([[0.5, 0.5, 0.0]]), np.array([[0.0, 0.0, -np.inf]]))), 4)
    0.6931

    y_true and y_pred are [..., classes], or have classes on another axis.

    Args:
      axis: the axis of classes.
      label_smoothing: in [0, 1]; see `tfo.nn.softmax_cross_entropy`.
      class_weights: [classes] numbers or None; see `tfo.nn.softmax_cross_entropy`.
      softcap: a number, or None; see `tfo.nn.softmax_cross_entropy`.
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight" or None,
        as in `keras.losses.Loss`.
      name: name of the loss.
      dtype: the dtype to cast labels, logits, losses and sample weights to; None is
        `keras.config.floatx()`.

    Raises:
      ValueError: an option out of its range; shapes that do not fit.
    """

    _options = ("axis", "label_smoothing", "class_weights", "softcap")

    def __init__(
        self,
        axis: int = -1,
        label_smoothing: float = 0.0,
        reduction: Reduction = "sum_over_batch_size",
        name: str = "softmax_cross_entropy",
        dtype: LossDType = None,
        class_weights: Sequence[float] | None = None,
        softcap: float | None = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        nn_arguments.smoothing_attr(label_smoothing)
        self.axis, self.label_smoothing = axis, label_smoothing
        self.class_weights, self.softcap = _floats_or_none(class_weights), nn_arguments.softcap_or_none(softcap)

    def call(self, y_true, y_pred):
        """Returns the loss of each row."""
        self._check_jit()
        return cross_entropy.softmax_cross_entropy(
            y_true,
            y_pred,
            axis=self.axis,
            label_smoothing=self.label_smoothing,
            class_weights=self.class_weights,
            softcap=self.softcap,
        )
