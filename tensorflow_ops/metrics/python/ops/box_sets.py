"""Boxes of images as metrics take them: dicts, results of multiclass_nms, or packed tensors."""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments, ragged
from tensorflow_ops.metrics.python.ops import metric_arguments

BOX_FORMATS = ("xyxy", "yxyx", "xywh", "center_xywh")
# Each name of this library, and those of other libraries.
_NAMES = {
    "boxes": ("boxes",),
    "classes": ("classes", "class_ids", "labels"),
    "scores": ("scores", "confidence"),
    "counts": ("counts", "num_detections"),
    "is_crowd": ("is_crowd", "iscrowd"),
    "area": ("area", "areas"),
}


class BoxSet(NamedTuple):
    """R boxes of each of N images."""

    boxes: tf.Tensor  # float64 [N, R, 4]: x, y, width, height
    classes: tf.Tensor  # int64 [N, R]; negative: padding
    values: dict  # the others by their name in _NAMES, [N, R]; None for those that are not given


def _fields(name, value, required, packed):
    """Returns a dict of the values by their name in _NAMES. Raises ValueError."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        fields = {}
        for ours, names in _NAMES.items():
            given = [other for other in names if value.get(other) is not None]
            if len(given) > 1:
                raise ValueError(f"{name} has both {given[0]!r} and {given[1]!r}, expected one of them")
            if given:
                fields[ours] = (f"{name}[{given[0]!r}]", value[given[0]])
            elif ours in required:
                names = " or ".join(map(repr, names))
                raise ValueError(f"{name} has {', '.join(map(repr, value))}, expected also {names}")
        return fields
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        raise ValueError(f"{name} is a {type(value).__name__} of dicts, expected a dict, of tensors of all images")
    if isinstance(value, tf.RaggedTensor):
        value = metric_arguments.to_dense(name, value, tf.float64, -1)
    tensor = arguments.dense_tensor(name, value)
    size = 4 + len(packed)
    tensor = arguments.with_shape(name, tensor, [None, None, size], f"[N, R, {size}]: box, {', '.join(packed)}")
    columns = {"boxes": tensor[..., :4]} | {key: tensor[..., 4 + i] for i, key in enumerate(packed)}
    return {key: (name, column) for key, column in columns.items()}


def _with_rows_of_boxes(name, value, boxes_name, boxes):
    """Returns a field that is ragged if boxes are, with rows as long as theirs. Raises ValueError."""
    is_ragged = isinstance(value, tf.RaggedTensor)
    if is_ragged != isinstance(boxes, tf.RaggedTensor):
        kinds = ("a RaggedTensor", "a dense tensor") if is_ragged else ("a dense tensor", "a RaggedTensor")
        raise ValueError(f"{name} is {kinds[0]}, expected {kinds[1]}, as {boxes_name} is")
    return ragged.with_lengths_of(name, value, boxes_name, boxes) if is_ragged else value


def _to_xywh(boxes, box_format):
    if box_format == "xywh":
        return boxes
    a, b, c, d = tf.unstack(boxes, axis=-1)
    if box_format == "center_xywh":
        return tf.stack([a - c / 2, b - d / 2, c, d], -1)
    left, top, right, bottom = (b, a, d, c) if box_format == "yxyx" else (a, b, c, d)
    return tf.stack([left, top, right - left, bottom - top], -1)


def read(name, value, box_format, required, packed):
    """Returns the BoxSet of an argument. Raises ValueError.

    Args:
      name: the argument's name.
      value: a dict or named tuple with "boxes" and some of _NAMES, or a tensor [N, R, 4 + len(packed)].
      box_format: one of BOX_FORMATS.
      required: names that a dict needs.
      packed: names of the columns after the box in a tensor.
    """
    fields = _fields(name, value, required, packed)

    def column(key, dtype, fill, shape, meaning):
        if key not in fields:
            return None
        text, column = fields[key]
        if key not in ("boxes", "counts"):
            column = _with_rows_of_boxes(text, column, *fields["boxes"])
        return arguments.with_shape(text, metric_arguments.to_dense(text, column, dtype, fill), shape, meaning)

    boxes = column("boxes", tf.float64, 0, [None, None, 4], "[N, R, 4]")
    images, size, _ = (n if n is not None else m for n, m in zip(boxes.shape, tf.unstack(tf.shape(boxes)), strict=True))
    of_boxes = [images, size], "[N, R] with boxes' N and R"
    classes = column("classes", tf.int64, -1, *of_boxes)
    counts = column("counts", tf.int64, 0, [images], "[N] with boxes' N")
    if counts is not None:
        classes = tf.where(tf.sequence_mask(counts, size), classes, -1)
    values = {
        key: column(key, dtype, fill, *of_boxes)
        for key, dtype, fill in (("scores", tf.float64, 0), ("is_crowd", tf.bool, 0), ("area", tf.float64, 0))
    }
    return BoxSet(_to_xywh(boxes, box_format), classes, values)
