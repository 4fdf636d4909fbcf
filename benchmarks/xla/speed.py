"""Times the ops inside and outside of XLA, alone and in larger compiled functions.

usage: python benchmarks/xla/speed.py [PART]...
with the wheel installed (benchmarks/README.md); default: all parts.

"outside" is a tf.function, "compiled" the same function with jit_compile=True; both run
the same kernels. The peers are compositions of TensorFlow's ops, compiled by XLA; XLA
cannot compile `tf.image.crop_and_resize`, so that peer runs outside.
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
import tensorflow as tf

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_CHAIN = 100


def _normal(*shape, scale=1.0):
    return tf.constant(scale * _RNG.normal(size=shape).astype(np.float32))


def _boxes(count, height, width):
    """Returns boxes of 16 pixels to half of an image."""
    size = np.stack([width, height] * np.exp(_RNG.uniform(np.log(16 / width), np.log(0.5), [count, 1])))
    corner = _RNG.uniform(size=[count, 2]) * ([width, height] - size)
    return tf.constant(np.concatenate([corner, corner + size], 1).astype(np.float32))


def _gradient(function):
    """Returns a function of a tensor to the gradient of a function's sum."""

    def run(x, *others):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x, *others)
        return tape.gradient(y, x)

    return run


def ops_alone():
    """Yields (name, function, arguments, peer or None, whether XLA compiles the peer: by default, it does)."""
    logits, labels = _normal(1024, 32000), tf.constant(_RNG.integers(0, 32000, 1024))
    features, indices = _normal(1, 200, 304, 256), tf.zeros([1000], tf.int32)
    boxes = _boxes(1000, 800, 1216)

    def cross_entropy(x, labels):
        return tfo.nn.sparse_softmax_cross_entropy(labels, x)

    def their_cross_entropy(x, labels):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x)

    def roi_align(features, boxes, indices):
        return tfo.detection.roi_align(features, boxes, indices, 7, spatial_scale=0.25, sampling_ratio=2)

    def beam_step(logits, log_probs, finished, lengths):
        return tfo.seq2seq.beam_search_step(logits, log_probs, finished, lengths, eos_ids=[2], beam_width=10).log_probs

    beams = (_normal(64, 5, 32000), -tf.abs(_normal(64, 5)), tf.zeros([64, 5], tf.bool), tf.ones([64, 5], tf.int32))
    yield "softmax [4096, 1000]", tfo.nn.softmax, (_normal(4096, 1000),), tf.nn.softmax
    yield "sparse_softmax_cross_entropy [1024, 32000]", cross_entropy, (logits, labels), their_cross_entropy
    yield "its gradient", _gradient(cross_entropy), (logits, labels), _gradient(their_cross_entropy)
    yield "roi_align, 1000 boxes on 200 x 304 x 256", roi_align, (features, boxes, indices), None
    yield "its gradient", _gradient(roi_align), (features, boxes, indices), None
    yield "beam_search_step [64, 5, 32000]", beam_step, beams, None


def small_ops():
    """Yields chains of small ops, which show the cost of a call."""

    def chain(softmax):
        def run(x):
            for _ in range(_CHAIN):
                x = softmax(x)
            return x

        return run

    x = _normal(8, 10)
    yield f"{_CHAIN} softmaxes [8, 10], one after another", chain(tfo.nn.softmax), (x,), chain(tf.nn.softmax)

    def side_by_side(softmax):
        return lambda x: [softmax(x + i) for i in range(_CHAIN)]

    yield f"{_CHAIN} softmaxes [8, 10], side by side", side_by_side(tfo.nn.softmax), (x,), side_by_side(tf.nn.softmax)


def training_steps():
    """Yields a classifier's and a detection head's steps: gradients to all weights."""
    weights = [_normal(512, 1024, scale=0.03), _normal(1024, 10000, scale=0.03)]
    x, labels = _normal(256, 512), tf.constant(_RNG.integers(0, 10000, 256))

    def classifier(loss):
        def run(x, labels):
            with tf.GradientTape() as tape:
                tape.watch(weights)
                hidden = tf.nn.gelu(x @ weights[0])
                y = tf.reduce_mean(loss(labels, hidden @ weights[1]))
            return tape.gradient(y, weights)

        return run

    yield (
        "a classifier's step, 256 rows, 10,000 classes",
        classifier(tfo.nn.sparse_softmax_cross_entropy),
        (x, labels),
        classifier(tf.nn.sparse_softmax_cross_entropy_with_logits),
    )

    features, indices = _normal(1, 100, 152, 64), tf.zeros([128], tf.int32)
    boxes, classes = _boxes(128, 800, 1216), tf.constant(_RNG.integers(0, 81, 128))
    head = [_normal(7 * 7 * 64, 256, scale=0.03), _normal(256, 81, scale=0.03)]

    def ours(features, boxes):
        return tfo.detection.roi_align(features, boxes, indices, 7, spatial_scale=1 / 8, sampling_ratio=2)

    def theirs(features, boxes):
        x1, y1, x2, y2 = tf.unstack(boxes / 8 - 0.5, axis=1)
        # The samples of roi_align: crop_and_resize places the first and last ones at the corners.
        dy, dx = (y2 - y1) / 28, (x2 - x1) / 28
        corners = tf.stack([(y1 + dy) / 99, (x1 + dx) / 151, (y2 - dy) / 99, (x2 - dx) / 151], 1)
        return tf.nn.avg_pool2d(tf.image.crop_and_resize(features, corners, indices, [14, 14]), 2, 2, "VALID")

    def detection_head(pool, loss):
        def run(features, boxes, classes):
            with tf.GradientTape() as tape:
                tape.watch([features, *head])
                pooled = tf.reshape(pool(features, boxes), [128, 7 * 7 * 64])
                logits = tf.nn.relu(pooled @ head[0]) @ head[1]
                y = tf.reduce_mean(loss(classes, logits))
            return tape.gradient(y, [features, *head])

        return run

    yield (
        "a detection head's step, 128 boxes of 7 x 7 x 64",
        detection_head(ours, tfo.nn.sparse_softmax_cross_entropy),
        (features, boxes, classes),
        detection_head(theirs, tf.nn.sparse_softmax_cross_entropy_with_logits),
        False,
    )


PARTS = {"ops": ops_alone, "small": small_ops, "steps": training_steps}


def _call(function, arguments):
    def run():
        return [x.numpy() for x in tf.nest.flatten(function(*arguments))]

    return run


def measure(name, function, arguments, peer, peer_compiles=True, *, seconds):
    """Returns a table row."""
    calls = {
        "outside": tf.function(function, autograph=False),
        "compiled": tf.function(function, jit_compile=True, autograph=False),
    }
    if peer is not None:
        calls["peer"] = tf.function(peer, jit_compile=peer_compiles, autograph=False)
    expected = tf.nest.flatten(calls["outside"](*arguments))
    largest = 0.0
    for x, y in zip(expected, tf.nest.flatten(calls["compiled"](*arguments)), strict=True):
        largest = max(largest, float(tf.reduce_max(tf.abs(x - y)) / tf.reduce_max(tf.abs(x))))
    times = harness.interleave({key: _call(call, arguments) for key, call in calls.items()}, seconds)
    row = {
        "function": name,
        "outside ms": f"{1e3 * times['outside']:.2f}",
        "compiled ms": f"{1e3 * times['compiled']:.2f}",
    }
    row["compiled / outside"] = f"{times['compiled'] / times['outside']:.2f}"
    if peer is not None:
        row["peer ms"] = f"{1e3 * times['peer']:.2f}{'' if peer_compiles else ' outside'}"
        row["peer / compiled"] = f"{times['peer'] / times['compiled']:.2f}"
    row["off"] = f"{largest:.0e}"
    return row


def main():
    """Prints a table per part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="duration of a measurement, at least 7 rounds (default: 4)"
    )
    args = parser.parse_args()
    for part in args.part:
        if part not in PARTS:
            parser.error(f"{part!r} is not a part, expected one of {', '.join(PARTS)}")
    tf.config.threading.set_intra_op_parallelism_threads(harness.THREADS)
    print(f"{harness.machine()}; {harness.THREADS} threads.")
    columns = [
        "function",
        "outside ms",
        "compiled ms",
        "compiled / outside",
        "peer ms",
        "peer / compiled",
        "off",
    ]
    for part in args.part or PARTS:
        rows = []
        for case in PARTS[part]():
            print(part, case[0], file=sys.stderr, flush=True)
            rows.append(measure(*case, seconds=args.seconds))
        print(f"\n## {part}\n", flush=True)
        harness.table(rows, columns)


if __name__ == "__main__":
    main()
