"""The peers: a step of beam search and a whole search, composed of TensorFlow ops."""

import tensorflow as tf

_NOTHING = -float("inf")


def step(logits, log_probs, finished, lengths, *, eos_id, beam_width, length_penalty=0.0):
    """Computes `tfo.seq2seq.beam_search_step` for one end token and logits without NaN."""
    beams, tokens = logits.shape[1:]
    logits = tf.cast(logits, tf.float32)
    log_p = tf.nn.log_softmax(logits)
    only_end = tf.where(tf.range(tokens) == eos_id, 0.0, _NOTHING)
    log_p = tf.where(finished[..., tf.newaxis], only_end, log_p) + log_probs[..., tf.newaxis]
    next_lengths = lengths + tf.cast(tf.logical_not(finished), tf.int32)
    scores = log_p
    if length_penalty:
        penalty = ((5 + tf.cast(next_lengths, tf.float32)) / 6) ** length_penalty
        scores /= penalty[..., tf.newaxis]
    scores, best = tf.math.top_k(tf.reshape(scores, [-1, beams * tokens]), beam_width)
    parents, token_ids = best // tokens, best % tokens
    log_probs = tf.gather(tf.reshape(log_p, [-1, beams * tokens]), best, batch_dims=1) if length_penalty else scores
    finished = tf.gather(finished, parents, batch_dims=1) | (token_ids == eos_id)
    return log_probs, token_ids, parents, finished, tf.gather(next_lengths, parents, batch_dims=1)


def search(step_fn, state, *, batch_size, beam_width, max_length, bos_id, eos_id, length_penalty):
    """Returns the best sequences [B, T] and scores [B], like `tfo.seq2seq.beam_search` with early stopping.

    Reorders the sequences by beam in each step. Shapes are static, so XLA can compile it.
    """
    beams, rows = beam_width, batch_size * beam_width
    state = tf.nest.map_structure(lambda x: tf.repeat(x, beams, axis=0), state)
    live = tf.tile(tf.where(tf.range(beams) == 0, 0.0, _NOTHING)[tf.newaxis], [batch_size, 1])
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
        only_end = (t == max_length - 1) & (tf.range(vocabulary) != eos_id)
        log_p = tf.where(only_end, _NOTHING, log_p)
        log_probs, best = tf.math.top_k(tf.reshape(log_p, [batch_size, beams * vocabulary]), 2 * beams)
        parents, token_ids = best // vocabulary, best % vocabulary
        is_end = token_ids == eos_id
        grown = take(sequences, parents)
        grown = tf.where(tf.range(max_length) == t, token_ids[..., tf.newaxis], grown)

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
        lambda t, tokens, live, grown, scores, *_: (t < max_length) & tf.reduce_any(scores[:, -1] == _NOTHING),
        body,
        start,
        maximum_iterations=max_length,
    )
    return end[5][:, 0], end[4][:, 0]
