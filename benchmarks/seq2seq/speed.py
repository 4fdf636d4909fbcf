"""Times a step of beam search and a whole search against compositions of TensorFlow ops.

    python benchmarks/seq2seq/speed.py step
    python benchmarks/seq2seq/speed.py search

The peers are those of `composed.py`, run by TensorFlow and compiled by XLA. "x floor" is
the time divided by that of reading the logits once; "x floor in turns" interleaves the
reads with the candidates, with cold caches and sleeping threads. "empty call" is a
tf.function with the same arguments that does nothing; every call includes that time.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import composed
import harness
import numpy as np
import tensorflow as tf

STEPS = ((64, 5, 32000), (8, 5, 32000), (16, 4, 128000))  # (batch, beams, tokens)
DTYPES = ("float32", "bfloat16")
SEARCH = {"batch": 16, "beams": 5, "tokens": 8000, "length": 64, "units": 512}


def make_step(batch, beams, tokens, dtype, seed=0):
    """Returns a step's inputs: unfinished beams, and logits with a few values far above the rest."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=[batch, beams, tokens]).astype(np.float32) * 2
    logits += (rng.random([batch, beams, tokens]) < 20 / tokens) * 8
    log_probs = -np.sort(rng.random([batch, beams]).astype(np.float32) * 20)
    return (
        tf.cast(logits, dtype),
        tf.constant(log_probs),
        tf.zeros([batch, beams], tf.bool),  # unfinished: logits of finished beams are not read
        tf.constant(rng.integers(1, 30, [batch, beams]).astype(np.int32)),
    )


def same_choices(ours, theirs):
    """Returns the share of beams with the same token and parent. A few differ, because log_softmax rounds."""
    same = (ours[1].numpy() == theirs[1].numpy()) & (ours[2].numpy() == theirs[2].numpy())
    return f"{100 * same.mean():.1f}%"


def time_steps(tfo, rates, seconds, sizes, dtypes):
    """Returns a table row per size and dtype."""
    rows = []
    for size in sizes:
        for dtype in dtypes:
            args = make_step(*size, dtype)
            # 2K candidates, as in a search, ordered by penalized score.
            options = {"beam_width": 2 * size[1], "length_penalty": 0.6}
            ours = tf.function(lambda *x, options=options: tfo.seq2seq.beam_search_step(*x, eos_ids=[2], **options))
            peer = tf.function(lambda *x, options=options: composed.step(*x, eos_id=2, **options))
            xla = tf.function(lambda *x, options=options: composed.step(*x, eos_id=2, **options), jit_compile=True)
            calls = {"ours": ours, "composed": peer, "XLA": xla}
            equal = {name: same_choices(ours(*args), calls[name](*args)) for name in ("composed", "XLA")}
            calls["empty"] = tf.function(lambda *x: x[1:2])
            with harness.Reader(args[0].numpy()) as reader:
                times = harness.interleave(
                    {name: lambda call=call, args=args: call(*args)[0].numpy() for name, call in calls.items()}
                    | {"read": reader.read},
                    seconds,
                )
            floor = rates.floor(args[0].shape.num_elements() * args[0].dtype.size, 0)
            row = {"[B, K, V]": list(size), "dtype": dtype, "ms": f"{1e3 * times['ours']:.2f}"}
            row["x floor"] = f"{times['ours'] / floor:.1f}"
            row["x floor in turns"] = f"{times['ours'] / times['read']:.1f}"
            row["empty call ms"] = f"{1e3 * times['empty']:.2f}"
            for name, share in equal.items():
                row[f"{name} ms"] = f"{1e3 * times[name]:.1f}"
                row[f"{name} / ours"] = f"{times[name] / times['ours']:.1f}"
                row[f"same as {name}"] = share
            rows.append(row)
    return rows


class Gru:
    """A decoder with one layer and random weights, scaled so that logits spread like trained ones."""

    def __init__(self, tokens, units, seed=0):
        rng = np.random.default_rng(seed)

        def weights(*shape, scale=1.0):
            return tf.constant((rng.normal(size=shape) * scale / np.sqrt(shape[0])).astype(np.float32))

        self.embedding = tf.constant(rng.normal(size=[tokens, units]).astype(np.float32))
        self.gates, self.recurrent = weights(2 * units, 2 * units), weights(2 * units, units)
        self.out = weights(units, tokens, scale=6.0)

    def step_fn(self, tokens, hidden):
        inputs = tf.gather(self.embedding, tokens)
        reset, update = tf.split(tf.sigmoid(tf.concat([inputs, hidden], 1) @ self.gates), 2, 1)
        new = tf.tanh(tf.concat([inputs, reset * hidden], 1) @ self.recurrent)
        hidden = update * hidden + (1 - update) * new
        return hidden @ self.out, hidden


def run_alone(step_fn, tokens, hidden, beams, steps):
    """Runs the model's steps without a search; returns its last logits and state."""
    rows = tf.repeat(hidden, beams, axis=0)
    # The loop carries the logits, because TensorFlow prunes unused results.
    logits = tf.zeros([rows.shape[0], tokens])

    def body(step, _, rows):
        return step + 1, *step_fn(tf.zeros(rows.shape[:1], tf.int32), rows)

    loop = tf.while_loop(lambda step, *_: step < steps, body, (tf.constant(0), logits, rows), maximum_iterations=steps)
    return loop[1:]


def time_search(tfo, seconds, batch, beams, tokens, length, units):
    """Returns table rows of whole searches and of the model alone."""
    model = Gru(tokens, units)
    hidden = tf.constant(np.random.default_rng(1).normal(size=[batch, units]).astype(np.float32))
    # No sequence ends, so all searches run all steps.
    options = {"batch_size": batch, "beam_width": beams, "max_length": length, "bos_id": 1, "length_penalty": 0.6}

    def never_ends(tokens, state):
        logits, state = model.step_fn(tokens, state)
        return logits + end_bias, state

    end_bias = tf.one_hot(0, tokens, -30.0, 0.0)

    def our_search(h):
        return tfo.seq2seq.beam_search(never_ends, h, eos_ids=[0], **options)[:3:2]

    ours, ours_xla = tf.function(our_search), tf.function(our_search, jit_compile=True)
    peer = tf.function(lambda h: composed.search(never_ends, h, eos_id=0, **options))
    xla = tf.function(lambda h: composed.search(never_ends, h, eos_id=0, **options), jit_compile=True)
    alone = tf.function(lambda h: run_alone(never_ends, tokens, h, beams, length))
    alone_xla = tf.function(lambda h: run_alone(never_ends, tokens, h, beams, length), jit_compile=True)
    calls = {"ours": ours, "ours, XLA": ours_xla, "composed": peer, "composed, XLA": xla}
    calls |= {"model alone": alone, "model alone, XLA": alone_xla}
    found = ours(hidden)[0][:, 0].numpy()
    times = harness.interleave(
        {name: lambda call=call: call(hidden)[0].numpy() for name, call in calls.items()}, seconds
    )
    rows = []
    for name, call in calls.items():
        base = times["model alone, XLA" if "XLA" in name else "model alone"]
        row = {"search": name, "ms": f"{1e3 * times[name]:.0f}", "/ ours": f"{times[name] / times['ours']:.2f}"}
        if not name.startswith("model"):
            row["outside the model"] = f"{100 * (1 - base / times[name]):.0f}%"
            theirs = call(hidden)[0].numpy().reshape(found.shape)
            row["same tokens as ours"] = f"{100 * (theirs == found).mean():.1f}%"
        rows.append(row)
    return rows


def main():
    """Prints tables of steps and of searches."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["all", "step", "search"], default="all")
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of each row's measurement (default: 4)")
    parser.add_argument("--tiny", action="store_true", help="use small sizes, as a smoke test")
    args = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(harness.THREADS)
    import tensorflow_ops as tfo

    rates = harness.memory_rates(16 if args.tiny else 256)
    print(f"{harness.machine()}; {harness.THREADS} threads; {rates}.")
    if args.what in ("all", "step"):
        sizes = ((2, 3, 500), (4, 2, 1000)) if args.tiny else STEPS
        print("\n## A step\n")
        rows = time_steps(tfo, rates, args.seconds, sizes, DTYPES)
        harness.table(rows, list(rows[0]))
    if args.what in ("all", "search"):
        size = {"batch": 2, "beams": 3, "tokens": 50, "length": 6, "units": 8} if args.tiny else SEARCH
        print("\n## A search with a GRU decoder: " + ", ".join(f"{k} {v}" for k, v in size.items()) + "\n")
        rows = time_search(tfo, args.seconds, **size)
        harness.table(rows, ["search", "ms", "/ ours", "outside the model", "same tokens as ours"])


if __name__ == "__main__":
    main()
