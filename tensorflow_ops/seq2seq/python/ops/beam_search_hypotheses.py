"""Hypotheses of beam_search, the sequences that ended: scores, the best ones, the stop condition, the result."""

from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.seq2seq.python.ops import beam_search_ops
from tensorflow_ops.seq2seq.python.ops.beam_search_candidates import Candidates


class Hypotheses(NamedTuple):
    """Sequences that ended, best first: [B, G, W], for groups of width W; or [B, W], of one group."""

    scores: tf.Tensor  # -inf for a missing hypothesis
    log_probs: tf.Tensor  # without penalties
    ends: tf.Tensor  # int32 [.., 3]: length, beam before the end, last token


def no_hypotheses(shape, dtype):
    """Returns missing hypotheses only, of a shape and a dtype of scores."""
    nothing = tf.fill(shape, tf.constant(-float("inf"), dtype))
    return Hypotheses(scores=nothing, log_probs=nothing, ends=tf.zeros(tf.concat([shape, [3]], 0), tf.int32))


def score(options, log_probs, length):
    """Returns log probabilities divided by the length penalty."""
    if isinstance(options.length_penalty, float) and options.length_penalty == 0:
        return log_probs
    base = tf.cast(length, tf.float64)
    if options.length_normalization == "gnmt":
        base = (5 + base) / 6
    penalty = base ** arguments.constant_or_cast(options.length_penalty, tf.float64)
    # The penalty may overflow the dtype: -inf stays -inf.
    return tf.where(tf.math.is_inf(log_probs), log_probs, log_probs / tf.cast(penalty, log_probs.dtype))


def add_hypotheses(options, hypotheses, candidates, length):
    """Returns the best hypotheses of a group, of the old ones and of those candidates that end at a length."""
    width = options.group_width
    # Only the first `width` candidates can end. There are more, so that enough of them go on.
    first = Candidates(*(None if field is None else field[:, :width] for field in candidates))
    is_hypothesis = first.ends
    if options.counts_cut_off:
        is_hypothesis |= length >= options.max_length
    nothing = tf.constant(-float("inf"), first.log_probs.dtype)
    scores = tf.where(is_hypothesis, score(options, first.log_probs, length), nothing)
    ends = tf.stack([tf.zeros_like(first.parents) + length, first.parents, first.tokens], -1)
    log_probs = first.log_probs if first.penalties is None else first.log_probs + first.penalties
    scores, kept = tf.math.top_k(tf.concat([hypotheses.scores, scores], 1), width)
    return Hypotheses(
        scores,
        beam_search_ops.gather_by_beam(tf.concat([hypotheses.log_probs, log_probs], 1), kept),
        beam_search_ops.gather_by_beam(tf.concat([hypotheses.ends, ends], 1), kept),
    )


def is_done(options, hypotheses, best, length):
    """Returns whether the search of a group ends, bool [B].

    Args:
      options: the Options.
      hypotheses: those of the group.
      best: [B], the log probability of the best unfinished sequence.
      length: of the unfinished sequences.
    """
    nothing = tf.constant(-float("inf"), best.dtype)
    worst = hypotheses.scores[:, -1]
    if options.early_stopping is True:
        return (worst > nothing) | tf.equal(best, nothing)
    if options.early_stopping == "never":
        length = tf.where(options.length_penalty > 0, options.max_length, length)
    return tf.logical_not(score(options, best, length) > worst)


def best_sequences(options, hypotheses, steps, token_list, parent_list, batch_size):
    """Returns the fields of a BeamSearchResult: the best hypotheses of all groups, followed back to their first tokens.

    Args:
      options: the Options.
      hypotheses: those of all groups.
      steps: the decoder.Steps of the two lists.
      token_list: the tokens [B, K] of each step.
      parent_list: the parents [B, K] of each step.
      batch_size: B.
    """
    count = options.num_return_sequences
    flat = [batch_size, options.beam_width]
    scores, kept = tf.math.top_k(tf.reshape(hypotheses.scores, flat), count)
    log_probs = beam_search_ops.gather_by_beam(tf.reshape(hypotheses.log_probs, flat), kept)
    ends = beam_search_ops.gather_by_beam(tf.reshape(hypotheses.ends, [*flat, 3]), kept)
    lengths, parents, last_tokens = tf.unstack(ends, axis=-1)
    lengths = tf.where(scores > -float("inf"), lengths, 0)

    # A beam for each end, beside the K beams of unfinished sequences.
    examples = tf.broadcast_to(tf.range(batch_size)[:, tf.newaxis], tf.shape(lengths))
    at = tf.stack([tf.maximum(lengths - 1, 0), examples, tf.zeros_like(lengths) + tf.range(count)], -1)
    shape = [options.max_length, batch_size, count]

    def with_ends(handle, values):
        return tf.concat([steps.stack(handle), tf.scatter_nd(at, values, shape)], 2)

    tree = beam_search_ops.gather_tree(
        with_ends(token_list, last_tokens),
        with_ends(parent_list, parents),
        tf.concat([tf.zeros(flat, tf.int32), lengths], 1),
        pad_id=options.pad_id,
    )
    sequences = tf.transpose(tree[:, :, options.beam_width :], [1, 2, 0])
    batch = tf.get_static_value(batch_size)
    static = [None if batch is None else int(batch), count]
    length = options.max_length if isinstance(options.max_length, int) else None
    return (
        tf.ensure_shape(sequences, [*static, length]),
        tf.ensure_shape(lengths, static),
        tf.stop_gradient(scores),
        tf.stop_gradient(log_probs),
    )
