"""Ops compiled by XLA, and outside of XLA, which runs the same kernels. 3 min.

Alone, in chains of small ops, in training steps. "outside" is a tf.function, ours the same function with
jit_compile=True; "peer" is a composition of TensorFlow's ops, compiled too.
"""

import numpy as np
import tensorflow as tf
from harness import Case, in_graph, integers, normal, table

import tensorflow_ops as tfo

CHAIN = 100


def compiled(name, function, arguments, peer=None, to=(), peer_name="peer", only_gradients=True):
    """Returns the case of a function."""
    options = {"to": to, "only_gradients": only_gradients}
    rivals = {"outside": in_graph(function, arguments, **options)}
    if peer:
        rivals[peer_name] = in_graph(peer, arguments, **options, jit_compile=peer_name == "peer")
    return Case(
        {"function": name}, in_graph(function, arguments, **options, jit_compile=True), rivals, off=("outside",)
    )


def make_boxes(count, height, width):
    """Returns boxes of 16 pixels to half of an image."""
    rng = np.random.default_rng(0)
    size = np.stack([width, height] * np.exp(rng.uniform(np.log(16 / width), np.log(0.5), [count, 1])))
    corner = rng.uniform(size=[count, 2]) * ([width, height] - size)
    return tf.constant(np.concatenate([corner, corner + size], 1).astype(np.float32))


def ours_loss(x, labels):
    return tfo.nn.sparse_softmax_cross_entropy(labels, x)


def their_loss(x, labels):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x)


@table()
def ops():
    """Ops alone."""

    def roi_align(features, boxes, indices):
        return tfo.detection.roi_align(features, boxes, indices, 7, spatial_scale=0.25, sampling_ratio=2)

    def beam_step(*inputs):
        return tfo.seq2seq.beam_search_step(*inputs, eos_ids=[2], beam_width=10).log_probs

    yield compiled("softmax [4096, 1000]", tfo.nn.softmax, (normal(4096, 1000),), tf.nn.softmax)
    inputs = normal(1024, 32000), integers(0, 32000, 1024)
    yield compiled("sparse_softmax_cross_entropy [1024, 32000]", ours_loss, inputs, their_loss)
    yield compiled("its gradient", ours_loss, inputs, their_loss, [0])
    inputs = normal(1, 200, 304, 256), make_boxes(1000, 800, 1216), tf.zeros([1000], tf.int32)
    yield compiled("roi_align, 1000 boxes on 200 x 304 x 256", roi_align, inputs)
    yield compiled("its gradient", roi_align, inputs, to=[0])
    beams = normal(64, 5, 32000), -tf.abs(normal(64, 5)), tf.zeros([64, 5], tf.bool), tf.ones([64, 5], tf.int32)
    yield compiled("beam_search_step [64, 5, 32000]", beam_step, beams)


@table()
def small():
    """Chains of small ops, which show the cost of a call."""

    def chain(softmax):
        def run(x):
            for _ in range(CHAIN):
                x = softmax(x)
            return x

        return run

    def side_by_side(softmax):
        return lambda x: [softmax(x + i) for i in range(CHAIN)]

    for name, calls in (("one after another", chain), ("side by side", side_by_side)):
        yield compiled(
            f"{CHAIN} softmaxes [8, 10], {name}", calls(tfo.nn.softmax), (normal(8, 10),), calls(tf.nn.softmax)
        )


@table()
def steps():
    """Training steps: gradients to all weights. XLA cannot compile crop_and_resize, so that peer runs outside."""

    def classifier(loss):
        def run(first, second, x, labels):
            return tf.reduce_mean(loss(tf.nn.gelu(x @ first) @ second, labels))

        return run

    weights = normal(512, 1024, scale=0.03), normal(1024, 10000, seed=1, scale=0.03)
    yield compiled(
        "a classifier's step, 256 rows, 10,000 classes",
        classifier(ours_loss),
        (*weights, normal(256, 512), integers(0, 10000, 256)),
        classifier(their_loss),
        (0, 1),
    )
    indices = tf.zeros([128], tf.int32)

    def ours(features, boxes):
        return tfo.detection.roi_align(features, boxes, indices, 7, spatial_scale=1 / 8, sampling_ratio=2)

    def theirs(features, boxes):
        x1, y1, x2, y2 = tf.unstack(boxes / 8 - 0.5, axis=1)
        # The samples of roi_align: crop_and_resize places the first and last ones at the corners.
        dy, dx = (y2 - y1) / 28, (x2 - x1) / 28
        corners = tf.stack([(y1 + dy) / 99, (x1 + dx) / 151, (y2 - dy) / 99, (x2 - dx) / 151], 1)
        return tf.nn.avg_pool2d(tf.image.crop_and_resize(features, corners, indices, [14, 14]), 2, 2, "VALID")

    def head(pool, loss):
        def run(features, first, second, boxes, classes):
            pooled = tf.reshape(pool(features, boxes), [128, 7 * 7 * 64])
            return tf.reduce_mean(loss(tf.nn.relu(pooled @ first) @ second, classes))

        return run

    weights = normal(7 * 7 * 64, 256, scale=0.03), normal(256, 81, seed=1, scale=0.03)
    yield compiled(
        "a detection head's step, 128 boxes of 7 x 7 x 64",
        head(ours, ours_loss),
        (normal(1, 100, 152, 64), *weights, make_boxes(128, 800, 1216), integers(0, 81, 128)),
        head(theirs, their_loss),
        (0, 1, 2),
        "peer outside",
    )
