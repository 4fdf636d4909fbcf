"""Box formats by Keras's names, and the corners that kernels compute with."""

from typing import Literal, TypeAlias, get_args

import tensorflow as tf

_Corners: TypeAlias = Literal["xyxy", "yxyx"]
_WithSizes: TypeAlias = Literal["xywh", "center_xywh", "center_yxhw"]
_Relative: TypeAlias = Literal["rel_xyxy", "rel_yxyx", "rel_xywh", "rel_center_xywh"]
BoxFormat: TypeAlias = Literal[_Corners, _WithSizes, _Relative]
AnyBoxFormat: TypeAlias = Literal[BoxFormat, "cxcywhr"]
_WITH_SIZES, RELATIVE, UPRIGHT, ANY = map(get_args, (_WithSizes, _Relative, BoxFormat, AnyBoxFormat))


def to_corners(boxes, box_format):
    """Returns boxes, of which those with sizes become corners, and their format, without "rel_"."""
    box_format = box_format.removeprefix("rel_")
    if box_format not in _WITH_SIZES:
        return boxes, box_format
    corners = "yxyx" if box_format == "center_yxhw" else "xyxy"
    if not boxes.shape[-1:].is_compatible_with([4]):
        return boxes, corners  # for the op to refuse
    places, sizes = tf.split(boxes, [2, 2], -1)
    if box_format != "xywh":
        places -= sizes / 2
    return tf.concat([places, places + sizes], -1), corners
