"""Times the sequence losses and the CRF against TensorFlow and PyTorch, and measures their memory.

    python benchmarks/nn/sequence_losses.py [ctc | rnnt | crf | curves | threads | memory]...
        [--torchaudio LIBRARY...]

`ctc`, `rnnt`, `crf`: sizes of real models. `curves`: CTC over frames, classes and batch.
`threads`: one long sequence with one thread and with two. `memory`: peaks beyond inputs and
outputs (needs gcc). Peers of CTC are TensorFlow's classic op (a kernel for the CPU only), its
dense one (a while loop) and PyTorch's with a log-softmax; of RNN-T PyTorch's log-softmax alone
and, from the shared objects of --torchaudio, torchaudio's op; of the CRF `tf.scan`, as
TensorFlow Addons composed it. torchaudio's wheel needs libraries of CUDA: stubs of them, given
first, do. "with gradient" is the loss and its gradient to logits (and transitions) in one
call. "x floor" is the time divided by that of reading logits, reading them again and writing
their gradient.
"""

import argparse
import ctypes
import functools
import json
import os
import pathlib
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["OMP_NUM_THREADS"] = "2"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import harness
import malloc_peak
import numpy as np
import tensorflow as tf
import torch
from torch.nn import functional

import tensorflow_ops as tfo

THREADS = 2
PAUSE = 0.01  # between calls of PyTorch and ours: its threads spin after a call
PARTS = ("ctc", "rnnt", "crf", "curves", "threads", "memory")
CTC_CASES = ((32, 400, 128, 60), (16, 400, 5000, 60), (1, 5000, 64, 500))
CRF_CASES = ((64, 128, 20), (32, 512, 50))
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


def ctc_row(case, rates, seconds, dense=False):
    """Returns a table row."""
    calls, num_bytes = ctc_calls(case, dense)
    times = harness.interleave(calls, seconds, min_rounds=3, pause=PAUSE)
    ratios = {name: times[name] / times["ours"] for name in calls if name != "ours"}
    return {
        "[batch, frames, classes], labels": f"{list(case[:3])}, {case[3]}",
        "ms": f"{1e3 * times['ours']:.2f}",
        **{f"{name} / ours": f"{ratio:.1f}" for name, ratio in ratios.items()},
        "x floor": f"{times['ours'] / rates.floor(2 * num_bytes, num_bytes):.1f}",
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
        "log_softmax": log_softmax,
    }
    if hasattr(torch.ops.torchaudio, "rnnt_loss_forward"):
        inputs = torch.from_numpy(scores), *(torch.from_numpy(t.numpy()) for t in (labels, *lengths[::-1]))
        # The gradient is computed with the loss.
        calls["torchaudio"] = lambda: torch.ops.torchaudio.rnnt_loss_forward(*inputs, 0, -1.0, True)
        difference = np.abs(calls["torchaudio"]()[0].numpy() - calls["ours"]()[0]).max()
        print(f"Off torchaudio's losses by {difference:.1e}.\n")
    times = harness.interleave(calls, seconds, min_rounds=5, pause=PAUSE)
    floor = times["ours"] / rates.floor(2 * scores.nbytes, scores.nbytes)
    ratio = times["torchaudio"] / times["ours"] if "torchaudio" in times else None
    return {
        "[batch, frames, labels + 1, classes]": list(case),
        "ms": f"{1e3 * times['ours']:.2f}",
        "torchaudio / ours": f"{ratio:.1f}" if ratio else "",
        "torch's log_softmax / ours": f"{times['log_softmax'] / times['ours']:.1f}",
        "x floor": f"{floor:.1f}",
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


def crf_rows(case, seconds):
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
    empty = tf.function(lambda: tf.identity(labels))
    rows = []
    for name, (call, peer) in passes.items():
        difference = np.abs(np.asarray(tf.nest.flatten(call())[0]) - tf.nest.flatten(peer())[0]).max()
        times = harness.interleave({"ours": call, "scan": peer, "empty": empty}, seconds, min_rounds=5)
        ratio = times["scan"] / times["ours"]
        rows.append(
            {
                "[batch, frames, tags]": list(case),
                "pass": name,
                "ms": f"{1e3 * times['ours']:.2f}",
                "empty call ms": f"{1e3 * times['empty']:.2f}",
                "tf.scan ms": f"{1e3 * times['scan']:.1f}",
                "tf.scan / ours": f"{ratio:.1f}",
                "off tf.scan": f"{difference:.1e}",
            }
        )
    return rows


def calls_of_one_sequence():
    """Returns calls of one long sequence: {name: call}."""
    calls, _ = ctc_calls((1, 5000, 64, 500), dense=False)
    generator = np.random.default_rng(0)
    logits = tf.constant(generator.normal(size=[1, 5000, 5000]), tf.float32)
    labels, lengths = (
        tf.constant(generator.integers(1, 5000, [1, 60]), tf.int32),
        (tf.fill([1], 60), tf.fill([1], 5000)),
    )
    nodes = tf.constant(generator.normal(size=[1, 400, 41, 1000]), tf.float32)
    of_nodes = tf.constant(generator.integers(1, 1000, [1, 40]), tf.int32), (tf.fill([1], 40), tf.fill([1], 400))
    return {
        "ctc_loss [1, 5000, 64], 500 labels": calls["ours"],
        "ctc_loss [1, 5000, 5000], 60 labels": with_gradient(lambda x: tfo.nn.ctc_loss(labels, x, *lengths), logits),
        "rnnt_loss [1, 400, 41, 1000]": with_gradient(lambda x: tfo.nn.rnnt_loss(of_nodes[0], x, *of_nodes[1]), nodes),
    }


def threads_rows():
    """Returns table rows, of times in processes with one and with two threads."""
    times = []
    for threads in (1, 2):
        command = [sys.executable, __file__, "threads", "--worker", str(threads)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        times.append(json.loads(done.stdout.splitlines()[-1]))
    return [
        {
            "with gradient": name,
            "1 thread ms": f"{1e3 * times[0][name]:.1f}",
            "2 threads ms": f"{1e3 * times[1][name]:.1f}",
            "speedup": f"{times[0][name] / times[1][name]:.2f}",
        }
        for name in times[0]
    ]


def memory_calls():
    """Yields name, call, bytes of its outputs, bytes of logits."""
    generator = np.random.default_rng(0)

    def tensor(*shape):
        return tf.constant(generator.normal(size=shape), tf.float32)

    def ints(most, *shape):
        return tf.constant(generator.integers(1, most, shape), tf.int32)

    for batch, frames, classes, labels in ((32, 400, 128, 60), (16, 400, 5000, 60)):
        x, y = tensor(batch, frames, classes), ints(classes, batch, labels)
        ctc = functools.partial(tfo.nn.ctc_loss, y, label_lengths=[labels] * batch, logit_lengths=[frames] * batch)
        yield f"ctc_loss {list(x.shape)}", ctc, (x,)
    x, y = tensor(4, 150, 31, 1000), ints(1000, 4, 30)
    yield f"rnnt_loss {list(x.shape)}", lambda x: tfo.nn.rnnt_loss(y, x, [30] * 4, [150] * 4), (x,)
    for shape in ((64, 128, 20), (32, 512, 50)):
        variables, y = (tensor(*shape), tensor(shape[2], shape[2])), ints(shape[2], *shape[:2])
        yield f"crf_log_likelihood {list(shape)}", functools.partial(tfo.nn.crf_log_likelihood, y), variables
        yield f"crf_marginals {list(shape)}", tfo.nn.crf_marginals, variables
        yield f"crf_decode {list(shape)}", tfo.nn.crf_decode, variables


def memory_rows():
    """In a counted process, returns table rows."""
    malloc_peak.check_method()
    rows = []
    for name, fn, variables in memory_calls():
        size = variables[0].shape.num_elements() * 4
        passes = {"forward": lambda fn=fn, variables=variables: fn(*variables)}
        if "likelihood" in name or "loss" in name:
            passes["with gradient"] = with_gradient(fn, *variables)
        for which, call in passes.items():
            outputs = sum(t.shape.num_elements() * t.dtype.size for t in tf.nest.flatten(call()))
            extra = max(malloc_peak.extra_bytes(call, outputs) for _ in range(3))
            rows.append({"op": name, "pass": which, "MB": f"{extra / 1e6:.3f}", "x logits": f"{extra / size:.3f}"})
    return rows


def worker(part):
    """Returns what a process of its own measures."""
    if part == "memory":
        return memory_rows()
    calls = calls_of_one_sequence()
    return harness.interleave(calls, min_rounds=7, pause=PAUSE)


def main():
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", help="all by default")
    parser.add_argument("--torchaudio", nargs="*", default=[], help="shared objects, loaded in this order")
    parser.add_argument("--seconds", type=float, default=4.0, help="per case")
    parser.add_argument("--worker", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not {*args.part} <= {*PARTS}:
        parser.error(f"expected some of {', '.join(PARTS)}")
    parts = args.part or PARTS
    tf.config.threading.set_intra_op_parallelism_threads(args.worker or THREADS)
    if args.worker:
        print(json.dumps(worker(parts[0])))
        return
    torch.set_num_threads(THREADS)
    for library in args.torchaudio:
        ctypes.CDLL(library, os.RTLD_LAZY | os.RTLD_GLOBAL)
    print(f"{harness.machine()}\n")
    rates = harness.memory_rates()
    print(f"{rates}.\n")
    size = "[batch, frames, classes], labels"
    columns = (size, "ms", "TF classic / ours", "torch / ours", "x floor")
    if "ctc" in parts:
        print("## ctc_loss with gradient\n")
        rows = [ctc_row(case, rates, args.seconds, case[1:3] == (400, 128)) for case in CTC_CASES]
        rows = [{"TF dense / ours": "", **row} for row in rows]
        harness.table(rows, (*columns[:3], "TF dense / ours", *columns[3:]))
    if "rnnt" in parts:
        print("\n## rnnt_loss with gradient\n")
        rows = [rnnt_row(case, rates, args.seconds) for case in ((4, 150, 31, 1000), (1, 400, 41, 64))]
        harness.table(rows, tuple(rows[0]))
    if "crf" in parts:
        print("\n## CRF\n")
        rows = [row for case in CRF_CASES for row in crf_rows(case, args.seconds)]
        harness.table(rows, tuple(rows[0]))
    if "curves" in parts:
        print("\n## ctc_loss over sizes\n")
        rows = {axis: [ctc_row(case, rates, args.seconds / 4) for case in cases] for axis, cases in CURVES.items()}
        harness.table([row for of_axis in rows.values() for row in of_axis], columns)
    if "threads" in parts:
        print("\n## One sequence\n")
        rows = threads_rows()
        harness.table(rows, tuple(rows[0]))
    if "memory" in parts:
        print("\n## Memory beyond inputs and outputs\n")
        with malloc_peak.counter() as counter:
            rows = counter.run(__file__, "memory", "--worker", 2)
        harness.table(rows, tuple(rows[0]))


if __name__ == "__main__":
    main()
