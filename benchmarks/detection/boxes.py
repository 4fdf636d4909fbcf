"""Times box_iou and box_iou_loss on the CPU, and compares them with torchvision, TensorFlow and XLA.

usage: python benchmarks/detection/boxes.py [PART]...
with the wheel installed (benchmarks/README.md); default: all parts.

"pairs" are the overlaps of all boxes of two sets, "loss" is 1 - overlap of boxes in order
with its gradient to both, "rotated" the IoU of rotated boxes, "curves" the times of all of
these for growing numbers of boxes. The peers "tf" and "XLA" are the formulas composed of
TensorFlow's ops, in a tf.function.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Adds the harness's folder, not the repository's root, whose package would hide the wheel's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import harness
import numpy as np
import peers
import tensorflow as tf

import tensorflow_ops as tfo

MODES = ("iou", "giou", "diou", "ciou")
SIZES = {"pairs": (2000,), "loss": (100_000,), "rotated": (1000,)}
CURVES = {"pairs": (10, 100, 500, 1000, 4000), "loss": (100, 1000, 10_000, 1_000_000), "rotated": (10, 100, 300)}
_TORCHVISION_PAIRS = dict(
    zip(MODES, ("box_iou", "generalized_box_iou", "distance_box_iou", "complete_box_iou"), strict=True)
)
_TORCHVISION_LOSSES = {
    "giou": "generalized_box_iou_loss",
    "diou": "distance_box_iou_loss",
    "ciou": "complete_box_iou_loss",
}


def make_boxes(count, seed, image=1000.0):
    """Returns corners of boxes whose sides are log-uniform from 16 to 256 pixels, in an image."""
    generator = np.random.default_rng(seed)
    sides = np.exp(generator.uniform(np.log(16), np.log(256), [count, 2]))
    low = generator.uniform(size=[count, 2]) * (image - sides)
    return np.concatenate([low, low + sides], 1).astype(np.float32)


def make_rotated(count, seed):
    """Returns (cx, cy, w, h, degrees) of such boxes."""
    corners = make_boxes(count, seed)
    sides = corners[:, 2:] - corners[:, :2]
    angles = np.random.default_rng(seed).uniform(-180, 180, [count, 1])
    return np.concatenate([corners[:, :2] + sides / 2, sides, angles], 1).astype(np.float32)


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


def with_gradient(loss):
    """Returns a function of two sets of boxes to losses and their gradients."""

    def run(boxes1, boxes2):
        with tf.GradientTape() as tape:
            tape.watch([boxes1, boxes2])
            values = loss(boxes1, boxes2)
        return values, *tape.gradient(values, [boxes1, boxes2])

    return run


def _in_graph(function, boxes, **options):
    compiled = tf.function(function, autograph=False, **options)
    # A call returns after its work is done; .numpy() would copy the results, as PyTorch's does not.
    return lambda: tf.nest.flatten(compiled(*boxes))


def _torch_loss(torch, function, boxes):
    tensors = [torch.from_numpy(b.numpy()).requires_grad_() for b in boxes]

    def run():
        values = function(*tensors)
        gradients = torch.autograd.grad(values.sum(), tensors)
        return [t.detach().numpy() for t in (values, *gradients)]

    return run


def candidates(part, mode, size, torchvision):
    """Returns {name: callable that returns arrays or tensors}; the first is ours."""
    make = make_rotated if part == "rotated" else make_boxes
    boxes = [tf.constant(make(size, seed)) for seed in (0, 1)]
    result = {}
    if part == "loss":
        result["ours"] = _in_graph(with_gradient(lambda a, b: tfo.detection.box_iou_loss(a, b, mode=mode)), boxes)
        peer = with_gradient(lambda a, b: 1 - composed(a, b, mode))
        if torchvision and mode in _TORCHVISION_LOSSES:
            result["torchvision"] = _torch_loss(
                torchvision[0], getattr(torchvision[1], _TORCHVISION_LOSSES[mode]), boxes
            )
        return result | {"tf": _in_graph(peer, boxes), "XLA": _in_graph(peer, boxes, jit_compile=True)}
    options = {"box_format": "cxcywhr"} if part == "rotated" else {"mode": mode}
    result["ours"] = _in_graph(lambda a, b: tfo.detection.box_iou(a, b, **options), boxes)
    if torchvision:
        torch, ops = torchvision
        tensors = [torch.from_numpy(b.numpy()) for b in boxes]
        fmt = {"fmt": "cxcywhr"} if part == "rotated" else {}
        function = getattr(ops, _TORCHVISION_PAIRS[mode])
        result["torchvision"] = lambda: [function(*tensors, **fmt).numpy()]
    if part == "pairs":
        peer = lambda a, b: composed(a[:, tf.newaxis], b, mode)  # noqa: E731
        result |= {"tf": _in_graph(peer, boxes), "XLA": _in_graph(peer, boxes, jit_compile=True)}
    return result


def _difference(results, expected):
    pairs = zip(results, expected, strict=True)
    return f"{max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs):.1e}"


def measure(part, mode, size, torchvision, seconds):
    """Returns a row of the table."""
    calls = candidates(part, mode, size, torchvision)
    values = {name: call() for name, call in calls.items()}
    times = harness.interleave(calls, seconds)
    row = {"boxes": size, "mode": mode, "ms": f"{1e3 * times['ours']:.3g}"}
    for name in list(calls)[1:]:
        row[f"{name} / ours"] = f"{times[name] / times['ours']:.1f}"
        row[f"off {name}"] = _difference(values["ours"], values[name])
    return row


def main():
    """Prints a table per part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", choices=[[], *SIZES, "curves"])
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of a measurement (default: 3)")
    args = parser.parse_args()
    torchvision = peers.torchvision_ops(harness.THREADS)
    if torchvision[0] is None:
        print(torchvision[1])
        torchvision = None
    tf.config.threading.set_intra_op_parallelism_threads(harness.THREADS)
    print(f"{harness.machine()}; {harness.THREADS} threads. Boxes: sides log-uniform from 16 to 256 of 1000 pixels.")
    for part in args.part or [*SIZES, "curves"]:
        print(part, file=sys.stderr, flush=True)
        if part == "curves":
            rows = [
                {
                    "part": name,
                    **measure(name, "iou" if name == "rotated" else "giou", size, torchvision, args.seconds / 3),
                }
                for name, sizes in CURVES.items()
                for size in sizes
            ]
        else:
            rows = [
                measure(part, mode, size, torchvision, args.seconds)
                for size in SIZES[part]
                for mode in (("iou",) if part == "rotated" else MODES)
            ]
        columns = [c for c in ("part", "boxes", "mode", "ms") if c in rows[0]]
        for name in ("torchvision", "tf", "XLA"):
            columns += [c for c in (f"{name} / ours", f"off {name}") if any(c in row for row in rows)]
        print(f"\n## {part}\n")
        harness.table(rows, columns)


if __name__ == "__main__":
    main()
