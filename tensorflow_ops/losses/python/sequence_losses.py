"""Keras losses of label sequences."""

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, keras3, ragged
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.losses.python import op_loss
from tensorflow_ops.losses.python.op_loss import LossDType, Reduction
from tensorflow_ops.nn.python.ops import ctc_loss, rnnt_loss, sequence_arguments


def _of_examples(sample_weight):
    """Returns sample weights, or None; checks that there is one for each example. Raises ValueError."""
    if sample_weight is None:
        return None
    weights = arguments.dense_tensor("sample_weight", sample_weight)
    text, expected = arguments.shape_text(weights.shape), "[batch]: each example has one loss"
    sizes = [None] if weights.shape.rank is None else weights.shape.as_list()[1:]
    if any(n not in (1, None) for n in sizes):
        raise ValueError(f"sample_weight has shape {text}, expected {expected}")
    if None not in sizes:
        return weights
    shape = tf.shape(weights)
    shape = arguments.checked("the shape of sample_weight", shape, tf.equal(tf.reduce_prod(shape[1:]), 1), expected)
    return tf.reshape(weights, [tf.reduce_prod(shape)])


class _ExampleLoss(op_loss.OpLoss):
    """A loss with one number for each example."""

    @autograph.ordered
    def __call__(self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None) -> tf.Tensor:
        # Keras would cast labels, and apply the mask of frames to losses of examples.
        self._check_jit()
        losses = self.call(y_true, y_pred)
        return self._reduce(losses, _of_examples(sample_weight))


class _SequenceLoss(_ExampleLoss):
    """Finds lengths, and calls `_losses(labels, logits, label_lengths, logit_lengths)`."""

    _options = ("blank_index",)

    def __init__(self, blank_index, reduction, name, dtype):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.blank_index = sequence_arguments.blank_index(blank_index)

    def call(self, y_true, y_pred):
        """Returns the loss of each example."""
        mask = getattr(y_pred, "_keras_mask", None)
        logits = self._logits(y_pred)
        if ragged.is_ragged_or_sparse(y_true):
            labels, label_lengths = _whole(y_true), None
        else:
            labels, label_lengths = self._labels(y_true, logits)
        if mask is None:
            logit_lengths = tf.fill(tf.shape(logits)[:1], tf.shape(logits)[1])
        else:
            logits, logit_lengths = _frames(logits, mask)
        return self._losses(labels, logits, label_lengths, logit_lengths)

    def _labels(self, y_true, logits):
        """Returns labels and their lengths, without padding. A blank before a label counts: the op refuses it."""
        labels = ragged.label_rows("y_true", _whole(y_true))
        labels = ragged.in_front(labels, labels >= 0)
        blank = tf.cast(sequence_arguments.blank_class(self.blank_index, logits), tf.int64)  # fits: a class
        return labels, ragged.lengths_to_last((labels >= 0) & tf.not_equal(labels, blank))


def _whole(y_true):
    """Returns labels as int64. Raises ValueError."""
    if isinstance(y_true, tf.RaggedTensor):
        return y_true.with_flat_values(_whole(y_true.flat_values))
    if isinstance(y_true, tf.SparseTensor):
        return y_true.with_values(_whole(y_true.values))
    return arguments.whole_numbers("y_true", arguments.dense_tensor("y_true", y_true), tf.int64)


def _frames(logits, mask):
    """Returns logits and lengths of the frames that a mask includes. Moves them to the front if they are not there."""
    known = logits.shape[:2] if logits.shape.rank else [None, None]
    sizes = [tf.shape(logits)[i] if size is None else size for i, size in enumerate(known)]
    mask = arguments.with_shape("the mask of y_pred", tf.cast(mask, tf.bool), sizes, "[batch, frames]")
    lengths = tf.reduce_sum(tf.cast(mask, tf.int32), 1)
    are_in_front = tf.reduce_all(tf.equal(mask, tf.sequence_mask(lengths, tf.shape(mask)[1])))
    # A copy of logits, only if needed.
    return tf.cond(are_in_front, lambda: logits, lambda: ragged.in_front(logits, mask)), lengths


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

    y_true is [batch, max labels], of integers or of floats with integer values: negative
    numbers anywhere and blanks at the end are padding; or a RaggedTensor or SparseTensor.
    y_pred is [batch, frames, classes], before the softmax; the frames count that a Keras
    mask includes, wherever they are, without a mask all.

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

    y_true is [batch, max labels], of integers or of floats with integer values: negative
    numbers anywhere and blanks at the end are padding; or a RaggedTensor or SparseTensor.
    y_pred is [batch, frames, max labels + 1, classes], before the softmax; the frames count
    that a Keras mask [batch, frames] includes, wherever they are, without a mask all.

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


def _crf_of(y_pred):
    """Returns the CRF layer whose output y_pred is; None where Keras asks for shapes only. Raises ValueError."""
    layer = getattr(y_pred, "_tfo_crf", None)
    if layer is None and not keras3.infers_shapes():
        raise ValueError(
            "y_pred is not an output of tfo.layers.CRF, which has the transitions: end the model with that layer, "
            "or pass layer(y_pred), the same scores"
        )
    return layer


@keras.saving.register_keras_serializable(package="tensorflow_ops", name="losses.CRF")  # "CRF" is the layer
class CRF(_ExampleLoss):
    """Minus the log likelihood of tags, in a model that ends with `tfo.layers.CRF`.

    It finds the transitions through y_pred, the output of the layer, so a model saves and
    loads with it.

    >>> import keras, numpy as np, tensorflow_ops as tfo
    >>> layer, loss = tfo.layers.CRF(3), tfo.losses.CRF()
    >>> scores = layer(np.zeros([2, 4, 3]))    # all tags are equally likely
    >>> labels = np.array([[0, 1, 2, 1], [2, 1, -1, -1]])    # 3^4 and 3^2 sequences
    >>> round(float(np.exp(loss(labels, scores))))    # 27, the geometric mean
    27

    y_true is [batch, frames], integers or floats with integer values: a tag for each frame,
    then -1 as padding; or a RaggedTensor or SparseTensor. Only padding tells what to leave
    out: a Keras mask is not used. y_pred is [batch, frames, tags]. Layers after the CRF
    layer, and a `tf.function` that returns to its caller, make another tensor of it; the
    CRF layer's result for that one, the same scores, is an output again.

    Args:
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight" or None,
        as in `keras.losses.Loss`.
      name: name of the loss.
      dtype: the dtype to cast scores of more than 16 bits, losses and sample weights to;
        None is `keras.config.floatx()`.

    Raises:
      ValueError: y_pred is not an output of a CRF layer; shapes that do not fit.
      InvalidArgumentError: on the CPU, padding before a tag, and tags out of range (a GPU
        makes that example's loss NaN).
    """

    def __init__(
        self, reduction: Reduction = "sum_over_batch_size", name: str = "crf", dtype: LossDType = None
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true, y_pred):
        """Returns the loss of each example."""
        if ragged.is_ragged_or_sparse(y_true):
            labels = _whole(y_true)
        else:
            labels = ragged.label_rows("y_true", _whole(y_true))
        layer, logits = _crf_of(y_pred), self._logits(y_pred)
        if layer is None:
            return tf.zeros(tf.shape(logits)[:1], self.dtype)
        return -layer.log_likelihood(labels, logits)
