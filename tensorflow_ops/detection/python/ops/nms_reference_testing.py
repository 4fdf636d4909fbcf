"""NumPy definitions of the nms family, written from its documentation, and boxes to try them on."""

import numpy as np

NAN, INF = np.nan, np.inf


def corners(box):
    """Returns a box without its malformed cases, or None. xyxy, in its own dtype."""
    x1, y1, x2, y2 = box
    return box if np.isfinite(box).all() and x2 >= x1 and y2 >= y1 else None


def areas(a, b):
    """Returns the areas of intersection and union of two xyxy boxes, (0, 0) if they do not overlap.

    Where the boxes' dtype does not hold the areas, returns the IoU and 1.
    """
    a, b = corners(a), corners(b)
    if a is None or b is None:
        return 0, 0
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0, 0
    both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    if a.dtype != np.longdouble and not (1e-30 <= both < INF):
        shared, both = areas(a.astype(np.longdouble), b.astype(np.longdouble))
        return a.dtype.type(shared / both), a.dtype.type(1)
    return width * height, both


def order(scores, score_threshold=None):
    """Returns the indices of scores that take part, best first."""
    scores = np.asarray(scores)
    taking_part = [
        i for i, s in enumerate(scores) if not np.isnan(s) and (score_threshold is None or s > score_threshold)
    ]
    return sorted(taking_part, key=lambda i: (-scores[i], i))


def nms(boxes, scores, iou_threshold, group_ids=None, score_threshold=None, max_outputs=None):
    """Returns the list of kept indices. The dtypes of boxes and scores are those of the comparison."""
    dtype, kept = boxes.dtype.type, []
    for i in order(scores, None if score_threshold is None else dtype(score_threshold)):
        if max_outputs is not None and len(kept) == max_outputs:
            break
        for k in kept:
            shared, both = areas(boxes[k], boxes[i])
            same_group = group_ids is None or group_ids[k] == group_ids[i]
            if same_group and shared > dtype(iou_threshold) * both:
                break
        else:
            kept.append(i)
    return kept


def multiclass(boxes, scores, iou_threshold, score_threshold, max_outputs, max_outputs_per_class=None):
    """Returns a list of (index, class) of one image, boxes [K, 4] or [K, C, 4]."""
    found = []
    for c in range(scores.shape[1]):
        of_class = boxes[:, c] if boxes.ndim == 3 else boxes
        kept = nms(of_class, scores[:, c], iou_threshold, None, score_threshold, max_outputs_per_class)
        found += [(k, c) for k in kept]
    return sorted(found, key=lambda f: (-scores[f], f))[:max_outputs]


def soft_nms(boxes, scores, method, sigma, iou_threshold, score_threshold, max_outputs=None):
    """Returns the indices and decayed scores. IoUs have the dtype of boxes, scores float64."""
    scores, taken = np.array(scores, np.float64), []
    while max_outputs is None or len(taken) < max_outputs:
        left = np.where(np.isnan(scores), -INF, scores)
        if not left.size or not left.max() > score_threshold:
            break
        best = int(left.argmax())
        taken.append((best, scores[best]))
        scores[best] = NAN
        for i in range(len(scores)):
            shared, both = areas(boxes[best], boxes[i])
            iou = shared / both if both > 0 else 0.0
            if method == "gaussian":
                scores[i] *= np.exp(-(iou**2) / sigma)
            elif iou >= iou_threshold:
                scores[i] *= 1 - iou
    return [i for i, _ in taken], [s for _, s in taken]


def random_boxes(rng, *shape, size=30.0):
    """Returns float32 xyxy boxes in a square of 100, on both sides of zero."""
    centers, sides = rng.uniform(-50, 50, [*shape, 2]), rng.uniform(size / 3, size, [*shape, 2])
    return np.concatenate([centers - sides / 2, centers + sides / 2], -1).astype(np.float32)


def hostile_boxes(rng, n):
    """Returns boxes among which some are malformed, without area, copies, far, huge or tiny."""
    boxes = random_boxes(rng, n)
    boxes[3::17] = boxes[2::17][: len(boxes[3::17])]
    boxes[4::19] = boxes[4::19][:, [2, 3, 0, 1]]
    boxes[5::23] = boxes[5::23][:, [2, 1, 0, 3]]
    boxes[6::29, 2] = boxes[6::29, 0]
    for i, value in enumerate((NAN, INF, -INF)):
        boxes[7 + i :: 31, i] = value
    boxes[10::37] = [-3e38, -3e38, 3e38, 3e38]
    boxes[11::41] = [1e10, 1e10, 2e10, 2e10]
    boxes[12::43] *= np.float32(2.0**-100)
    boxes[13::43] *= np.float32(2.0**100)
    boxes[14::43] = boxes[12::43][: len(boxes[14::43])]
    return boxes


def hostile_scores(rng, *shape):
    """Returns float32 scores with ties, NaN and infinities."""
    scores = rng.uniform(-0.2, 1, shape).astype(np.float32)
    flat = scores.reshape(-1)
    flat[::4] = flat[::4].round(1)
    flat[3::31], flat[4::37], flat[5::41], flat[6::43] = NAN, INF, -INF, -0.0
    return scores
