"""Keras losses of label sequences."""

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.sequence.python.ops import ctc_loss, rnnt_loss


class _Reduction(keras.losses.Loss):
    """Reduces losses of examples like Keras: with sample weights and replicas."""

    def call(self, y_true, y_pred):
        del y_true
        return y_pred


class _SequenceLoss(keras.losses.Loss):
    """Finds lengths, and calls `_losses(labels, logits, label_lengths, logit_lengths)`."""

    def __init__(self, blank_index, reduction, name, dtype):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.blank_index = arguments.static_int("blank_index", blank_index, 0)
        self._reduce = _Reduction(name=name, reduction=reduction, dtype=dtype)

    def __call__(self, y_true, y_pred, sample_weight=None):
        # Keras would cast labels, and apply the mask of frames to losses of examples.
        losses = self.call(y_true, y_pred)
        return self._reduce(losses, losses, sample_weight)

    def call(self, y_true, y_pred):
        """Returns the loss of each example."""
        mask = getattr(y_pred, "_keras_mask", None)
        logits = arguments.dense_tensor("y_pred", y_pred)
        if logits.dtype not in (tf.float16, tf.bfloat16) or self.dtype == "float64":
            logits = tf.cast(logits, self.dtype)
        labels = arguments.dense_tensor("y_true", y_true)
        if not labels.dtype.is_integer:
            labels = tf.cast(labels, tf.int64)
        is_label = tf.cast((labels >= 0) & (labels != self.blank_index), tf.int32)
        label_lengths = tf.reduce_sum(tf.math.cumprod(is_label, 1), 1)
        if mask is None:
            logit_lengths = tf.fill(tf.shape(logits)[:1], tf.shape(logits)[1])
        else:
            logit_lengths = tf.reduce_sum(tf.cast(mask, tf.int32), 1)
        return self._losses(labels, logits, label_lengths, logit_lengths)

    def get_config(self):
        return {**super().get_config(), "blank_index": self.blank_index, "dtype": self.dtype}


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class CTC(_SequenceLoss):
    """Connectionist temporal classification: `tfo.nn.ctc_loss` as a loss.

    Like `keras.losses.CTC`, and faster; impossible labels have gradient 0.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> loss = tfo.losses.CTC()
    >>> round(float(np.exp(-loss(np.array([[1, 2, -1]]), np.zeros([1, 3, 4], np.float32))) * 64), 4)
    5.0

    y_true is [batch, max labels], of integers or of floats with integer values; an
    example's labels end before the first one that is negative or blank_index. y_pred is
    [batch, frames, classes], before the softmax; the frames that a Keras mask includes come
    first, without a mask all frames count.

    Args:
      blank_index: the class of blank.
      zero_infinity: True: infinite losses, of impossible labels, are 0.
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight" or None,
        as in `keras.losses.Loss`.
      name: name of the loss.
      dtype: the dtype to cast logits of more than 16 bits, losses and sample weights to;
        None is `keras.config.floatx()`.

    Raises:
      ValueError: an option out of its range; shapes that do not fit.
    """

    def __init__(self, blank_index=0, zero_infinity=False, reduction="sum_over_batch_size", name="ctc", dtype=None):
        super().__init__(blank_index, reduction, name, dtype)
        self.zero_infinity = arguments.static_bool("zero_infinity", zero_infinity)

    def _losses(self, *inputs):
        return ctc_loss.ctc_loss(*inputs, blank_index=self.blank_index, zero_infinity=self.zero_infinity)

    def get_config(self):
        return {**super().get_config(), "zero_infinity": self.zero_infinity}


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class RNNT(_SequenceLoss):
    """Loss of a transducer: `tfo.nn.rnnt_loss` as a loss.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> loss = tfo.losses.RNNT()
    >>> round(float(np.exp(-loss(np.array([[3]]), np.zeros([1, 2, 2, 4], np.float32))) * 64), 4)
    2.0

    y_true is [batch, max labels], of integers or of floats with integer values; an
    example's labels end before the first one that is negative or blank_index. y_pred is
    [batch, frames, max labels + 1, classes], before the softmax; the frames that a Keras
    mask [batch, frames] includes come first, without a mask all frames count.

    Args:
      blank_index: the class of blank.
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight" or None,
        as in `keras.losses.Loss`.
      name: name of the loss.
      dtype: the dtype to cast logits of more than 16 bits, losses and sample weights to;
        None is `keras.config.floatx()`.

    Raises:
      ValueError: an option out of its range; shapes that do not fit.
    """

    def __init__(self, blank_index=0, reduction="sum_over_batch_size", name="rnnt", dtype=None):
        super().__init__(blank_index, reduction, name, dtype)

    def _losses(self, *inputs):
        return rnnt_loss.rnnt_loss(*inputs, blank_index=self.blank_index)
