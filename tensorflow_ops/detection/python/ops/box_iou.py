"""The public functions of box overlap."""

from typing import Literal, TypeAlias, get_args

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, ragged
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.detection.python.ops import box_formats
from tensorflow_ops.detection.python.ops.box_formats import AnyBoxFormat, BoxFormat

Overlap: TypeAlias = Literal["iou", "giou", "diou", "ciou"]
MODES = get_args(Overlap)


def _boxes(boxes1, boxes2):
    """Returns both as tensors of one dtype: float64 if either is, else float32."""
    dtypes = [tf.as_dtype(b.dtype) for b in (boxes1, boxes2) if hasattr(b, "dtype")]
    dtype = tf.float64 if tf.float64 in dtypes else tf.float32
    return arguments.cast_tensor("boxes1", boxes1, dtype), arguments.cast_tensor("boxes2", boxes2, dtype)


def check_options(mode, box_format, formats=box_formats.UPRIGHT):
    """Raises ValueError for an unknown option, or a mode that boxes of this format do not have."""
    arguments.one_of("box_format", box_format, formats)
    arguments.one_of("mode", mode, MODES)
    if box_format == "cxcywhr" and mode != "iou":
        raise ValueError(f"mode is {mode!r}, expected 'iou': box_format is 'cxcywhr'")
    if box_format in box_formats.RELATIVE and mode in ("diou", "ciou"):
        reason = "distances and aspect ratios need boxes in pixels"
        raise ValueError(f"mode is {mode!r}, expected 'iou' or 'giou': box_format is {box_format!r}, and {reason}")


def _broadcast(boxes1, boxes2):
    """Broadcasts the leading dims; returns boxes that do not fit as they are, for the op to refuse."""
    shape1, shape2 = boxes1.shape, boxes2.shape
    if (shape1 == shape2 and shape1.is_fully_defined()) or 0 in (shape1.rank, shape2.rank):
        return boxes1, boxes2
    try:
        static = tf.broadcast_static_shape(shape1[:-1], shape2[:-1])
    except ValueError:
        return boxes1, boxes2
    sizes1, sizes2 = tf.shape(boxes1), tf.shape(boxes2)
    rank = tf.maximum(tf.size(sizes1), tf.size(sizes2))
    dims1, dims2 = (
        tf.concat([tf.ones(rank - tf.maximum(tf.size(s), 1), s.dtype), s[:-1]], 0) for s in (sizes1, sizes2)
    )
    is_one = tf.equal(dims1, 1)
    fit = tf.reduce_all(tf.equal(dims1, dims2) | is_one | tf.equal(dims2, 1))
    dims = tf.where(is_one, dims2, dims1)
    results = []
    for boxes, sizes, own in ((boxes1, sizes1, dims1), (boxes2, sizes2, dims2)):
        result = tf.broadcast_to(boxes, tf.concat([tf.where(fit, dims, own), sizes[-1:]], 0))
        result.set_shape(static.concatenate(boxes.shape[-1:]))
        results.append(result)
    return results


@autograph.op_function
def box_iou(
    boxes1: TensorLike,
    boxes2: TensorLike,
    *,
    mode: Overlap = "iou",
    box_format: AnyBoxFormat = "xyxy",
    name: str | None = None,
) -> tf.Tensor:
    """Computes the overlap of every box of one set with every box of another.

    With w = max(x2 - x1, 0), likewise h: iou is intersection / union, 0 where the union is 0,
    without an epsilon. "giou" (arXiv:1902.09630) subtracts (hull - union) / hull, hull the
    smallest box around both; "diou" (arXiv:1911.08287) the squared distance of the centres
    over the squared diagonal of the hull; "ciou" (the same paper) is diou - alpha v,
    v = 4/pi^2 (atan2(w1, h1) - atan2(w2, h2))^2, alpha = v / (1 - iou + v). Each of these
    terms is 0 where its divisor is 0.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> boxes = tf.constant([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0]])
    >>> tfo.detection.box_iou(boxes, [[0, 0, 2, 2], [5, 5, 5, 5]]).numpy().round(3)
    array([[1.   , 0.   ],
           [0.333, 0.   ]], dtype=float32)

    Args:
      boxes1: [..., N, 4], or [..., N, 5] with box_format="cxcywhr"; float32 or float64,
        other numbers are cast to float32 (to float64 if the other boxes are). A box that is
        not finite gives NaN, and no gradient; an inverted side counts as 0.
      boxes2: [..., M, 4] (or 5), with the leading dims of boxes1.
      mode: "iou", "giou", "diou" or "ciou".
      box_format: "xyxy" = (x1, y1, x2, y2), "yxyx" = (y1, x1, y2, x2), "xywh" = (x1, y1,
        width, height), "center_xywh" or "center_yxhw"; for modes "iou" and "giou" also
        the fractions of an image "rel_xyxy", "rel_yxyx", "rel_xywh" and
        "rel_center_xywh"; for mode "iou" also "cxcywhr" = (cx, cy, w, h, degrees):
        rotated about its centre, positive degrees counter-clockwise, seen with y pointing
        down. w or h not above 0 gives 0.
      name: name of the op.

    Returns:
      [..., N, M], float32, or float64 if any boxes are float64. Differentiable once in both
      sets of boxes unless they are rotated; equal coordinates share the gradient of their
      minimum or maximum half and half, and alpha of "ciou" counts as constant. Rotated boxes
      have no gradient: asking for it raises LookupError.

    Raises:
      ValueError: an unknown option, a mode that rotated boxes do not have, a shape that
        does not fit.
      InvalidArgumentError: a shape that does not fit, found at run time.
    """
    boxes1, boxes2 = _boxes(boxes1, boxes2)
    check_options(mode, box_format, box_formats.ANY)
    boxes1, _ = box_formats.to_corners(boxes1, box_format)
    boxes2, box_format = box_formats.to_corners(boxes2, box_format)
    return ops.tensorflow_ops_box_iou(boxes1, boxes2, mode=mode, box_format=box_format, name=name)


@autograph.op_function
@ragged.on_flat_values("boxes1", "boxes2")
def box_iou_loss(
    boxes1: TensorLike,
    boxes2: TensorLike,
    *,
    mode: Overlap = "giou",
    box_format: BoxFormat = "xyxy",
    name: str | None = None,
) -> tf.Tensor:
    """Computes 1 - overlap of each box with the box at the same place: a regression loss.

    `tfo.detection.box_iou` defines the overlaps. There is no epsilon: equal boxes of any
    size have loss 0 and gradient 0. Other gradients grow as boxes shrink, by 1 / size; they
    are finite for sides of at least 1e-37 (1e-307 in float64).

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> boxes = tf.constant([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0]])
    >>> tfo.detection.box_iou_loss(boxes, [[0, 0, 2, 2], [4, 0, 6, 2]]).numpy().round(3)
    array([0. , 1.2], dtype=float32)

    Args:
      boxes1: [..., 4], or a RaggedTensor [N, (R), 4]; float32 or float64, other numbers
        are cast to float32 (to float64 if the other boxes are). A box that is not finite
        gives NaN, and no gradient; an inverted side counts as 0.
      boxes2: [..., 4], with leading dims that broadcast with those of boxes1, ragged as
        boxes1 is.
      mode: "iou", "giou", "diou" or "ciou".
      box_format: see `box_iou`; boxes are not rotated.
      name: name of the op.

    Returns:
      [...], the broadcast dims, for ragged boxes a RaggedTensor [N, (R)]; float32, or
      float64 if any boxes are float64. Differentiable once in both boxes, with the
      gradients of `box_iou`.

    Raises:
      ValueError: an unknown option, a shape that does not fit.
      InvalidArgumentError: a shape that does not fit, found at run time.
    """
    boxes1, boxes2 = _boxes(boxes1, boxes2)
    check_options(mode, box_format)
    boxes1, _ = box_formats.to_corners(boxes1, box_format)
    boxes2, box_format = box_formats.to_corners(boxes2, box_format)
    boxes1, boxes2 = _broadcast(boxes1, boxes2)
    return ops.tensorflow_ops_box_iou_loss(boxes1, boxes2, mode=mode, box_format=box_format, name=name)
