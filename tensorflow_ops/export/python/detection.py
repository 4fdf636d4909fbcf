"""Compositions of overlap and suppression of boxes, ops of tensorflow_ops/detection/. Region pooling is in roi.py."""

import functools
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import finite


def _ratio(n, d):
    """Returns n / d, 0 where d is 0."""
    is_zero = tf.equal(d, 0)
    return tf.where(is_zero, tf.zeros_like(n), n / tf.where(is_zero, tf.ones_like(d), d))


def _side(low, high):
    return tf.maximum(high - low, 0)


def _unit(side):
    """Returns a power of two by which lengths up to this one are multiplied, so that products keep their precision."""
    grow, small, large = (2.0**75, 2.0**-50, 2.0**50) if side.dtype == tf.float32 else (2.0**611, 2.0**-400, 2.0**400)
    unit = tf.where((side > 0) & (side < small), tf.constant(grow, side.dtype), tf.ones_like(side))
    return tf.where(side > large, tf.constant(1 / grow, side.dtype), unit)


# ---- Upright boxes


class _Box(NamedTuple):
    x1: tf.Tensor
    y1: tf.Tensor
    x2: tf.Tensor
    y2: tf.Tensor

    @property
    def width(self):
        return _side(self.x1, self.x2)

    @property
    def height(self):
        return _side(self.y1, self.y2)

    @property
    def is_finite(self):
        return finite(self.x1) & finite(self.y1) & finite(self.x2) & finite(self.y2)

    @property
    def has_extent(self):
        return self.is_finite & (self.x1 < self.x2) & (self.y1 < self.y2)

    def scaled(self, x, y):
        return _Box(self.x1 * x, self.y1 * y, self.x2 * x, self.y2 * y)


def _numbers(boxes, order):
    return [tf.gather(boxes, i, axis=-1) for i in order]


def _corners(boxes, box_format):
    return _Box(*_numbers(boxes, (1, 0, 3, 2) if box_format == "yxyx" else (0, 1, 2, 3)))


def _hull(a, b):
    """Returns the width and height of the smallest box around both."""
    return (
        _side(tf.minimum(a.x1, b.x1), tf.maximum(a.x2, b.x2)),
        _side(tf.minimum(a.y1, b.y1), tf.maximum(a.y2, b.y2)),
    )


def _overlap(a, b):
    """Returns the areas of intersection, union and hull of finite boxes, in a unit of each pair's own."""
    width, height = _hull(a, b)
    x, y = _unit(width), _unit(height)
    a, b = a.scaled(x, y), b.scaled(x, y)
    width = _side(tf.maximum(a.x1, b.x1), tf.minimum(a.x2, b.x2))
    height = _side(tf.maximum(a.y1, b.y1), tf.minimum(a.y2, b.y2))
    intersection = width * height
    width, height = _hull(a, b)
    return intersection, a.width * a.height + b.width * b.height - intersection, width * height


def _diagonal_angle(box):
    unit = _unit(tf.maximum(box.width, box.height))
    scaled = box.scaled(unit, unit)
    return tf.atan2(scaled.width, scaled.height)


def _metric(a, b, mode):
    """Returns the IoU, or what mode says, of boxes that broadcast."""
    intersection, union, hull = _overlap(a, b)
    iou = _ratio(intersection, union)
    metric = iou
    if mode == "giou":
        metric -= _ratio(hull - union, hull)
    elif mode in ("diou", "ciou"):
        unit = _unit(tf.maximum(*_hull(a, b)))
        # Inverted boxes may have a small hull and be large.
        fits = a.scaled(unit, unit).is_finite & b.scaled(unit, unit).is_finite
        unit = tf.where(fits, unit, tf.ones_like(unit))
        scaled_a, scaled_b = a.scaled(unit, unit), b.scaled(unit, unit)
        width, height = _hull(scaled_a, scaled_b)
        x, y = (
            (0.5 * to_low - 0.5 * low) + (0.5 * to_high - 0.5 * high)
            for low, to_low, high, to_high in (
                (scaled_a.x1, scaled_b.x1, scaled_a.x2, scaled_b.x2),
                (scaled_a.y1, scaled_b.y1, scaled_a.y2, scaled_b.y2),
            )
        )
        metric -= _ratio(x * x + y * y, width * width + height * height)
        if mode == "ciou":
            angle = _diagonal_angle(a) - _diagonal_angle(b)
            v = 4 / math.pi**2 * angle * angle
            metric -= _ratio(v, 1 - iou + v) * v
    return tf.where(a.is_finite & b.is_finite, metric, tf.constant(float("nan"), metric.dtype))


# ---- Rotated boxes


class _RotatedBox(NamedTuple):
    cx: tf.Tensor
    cy: tf.Tensor
    width: tf.Tensor
    height: tf.Tensor
    degrees: tf.Tensor

    @property
    def is_finite(self):
        numbers = self.cx, self.cy, self.width, self.height, self.degrees
        return functools.reduce(tf.logical_and, map(finite, numbers))

    @property
    def has_extent(self):
        return self.is_finite & (self.width > 0) & (self.height > 0)


def _cosine_and_sine(degrees):
    """Exact for multiples of 90."""
    turn = tf.math.floormod(degrees, 360)
    quarters = tf.floor(turn / 90 + 0.5)
    rest = (turn - 90 * quarters) * (math.pi / 180)
    c, s = tf.cos(rest), tf.sin(rest)
    is_odd = tf.equal(quarters, 1) | tf.equal(quarters, 3)
    cosine, sine = tf.where(is_odd, -s, c), tf.where(is_odd, c, s)
    # 1: (-s, c), 2: (-c, -s), 3: (s, -c).
    is_half_turn = tf.equal(quarters, 2) | tf.equal(quarters, 3)
    return tf.where(is_half_turn, -cosine, cosine), tf.where(is_half_turn, -sine, sine)


def _area_under(start, end, half_width, half_height):
    """Returns the integral of y over x along an edge, x and y clipped to half_width and half_height around 0."""

    def share(of, length):
        """Returns of / length, 0 where length is 0, clipped to [0, 1]."""
        is_zero = tf.equal(length, 0)
        return tf.where(
            is_zero, tf.zeros_like(of), tf.clip_by_value(of / tf.where(is_zero, tf.ones_like(length), length), 0.0, 1.0)
        )

    (x1, y1), (x2, y2) = start, end
    left, right = (tf.clip_by_value(x, -half_width, half_width) for x in (x1, x2))
    y_left = y1 + share(left - x1, x2 - x1) * (y2 - y1)
    y_right = y1 + share(right - x1, x2 - x1) * (y2 - y1)
    crossings = [share(side - y_left, y_right - y_left) for side in (-half_height, half_height)]
    at = [tf.minimum(*crossings), tf.maximum(*crossings)]
    at = [tf.zeros_like(at[0]), *at, tf.ones_like(at[0])]
    ys = [y_left, *(y_left + t * (y_right - y_left) for t in at[1:3]), y_right]
    ys = [tf.clip_by_value(y, -half_height, half_height) for y in ys]
    mean = sum((at[i + 1] - at[i]) * (ys[i] + ys[i + 1]) / 2 for i in range(3))
    return (right - left) * mean


def _rotated_overlap(a, b):
    """Returns the areas of intersection and union.

    In the frame of a, the intersection is the integral of the clipped height of b, which is that along its edges.
    """
    unit = _unit(tf.maximum(tf.maximum(a.width, a.height), tf.maximum(b.width, b.height)))
    dx, dy = (b.cx - a.cx) * unit, (b.cy - a.cy) * unit
    half_a, half_b = ((0.5 * box.width * unit, 0.5 * box.height * unit) for box in (a, b))
    (a_cos, a_sin), (b_cos, b_sin) = _cosine_and_sine(a.degrees), _cosine_and_sine(b.degrees)
    x, y = dx * a_cos - dy * a_sin, dx * a_sin + dy * a_cos
    c, s = a_cos * b_cos + a_sin * b_sin, a_cos * b_sin - a_sin * b_cos
    # Parallel and perpendicular boxes exactly: cos^2 + sin^2 rounds.
    one = tf.ones_like(c)
    c = tf.where(tf.equal(s, 0), tf.where(c < 0, -one, one), c)
    s = tf.where(tf.equal(c, 0), tf.where(s < 0, -one, one), s)
    ux, uy, vx, vy = c * half_b[0], -s * half_b[0], s * half_b[1], c * half_b[1]
    corners = [(x + i * ux + j * vx, y + i * uy + j * vy) for i, j in ((1, 1), (-1, 1), (-1, -1), (1, -1))]
    edges = zip(corners, corners[1:] + corners[:1], strict=True)
    intersection = tf.abs(tf.add_n([_area_under(*edge, *half_a) for edge in edges]))
    # Boxes that a line along a side separates: the sum of their edges rounds to more than 0.
    cosine, sine = tf.abs(c), tf.abs(s)
    apart = (tf.abs(x) >= half_a[0] + cosine * half_b[0] + sine * half_b[1]) | (
        tf.abs(y) >= half_a[1] + sine * half_b[0] + cosine * half_b[1]
    )
    apart |= tf.abs(x * c - y * s) >= half_b[0] + cosine * half_a[0] + sine * half_a[1]
    apart |= tf.abs(x * s + y * c) >= half_b[1] + sine * half_a[0] + cosine * half_a[1]
    overlap = a.has_extent & b.has_extent & ~apart
    intersection = tf.where(overlap, intersection, tf.zeros_like(intersection))
    areas = (4 * width * height for width, height in (half_a, half_b))
    union = sum(areas) - intersection
    return tf.minimum(intersection, union), union


def _rotated_iou(a, b):
    iou = _ratio(*_rotated_overlap(a, b))
    iou = tf.where(a.has_extent & b.has_extent, iou, tf.zeros_like(iou))
    return tf.where(a.is_finite & b.is_finite, iou, tf.constant(float("nan"), iou.dtype))


@composition("BoxIou", [None, None])
def _box_iou(boxes1, boxes2, *, mode, box_format):
    boxes1, boxes2 = tf.expand_dims(boxes1, -2), tf.expand_dims(boxes2, -3)
    if box_format == "cxcywhr":
        return _rotated_iou(*(_RotatedBox(*_numbers(boxes, range(5))) for boxes in (boxes1, boxes2)))
    return _metric(_corners(boxes1, box_format), _corners(boxes2, box_format), mode)


@composition("BoxIouLoss", [None, None])
def _box_iou_loss(boxes1, boxes2, *, mode, box_format):
    return 1 - _metric(_corners(boxes1, box_format), _corners(boxes2, box_format), mode)


# ---- Suppression
#
# Of several planes at once, such as an image's classes: boxes [P, K, 4 or 5], scores [P, K].


def _candidates(scores, score_threshold):
    """Returns the scores that take part, others as -infinity. A score of -infinity becomes a finite one.

    tf.argmax finds no score below the second lowest.
    """
    takes_part = ~tf.math.is_nan(scores) & ((scores > score_threshold) | tf.math.is_nan(score_threshold))
    lowest = np.nextafter(scores.dtype.as_numpy_dtype(scores.dtype.min), scores.dtype.as_numpy_dtype(0))
    return tf.where(takes_part, tf.maximum(scores, lowest), tf.constant(-float("inf"), scores.dtype))


def _overlap_of(box_format):
    """Returns a function from boxes [P, 1, 4], [P, K, 4] to intersections and unions, 0 and 1 without an extent."""

    def overlap(one, boxes):
        if box_format == "cxcywhr":
            one, boxes = (_RotatedBox(*_numbers(x, range(5))) for x in (one, boxes))
            intersection, union = _rotated_overlap(one, boxes)
        else:
            one, boxes = _corners(one, box_format), _corners(boxes, box_format)
            intersection, union, _ = _overlap(one, boxes)
        both = one.has_extent & boxes.has_extent
        return tf.where(both, intersection, tf.zeros_like(union)), tf.where(both, union, tf.ones_like(union))

    return overlap


def _best(boxes, scores):
    """Returns the place of the best score in each plane, [P, 1], and its box, [P, 1, 4 or 5]."""
    shape = tf.shape(boxes)
    best = tf.argmax(scores, axis=1, output_type=tf.int32)
    rows = tf.reshape(boxes, tf.stack([shape[0] * shape[1], shape[2]]))
    return best[:, tf.newaxis], tf.gather(rows, tf.range(shape[0]) * shape[1] + best)[:, tf.newaxis]


def _limit(max_outputs, count):
    return tf.where(max_outputs < 0, count, tf.minimum(max_outputs, count))


def _suppress(boxes, candidates, iou_threshold, limit, box_format, group_ids=None):
    """Returns the candidates that suppression keeps, at most `limit` of a plane, others as -infinity."""
    nothing = tf.constant(-float("inf"), candidates.dtype)
    places = tf.range(tf.shape(candidates)[1])
    overlap = _overlap_of(box_format)

    def keep_best(i, remaining, kept):
        best, box = _best(boxes, remaining)
        is_best = tf.equal(places, best)
        intersection, union = overlap(box, boxes)
        suppressed = (intersection > iou_threshold * union) & (iou_threshold < 1)
        if group_ids is not None:
            suppressed &= tf.equal(group_ids, tf.gather(group_ids, best[:, 0])[:, tf.newaxis])
        # A plane without candidates has -infinity there.
        kept = tf.where(is_best, tf.maximum(remaining, kept), kept)
        return i + 1, tf.where(is_best | suppressed, nothing, remaining), kept

    state = tf.constant(0), candidates, tf.fill(tf.shape(candidates), nothing)
    any_shape = tf.TensorShape([None, None])
    return tf.while_loop(
        lambda i, remaining, _: (i < limit) & tf.reduce_any(remaining > nothing),
        keep_best,
        state,
        shape_invariants=(state[0].shape, any_shape, any_shape),
    )[2]


def _nms_of_groups(boxes, scores, group_ids, iou_threshold, score_threshold, max_outputs, box_format):
    candidates = _candidates(scores, score_threshold)[tf.newaxis]
    limit = _limit(max_outputs, tf.size(scores))
    kept = _suppress(boxes[tf.newaxis], candidates, iou_threshold, limit, box_format, group_ids)[0]
    count = tf.reduce_sum(tf.cast(kept > -float("inf"), tf.int32))
    # By falling score, equal scores by rising index.
    return tf.math.top_k(kept, count).indices


@composition("Nms", [2, 1, 0, 0, 0])
def _nms(boxes, scores, iou_threshold, score_threshold, max_outputs, *, box_format):
    return _nms_of_groups(boxes, scores, None, iou_threshold, score_threshold, max_outputs, box_format)


@composition("BatchedNms", [2, 1, 1, 0, 0, 0])
def _batched_nms(boxes, scores, group_ids, iou_threshold, score_threshold, max_outputs, *, box_format):
    return _nms_of_groups(boxes, scores, group_ids, iou_threshold, score_threshold, max_outputs, box_format)


@composition("MulticlassNms", [None, 3, 0, 0, 0, 0])
def _multiclass_nms(boxes, scores, iou_threshold, score_threshold, max_outputs, max_outputs_per_class, *, box_format):
    images, num_boxes, classes = tf.unstack(tf.shape(scores), num=3)
    numbers = 5 if box_format == "cxcywhr" else 4
    # [N, K, 1 or C, 4 or 5], then [N * C, K, 4 or 5].
    of_box = tf.where(tf.size(tf.shape(boxes)) > 3, classes, 1)
    boxes = tf.reshape(boxes, tf.stack([images, num_boxes, of_box, numbers]))
    boxes = tf.broadcast_to(boxes, tf.stack([images, num_boxes, classes, numbers]))
    boxes = tf.reshape(tf.transpose(boxes, [0, 2, 1, 3]), tf.stack([images * classes, num_boxes, numbers]))
    candidates = tf.transpose(_candidates(scores, score_threshold), [0, 2, 1])
    candidates = tf.reshape(candidates, tf.stack([images * classes, num_boxes]))
    limit = tf.minimum(_limit(max_outputs_per_class, num_boxes), max_outputs)
    kept = _suppress(boxes, candidates, iou_threshold, limit, box_format)
    kept = tf.transpose(tf.reshape(kept, tf.stack([images, classes, num_boxes])), [0, 2, 1])
    kept = tf.reshape(kept, tf.stack([images, num_boxes * classes]))
    missing = tf.maximum(max_outputs - num_boxes * classes, 0)
    kept = tf.pad(kept, [[0, 0], [0, missing]], constant_values=-float("inf"))
    values, positions = tf.math.top_k(kept, max_outputs)
    is_box = values > -float("inf")
    positions = tf.where(is_box, positions, 0)
    classes = tf.maximum(classes, 1)
    return (
        tf.where(is_box, positions // classes, -1),
        positions % classes,
        positions,
        tf.reduce_sum(tf.cast(is_box, tf.int32), 1),
    )


@composition("SoftNms", [2, 1, 0, 0, 0, 0])
def _soft_nms(boxes, scores, sigma, iou_threshold, score_threshold, max_outputs, *, method, box_format):
    nothing = tf.constant(-float("inf"), scores.dtype)
    places = tf.range(tf.size(scores))
    overlap = _overlap_of(box_format)
    boxes = boxes[tf.newaxis]

    def take_best(i, remaining, indices, taken):
        best, box = _best(boxes, remaining[tf.newaxis])
        best = best[0, 0]
        iou = _ratio(*overlap(box, boxes))[0]
        if method == "gaussian":
            decay = tf.exp(-(iou * iou) / sigma)
        else:
            decay = tf.where(iou < iou_threshold, tf.ones_like(iou), 1 - iou)
        decayed = remaining * decay
        is_best = tf.equal(places, best)
        is_place = tf.equal(places, i)
        return (
            i + 1,
            # A score that is not finite may become NaN: it is never taken.
            tf.where(is_best | tf.math.is_nan(decayed), nothing, decayed),
            tf.where(is_place, best, indices),
            tf.where(is_place, remaining[best], taken),
        )

    limit = _limit(max_outputs, tf.size(scores))
    any_shape = tf.TensorShape([None])
    state = tf.constant(0), _candidates(scores, nothing), tf.zeros_like(places), scores
    count, _, indices, taken = tf.while_loop(
        lambda i, remaining, *_: (i < limit) & (tf.reduce_max(tf.concat([remaining, [nothing]], 0)) > score_threshold),
        take_best,
        state,
        shape_invariants=(state[0].shape, any_shape, any_shape, any_shape),
    )
    return indices[:count], taken[:count]
