"""NumPy float64 references of box overlap, written from the definitions."""

import numpy as np

MODES = ("iou", "giou", "diou", "ciou")


def _ratio(n, d):
    return np.divide(n, d, out=np.where(np.isnan(n + d), np.nan, 0.0), where=d != 0)


def overlap(boxes1, boxes2, mode, box_format="xyxy", alpha=None):
    """Returns the overlap of boxes [..., 4] that broadcast. `alpha`: of ciou, else by its definition."""
    order = [1, 0, 3, 2] if box_format == "yxyx" else [0, 1, 2, 3]
    a, b = (np.asarray(boxes, np.float64)[..., order] for boxes in (boxes1, boxes2))
    a, b = np.broadcast_arrays(a, b)
    with np.errstate(all="ignore"):
        result = _overlap(a, b, mode, alpha)
    return np.where(np.isfinite(a + b).all(-1), result, np.nan)


def _overlap(a, b, mode, alpha):
    sides1, sides2 = (np.maximum(x[..., 2:] - x[..., :2], 0) for x in (a, b))
    shared = np.maximum(np.minimum(a, b)[..., 2:] - np.maximum(a, b)[..., :2], 0).prod(-1)
    union = sides1.prod(-1) + sides2.prod(-1) - shared
    iou = _ratio(shared, union)
    if mode == "iou":
        return iou
    hull = np.maximum(np.maximum(a, b)[..., 2:] - np.minimum(a, b)[..., :2], 0)
    if mode == "giou":
        return iou - _ratio(hull.prod(-1) - union, hull.prod(-1))
    offset = (b[..., :2] + b[..., 2:] - a[..., :2] - a[..., 2:]) / 2
    diou = iou - _ratio((offset**2).sum(-1), (hull**2).sum(-1))
    if mode == "diou":
        return diou
    angles = [np.arctan2(sides[..., 0], sides[..., 1]) for sides in (sides1, sides2)]
    v = 4 / np.pi**2 * (angles[0] - angles[1]) ** 2
    return diou - (ciou_alpha(iou, v) if alpha is None else alpha) * v


def ciou_alpha(iou, v):
    return _ratio(v, 1 - iou + v)


def alpha_of(boxes1, boxes2, box_format="xyxy"):
    """Returns ciou's alpha."""
    iou = overlap(boxes1, boxes2, "iou", box_format)
    v = overlap(boxes1, boxes2, "diou", box_format) - overlap(boxes1, boxes2, "ciou", box_format, alpha=1.0)
    return ciou_alpha(iou, v)


def gradients(boxes1, boxes2, mode, box_format="xyxy", step=1e-6):
    """Returns central differences of the overlap of pairs, with ciou's alpha constant: [..., 4] each."""
    boxes = [np.asarray(boxes1, np.float64), np.asarray(boxes2, np.float64)]
    alpha = alpha_of(*boxes, box_format)
    results = []
    for side in range(2):
        columns = []
        for i in range(4):
            values = []
            for sign in (1, -1):
                moved = list(boxes)
                moved[side] = boxes[side] + sign * step * np.eye(4)[i]
                values.append(overlap(*moved, mode, box_format, alpha=alpha))
            columns.append((values[0] - values[1]) / (2 * step))
        results.append(np.stack(columns, -1))
    return results


def rotated_corners(box):
    """Returns the corners of (cx, cy, w, h, degrees), [4, 2]."""
    cx, cy, w, h, degrees = np.asarray(box, np.float64)
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    corners = []
    for u, v in ((-w / 2, -h / 2), (w / 2, -h / 2), (w / 2, h / 2), (-w / 2, h / 2)):
        corners.append((cx + c * u + s * v, cy - s * u + c * v))
    return np.array(corners)


def _area(polygon):
    x, y = np.array(polygon).T if len(polygon) else (np.zeros(0), np.zeros(0))
    return abs((x * np.roll(y, -1) - y * np.roll(x, -1)).sum()) / 2


def _clip(polygon, start, end):
    """Keeps the part of the polygon to the left of the line."""
    kept = []
    for p, q in zip(polygon, polygon[1:] + polygon[:1], strict=True):
        in_p, in_q = (np.cross(end - start, point - start) for point in (p, q))
        if in_p >= 0:
            kept.append(p)
        if in_p * in_q < 0:
            kept.append(p + in_p / (in_p - in_q) * (q - p))
    return kept


def rotated_iou(box1, box2):
    """Returns the IoU of two rotated boxes, by clipping one with the sides of the other."""
    if min(*box1[2:4], *box2[2:4]) <= 0:
        return 0.0
    corners1, corners2 = rotated_corners(box1), rotated_corners(box2)
    polygon = list(corners1)
    for i in range(4):
        polygon = _clip(polygon, corners2[i], corners2[(i + 1) % 4]) if polygon else polygon
    shared = _area(polygon)
    return shared / (box1[2] * box1[3] + box2[2] * box2[3] - shared)
