"""A step of beam search and a whole search, compared with compositions of TensorFlow ops, also compiled by XLA."""

import harness
import numpy as np
import tensorflow as tf
from harness import Case, in_graph, normal, num_bytes, table
from seq2seq import composed

import tensorflow_ops as tfo


def make_step(batch, beams, tokens, dtype):
    """Returns a step's inputs: unfinished beams, and logits with a few values far above the rest."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=[batch, beams, tokens]).astype(np.float32) * 2
    logits += (rng.random([batch, beams, tokens]) < 20 / tokens) * 8
    log_probs = -np.sort(rng.random([batch, beams]).astype(np.float32) * 20)
    return (
        tf.cast(logits, dtype),
        tf.constant(log_probs),
        tf.zeros([batch, beams], tf.bool),  # unfinished: logits of finished beams are not read
        tf.constant(rng.integers(1, 30, [batch, beams]).astype(np.int32)),
    )


def same_choices(results):
    """Returns the share of beams with the same token and parent. A few differ, because log_softmax rounds."""
    ours = results["ours"]
    columns = {}
    for name in ("composed", "XLA"):
        same = (ours[1].numpy() == results[name][1].numpy()) & (ours[2].numpy() == results[name][2].numpy())
        columns[f"same as {name}"] = f"{100 * same.mean():.1f}%"
    return columns


@table()
def step():
    """Reading the logits, "read", happens in turns with the calls: with cold caches and sleeping threads.

    "empty call" is a tf.function of the same arguments that does nothing; every call includes that time.
    """
    for batch, beams, tokens in ((64, 5, 32000), (8, 5, 32000), (16, 4, 128000)):
        for dtype in ("float32", "bfloat16"):
            inputs = make_step(batch, beams, tokens, dtype)
            # 2K candidates, as in a search, ordered by penalized score.
            options = {"beam_width": 2 * beams, "length_penalty": 0.6}

            def ours(*x, options=options):
                return tfo.seq2seq.beam_search_step(*x, eos_ids=[2], **options)

            def peer(*x, options=options):
                return composed.step(*x, eos_id=2, **options)

            yield Case(
                {"[batch, beams, tokens]": [batch, beams, tokens], "dtype": dtype},
                in_graph(ours, inputs),
                {
                    "composed": in_graph(peer, inputs),
                    "XLA": in_graph(peer, inputs, jit_compile=True),
                    "empty call": in_graph(lambda *x: x[1:2], inputs),
                    "read": harness.reader(inputs[0].numpy()),
                },
                moved=(num_bytes(inputs[0]), 0),
                off=(),
                facts=same_choices,
            )


class Gru:
    """A decoder with one layer and random weights, scaled so that logits spread like trained ones."""

    def __init__(self, tokens, units):
        def weights(seed, *shape, scale=1.0):
            return normal(*shape, seed=seed, scale=scale / np.sqrt(shape[0]))

        self.embedding = normal(tokens, units)
        self.gates, self.recurrent = weights(1, 2 * units, 2 * units), weights(2, 2 * units, units)
        self.out = weights(3, units, tokens, scale=6.0)

    def step_fn(self, tokens, hidden):
        inputs = tf.gather(self.embedding, tokens)
        reset, update = tf.split(tf.sigmoid(tf.concat([inputs, hidden], 1) @ self.gates), 2, 1)
        new = tf.tanh(tf.concat([inputs, reset * hidden], 1) @ self.recurrent)
        hidden = update * hidden + (1 - update) * new
        # No sequence ends, so all searches run all steps.
        return hidden @ self.out + tf.one_hot(0, self.out.shape[1], -30.0, 0.0), hidden


def run_alone(step_fn, tokens, hidden, beams, steps):
    """Runs the model's steps without a search; returns its last logits and state."""
    rows = tf.repeat(hidden, beams, axis=0)
    # The loop carries the logits, because TensorFlow prunes unused results.
    logits = tf.zeros([rows.shape[0], tokens])

    def body(step, _, rows):
        return step + 1, *step_fn(tf.zeros(rows.shape[:1], tf.int32), rows)

    loop = tf.while_loop(lambda step, *_: step < steps, body, (tf.constant(0), logits, rows), maximum_iterations=steps)
    return loop[1:]


@table()
def search(batch=16, beams=5, tokens=8000, length=64, units=512):
    """A search of 16 x 5 beams, 8000 tokens and 64 steps with a GRU of 512 units; "model alone" makes its steps."""
    step_fn, inputs = Gru(tokens, units).step_fn, (normal(batch, units, seed=1),)
    options = {"batch_size": batch, "beam_width": beams, "max_length": length, "bos_id": 1, "length_penalty": 0.6}

    def ours(h):
        return tfo.seq2seq.beam_search(step_fn, h, eos_ids=[0], **options)[0][:, 0]

    def peer(h):
        return composed.search(step_fn, h, eos_id=0, **options)[0]

    def same_tokens(results):
        mine, theirs = results["ours"].numpy(), results["composed"].numpy()
        return {"same tokens": f"{100 * (mine == theirs.reshape(mine.shape)).mean():.1f}%"}

    yield [
        Case(
            {"search": "compiled by XLA" if compiled else "in a graph"},
            in_graph(ours, inputs, jit_compile=compiled),
            {
                "composed": in_graph(peer, inputs, jit_compile=compiled),
                "model alone": in_graph(
                    lambda h: run_alone(step_fn, tokens, h, beams, length), inputs, jit_compile=compiled
                ),
            },
            off=(),
            facts=same_tokens,
        )
        for compiled in (False, True)
    ]
