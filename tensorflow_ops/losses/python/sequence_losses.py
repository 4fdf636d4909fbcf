"""Keras losses of label sequences."""

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, ragged
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.losses.python import op_loss
from tensorflow_ops.losses.python.op_loss import LossDType, Reduction
from tensorflow_ops.nn.python.ops import ctc_loss, rnnt_loss, sequence_arguments


def _check_weights(sample_weight):
    """Raises ValueError if sample weights cannot be one for each example."""
    if sample_weight is None:
        return
    shape = arguments.dense_tensor("sample_weight", sample_weight).shape
    if shape.rank is not None and any(n not in (1, None) for n in shape[1:]):
        raise ValueError(
            f"sample_weight has shape {arguments.shape_text(shape)}, expected [batch]: each example has one loss"
        )


class _SequenceLoss(op_loss.OpLoss):
    """Finds lengths, and calls `_losses(labels, logits, label_lengths, logit_lengths)`."""

    _options = ("blank_index",)

    def __init__(self, blank_index, reduction, name, dtype):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.blank_index = sequence_arguments.blank_index(blank_index)

    def __call__(self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None) -> tf.Tensor:
        # Keras would cast labels, and apply the mask of frames to losses of examples.
        _check_weights(sample_weight)
        losses = self.call(y_true, y_pred)
        return self._reduce(losses, sample_weight)

    def call(self, y_true, y_pred):
        """Returns the loss of each example."""
        self._check_jit()
        mask = getattr(y_pred, "_keras_mask", None)
        logits = self._logits(y_pred)
        if ragged.is_ragged_or_sparse(y_true):
            labels, label_lengths = tf.cast(y_true, tf.int64), None
        else:
            labels = tf.cast(arguments.dense_tensor("y_true", y_true), tf.int64)
            label_lengths = self._label_lengths(labels, logits)
        if mask is None:
            logit_lengths = tf.fill(tf.shape(logits)[:1], tf.shape(logits)[1])
        else:
            logit_lengths = tf.reduce_sum(tf.cast(mask, tf.int32), 1)
        return self._losses(labels, logits, label_lengths, logit_lengths)

    def _label_lengths(self, labels, logits):
        """Returns the lengths of labels without padding. A blank before a label counts: the op refuses it."""
        blank = tf.cast(sequence_arguments.blank_class(self.blank_index, logits), tf.int64)
        is_before_negative = tf.math.cumprod(tf.cast(labels >= 0, tf.int32), 1)
        is_label = is_before_negative * tf.cast(tf.not_equal(labels, blank), tf.int32)
        labels_from_here = tf.math.cumsum(is_label, 1, reverse=True)
        return tf.reduce_sum(tf.cast(labels_from_here > 0, tf.int32), 1)


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class CTC(_SequenceLoss):
    """Connectionist temporal classification: `tfo.nn.ctc_loss` as a loss.

    Like `keras.losses.CTC`, and faster; impossible labels have gradient 0.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> loss, logits = tfo.losses.CTC(), np.zeros([1, 3, 4], np.float32)
    >>> round(float(np.exp(-loss(np.array([[1, 2, -1]]), logits)) * 64), 4)
    5.0

    Labels that start from 0 need another blank, such as the last class:

    >>> loss = tfo.losses.CTC(blank_index=-1)    # of 4 classes: blank is 3, labels are 0 to 2
    >>> round(float(np.exp(-loss(np.array([[0, 1, -1]]), logits)) * 64), 4)
    5.0

    y_true is [batch, max labels], of integers or of floats with integer values, padded
    with negative numbers or with blanks; or a RaggedTensor or SparseTensor. y_pred is
    [batch, frames, classes], before the softmax; the frames that a Keras mask includes
    come first, without a mask all frames count.

    Args:
      blank_index: the class of blank, or -1: the last class.
      zero_infinity: True: infinite losses, of impossible labels, are 0.
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight" or None,
        as in `keras.losses.Loss`.
      name: name of the loss.
      dtype: the dtype to cast logits of more than 16 bits, losses and sample weights to;
        None is `keras.config.floatx()`.

    Raises:
      ValueError: an option out of its range; shapes that do not fit.
      InvalidArgumentError: on the CPU, a blank before a label (a GPU makes that
        example's loss NaN).
    """

    _options = ("blank_index", "zero_infinity")

    def __init__(
        self,
        blank_index: int = 0,
        zero_infinity: bool = False,
        reduction: Reduction = "sum_over_batch_size",
        name: str = "ctc",
        dtype: LossDType = None,
    ) -> None:
        super().__init__(blank_index, reduction, name, dtype)
        self.zero_infinity = arguments.static_bool("zero_infinity", zero_infinity)

    def _losses(self, *inputs):
        return ctc_loss.ctc_loss(*inputs, blank_index=self.blank_index, zero_infinity=self.zero_infinity)


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class RNNT(_SequenceLoss):
    """Loss of a transducer: `tfo.nn.rnnt_loss` as a loss.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> loss = tfo.losses.RNNT()
    >>> round(float(np.exp(-loss(np.array([[3]]), np.zeros([1, 2, 2, 4], np.float32))) * 64), 4)
    2.0

    y_true is [batch, max labels], of integers or of floats with integer values, padded
    with negative numbers or with blanks; or a RaggedTensor or SparseTensor. y_pred is [batch, frames, max labels + 1,
    classes], before the softmax; the frames that a Keras mask [batch, frames] includes come
    first, without a mask all frames count.

    Args:
      blank_index: the class of blank, or -1, the last class, for labels that start from 0.
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight" or None,
        as in `keras.losses.Loss`.
      name: name of the loss.
      dtype: the dtype to cast logits of more than 16 bits, losses and sample weights to;
        None is `keras.config.floatx()`.

    Raises:
      ValueError: an option out of its range; shapes that do not fit.
      InvalidArgumentError: on the CPU, a blank before a label (a GPU makes that
        example's loss NaN).
    """

    def __init__(
        self,
        blank_index: int = 0,
        reduction: Reduction = "sum_over_batch_size",
        name: str = "rnnt",
        dtype: LossDType = None,
    ) -> None:
        super().__init__(blank_index, reduction, name, dtype)

    def _losses(self, *inputs):
        return rnnt_loss.rnnt_loss(*inputs, blank_index=self.blank_index)
