"""roi_pool against torchvision's CPU op, on the sizes of real detectors.

usage: python benchmarks/detection/roi_pool.py [CASE]...
with the wheel installed (CONTRIBUTING.md).
"""

import os
import pathlib
import sys
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# The harness, and not the repository's root: its package would hide the wheel's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import harness
import numpy as np
import peers
import tensorflow as tf


class Case(NamedTuple):
    """Features of one image, and what is pooled from them."""

    height: int
    width: int
    channels: int
    boxes: int
    bins: int
    stride: int


CASES = {
    "FPN stride 4": Case(200, 304, 256, 1000, 7, 4),
    "FPN stride 8": Case(100, 152, 256, 1000, 7, 8),
    "FPN stride 16": Case(50, 76, 256, 1000, 7, 16),
    "FPN stride 32": Case(25, 38, 256, 1000, 7, 32),
    "mask head": Case(200, 304, 256, 100, 14, 4),
    "R-FCN": Case(38, 63, 21 * 49, 300, 7, 16),
    "Light-head": Case(50, 76, 490, 1000, 7, 16),
}

# Variants of ours; torchvision has float32 NCHW, which each is compared with.
VARIANTS = (("float32", "NHWC"), ("bfloat16", "NHWC"), ("float16", "NHWC"), ("float32", "NCHW"))


def random_boxes(count, height, width, seed=0):
    """Boxes with sides of 32 to 512 pixels, log-uniform, inside of the image."""
    random = np.random.default_rng(seed)
    sides = np.exp(random.uniform(np.log(32), np.log(512), [count, 2]))
    sides = np.minimum(sides, [width - 1, height - 1])
    corner = random.uniform(0, 1, [count, 2]) * ([width - 1, height - 1] - sides)
    return np.concatenate([corner, corner + sides], 1).astype(np.float32)


def our_candidates(raw, case, values, boxes, dtype, data_format):
    """Returns ({pass: callable}, pooled values, {pass: (bytes read, bytes written)}).

    "infer" is the forward pass of a graph in which nobody reads argmax.
    """
    features = tf.cast(values if data_format == "NHWC" else np.moveaxis(values, 3, 1).copy(), dtype)
    boxes, indices, size = tf.constant(boxes), tf.zeros([case.boxes], tf.int32), tf.constant([case.bins, case.bins])
    attrs = {"spatial_scale": 1 / case.stride, "data_format": data_format, "box_format": "xyxy"}

    def forward():
        return raw.tensorflow_ops_roi_pool(
            features=features, boxes=boxes, box_indices=indices, output_size=size, **attrs
        )

    @tf.function
    def infer(features):
        return raw.tensorflow_ops_roi_pool(
            features=features, boxes=boxes, box_indices=indices, output_size=size, **attrs
        )[0]

    pooled, argmax = forward()
    upstream, shape = tf.ones_like(pooled), tf.shape(features, out_type=tf.int64)

    def backward():
        return raw.tensorflow_ops_roi_pool_grad(
            d_output=upstream, argmax=argmax, boxes=boxes, box_indices=indices, features_shape=shape, **attrs
        )

    map_bytes, pooled_bytes, argmax_bytes = (int(np.prod(t.shape)) * t.dtype.size for t in (features, pooled, argmax))
    calls = {"forward": forward, "infer": lambda: infer(features), "backward": backward}
    moved = {
        "forward": (map_bytes, pooled_bytes + argmax_bytes),
        "infer": (map_bytes, pooled_bytes),
        "backward": (pooled_bytes + argmax_bytes, map_bytes),
    }
    return calls, pooled.numpy(), moved


def peer_candidates(torch, ops, case, values, boxes):
    """Returns ({pass: callable}, pooled values) of torchvision."""
    features = torch.from_numpy(np.moveaxis(values, 3, 1).copy()).requires_grad_()
    rois = torch.from_numpy(np.concatenate([np.zeros([case.boxes, 1], np.float32), boxes], 1))
    pooled = ops.roi_pool(features, rois, case.bins, 1 / case.stride)
    upstream = torch.ones_like(pooled)

    def forward():
        with torch.no_grad():
            ops.roi_pool(features, rois, case.bins, 1 / case.stride)

    def backward():
        torch.autograd.grad(pooled, features, upstream, retain_graph=True)

    return {"peer forward": forward, "peer backward": backward}, pooled.detach().numpy()


def main(names):
    """Prints a table with a row for each case, variant and pass."""
    tf.config.threading.set_intra_op_parallelism_threads(harness.THREADS)
    from tensorflow_ops.core.python.library import ops as raw

    torch, peer = peers.torchvision_ops()
    if torch is None:
        print(peer)
    else:
        torch.set_num_threads(harness.THREADS)
    rates = harness.memory_rates()
    print(f"{harness.THREADS} threads; memory reads {rates.read / 1e9:.1f} GB/s, writes {rates.write / 1e9:.1f} GB/s")

    rows = []
    for name in names or CASES:
        case = CASES[name]
        values = np.random.default_rng(1).standard_normal([1, case.height, case.width, case.channels], np.float32)
        boxes = random_boxes(case.boxes, case.height * case.stride, case.width * case.stride)
        for dtype, data_format in VARIANTS:
            calls, pooled, moved = our_candidates(raw, case, values, boxes, dtype, data_format)
            candidates = dict(calls)
            if torch is not None:
                theirs, expected = peer_candidates(torch, peer, case, values, boxes)
                candidates |= theirs
                if (dtype, data_format) == ("float32", "NCHW"):
                    print(f"{name}: {100 * np.mean(pooled == expected):.3f}% of the values equal torchvision's")
            seconds = harness.interleave(candidates)
            for which, (read, written) in moved.items():
                row = {"case": name, "variant": f"{dtype} {data_format}", "pass": which}
                row["ms"] = f"{1e3 * seconds[which]:.1f}"
                row["x floor"] = f"{seconds[which] / rates.floor(read, written):.1f}"
                if torch is not None:
                    peer_seconds = seconds["peer backward" if which == "backward" else "peer forward"]
                    row["torchvision ms"] = f"{1e3 * peer_seconds:.0f}"
                    row["torchvision / ours"] = f"{peer_seconds / seconds[which]:.1f}"
                rows.append(row)
    print()
    harness.table(rows, ["case", "variant", "pass", "ms", "x floor", "torchvision ms", "torchvision / ours"])


if __name__ == "__main__":
    main(sys.argv[1:])
