"""Compositions of the ops of beam search in tensorflow_ops/seq2seq/. seq2seq_ctc.py has the CTC decoders."""

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import NOTHING, expand, index_range, rows_of, widened
from tensorflow_ops.export.python.nn_sequences import loop, with_row


def counted(logits):
    """Returns wide logits as decoders read them: NaN as -inf, +inf as the largest finite number."""
    logits = widened(logits)
    logits = tf.where(tf.math.is_nan(logits), tf.constant(NOTHING, logits.dtype), logits)
    return tf.minimum(logits, logits.dtype.max)


def only(condition, scores):
    """Returns scores, and -inf where the condition does not hold."""
    return tf.where(condition, scores, tf.constant(NOTHING, scores.dtype))


@composition("BeamSearchStep", [3, 2, 2, 2, 1, 0, 0, 0, 3])
def _beam_search_step(logits, log_probs, finished, lengths, eos_ids, length_penalty, eos_rule, beam_width, forbidden):
    """Takes the best of all candidates [beams * vocabulary]; top_k prefers the first of equal ones, as the op does."""
    logits = counted(logits)
    shape = tf.shape(logits)
    batch, beams, vocabulary = shape[0], shape[1], shape[2]
    tokens = tf.range(vocabulary)
    is_eos = tf.reduce_any(tf.equal(expand(tokens, 1), eos_ids), 1)
    first_eos = tf.concat([eos_ids, [0]], 0)[0]

    # eos_rule: 0, any token may follow; 1, no end token; 2, only an end token.
    may_follow = tf.equal(eos_rule, 0) | tf.equal(is_eos, tf.equal(eos_rule, 2))
    if forbidden:
        may_follow &= tf.logical_not(forbidden[0])
    grown = only(may_follow, expand(log_probs, -1) + rows_of(logits).log_prob)
    stayed = only(tf.equal(tokens, first_eos), expand(log_probs, -1))
    candidates = tf.where(expand(finished, -1), stayed, grown)
    next_lengths = lengths + tf.cast(tf.logical_not(finished), tf.int32)
    penalty = ((5 + tf.cast(next_lengths, logits.dtype)) / 6) ** tf.cast(length_penalty, logits.dtype)
    scores = candidates / expand(penalty, -1)
    # Not NaN, of a beam whose log probability is NaN.
    scores = tf.reshape(only(scores > NOTHING, scores), tf.stack([batch, beams * vocabulary]))

    scores = tf.pad(scores, [[0, 0], [0, tf.maximum(beam_width - beams * vocabulary, 0)]], constant_values=NOTHING)
    best, places = tf.math.top_k(scores, beam_width)
    is_beam = best > NOTHING
    places = tf.where(is_beam, places, 0)
    parents, token_ids = places // vocabulary, places % vocabulary
    flat = tf.reshape(candidates, tf.stack([batch, beams * vocabulary]))
    return (
        only(is_beam, tf.gather(flat, places, batch_dims=1)),
        tf.where(is_beam, token_ids, first_eos),
        parents,
        tf.logical_not(is_beam) | tf.gather(finished, parents, batch_dims=1) | tf.gather(is_eos, token_ids),
        tf.where(is_beam, tf.gather(next_lengths, parents, batch_dims=1), lengths[:, :1]),
    )


@composition("GatherTree", [3, 3, 2, 0])
def _gather_tree(token_ids, parent_ids, lengths, pad_id):
    """Follows parents from each beam's last time to its first. Pads from an invalid one on, as a GPU does."""
    shape = tf.shape(token_ids)
    beams = index_range(token_ids)

    def step(i, sequences, place):
        t = shape[0] - 1 - i
        # The beam of each sequence at time t; -1: none.
        place = tf.where(tf.equal(lengths, t + 1), beams, place)
        is_token, place = place >= 0, tf.maximum(place, 0)
        tokens = tf.where(is_token, tf.gather(token_ids[t], place, batch_dims=1), pad_id)
        parents = tf.gather(parent_ids[t], place, batch_dims=1)
        is_parent = is_token & (parents >= 0) & (parents < tf.cast(shape[2], parents.dtype))
        return with_row(sequences, t, tokens), tf.where(is_parent, tf.cast(parents, tf.int32), -1)

    count = tf.where(tf.equal(tf.size(token_ids), 0), 0, shape[0])
    sequences, _ = loop(count, step, tf.zeros_like(token_ids), tf.zeros_like(lengths) - 1)
    return sequences
