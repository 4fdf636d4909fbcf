"""Sequence losses and the CRF, compared with TensorFlow's two CTC ops, PyTorch, torchaudio and tf.scan. 4 min.

Curves, threads, memory. "with gradient" is the loss and its gradient to logits (and transitions) in one call.
"""

import functools

import peers
import tensorflow as tf
from harness import PAUSE, Case, in_graph, in_torch, integers, normal, num_bytes, table

import tensorflow_ops as tfo


def ctc_of(batch, frames, classes, length, where=None, dense=False):
    """Returns a case of CTC."""
    logits = normal(batch, frames, classes)
    # The last class is the classic op's blank.
    labels, blank = integers(0, classes - 1, batch, length), classes - 1
    lengths = tf.fill([batch], length), tf.fill([batch], frames)
    sparse = tf.sparse.from_dense(labels + 1)
    sparse = tf.sparse.SparseTensor(sparse.indices, sparse.values - 1, sparse.dense_shape)
    time_major = tf.transpose(logits, [1, 0, 2])

    def classic(x):
        return tf.compat.v1.nn.ctc_loss(sparse, x, lengths[1], ignore_longer_outputs_than_inputs=True)

    def loop(x):
        return tf.nn.ctc_loss(labels, x, *lengths, logits_time_major=True, blank_index=blank)

    rivals = {"TF classic": in_graph(classic, (time_major,), [0])}
    if dense:
        rivals["TF dense"] = in_graph(loop, (time_major,), [0])
    if torch := peers.torch():
        targets = torch.from_numpy(labels.numpy()).long()
        torch_lengths = [torch.full([batch], n) for n in (frames, length)]

        def in_pytorch(x):
            log_p = torch.nn.functional.log_softmax(x, -1)
            return torch.nn.functional.ctc_loss(log_p, targets, *torch_lengths, blank=blank, reduction="none")

        rivals["PyTorch"] = in_torch(torch, in_pytorch, (time_major,), [0])
    return Case(
        where or {"[batch, frames, classes]": f"[{batch}, {frames}, {classes}]", "labels": length},
        in_graph(lambda x: tfo.nn.ctc_loss(labels, x, *lengths, blank_index=blank), (logits,), [0]),
        rivals,
        # The gradient reads the logits again.
        moved=(2 * num_bytes(logits), num_bytes(logits)),
        # The losses; gradients to time-major logits have another shape.
        arrays=dict.fromkeys(("ours", *rivals), lambda result: result[0]),
    )


@table(pause=PAUSE)
def ctc():
    """ctc_loss with gradient. TensorFlow's classic op is a kernel for the CPU only, its dense one a while loop."""
    yield ctc_of(32, 400, 128, 60, dense=True)
    yield ctc_of(16, 400, 5000, 60)
    yield ctc_of(1, 5000, 64, 500)


@table(pause=PAUSE, axis="size")
def ctc_curves():
    """ctc_loss with gradient, over each size."""
    for axis, sizes in {
        "frames": [(16, n, 64, 40) for n in (100, 200, 400, 800, 1600)],
        "classes": [(16, 200, n, 40) for n in (32, 128, 512, 2048, 8192)],
        "batch": [(n, 400, 128, 60) for n in (1, 2, 4, 8, 16, 32)],
    }.items():
        for size in sizes:
            yield ctc_of(*size, {"axis": axis, "size": size[["batch", "frames", "classes"].index(axis)]})


@table(pause=PAUSE)
def rnnt():
    """rnnt_loss with gradient. PyTorch's log-softmax is only a part of the work."""
    for shape in ((4, 150, 31, 1000), (1, 400, 41, 64)):
        batch, frames, states, classes = shape
        logits, labels = normal(*shape), integers(1, classes, batch, states - 1)
        lengths = tf.fill([batch], states - 1), tf.fill([batch], frames)
        rivals = {}
        if torch := peers.torch():
            rivals["log_softmax"] = in_torch(torch, lambda x: torch.nn.functional.log_softmax(x, -1), (logits,), [0])
        if audio := peers.torchaudio():
            inputs = [audio.from_numpy(t.numpy()) for t in (logits, labels, lengths[1], lengths[0])]
            # The gradient is computed with the loss.
            rivals["torchaudio"] = functools.partial(audio.ops.torchaudio.rnnt_loss_forward, *inputs, 0, -1.0, True)
        yield Case(
            {"[batch, frames, labels + 1, classes]": list(shape)},
            in_graph(lambda x, y=labels, n=lengths: tfo.nn.rnnt_loss(y, x, *n), (logits,), [0]),
            rivals,
            moved=(2 * num_bytes(logits), num_bytes(logits)),
            off=[name for name in rivals if name == "torchaudio"],
            arrays=dict.fromkeys(("ours", "torchaudio"), lambda result: result[0]),
        )


def scan_log_z(logits, transitions):
    """Returns log Z as TensorFlow Addons computed it."""

    def step(alpha, x):
        return x + tf.reduce_logsumexp(alpha[:, :, tf.newaxis] + transitions, 1)

    alphas = tf.scan(step, tf.transpose(logits[:, 1:], [1, 0, 2]), logits[:, 0])
    return tf.reduce_logsumexp(alphas[-1], -1)


def scan_likelihood(labels, logits, transitions):
    """Returns log likelihoods as TensorFlow Addons computed them."""
    score = tf.reduce_sum(tf.gather(logits, labels, batch_dims=2), 1)
    pairs = tf.stack([labels[:, :-1], labels[:, 1:]], -1)
    return score + tf.reduce_sum(tf.gather_nd(transitions, pairs), 1) - scan_log_z(logits, transitions)


def scan_decode(logits, transitions):
    """Returns the best tags as TensorFlow Addons computed them."""

    def step(state, x):
        scores = state[0][:, :, tf.newaxis] + transitions
        return x + tf.reduce_max(scores, 1), tf.argmax(scores, 1, tf.int32)

    first = logits[:, 0], tf.zeros_like(logits[:, 0], tf.int32)
    alphas, before = tf.scan(step, tf.transpose(logits[:, 1:], [1, 0, 2]), first)
    last = tf.argmax(alphas[-1], -1, tf.int32)
    tags = tf.scan(lambda tag, row: tf.gather(row, tag, batch_dims=1), before, last, reverse=True)
    return tf.concat([tf.transpose(tags), last[:, tf.newaxis]], 1)


@table(memory=("ours",))
def crf():
    """tf.scan is how TensorFlow Addons composed it; every call includes the time of an empty one."""
    for shape in ((64, 128, 20), (32, 512, 50)):
        batch, frames, tags = shape
        inputs, labels = (normal(*shape), normal(tags, tags, seed=1)), integers(0, tags, batch, frames)
        empty = in_graph(lambda y: y, (labels,))

        def ours(x, a, labels=labels):
            return tfo.nn.crf_log_likelihood(labels, x, a)

        def scan(x, a, labels=labels):
            return scan_likelihood(labels, x, a)

        for which, function, peer, to in (
            ("log likelihood", ours, scan, ()),
            ("with gradient", ours, scan, (0, 1)),
            ("decode", lambda *s: tfo.nn.crf_decode(*s).labels, scan_decode, ()),
            ("marginals", tfo.nn.crf_marginals, None, ()),
        ):
            yield Case(
                {"[batch, frames, tags]": list(shape), "pass": which},
                in_graph(function, inputs, to),
                {"empty call": empty} | ({"tf.scan": in_graph(peer, inputs, to)} if peer else {}),
                inputs,
                off=("tf.scan",) if peer else (),
            )


@table(speed=False, memory=("ours",))
def losses_memory():
    for batch, frames, classes, length in ((32, 400, 128, 60), (16, 400, 5000, 60)):
        labels = integers(1, classes, batch, length)
        fn = functools.partial(tfo.nn.ctc_loss, labels, label_lengths=[length] * batch, logit_lengths=[frames] * batch)
        yield from loss_passes("ctc_loss", fn, normal(batch, frames, classes))
    labels = integers(1, 1000, 4, 30)
    yield from loss_passes(
        "rnnt_loss", lambda x: tfo.nn.rnnt_loss(labels, x, [30] * 4, [150] * 4), normal(4, 150, 31, 1000)
    )


def loss_passes(name, fn, logits, passes=((), (0,))):
    """Yields the cases of a loss without and with gradient."""
    for to in passes:
        where = {"op": name, "logits": list(logits.shape), "pass": "with gradient" if to else "forward"}
        yield Case(where, in_graph(fn, (logits,), to), inputs=(logits,))


@table(pause=PAUSE, threads=True)
def one_sequence():
    """One long sequence."""
    for frames, classes, length in ((5000, 64, 500), (5000, 5000, 60)):
        labels, lengths = integers(1, classes, 1, length), ([length], [frames])
        fn = functools.partial(tfo.nn.ctc_loss, labels, label_lengths=lengths[0], logit_lengths=lengths[1])
        yield from loss_passes(f"ctc_loss, {length} labels", fn, normal(1, frames, classes), [(0,)])
    labels = integers(1, 1000, 1, 40)
    fn = lambda x: tfo.nn.rnnt_loss(labels, x, [40], [400])  # noqa: E731
    yield from loss_passes("rnnt_loss", fn, normal(1, 400, 41, 1000), [(0,)])
