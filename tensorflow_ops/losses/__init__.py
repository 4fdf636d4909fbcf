"""Keras 3 losses of the ops."""

from tensorflow_ops.losses.python.box_losses import BoxIoU
from tensorflow_ops.losses.python.sequence_losses import CRF, CTC, RNNT
from tensorflow_ops.losses.python.softmax_losses import SoftmaxCrossEntropy, SparseSoftmaxCrossEntropy

__all__ = ["CRF", "CTC", "RNNT", "BoxIoU", "SoftmaxCrossEntropy", "SparseSoftmaxCrossEntropy"]
