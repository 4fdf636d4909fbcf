"""Times suppression of boxes on the CPU, compares it with torchvision and tf.image, and measures its memory.

usage: python benchmarks/detection/nms.py [PART]...
with the wheel installed (benchmarks/README.md); default: all parts.

"cases" compares with peers, "curves" are the times of nms for 10 to 100,000 boxes, "memory"
the peak memory of nms and batched_nms per box, beyond inputs and outputs (needs gcc).
"""

import argparse
import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Adds the harness's folder, not the repository's root, whose package would hide the wheel's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import harness
import malloc_peak
import numpy as np
import peers
import tensorflow as tf

import tensorflow_ops as tfo

IOU = 0.5
CURVE = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
# Peers that need minutes for more boxes.
MOST_BOXES = {"torchvision": 30_000, "tf.image": 3000}


def make_boxes(count, seed=0):
    """Returns xyxy boxes, of which nms at IoU 0.5 keeps about nine tenths, whatever their number; and scores."""
    rng = np.random.default_rng(seed)
    image = 1000.0 * (count / 1000) ** 0.5
    sides = np.exp(rng.uniform(np.log(16), np.log(160), [count, 2]))
    low = rng.uniform(size=[count, 2]) * image
    return np.concatenate([low, low + sides], 1).astype(np.float32), rng.uniform(size=count).astype(np.float32)


def nms_calls(count, torch, torchvision):
    """Returns {name: call} of nms on as many boxes."""
    boxes, scores = make_boxes(count)
    tensors = tf.constant(boxes), tf.constant(scores)
    calls = {"tfo": lambda: tfo.detection.nms(*tensors, IOU)}
    if torch is not None and count <= MOST_BOXES["torchvision"]:
        theirs = torch.from_numpy(boxes), torch.from_numpy(scores)
        calls["torchvision"] = lambda: torchvision.nms(*theirs, IOU)
    if count <= MOST_BOXES["tf.image"]:
        calls["tf.image"] = lambda: tf.image.non_max_suppression(*tensors, count, IOU)
    return calls


def cases(torch, torchvision):
    """Yields (name, {candidate: call}, what the results have in common)."""
    for count in (1000, 5000, 20_000):
        yield f"nms {count}", nms_calls(count, torch, torchvision)
    boxes, scores = make_boxes(1000)
    tensors = tf.constant(boxes), tf.constant(scores)
    yield (
        "nms 1000, 100 outputs",
        {
            "tfo": lambda: tfo.detection.nms(*tensors, IOU, max_outputs=100),
            "tf.image": lambda: tf.image.non_max_suppression(*tensors, 100, IOU),
        },
    )
    many, many_scores = make_boxes(10_000)
    groups = np.random.default_rng(1).integers(0, 80, 10_000)
    grouped = tf.constant(many), tf.constant(many_scores), tf.constant(groups)
    calls = {"tfo": lambda: tfo.detection.batched_nms(*grouped, IOU)}
    if torch is not None:
        theirs = torch.from_numpy(many), torch.from_numpy(many_scores), torch.from_numpy(groups)
        calls["torchvision"] = lambda: torchvision.batched_nms(*theirs, IOU)
    yield "batched_nms 10000, 80 groups", calls
    rng = np.random.default_rng(2)
    images = tf.constant(np.stack([make_boxes(1000, seed)[0] for seed in range(8)]))
    of_classes = tf.constant(rng.uniform(size=[8, 1000, 80]).astype(np.float32))
    yield (
        "multiclass_nms 8 x 1000 x 80",
        {
            "tfo": lambda: tfo.detection.multiclass_nms(images, of_classes, score_threshold=0.61),
            "tf.image": lambda: tf.image.combined_non_max_suppression(
                images[:, :, None], of_classes, 100, 100, IOU, 0.61, clip_boxes=False
            ),
        },
    )
    yield (
        "soft_nms 1000",
        {
            "tfo": lambda: tfo.detection.soft_nms(*tensors, score_threshold=0.0),
            "tf.image": lambda: tf.image.non_max_suppression_with_scores(
                *tensors, 1000, 1.0, score_threshold=0.0, soft_nms_sigma=0.25
            ),
        },
    )


def _indices(result):
    """Returns what a candidate kept, as an array."""
    if isinstance(result, tfo.detection.Detections):
        return result.scores.numpy()
    if hasattr(result, "nmsed_scores"):
        return result.nmsed_scores.numpy()
    return np.asarray(result[0] if isinstance(result, tuple) else result)


def _row(name, calls, seconds):
    times = harness.interleave(calls, seconds=seconds, min_rounds=5, max_seconds=30.0)
    mine = _indices(calls["tfo"]())
    row = {"case": name, "kept": mine.size, "tfo, ms": f"{1e3 * times['tfo']:.3f}"}
    for peer in ("torchvision", "tf.image"):
        if peer not in times:
            continue
        row[peer] = f"{times[peer] / times['tfo']:.1f}x"
        theirs = _indices(calls[peer]())
        if mine.shape != theirs.shape or not np.allclose(mine, theirs):
            row[peer] += " (other result)"
    return row


def speed(part, seconds):
    """Prints a table with a row per case or number of boxes."""
    torch, torchvision = peers.torchvision_ops(harness.THREADS)
    if torch is None:
        print(torchvision)
    if part == "cases":
        found = cases(torch, torchvision)
    else:
        found = ((f"nms {count}", nms_calls(count, torch, torchvision)) for count in CURVE)
    rows = []
    for name, calls in found:
        print(name, file=sys.stderr, flush=True)
        rows.append(_row(name, calls, seconds))
    harness.table(rows, ["case", "kept", "tfo, ms", "torchvision", "tf.image"])


def measure_memory():
    """Returns [name, boxes, bytes per box] of calls, in a counted process."""
    malloc_peak.check_method()
    results = []
    for count in (1000, 20_000, 100_000):
        boxes, scores = map(tf.constant, make_boxes(count))
        groups = tf.constant(np.arange(count) % 80)
        for name, call in {
            "nms": lambda b=boxes, s=scores: tfo.detection.nms(b, s, IOU),
            "batched_nms": lambda b=boxes, s=scores, g=groups: tfo.detection.batched_nms(b, s, g, IOU),
            "soft_nms": lambda b=boxes, s=scores: tfo.detection.soft_nms(b, s, max_outputs=100),
        }.items():
            kept = call()
            output = sum(t.shape[0] * t.dtype.size for t in (kept if isinstance(kept, tuple) else [kept]))
            extra = min(malloc_peak.extra_bytes(call, output) for _ in range(5))
            results.append([name, count, extra / count])
    return results


def memory():
    """Prints a table with a row per function and number of boxes."""
    with malloc_peak.counter() as counter:
        found = counter.run(__file__, "memory", "--worker")
    rows = [{"op": op, "boxes": boxes, "bytes per box": f"{extra:.1f}"} for op, boxes, extra in found]
    harness.table(rows, ["op", "boxes", "bytes per box"])


def main():
    """Prints the tables of the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", choices=["cases", "curves", "memory", []], default=[])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each row")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(harness.THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if args.worker:
        print(json.dumps(measure_memory()))
        return
    print(f"{harness.machine()}; {harness.THREADS} threads, float32, IoU threshold {IOU}.")
    for part in args.part or ["cases", "curves", "memory"]:
        print(f"\n## {part}\n")
        memory() if part == "memory" else speed(part, args.seconds)


if __name__ == "__main__":
    main()
