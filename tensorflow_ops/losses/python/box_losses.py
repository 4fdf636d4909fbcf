"""Keras losses of boxes."""

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.detection.python.ops import box_iou
from tensorflow_ops.detection.python.ops.box_formats import BoxFormat
from tensorflow_ops.detection.python.ops.box_iou import Overlap
from tensorflow_ops.losses.python import op_loss
from tensorflow_ops.losses.python.op_loss import LossDType, Reduction


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class BoxIoU(op_loss.OpLoss):
    """1 - overlap of each predicted box with its true box: `tfo.detection.box_iou_loss` as a loss.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> loss = tfo.losses.BoxIoU(mode="iou")
    >>> boxes = np.array([[0, 0, 2, 2], [4, 4, 6, 6]], np.float32)
    >>> float(loss(boxes, boxes + [[0, 0, 0, 0], [0, 0, 0, 2]]))
    0.25

    y_true and y_pred are [..., 4], their leading dims broadcast, and each box has a loss.
    Give padding boxes a sample weight of 0 and finite coordinates, and pass
    reduction="mean_with_sample_weight": Keras's default divides by the number of boxes,
    padding included.

    Args:
      mode: "giou", "iou", "diou" or "ciou"; see `tfo.detection.box_iou`.
      box_format: "xyxy" = (x1, y1, x2, y2) or another of `tfo.detection.box_iou`'s, not
        rotated.
      reduction: "sum_over_batch_size", "sum", "mean", "mean_with_sample_weight" or None,
        as in `keras.losses.Loss`.
      name: name of the loss.
      dtype: the dtype to cast boxes, losses and sample weights to; None is
        `keras.config.floatx()`. 16-bit boxes are computed in float32.

    Raises:
      ValueError: an unknown option; shapes that do not fit.
    """

    _options = ("mode", "box_format")

    def __init__(
        self,
        mode: Overlap = "giou",
        box_format: BoxFormat = "xyxy",
        reduction: Reduction = "sum_over_batch_size",
        name: str = "box_iou",
        dtype: LossDType = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        box_iou.check_options(mode, box_format)
        self.mode, self.box_format = mode, box_format

    def __call__(self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None) -> tf.Tensor:
        arguments.check_dense("y_true", y_true)  # before Keras converts them
        arguments.check_dense("y_pred", y_pred)
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true, y_pred):
        """Returns the loss of each box."""
        self._check_jit()
        return box_iou.box_iou_loss(y_true, y_pred, mode=self.mode, box_format=self.box_format)
