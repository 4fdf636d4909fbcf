"""The Keras layer of multiclass_nms."""

import math
from typing import TYPE_CHECKING, Any

import keras

from tensorflow_ops.core.python import arguments, keras3
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.detection.python.ops import box_formats, nms
from tensorflow_ops.detection.python.ops.box_formats import AnyBoxFormat


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class NMS(keras3.OpLayer):
    """The detections of each image: `tfo.detection.multiclass_nms` as a layer, for the end of a detector.

    >>> import keras, tensorflow_ops as tfo
    >>> boxes, scores = keras.Input([None, 4]), keras.Input([None, 20])
    >>> found = tfo.layers.NMS(iou_threshold=0.5, max_outputs=100)(boxes, scores)
    >>> model = keras.Model([boxes, scores], found._asdict())
    >>> found.boxes.shape, found.class_ids.shape
    ((None, 100, 4), (None, 100))

    Boxes [N, K, 4] (or [N, K, C, 4]) and scores [N, K, C], softmax probabilities or sigmoids,
    give `(boxes, scores, class_ids, indices, counts)`. They keep their dtypes: a mixed_float16
    policy does not round boxes.

    Args:
      iou_threshold: a number in [0, 1].
      score_threshold: only scores strictly above it count; it may be -infinity. None: all.
      max_outputs: the detections of an image, an int of at least 0.
      max_outputs_per_class: an int of at least 0. None: no limit.
      box_format: as for `tfo.detection.nms`.
      **kwargs: keras.layers.Layer's: name, dtype, trainable.

    Raises:
      ValueError: an option out of its range.
    """

    def __init__(
        self,
        *,
        iou_threshold: float = 0.5,
        score_threshold: float | None = 0.0,
        max_outputs: int = 100,
        max_outputs_per_class: int | None = None,
        box_format: AnyBoxFormat = "xyxy",
        **kwargs: Any,
    ) -> None:
        iou_threshold = arguments.static_number(
            "iou_threshold", iou_threshold, expected="a number in [0, 1]", fits=lambda value: 0 <= value <= 1
        )
        if score_threshold not in (None, -math.inf):
            score_threshold = arguments.static_number("score_threshold", score_threshold)
        if max_outputs_per_class is not None:
            max_outputs_per_class = arguments.static_int("max_outputs_per_class", max_outputs_per_class, 0)
        max_outputs = arguments.static_int("max_outputs", max_outputs, 0)
        arguments.one_of("box_format", box_format, box_formats.ANY)
        super().__init__(locals(), autocast=False)

    def build(self, boxes_shape=None, scores_shape=None):
        """Creates no weights. Keras passes shapes by the names of `call`'s arguments."""
        del boxes_shape, scores_shape

    def call(self, boxes, scores):
        return nms.multiclass_nms(boxes, scores, **self._option_values())

    if TYPE_CHECKING:  # Keras's has no types

        def __call__(self, boxes: TensorLike, scores: TensorLike, **kwargs: Any) -> nms.Detections: ...

    def compute_output_spec(self, boxes, scores):
        """Traces `call`, which has several dtypes: Keras's calls compute_output_shape."""
        return keras.Operation.compute_output_spec(self, boxes, scores)

    def compute_output_shape(self, boxes_shape, scores_shape):
        found = self.compute_output_spec(keras.KerasTensor(boxes_shape), keras.KerasTensor(scores_shape))
        return nms.Detections(*(tensor.shape for tensor in found))
