"""Times the sequence losses and the CRF against TensorFlow and PyTorch.

    python benchmarks/sequence/speed.py [ctc | rnnt | crf | curves]... [--out FOLDER]

`ctc`, `rnnt`, `crf`: sizes of real models. `curves`: CTC over frames, classes and batch, as a
plot. Peers of CTC are TensorFlow's classic op (a kernel for the CPU only), its dense one (a
while loop) and PyTorch's with a log-softmax; of RNN-T PyTorch's log-softmax alone, since
torchaudio, which had a kernel, has ended; of the CRF `tf.scan`, as TensorFlow Addons
composed it. "with gradient" is the loss and its gradient to logits (and transitions) in one
call. "x floor" is the time divided by that of reading logits, reading them again and writing
their gradient.
"""

import argparse
import datetime
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["OMP_NUM_THREADS"] = "2"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import harness
import numpy as np
import tensorflow as tf
import torch
from torch.nn import functional

import tensorflow_ops as tfo

THREADS = 2
RESULTS = pathlib.Path(__file__).resolve().parents[1] / "results"
PARTS = ("ctc", "rnnt", "crf", "curves")
CTC_CASES = (
    ((32, 400, 128, 60), {"TF classic": 20, "torch": 10}),
    ((16, 400, 5000, 60), {"torch": 15}),
    ((1, 5000, 64, 500), {}),
)
CRF_CASES = (((64, 128, 20), 20), ((32, 512, 50), 40))
CURVES = {
    "frames": [(16, n, 64, 40) for n in (100, 200, 400, 800, 1600)],
    "classes": [(16, 200, n, 40) for n in (32, 128, 512, 2048, 8192)],
    "batch": [(n, 400, 128, 60) for n in (1, 2, 4, 8, 16, 32)],
}


def with_gradient(fn, *variables):
    """Returns a compiled call of fn and of its gradient to the variables."""

    @tf.function
    def call():
        with tf.GradientTape() as tape:
            tape.watch(variables)
            value = fn(*variables)
        return value, tape.gradient(value, variables)

    return call


def ctc_calls(case, dense):
    """Returns the calls of a case of CTC: [batch, frames, classes], labels."""
    batch, frames, classes, length = case
    generator = np.random.default_rng(0)
    scores = generator.normal(size=[batch, frames, classes]).astype(np.float32)
    # The last class is the classic op's blank.
    tokens = generator.integers(0, classes - 1, [batch, length]).astype(np.int32)
    blank = classes - 1
    logits, labels = tf.constant(scores), tf.constant(tokens)
    lengths = tf.fill([batch], length), tf.fill([batch], frames)
    sparse = tf.sparse.from_dense(labels + 1)
    sparse = tf.sparse.SparseTensor(sparse.indices, sparse.values - 1, sparse.dense_shape)
    time_major = tf.transpose(logits, [1, 0, 2])

    def classic(x):
        return tf.compat.v1.nn.ctc_loss(sparse, x, lengths[1], ignore_longer_outputs_than_inputs=True)

    def loop(x):
        return tf.nn.ctc_loss(labels, x, *lengths, logits_time_major=True, blank_index=blank)

    x = torch.from_numpy(scores).transpose(0, 1).contiguous().requires_grad_()
    targets = torch.from_numpy(tokens).long()
    torch_lengths = [torch.full([batch], n) for n in (frames, length)]

    def in_torch():
        x.grad = None
        functional.ctc_loss(
            functional.log_softmax(x, -1), targets, *torch_lengths, blank=blank, reduction="sum"
        ).backward()

    calls = {
        "ours": with_gradient(lambda x: tfo.nn.ctc_loss(labels, x, *lengths, blank_index=blank), logits),
        "TF classic": with_gradient(classic, time_major),
        "torch": in_torch,
    }
    if dense:
        calls["TF dense"] = with_gradient(loop, time_major)
    return calls, scores.nbytes


def ctc_row(case, rates, seconds, dense=False, goals=None):
    """Returns a table row."""
    calls, num_bytes = ctc_calls(case, dense)
    times = harness.interleave(calls, seconds, min_rounds=3)
    ratios = {name: times[name] / times["ours"] for name in calls if name != "ours"}
    met = [f"{goal}x {name}: {'met' if ratios[name] >= goal else 'NOT MET'}" for name, goal in (goals or {}).items()]
    return {
        "[batch, frames, classes], labels": f"{list(case[:3])}, {case[3]}",
        "ms": f"{1e3 * times['ours']:.2f}",
        **{f"{name} / ours": f"{ratio:.1f}" for name, ratio in ratios.items()},
        "x floor": f"{times['ours'] / rates.floor(2 * num_bytes, num_bytes):.1f}",
        "goal": "; ".join(met),
        "times": times,
    }


def rnnt_row(case, rates, seconds):
    """Returns a table row for RNN-T: [batch, frames, labels + 1, classes]."""
    batch, frames, states, classes = case
    generator = np.random.default_rng(0)
    scores = generator.normal(size=case).astype(np.float32)
    labels = tf.constant(generator.integers(1, classes, [batch, states - 1]), tf.int32)
    lengths = tf.fill([batch], states - 1), tf.fill([batch], frames)
    x = torch.from_numpy(scores).requires_grad_()
    ones = torch.ones(case)

    def log_softmax():
        x.grad = None
        functional.log_softmax(x, -1).backward(ones)

    calls = {
        "ours": with_gradient(lambda x: tfo.nn.rnnt_loss(labels, x, *lengths), tf.constant(scores)),
        "torch": log_softmax,
    }
    times = harness.interleave(calls, seconds, min_rounds=5)
    floor = times["ours"] / rates.floor(2 * scores.nbytes, scores.nbytes)
    return {
        "[batch, frames, labels + 1, classes]": list(case),
        "ms": f"{1e3 * times['ours']:.2f}",
        "torch's log_softmax / ours": f"{times['torch'] / times['ours']:.1f}",
        "x floor": f"{floor:.1f}",
        "goal": f"2x floor: {'met' if floor <= 2 else 'NOT MET'}",
    }


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


def crf_rows(case, goal, seconds):
    """Returns table rows for a case of the CRF: [batch, frames, tags]."""
    batch, frames, tags = case
    generator = np.random.default_rng(0)
    logits = tf.constant(generator.normal(size=case), tf.float32)
    transitions = tf.constant(generator.normal(size=[tags, tags]), tf.float32)
    labels = tf.constant(generator.integers(0, tags, [batch, frames]), tf.int32)

    def compiled(fn):
        return tf.function(lambda: fn(logits, transitions))

    def ours(x, a):
        return tfo.nn.crf_log_likelihood(labels, x, a)

    def scan(x, a):
        return scan_likelihood(labels, x, a)

    passes = {
        "log likelihood": (compiled(ours), compiled(scan)),
        "with gradient": (with_gradient(ours, logits, transitions), with_gradient(scan, logits, transitions)),
        "decode": (compiled(lambda *s: tfo.nn.crf_decode(*s).labels), compiled(scan_decode)),
    }
    rows = []
    for name, (call, peer) in passes.items():
        difference = np.abs(np.asarray(tf.nest.flatten(call())[0]) - tf.nest.flatten(peer())[0]).max()
        times = harness.interleave({"ours": call, "scan": peer}, seconds, min_rounds=5)
        ratio = times["scan"] / times["ours"]
        rows.append(
            {
                "[batch, frames, tags]": list(case),
                "pass": name,
                "ms": f"{1e3 * times['ours']:.2f}",
                "tf.scan ms": f"{1e3 * times['scan']:.1f}",
                "tf.scan / ours": f"{ratio:.1f}",
                "off tf.scan": f"{difference:.1e}",
                "goal": f"{goal}x: {'met' if ratio >= goal else 'NOT MET'}",
            }
        )
    return rows


def plot_curves(rows, path):
    """Writes a plot of times."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(12, 4), sharey=True)
    places = {"batch": 0, "frames": 1, "classes": 2}
    for panel, (axis, cases) in zip(panels, CURVES.items(), strict=True):
        sizes = [case[places[axis]] for case in cases]
        for name in ("ours", "TF classic", "torch"):
            panel.loglog(sizes, [1e3 * row["times"][name] for row in rows[axis]], marker="o", markersize=3, label=name)
        panel.set(title=f"ctc_loss with gradient, {axis}", xlabel=axis)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("milliseconds")
    panels[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", help="all by default")
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS, help="the folder for the plot")
    parser.add_argument("--seconds", type=float, default=4.0, help="per case")
    args = parser.parse_args()
    if not {*args.part} <= {*PARTS}:
        parser.error(f"expected some of {', '.join(PARTS)}")
    parts = args.part or PARTS
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    torch.set_num_threads(THREADS)
    print(f"{harness.machine()}, torch {torch.__version__}\n")
    rates = harness.memory_rates()
    print(f"{rates}.\n")
    size = "[batch, frames, classes], labels"
    columns = (size, "ms", "TF classic / ours", "torch / ours", "x floor")
    if "ctc" in parts:
        print("## ctc_loss with gradient\n")
        rows = [ctc_row(case, rates, args.seconds, case[1:3] == (400, 128), goals) for case, goals in CTC_CASES]
        rows = [{"TF dense / ours": "", **row} for row in rows]
        harness.table(rows, (*columns[:3], "TF dense / ours", *columns[3:], "goal"))
    if "rnnt" in parts:
        print("\n## rnnt_loss with gradient\n")
        rows = [rnnt_row(case, rates, args.seconds) for case in ((4, 150, 31, 1000), (1, 400, 41, 64))]
        harness.table(rows, tuple(rows[0]))
    if "crf" in parts:
        print("\n## CRF\n")
        rows = [row for case, goal in CRF_CASES for row in crf_rows(case, goal, args.seconds)]
        harness.table(rows, tuple(rows[0]))
    if "curves" in parts:
        print("\n## ctc_loss over sizes\n")
        rows = {axis: [ctc_row(case, rates, args.seconds / 4) for case in cases] for axis, cases in CURVES.items()}
        harness.table([row for of_axis in rows.values() for row in of_axis], columns)
        plot = f"{datetime.date.today().isoformat()}-ctc_loss-sizes.png"
        plot_curves(rows, args.out / plot)
        print(f"\n![Times by size]({plot})")


if __name__ == "__main__":
    main()
