"""Box formats by Keras's names, and the corners that kernels compute with."""

import tensorflow as tf

CORNERS = ("xyxy", "yxyx")
_WITH_SIZES = ("xywh", "center_xywh", "center_yxhw")
RELATIVE = ("rel_xyxy", "rel_yxyx", "rel_xywh", "rel_center_xywh")
UPRIGHT = (*CORNERS, *_WITH_SIZES, *RELATIVE)


def to_corners(boxes, box_format):
    """Returns boxes, of which those with sizes become corners, and their format, without "rel_"."""
    box_format = box_format.removeprefix("rel_")
    if box_format not in _WITH_SIZES:
        return boxes, box_format
    corners = "yxyx" if box_format == "center_yxhw" else "xyxy"
    if boxes.shape.rank == 0 or boxes.shape[-1:] not in ([4], [None]):
        return boxes, corners  # for the op to refuse
    places, sizes = boxes[..., :2], boxes[..., 2:]
    if box_format != "xywh":
        places -= sizes / 2
    return tf.concat([places, places + sizes], -1), corners
