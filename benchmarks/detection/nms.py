"""Suppression of boxes, compared with torchvision and tf.image. 10 min.

Cases, calls of 1 and 1000 boxes in and outside of a tf.function, a curve over 10 to 100,000 boxes, memory.
"""

import dataclasses

import numpy as np
import peers
import tensorflow as tf
from harness import Case, in_graph, integers, table

import tensorflow_ops as tfo

IOU = 0.5


def make_boxes(count, seed=0):
    """Returns xyxy boxes, of which nms at IoU 0.5 keeps about nine tenths, whatever their number; and scores."""
    rng = np.random.default_rng(seed)
    image = 1000.0 * (count / 1000) ** 0.5
    sides = np.exp(rng.uniform(np.log(16), np.log(160), [count, 2]))
    low = rng.uniform(size=[count, 2]) * image
    boxes = np.concatenate([low, low + sides], 1).astype(np.float32)
    return tf.constant(boxes), tf.constant(rng.uniform(size=count).astype(np.float32))


def kept(result):
    """Returns the indices, or scores, that a candidate kept."""
    for scores in ("scores", "nmsed_scores"):
        if hasattr(result, scores):
            return getattr(result, scores)
    return result[0] if isinstance(result, tuple) else result


def suppression(name, ours, tf_image=None, torchvision=None, tensors=()):
    """Returns a case; torchvision's call takes tensors of torch."""
    rivals = {"tf.image": tf_image} if tf_image else {}
    if torchvision and peers.torchvision():
        torch, ops = peers.torchvision()
        theirs = [torch.from_numpy(np.array(t)) for t in tensors]
        rivals["torchvision"] = lambda: torchvision(ops)(*theirs, IOU)
    return Case(
        {"case": name} if isinstance(name, str) else {"boxes": name},
        ours,
        rivals,
        arrays=dict.fromkeys(("ours", *rivals), kept),
        facts=lambda results: {"kept": int(np.prod(kept(results["ours"]).shape))},
    )


def nms_of(name, count):
    """Returns the case of nms, without peers that need minutes."""
    boxes = make_boxes(count)
    return suppression(
        name,
        lambda: tfo.detection.nms(*boxes, IOU),
        (lambda: tf.image.non_max_suppression(*boxes, count, IOU)) if count <= 3000 else None,
        (lambda ops: ops.nms) if count <= 30_000 else None,
        boxes,
    )


@table()
def cases():
    for count in (1000, 5000, 20_000):
        yield nms_of(f"nms {count}", count)
    boxes = make_boxes(1000)
    yield suppression(
        "nms 1000, 100 outputs",
        lambda: tfo.detection.nms(*boxes, IOU, max_outputs=100),
        lambda: tf.image.non_max_suppression(*boxes, 100, IOU),
    )
    grouped = *make_boxes(10_000), integers(0, 80, 10_000, seed=1)
    yield suppression(
        "batched_nms 10000, 80 groups",
        lambda: tfo.detection.batched_nms(*grouped, IOU),
        torchvision=lambda ops: ops.batched_nms,
        tensors=grouped,
    )
    images = tf.stack([make_boxes(1000, seed)[0] for seed in range(8)])
    of_classes = tf.constant(np.random.default_rng(2).uniform(size=[8, 1000, 80]).astype(np.float32))
    yield suppression(
        "multiclass_nms 8 x 1000 x 80",
        lambda: tfo.detection.multiclass_nms(images, of_classes, score_threshold=0.61),
        lambda: tf.image.combined_non_max_suppression(
            images[:, :, None], of_classes, 100, 100, IOU, 0.61, clip_boxes=False
        ),
    )
    yield suppression(
        "soft_nms 1000",
        lambda: tfo.detection.soft_nms(*boxes, score_threshold=0.0),
        lambda: tf.image.non_max_suppression_with_scores(*boxes, 1000, 1.0, score_threshold=0.0, soft_nms_sigma=0.25),
    )


def called(name, function, tensors, torchvision):
    """Yields the case of a call outside and one of a tf.function; a call of tf.raw_ops.Identity is the floor."""

    def ours(*tensors):
        return function(*tensors, IOU)

    def identity(*tensors):
        return tf.raw_ops.Identity(input=tensors[0])

    for how, call in {"eager": lambda f, inputs: lambda: f(*inputs), "tf.function": in_graph}.items():
        case = suppression(name, call(ours, tensors), torchvision=torchvision, tensors=tensors)
        yield dataclasses.replace(case, where=case.where | {"call": how}, floor=(call(identity, tensors),))


@table()
def calls():
    for count in (1, 1000):
        boxes = make_boxes(count)
        yield from called(f"nms {count}", tfo.detection.nms, boxes, lambda ops: ops.nms)
        grouped = *boxes, integers(0, 80, count, seed=1)
        yield from called(
            f"batched_nms {count}, 80 groups", tfo.detection.batched_nms, grouped, lambda ops: ops.batched_nms
        )


@table(axis="boxes")
def curve():
    yield from (nms_of(count, count) for count in (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000))


@table(speed=False, memory=("ours",))
def memory():
    for count in (1000, 20_000, 100_000):
        boxes, scores = make_boxes(count)
        groups = tf.constant(np.arange(count) % 80)
        for name, call in {
            "nms": lambda b=boxes, s=scores: tfo.detection.nms(b, s, IOU),
            "batched_nms": lambda b=boxes, s=scores, g=groups: tfo.detection.batched_nms(b, s, g, IOU),
            "soft_nms": lambda b=boxes, s=scores: tfo.detection.soft_nms(b, s, max_outputs=100),
        }.items():
            yield Case({"op": name, "boxes": count}, call, inputs=(boxes, scores))
