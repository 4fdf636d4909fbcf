"""Keras losses of boxes."""

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.detection.python.ops import box_iou
from tensorflow_ops.detection.python.ops.box_formats import BoxFormat
from tensorflow_ops.detection.python.ops.box_iou import Overlap
from tensorflow_ops.losses.python import op_loss
from tensorflow_ops.losses.python.op_loss import LossDType, Reduction


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class BoxIoU(op_loss.RowLoss):
    """1 - overlap of each predicted box with its true box: `tfo.detection.box_iou_loss` as a loss.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> loss = tfo.losses.BoxIoU(mode="iou")
    >>> boxes = np.array([[0, 0, 2, 2], [4, 4, 6, 6]], np.float32)
    >>> float(loss(boxes, boxes + [[0, 0, 0, 0], [0, 0, 0, 2]]))
    0.25

    y_true and y_pred are [..., 4], their leading dims broadcast, and each box has a loss.
    Padding has none with `ignore_value`. Or pass y_true as a RaggedTensor [N, (R), 4]: the
    first boxes of y_pred [N, R, 4] then belong to it.

    >>> padded = np.array([[[0, 0, 2, 2], [-1, -1, -1, -1]]], np.float32)
    >>> loss = tfo.losses.BoxIoU(mode="iou", ignore_value=-1)
    >>> float(loss(padded, padded[:, :1] + np.zeros([1, 2, 4], np.float32)))
    0.0

    Args:
      mode: "giou", "iou", "diou" or "ciou"; see `tfo.detection.box_iou`.
      box_format: "xyxy" = (x1, y1, x2, y2) or another of `tfo.detection.box_iou`'s, not
        rotated.
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight" or None,
        as in `keras.losses.Loss`.
      name: name of the loss.
      ignore_value: boxes of y_true whose coordinates all have this value, such as Keras's
        padding -1, have no loss and no gradient, and the means ("sum_over_batch_size",
        "mean") are over the other boxes. None: there are none.
      dtype: the dtype to cast boxes, losses and sample weights to; None is
        `keras.config.floatx()`. 16-bit boxes are computed in float32.

    Raises:
      ValueError: an unknown option; shapes that do not fit.
    """

    _options = ("mode", "box_format", "ignore_value")

    def __init__(
        self,
        mode: Overlap = "giou",
        box_format: BoxFormat = "xyxy",
        reduction: Reduction = "sum_over_batch_size",
        name: str = "box_iou",
        dtype: LossDType = None,
        ignore_value: float | None = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        box_iou.check_options(mode, box_format)
        self.mode, self.box_format = mode, box_format
        self.ignore_value = None if ignore_value is None else arguments.static_number("ignore_value", ignore_value)

    def call(self, y_true, y_pred):
        """Returns the loss of each box."""
        self._check_jit()
        losses = box_iou.box_iou_loss(y_true, y_pred, mode=self.mode, box_format=self.box_format)
        if self.ignore_value is None:
            return losses
        y_true = arguments.dense_tensor("y_true", y_true)
        is_box = tf.reduce_any(tf.not_equal(y_true, tf.cast(self.ignore_value, y_true.dtype)), -1)
        losses = tf.where(is_box, losses, tf.zeros([], losses.dtype))
        losses._keras_mask = tf.broadcast_to(is_box, tf.shape(losses))
        return losses
