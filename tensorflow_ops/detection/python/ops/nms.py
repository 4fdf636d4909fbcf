"""The public functions of non-maximum suppression."""

import math
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, pfor, ragged
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import IntLike, NumberLike, TensorLike
from tensorflow_ops.detection.python.ops import box_formats
from tensorflow_ops.detection.python.ops.box_formats import AnyBoxFormat

for _name in ("Nms", "BatchedNms", "MulticlassNms", "SoftNms"):
    tf.no_gradient(f"TensorflowOps>{_name}")

DecayMethod: TypeAlias = Literal["gaussian", "linear"]
_METHODS = get_args(DecayMethod)
# Kernels read smaller numbers as 0.
_LEAST_SIGMA = {dtype: float(np.finfo(dtype.as_numpy_dtype).tiny) for dtype in (tf.float32, tf.float64)}


class Detections(NamedTuple):
    """The result of `multiclass_nms`."""

    boxes: tf.Tensor
    scores: tf.Tensor
    class_ids: tf.Tensor
    indices: tf.Tensor
    counts: tf.Tensor


class SoftNms(NamedTuple):
    """The result of `soft_nms`."""

    indices: tf.Tensor
    scores: tf.Tensor


def _float_or_cast(name, value):
    """Returns a float tensor as it is, other numbers as float32. Raises ValueError."""
    if not hasattr(value, "dtype"):
        return arguments.tensor_of_kind(name, value, tf.float32)
    tensor = arguments.dense_tensor(name, value)
    return tf.cast(tensor, tf.float32) if tensor.dtype.is_integer else arguments.float_tensor(name, tensor)


def _compared(boxes, scores):
    """Returns boxes and scores in the dtype that they are compared in: float64 if either has it, else float32."""
    dtype = tf.float64 if boxes.dtype is tf.float64 or scores.dtype is tf.float64 else tf.float32
    return arguments.cast(boxes, dtype), arguments.cast(scores, dtype), dtype


def _number(name, value, dtype, expected, fits):
    return arguments.in_host_memory(arguments.number(name, value, expected, fits), dtype)


def _iou_threshold(value, dtype):
    return _number("iou_threshold", value, dtype, "a number in [0, 1]", lambda v: (v >= 0) & (v <= 1))


def _score_threshold(value, dtype):
    """Returns a tensor of the dtype, below infinity; NaN for None: kernels then find all scores."""
    name, expected = "score_threshold", "None or a number below infinity"
    known = math.nan if value is None else arguments.to_python(arguments.static_value(value))
    if known is None:
        tensor = arguments.in_host_memory(arguments.tensor_of_kind(name, value, tf.float64), tf.float64)
        known = arguments.checked(name, tensor, tensor < math.inf, expected)
    elif value is not None and not (isinstance(known, float) and known == -math.inf):
        known = arguments.static_number(name, known, expected)
    return arguments.in_host_memory(known, dtype)


def _sigma(value, dtype):
    least = _LEAST_SIGMA[dtype]
    return _number("sigma", value, dtype, f"a finite number, at least {least:.3g}", lambda v: v >= least)


def _limit(name, value):
    return -1 if value is None else arguments.int_scalar(name, value, 0)


def _corners(boxes, box_format):
    """Returns boxes and format as the ops take them: overlaps are those of relative boxes, too. Raises ValueError."""
    return box_formats.to_corners(boxes, arguments.one_of("box_format", box_format, box_formats.ANY))


def _dense(boxes, scores):
    """Returns boxes and scores with dims of one size: ragged ones are padded with scores that are dropped."""
    if isinstance(boxes, tf.RaggedTensor) and isinstance(scores, tf.RaggedTensor):
        ragged.rows("boxes", boxes, "[N, (K), 4]")
        values = _float_or_cast("scores", ragged.rows("scores", scores, "[N, (K)]; of classes [N, (K), C]"))
        scores = ragged.with_lengths_of("scores", scores.with_values(values), "boxes", boxes)
        return boxes.to_tensor(), scores.to_tensor(np.nan)
    return boxes, scores


def _boxes_of_one_image(boxes):
    """Returns boxes as `_float_or_cast` does. Raises ValueError for those of several images."""
    is_ragged = isinstance(boxes, tf.RaggedTensor)
    boxes = boxes if is_ragged else _float_or_cast("boxes", boxes)
    if is_ragged or boxes.shape.rank == 3:
        got = "a RaggedTensor" if is_ragged else arguments.shape_text(boxes.shape)
        raise ValueError(f"boxes must be [K, 4], got {got}: nms and multiclass_nms take the boxes of several images")
    return boxes


def _nms_of_images(boxes, scores, iou_threshold, score_threshold, max_outputs, box_format, name):
    """Returns what `nms` does, as a RaggedTensor, for [N, K, 4]."""
    arguments.check_shape("scores", scores, boxes.shape[:2], "[N, K], of boxes [N, K, 4]")
    count = tf.shape(scores)[1]
    indices, _, _, counts = ops.tensorflow_ops_multiclass_nms(
        boxes=boxes,
        scores=scores[..., tf.newaxis],
        iou_threshold=iou_threshold,
        score_threshold=score_threshold,
        max_outputs=count if isinstance(max_outputs, int) and max_outputs < 0 else tf.minimum(max_outputs, count),
        max_outputs_per_class=-1,
        box_format=box_format,
        name=name,
    )
    return tf.RaggedTensor.from_tensor(indices, counts)


@autograph.op_function
def nms(
    boxes: TensorLike,
    scores: TensorLike,
    iou_threshold: NumberLike,
    *,
    score_threshold: NumberLike | None = None,
    max_outputs: IntLike | None = None,
    box_format: AnyBoxFormat = "xyxy",
    name: str | None = None,
) -> tf.Tensor:
    """Keeps the best of boxes that overlap: non-maximum suppression.

    Takes boxes by falling score, equal scores by rising index, and keeps a box unless a
    kept one has an IoU (`box_iou`) above `iou_threshold` with it. This is the greedy
    suppression of Faster R-CNN (arXiv:1506.01497) and of torchvision's `nms`. K boxes.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> boxes = [[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]]
    >>> tfo.detection.nms(boxes, [0.6, 0.9, 0.8], 0.5).numpy()
    array([1, 2], dtype=int32)

    IoUs are compared in float32, in float64 if boxes or scores are float64. A box
    without width or height and a malformed box (x2 < x1, y2 < y1, w or h < 0, or a
    coordinate that is not finite) overlap nothing: they suppress none and are not
    suppressed.

    Args:
      boxes: float [K, 4], or [K, 5] with box_format "cxcywhr", in any unit. Of N images:
        [N, K, 4], or a RaggedTensor [N, (K), 4].
      scores: float [K], or [N, K], ragged as boxes are. NaN is dropped; infinities are
        scores.
      iou_threshold: a number in [0, 1].
      score_threshold: only boxes with scores strictly above it are kept; it may be
        -infinity. None: all.
      max_outputs: an int or int tensor, at least 0: at most so many boxes are kept.
        None: all.
      box_format: "xyxy" for (x1, y1, x2, y2), "yxyx" for (y1, x1, y2, x2), "xywh" for
        (x1, y1, width, height), "center_xywh" or "center_yxhw"; "rel_xyxy", "rel_yxyx",
        "rel_xywh" or "rel_center_xywh" for fractions of an image; "cxcywhr" for rotated
        boxes (cx, cy, w, h, degrees), counter-clockwise positive seen with y pointing
        down.
      name: name of the op.

    Returns:
      int32 [M]: the indices of the kept boxes, by falling score; for the boxes of N
      images a RaggedTensor [N, (M)] (`.to_tensor(-1)` pads it). No gradient: gather boxes
      and scores with them. The data decide M, so XLA cannot compile it; see
      `multiclass_nms` for a fixed size.

    Raises:
      ValueError: a wrong shape, dtype or option.
      tf.errors.InvalidArgumentError: a tensor is out of its range.
    """
    boxes, scores = _dense(boxes, scores)
    boxes, scores, dtype = _compared(_float_or_cast("boxes", boxes), _float_or_cast("scores", scores))
    boxes, box_format = _corners(boxes, box_format)
    iou_threshold, score_threshold = _iou_threshold(iou_threshold, dtype), _score_threshold(score_threshold, dtype)
    max_outputs = _limit("max_outputs", max_outputs)
    if boxes.shape.rank == 3:
        return _nms_of_images(boxes, scores, iou_threshold, score_threshold, max_outputs, box_format, name)
    return ops.tensorflow_ops_nms(
        boxes=boxes,
        scores=scores,
        iou_threshold=iou_threshold,
        score_threshold=score_threshold,
        max_outputs=max_outputs,
        box_format=box_format,
        name=name,
    )


@autograph.op_function
def batched_nms(
    boxes: TensorLike,
    scores: TensorLike,
    group_ids: TensorLike,
    iou_threshold: NumberLike,
    *,
    score_threshold: NumberLike | None = None,
    max_outputs: IntLike | None = None,
    box_format: AnyBoxFormat = "xyxy",
    name: str | None = None,
) -> tf.Tensor:
    """Suppresses boxes as `nms` does, but only by boxes of their own group.

    A group is a class, an image, a level of a pyramid or all of these in one number.
    Groups are compared as numbers, so boxes anywhere keep apart; torchvision's
    `batched_nms` moves groups apart by adding to their coordinates, which lets boxes with
    negative coordinates meet and rounds those of high groups.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> boxes = [[0.0, 0, 10, 10], [1, 1, 11, 11], [0, 0, 10, 10]]
    >>> tfo.detection.batched_nms(boxes, [0.6, 0.9, 0.8], [0, 0, 7], 0.5).numpy()
    array([1, 2], dtype=int32)

    Args:
      boxes: as for `nms`, as are all arguments but group_ids; of one image.
      scores: see `nms`.
      group_ids: int32 or int64 [K], any numbers.
      iou_threshold: see `nms`.
      score_threshold: see `nms`.
      max_outputs: see `nms`: of all groups together.
      box_format: see `nms`.
      name: name of the op.

    Returns:
      int32 [M]: the indices of the kept boxes of all groups, by falling score, equal
      scores by rising index.

    Raises:
      ValueError: a wrong shape, dtype or option.
      tf.errors.InvalidArgumentError: a tensor is out of its range.
    """
    boxes, scores, dtype = _compared(_boxes_of_one_image(boxes), _float_or_cast("scores", scores))
    boxes, box_format = _corners(boxes, box_format)
    group_ids = arguments.int_tensor("group_ids", group_ids)
    if group_ids.dtype not in (tf.int32, tf.int64):
        raise ValueError(f"group_ids are {group_ids.dtype.name}, expected int32 or int64")
    return ops.tensorflow_ops_batched_nms(
        boxes=boxes,
        scores=scores,
        group_ids=group_ids,
        iou_threshold=_iou_threshold(iou_threshold, dtype),
        score_threshold=_score_threshold(score_threshold, dtype),
        max_outputs=_limit("max_outputs", max_outputs),
        box_format=box_format,
        name=name,
    )


def _sizes(tensor):
    """Returns the dims of a tensor of known rank: ints where they are known, else scalar tensors."""
    known = tensor.shape.as_list()
    if None not in known:
        return known
    return [n if n is not None else m for n, m in zip(known, tf.unstack(tf.shape(tensor)), strict=True)]


# tf.reshape, tf.gather and tf.where take two to four times as long outside of a graph as
# the ops that they call: 0.4 ms in a call of multiclass_nms.


def _reshape(tensor, dims):
    is_known = all(isinstance(n, int) for n in dims)
    return tf.raw_ops.Reshape(tensor=tensor, shape=np.array(dims, np.int32) if is_known else tf.stack(dims))


def _gather_rows(rows, count, indices, is_box):
    """Returns rows[n, indices[n, m]], and zeros for padding.

    Args:
      rows: [N, count, ...].
      count: an int, or a tensor.
      indices: int32 [N, M], 0 for padding.
      is_box: bool [N, M].
    """
    if not isinstance(count, int) or count == 0:
        # Padding has to find a row.
        rows = tf.pad(rows, [[0, 0], [0, 1], *[[0, 0]] * (rows.shape.rank - 2)])
    gathered = tf.raw_ops.GatherV2(params=rows, indices=indices, axis=1, batch_dims=1)
    is_box = is_box if rows.shape.rank == 2 else tf.raw_ops.ExpandDims(input=is_box, axis=-1)
    return tf.raw_ops.SelectV2(condition=is_box, t=gathered, e=tf.constant(0, gathered.dtype))


@autograph.op_function
def multiclass_nms(
    boxes: TensorLike,
    scores: TensorLike,
    *,
    iou_threshold: NumberLike = 0.5,
    score_threshold: NumberLike | None = 0.0,
    max_outputs: IntLike = 100,
    max_outputs_per_class: IntLike | None = None,
    box_format: AnyBoxFormat = "xyxy",
    name: str | None = None,
) -> Detections:
    """Finds the detections of each image: suppression in each class, then the best of all classes.

    For each image and class, `nms` keeps boxes among those whose scores are strictly above
    score_threshold, at most max_outputs_per_class. Of these, the best max_outputs of the
    image are returned by falling score, equal scores by rising (box, class). The size of
    the result is fixed, so it compiles under XLA and needs no synchronization on a GPU.
    N images, K boxes, C classes, M = max_outputs.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> boxes = [[[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]]]
    >>> scores = [[[0.6, 0.1], [0.9, 0.0], [0.0, 0.8]]]
    >>> found = tfo.detection.multiclass_nms(boxes, scores, max_outputs=4)
    >>> found.indices.numpy(), found.class_ids.numpy(), found.counts.numpy()
    (array([[ 1,  2,  0, -1]], dtype=int32), array([[0, 1, 1, 0]], dtype=int32), array([3], dtype=int32))
    >>> found.scores.numpy()
    array([[0.9, 0.8, 0.1, 0. ]], dtype=float32)

    Args:
      boxes: float [N, K, 4], or [N, K, C, 4] for boxes of each class; last dim 5 with
        box_format "cxcywhr". A RaggedTensor [N, (K), 4] or [N, (K), C, 4] with ragged
        scores.
      scores: float [N, K, C], or a RaggedTensor [N, (K), C].
      iou_threshold: a number in [0, 1].
      score_threshold: only scores strictly above it count. None: all.
      max_outputs: M, an int or int tensor, at least 0. At most 2^20, or the number of an
        image's scores, K C, if that is more.
      max_outputs_per_class: an int or int tensor, at least 0. None: no limit.
      box_format: see `nms`.
      name: name of the op.

    Returns:
      `(boxes, scores, class_ids, indices, counts)`: boxes [N, M, 4] (or 5) and scores
      [N, M] of the arguments' dtypes; class_ids and indices, each box's position in K,
      int32 [N, M]; counts int32 [N]. Behind an image's count, indices are -1 and the
      others 0. Differentiable in boxes and scores, to any order.

    Raises:
      ValueError: a wrong shape, dtype or option.
      tf.errors.InvalidArgumentError: a tensor is out of its range.
    """
    with tf.name_scope(name or "multiclass_nms"):
        boxes, scores = _dense(boxes, scores)
        boxes, scores = _float_or_cast("boxes", boxes), _float_or_cast("scores", scores)
        compared_boxes, compared_scores, dtype = _compared(boxes, scores)
        compared_boxes, op_format = _corners(compared_boxes, box_format)
        indices, class_ids, positions, counts = ops.tensorflow_ops_multiclass_nms(
            boxes=compared_boxes,
            scores=compared_scores,
            iou_threshold=_iou_threshold(iou_threshold, dtype),
            score_threshold=_score_threshold(score_threshold, dtype),
            max_outputs=arguments.int_scalar("max_outputs", max_outputs, 0),
            max_outputs_per_class=_limit("max_outputs_per_class", max_outputs_per_class),
            box_format=op_format,
        )
        if scores.shape.rank is None:
            scores = tf.ensure_shape(scores, [None] * 3)
        images, num_boxes, classes = _sizes(scores)
        is_box = indices >= 0
        flat_scores = _reshape(scores, [images, num_boxes * classes])
        found_scores = _gather_rows(flat_scores, num_boxes * classes, positions, is_box)
        if boxes.shape.rank == 3:
            found_boxes = _gather_rows(boxes, num_boxes, tf.maximum(indices, 0), is_box)
        else:
            rows, row = num_boxes * classes, positions
            if boxes.shape.rank is None:
                per_class = tf.equal(tf.rank(boxes), 4)
                rows, row = tf.where(per_class, rows, num_boxes), tf.where(per_class, row, tf.maximum(indices, 0))
            with tf.control_dependencies([indices]):  # The op refuses what does not fit.
                boxes = _reshape(boxes, [images, rows, 5 if box_format == "cxcywhr" else 4])
            found_boxes = _gather_rows(boxes, rows, row, is_box)
        return Detections(found_boxes, found_scores, class_ids, indices, counts)


@autograph.op_function
def soft_nms(
    boxes: TensorLike,
    scores: TensorLike,
    *,
    method: DecayMethod = "gaussian",
    sigma: NumberLike = 0.5,
    iou_threshold: NumberLike = 0.3,
    score_threshold: NumberLike | None = 0.001,
    max_outputs: IntLike | None = None,
    box_format: AnyBoxFormat = "xyxy",
    name: str | None = None,
) -> SoftNms:
    """Lowers the scores of boxes that overlap better ones, instead of dropping them.

    Soft-NMS of Bodla et al. (arXiv:1704.04503). Repeatedly takes the box of the best
    score, the first of equal ones, if that score is strictly above score_threshold, and
    multiplies the scores of all others by exp(-iou^2 / sigma), or, with method "linear",
    by 1 - iou where iou >= iou_threshold. K boxes.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> boxes = [[0.0, 0, 10, 10], [0, 5, 10, 15], [20, 20, 30, 30]]
    >>> indices, scores = tfo.detection.soft_nms(boxes, [0.9, 0.8, 0.7])
    >>> indices.numpy(), scores.numpy().round(4)
    (array([0, 2, 1], dtype=int32), array([0.9   , 0.7   , 0.6406], dtype=float32))

    `soft_nms_sigma` of `tf.image.non_max_suppression_with_scores` is half of this sigma,
    and its iou_threshold still drops boxes. Malformed boxes overlap nothing, as for `nms`.

    Args:
      boxes: see `nms`; of one image.
      scores: float [K]. NaN is dropped.
      method: "gaussian" or "linear".
      sigma: a positive number, for "gaussian"; at least 1.2e-38 (2.3e-308 in float64).
      iou_threshold: a number in [0, 1], for "linear".
      score_threshold: boxes are taken while their scores are strictly above it. None: all
        boxes whose scores are above -infinity.
      max_outputs: an int or int tensor, at least 0: at most so many boxes are taken.
        None: all.
      box_format: see `nms`.
      name: name of the op.

    Returns:
      `(indices, scores)`: int32 [M], the boxes in the order in which they are taken; and
      [M], their decayed scores, float32 (float64 if boxes or scores are float64). No
      gradient. The data decide M, so XLA cannot compile it.

    Raises:
      ValueError: a wrong shape, dtype or option.
      tf.errors.InvalidArgumentError: a tensor is out of its range.
    """
    boxes, scores, dtype = _compared(_boxes_of_one_image(boxes), _float_or_cast("scores", scores))
    boxes, box_format = _corners(boxes, box_format)
    return SoftNms(
        *ops.tensorflow_ops_soft_nms(
            boxes=boxes,
            scores=scores,
            method=arguments.one_of("method", method, _METHODS),
            sigma=_sigma(sigma, dtype),
            iou_threshold=_iou_threshold(iou_threshold, dtype),
            score_threshold=_score_threshold(-math.inf if score_threshold is None else score_threshold, dtype),
            max_outputs=_limit("max_outputs", max_outputs),
            box_format=box_format,
            name=name,
        )
    )


pfor.register("TensorflowOps>MulticlassNms")(lambda pfor_input: pfor.convert_folded(pfor_input, shared=range(2, 6)))
