"""Overlap of boxes, and losses of it, compared with torchvision and with formulas composed of TensorFlow's ops. 2 min.

All pairs, losses with gradients, rotated boxes, and curves over their number, also beside XLA. Boxes have log-uniform
sides of 16 to 256 of 1000 pixels.
"""

import numpy as np
import peers
import tensorflow as tf
from harness import Case, in_graph, in_torch, table

import tensorflow_ops as tfo

# Modes, and torchvision's functions of all pairs and of losses.
MODES = {
    "iou": ("box_iou", None),
    "giou": ("generalized_box_iou", "generalized_box_iou_loss"),
    "diou": ("distance_box_iou", "distance_box_iou_loss"),
    "ciou": ("complete_box_iou", "complete_box_iou_loss"),
}


def make_boxes(count, image=1000.0):
    """Returns two arrays of corners."""
    result = []
    for seed in (0, 1):
        generator = np.random.default_rng(seed)
        sides = np.exp(generator.uniform(np.log(16), np.log(256), [count, 2]))
        low = generator.uniform(size=[count, 2]) * (image - sides)
        result.append(np.concatenate([low, low + sides], 1).astype(np.float32))
    return result


def make_rotated(count):
    """Returns (cx, cy, w, h, degrees) of such boxes."""
    result = []
    for seed, corners in enumerate(make_boxes(count)):
        sides = corners[:, 2:] - corners[:, :2]
        angles = np.random.default_rng(seed).uniform(-180, 180, [count, 1])
        result.append(np.concatenate([corners[:, :2] + sides / 2, sides, angles], 1).astype(np.float32))
    return result


def composed(boxes1, boxes2, mode):
    """Computes the overlap of boxes that broadcast, with TensorFlow's ops."""
    sides1, sides2 = (tf.maximum(b[..., 2:] - b[..., :2], 0.0) for b in (boxes1, boxes2))
    low, high = tf.maximum(boxes1[..., :2], boxes2[..., :2]), tf.minimum(boxes1[..., 2:], boxes2[..., 2:])
    shared = tf.reduce_prod(tf.maximum(high - low, 0.0), -1)
    union = tf.reduce_prod(sides1, -1) + tf.reduce_prod(sides2, -1) - shared
    iou = tf.math.divide_no_nan(shared, union)
    if mode == "iou":
        return iou
    hull = tf.maximum(boxes1[..., 2:], boxes2[..., 2:]) - tf.minimum(boxes1[..., :2], boxes2[..., :2])
    if mode == "giou":
        area = tf.reduce_prod(hull, -1)
        return iou - tf.math.divide_no_nan(area - union, area)
    offset = (boxes1[..., :2] + boxes1[..., 2:] - boxes2[..., :2] - boxes2[..., 2:]) / 2
    diou = iou - tf.math.divide_no_nan(tf.reduce_sum(offset**2, -1), tf.reduce_sum(hull**2, -1))
    if mode == "diou":
        return diou
    angle1, angle2 = (tf.atan2(s[..., 0], s[..., 1]) for s in (sides1, sides2))
    v = 4 / np.pi**2 * (angle1 - angle2) ** 2
    return diou - tf.stop_gradient(tf.math.divide_no_nan(v, 1 - iou + v)) * v


def overlap(boxes, where, ours, peer, theirs, to=(), floor=()):
    """Returns a case; `peer` is TensorFlow's function, `theirs` torchvision's, if any."""
    rivals = {}
    if theirs:
        rivals["torchvision"] = in_torch(peers.torch(), theirs, boxes, to)
    if peer:
        rivals |= {"tf": in_graph(peer, boxes, to), "XLA": in_graph(peer, boxes, to, jit_compile=True)}
    return Case({"boxes": len(boxes[0]), **where}, in_graph(ours, boxes, to), rivals, floor=floor)


def pairs_of(count, mode):
    """Returns the case of the overlaps of all boxes of two sets."""
    torchvision = peers.torchvision()
    return overlap(
        make_boxes(count),
        {"mode": mode},
        lambda a, b: tfo.detection.box_iou(a, b, mode=mode),
        lambda a, b: composed(a[:, tf.newaxis], b, mode),
        torchvision and getattr(torchvision[1], MODES[mode][0]),
    )


def loss_of(count, mode):
    """Returns the case of 1 - overlap of boxes in order, with its gradients; three additions are the floor."""
    torchvision = peers.torchvision()
    boxes = make_boxes(count)
    return overlap(
        boxes,
        {"mode": mode},
        lambda a, b: tfo.detection.box_iou_loss(a, b, mode=mode),
        lambda a, b: 1 - composed(a, b, mode),
        torchvision and MODES[mode][1] and getattr(torchvision[1], MODES[mode][1]),
        (0, 1),
        (in_graph(lambda a, b: (a + b, a + 1, b + 1), boxes),),
    )


def rotated_of(count):
    """Returns the case of the IoU of rotated boxes."""
    torchvision = peers.torchvision()
    return overlap(
        make_rotated(count),
        {"mode": "rotated"},
        lambda a, b: tfo.detection.box_iou(a, b, box_format="cxcywhr"),
        None,
        torchvision and (lambda a, b: torchvision[1].box_iou(a, b, fmt="cxcywhr")),
    )


@table()
def pairs():
    """All pairs of 2000 boxes."""
    yield from (pairs_of(2000, mode) for mode in MODES)


@table()
def loss():
    """1 - overlap of 100,000 boxes in order, with its gradients to both."""
    yield from (loss_of(100_000, mode) for mode in MODES)


@table()
def rotated():
    """All pairs of 1000 rotated boxes."""
    yield rotated_of(1000)


@table(axis="boxes")
def pairs_curve():
    yield from (pairs_of(count, "giou") for count in (10, 100, 500, 1000, 4000))


@table(axis="boxes")
def loss_curve():
    yield from (loss_of(count, "giou") for count in (100, 1000, 10_000, 1_000_000))


@table(axis="boxes")
def rotated_curve():
    yield from (rotated_of(count) for count in (10, 100, 300))
