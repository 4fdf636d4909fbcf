"""ONNX's operator of suppression."""

import numpy as np
import tensorflow as tf

from tensorflow_ops.onnx.python.operators import operator


def _suppression_fits(op):
    return op.get_attr("box_format") != b"cxcywhr" and op.inputs[0].dtype == tf.float32


def _suppressed(nodes, boxes, scores, iou_threshold, score_threshold, limit):
    """Returns the (image, class, box) of what boxes [N, K, 4] and scores [N, C, K] keep, int64 [M, 3]."""
    limit = nodes.to_int64(limit)
    limit = nodes.Where(nodes.Less(limit, nodes.scalar(0)), nodes.scalar(2**31 - 1), limit)
    # Malformed boxes overlap nothing; ONNX takes two corners in any order.
    low, high = nodes.Split(boxes, nodes.ints(2, 2), axis=2, outputs=2)
    size = nodes.Sub(high, low)
    zero, infinity = nodes.like(boxes, 0), nodes.like(boxes, np.inf)
    valid = nodes.And(nodes.Greater(size, zero), nodes.Less(size, infinity))
    x, y = nodes.Split(valid, nodes.ints(1, 1), axis=2, outputs=2)
    boxes = nodes.Where(nodes.And(x, y), boxes, zero)
    # A threshold of NaN finds all scores, also -infinity, but no NaN.
    lowest, is_nan = nodes.like(scores, -np.inf), nodes.IsNaN(score_threshold)
    scores = nodes.Max(scores, nodes.Where(is_nan, nodes.like(scores, np.finfo(np.float32).min), lowest))
    score_threshold = nodes.Where(is_nan, lowest, score_threshold)
    numbers = [nodes.Reshape(number, nodes.ints(1)) for number in (limit, iou_threshold, score_threshold)]
    return nodes.NonMaxSuppression(boxes, scores, *numbers)


@operator("Nms", 13, _suppression_fits)
def _nms(nodes):
    boxes, scores, iou_threshold, score_threshold, limit = nodes.inputs
    boxes, scores = nodes.Unsqueeze(boxes, nodes.ints(0)), nodes.Unsqueeze(scores, nodes.ints(0, 1))
    found = _suppressed(nodes, boxes, scores, iou_threshold, score_threshold, limit)
    return [nodes.to_int32(nodes.Gather(found, nodes.scalar(2), axis=1))]


def _multiclass_nms_fits(op):
    return _suppression_fits(op) and op.inputs[0].shape.rank == 3


@operator("MulticlassNms", 14, _multiclass_nms_fits)
def _multiclass_nms(nodes):
    """Scatters the scores of what is kept over [N, K C], and takes the best of each row."""
    boxes, scores, iou_threshold, score_threshold, limit, limit_per_class = nodes.inputs
    found = _suppressed(
        nodes, boxes, nodes.Transpose(scores, perm=[0, 2, 1]), iou_threshold, score_threshold, limit_per_class
    )
    places = nodes.columns(found, 0, 2, 1)  # image, box, class
    shape, one, lowest = nodes.Shape(scores), nodes.ints(1), nodes.like(scores, -np.inf)
    kept = nodes.Expand(lowest, shape)
    # Of a score of -infinity, too: what has it was kept.
    kept_scores = nodes.Max(nodes.GatherND(scores, places), nodes.like(scores, np.finfo(np.float32).min))
    kept = nodes.ScatterND(kept, places, kept_scores)
    images, classes = nodes.Gather(shape, nodes.ints(0)), nodes.Gather(shape, nodes.ints(2))
    size = nodes.Mul(nodes.Gather(shape, one), classes)
    kept = nodes.Reshape(kept, nodes.Concat(images, size, axis=0), allowzero=1)
    limit = nodes.Reshape(nodes.to_int64(limit), one)
    # TopK takes no more than there are.
    missing = nodes.Max(nodes.Sub(limit, size), nodes.ints(0))
    kept = nodes.Pad(kept, nodes.Concat(nodes.ints(0, 0, 0), missing, axis=0), lowest)
    values, positions = nodes.TopK(kept, limit, axis=1, outputs=2)
    is_box, zero = nodes.Greater(values, lowest), nodes.scalar(0)
    classes = nodes.Max(classes, one)  # No division by 0.
    return [
        nodes.to_int32(nodes.Where(is_box, nodes.Div(positions, classes), nodes.scalar(-1))),
        nodes.to_int32(nodes.Where(is_box, nodes.Mod(positions, classes), zero)),
        nodes.to_int32(nodes.Where(is_box, positions, zero)),
        nodes.to_int32(nodes.ReduceSum(nodes.to_int64(is_box), one, keepdims=0)),
    ]
