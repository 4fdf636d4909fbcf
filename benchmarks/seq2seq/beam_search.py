"""A step of beam search and a whole search, beside compositions of TensorFlow ops, also with XLA. 5 min.

Also beside the model alone.
"""

import harness
import numpy as np
import tensorflow as tf
from harness import Case, in_graph, normal, num_bytes, table

import tensorflow_ops as tfo

_NOTHING = -float("inf")


def composed_step(logits, log_probs, finished, lengths, *, eos_id, beam_width, length_penalty=0.0):
    """Computes `tfo.seq2seq.beam_search_step` for one end token and logits without NaN."""
    beams, tokens = logits.shape[1:]
    logits = tf.cast(logits, tf.float32)
    log_p = tf.nn.log_softmax(logits)
    only_end = tf.where(tf.equal(tf.range(tokens), eos_id), 0.0, _NOTHING)
    log_p = tf.where(finished[..., tf.newaxis], only_end, log_p) + log_probs[..., tf.newaxis]
    next_lengths = lengths + tf.cast(tf.logical_not(finished), tf.int32)
    scores = log_p
    if length_penalty:
        penalty = ((5 + tf.cast(next_lengths, tf.float32)) / 6) ** length_penalty
        scores /= penalty[..., tf.newaxis]
    scores, best = tf.math.top_k(tf.reshape(scores, [-1, beams * tokens]), beam_width)
    parents, token_ids = best // tokens, best % tokens
    log_probs = tf.gather(tf.reshape(log_p, [-1, beams * tokens]), best, batch_dims=1) if length_penalty else scores
    finished = tf.gather(finished, parents, batch_dims=1) | tf.equal(token_ids, eos_id)
    return log_probs, token_ids, parents, finished, tf.gather(next_lengths, parents, batch_dims=1)


def composed_search(step_fn, state, *, batch_size, beam_width, max_length, bos_id, eos_id, length_penalty):
    """Returns the best sequences [B, T] and scores [B], like `tfo.seq2seq.beam_search` with early stopping.

    Reorders the sequences by beam in each step. Shapes are static, so XLA can compile it.
    """
    beams, rows = beam_width, batch_size * beam_width
    state = tf.nest.map_structure(lambda x: tf.repeat(x, beams, axis=0), state)
    live = tf.tile(tf.where(tf.equal(tf.range(beams), 0), 0.0, _NOTHING)[tf.newaxis], [batch_size, 1])
    nothing = tf.fill([batch_size, beams], _NOTHING)
    sequences = tf.fill([batch_size, beams, max_length], eos_id)
    first_rows = tf.range(batch_size)[:, tf.newaxis] * beams

    def take(tensor, indices):
        return tf.gather(tensor, indices, batch_dims=1)

    def body(t, tokens, live, sequences, scores, ended, state):
        logits, state = step_fn(tf.reshape(tokens, [rows]), state)
        vocabulary = logits.shape[-1]
        log_p = tf.nn.log_softmax(tf.cast(logits, tf.float32))
        log_p = tf.reshape(log_p, [batch_size, beams, vocabulary]) + live[..., tf.newaxis]
        only_end = tf.equal(t, max_length - 1) & tf.not_equal(tf.range(vocabulary), eos_id)
        log_p = tf.where(only_end, _NOTHING, log_p)
        log_probs, best = tf.math.top_k(tf.reshape(log_p, [batch_size, beams * vocabulary]), 2 * beams)
        parents, token_ids = best // vocabulary, best % vocabulary
        is_end = tf.equal(token_ids, eos_id)
        grown = take(sequences, parents)
        grown = tf.where(tf.equal(tf.range(max_length), t), token_ids[..., tf.newaxis], grown)

        done = scores[:, -1:] > _NOTHING
        penalty = ((6 + tf.cast(t, tf.float32)) / 6) ** length_penalty
        new = tf.where(is_end[:, :beams] & ~done, log_probs[:, :beams] / penalty, _NOTHING)
        scores, kept = tf.math.top_k(tf.concat([scores, new], 1), beams)
        ended = take(tf.concat([ended, grown[:, :beams]], 1), kept)

        live, kept = tf.math.top_k(tf.where(is_end, _NOTHING, log_probs), beams)
        tokens, parents = take(token_ids, kept), take(parents, kept)
        order = tf.reshape(parents + first_rows, [rows])
        state = tf.nest.map_structure(lambda x: tf.gather(x, order), state)
        return t + 1, tokens, live, take(grown, kept), scores, ended, state

    start = (tf.constant(0), tf.fill([batch_size, beams], bos_id), live, sequences, nothing, sequences, state)
    end = tf.while_loop(
        lambda t, tokens, live, grown, scores, *_: (t < max_length) & tf.reduce_any(tf.equal(scores[:, -1], _NOTHING)),
        body,
        start,
        maximum_iterations=max_length,
    )
    return end[5][:, 0], end[4][:, 0]


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
                return composed_step(*x, eos_id=2, **options)

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
        return composed_search(step_fn, h, eos_id=0, **options)[0]

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


def attend_with(cache, query, key, value):
    """Returns a cache of keys, values and lengths after a step, which a search copies for its beams, and the output."""
    keys, values, lengths = cache
    keys, values = tfo.nn.update_cache(keys, key, lengths), tfo.nn.update_cache(values, value, lengths)
    output = tfo.nn.attention(query, keys, values, causal=True, key_lengths=lengths + 1)
    return (keys, values, lengths + 1), output


@table()
def caches(batch=8, beams=5, tokens=1000, steps=64, heads=8, depth=64):
    """A search of 8 x 5 beams and 64 steps after a prompt; the model is attention of 8 heads of 64 over a cache.

    "gather" keeps the cache in tensors that the search gathers by the beams' parents.
    """
    embedding, output = normal(tokens, 3, heads, depth), normal(heads * depth, tokens, seed=1)

    def step_of(attend):
        def step_fn(token_ids, cache):
            query, key, value = tf.unstack(tf.gather(embedding, token_ids)[:, tf.newaxis], axis=2)
            cache, attended = attend(cache, query, key, value)
            return tf.matmul(tf.reshape(attended, [-1, heads * depth]), output), cache

        return step_fn

    def attend_in_place(cache, query, key, value):
        cache = cache.append(key, value)
        return cache, cache.attend(query)

    for prompt in (64, 512, 2048):
        length = prompt + steps
        first = tfo.seq2seq.KeyValueCache.create(batch, length, heads, depth)
        first = first.append(*(normal(batch, prompt, heads, depth, seed=i) for i in (2, 3)))

        def search(attend, keys, values, lengths, length=length):
            cache = keys, values, lengths
            if attend is attend_in_place:
                cache = tfo.seq2seq.KeyValueCache(*cache, ancestors=tf.zeros([batch, length], tf.int32))
            options = {"batch_size": batch, "beam_width": beams, "max_length": steps, "bos_id": 1, "eos_ids": [0]}
            return tfo.seq2seq.beam_search(step_of(attend), cache, **options).sequences

        inputs = first.keys, first.values, first.lengths
        yield Case(
            {"positions of the prompt": prompt},
            in_graph(lambda *x, search=search: search(attend_in_place, *x), inputs),
            {"gather": in_graph(lambda *x, search=search: search(attend_with, *x), inputs)},
        )
