"""Compositions of the CTC decoders in tensorflow_ops/seq2seq/."""

from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import NAN, NOTHING, expand, index_range, log1p, rows_of, zero_if
from tensorflow_ops.export.python.nn_sequences import before, log_add_exp, loop
from tensorflow_ops.export.python.seq2seq import counted, only


def _blank(logits, blank_index):
    return tf.shape(logits)[-1] - 1 if blank_index == -1 else tf.constant(blank_index)


def _valid_lengths(logits, lengths):
    """Returns lengths as int32, 0 where they are out of range, and whether they are in range."""
    is_valid = (lengths >= 0) & (lengths <= tf.shape(logits, lengths.dtype)[1])
    return tf.where(is_valid, tf.cast(lengths, tf.int32), 0), is_valid


@composition("CtcGreedyDecode", [3, 1])
def _ctc_greedy_decode(logits, logit_lengths, *, blank_index, merge_repeated, pad_id):
    lengths, is_valid = _valid_lengths(logits, logit_lengths)
    logits, blank = counted(logits), _blank(logits, blank_index)
    rows = rows_of(logits)
    classes = tf.argmax(logits, -1, tf.int32)
    is_frame = tf.range(tf.shape(logits)[1]) < expand(lengths, 1)
    log_probs = only(rows.rest > -1, -log1p(rows.rest))
    log_probs = tf.reduce_sum(zero_if(tf.logical_not(is_frame), log_probs), 1)

    is_label = is_frame & tf.not_equal(classes, blank)
    if merge_repeated:
        is_label &= tf.not_equal(classes, before(classes, 1, -1))
    # Labels move to their places, all else beyond the last frame.
    shape = tf.shape(classes)
    counts = tf.cumsum(tf.cast(is_label, tf.int32), 1)
    places = tf.where(is_label, counts - 1, shape[1])
    places = tf.stack([tf.broadcast_to(expand(tf.range(shape[0]), 1), shape), places], -1)
    labels = tf.tensor_scatter_nd_update(tf.fill(tf.stack([shape[0], shape[1] + 1]), pad_id), places, classes)
    lengths = tf.reduce_sum(tf.cast(is_label, tf.int32), 1)
    return labels[:, :-1], lengths, tf.where(is_valid, log_probs, tf.constant(NAN, log_probs.dtype))


# Two moduli near 2^31 and their multipliers: products fit in 63 bits.
_MODULI, _MULTIPLIERS = (2147483647, 2147483629), (1103515245, 1664525)


class _Beam(NamedTuple):
    """Prefixes [batch, beam_width], best first, then missing ones."""

    blank: tf.Tensor  # log probability of paths that end with blank; -inf for a missing prefix
    label: tf.Tensor  # ... with the last label
    bonus: tf.Tensor  # what the score adds
    last: tf.Tensor  # int64, the last label, or -1
    id: tf.Tensor  # int64 [..., 2], hashes of the labels
    parent: tf.Tensor  # ... of those without the last

    @property
    def total(self):
        return log_add_exp(self.blank, self.label)

    @property
    def exists(self):
        return self.total > NOTHING

    def at(self, places):
        """Returns other prefixes [batch, count]."""
        return _Beam(*(tf.gather(x, places, batch_dims=1) for x in self))

    def or_missing(self, exists):
        """Returns prefixes that are missing where `exists` is False."""
        return self._replace(
            blank=only(exists, self.blank),
            label=only(exists, self.label),
            bonus=zero_if(tf.logical_not(exists), self.bonus),
            last=tf.where(exists, self.last, tf.constant(-1, tf.int64)),
            id=zero_if(expand(tf.logical_not(exists), -1), self.id),
            parent=zero_if(expand(tf.logical_not(exists), -1), self.parent),
        )


def _frame_log_probs(logits, dtype):
    """Returns log probabilities of counted logits, in the dtype of the search."""
    rows = rows_of(logits)
    return rows._replace(rest=tf.cast(rows.rest, dtype), below=tf.cast(rows.below, dtype)).log_prob


def _advance(beam, frame, blank, labels, bonuses):
    """Returns the beam after a frame, the places of its prefixes or their parents before, and added labels or -1.

    Args:
      beam: a _Beam of K prefixes.
      frame: [batch, classes], log probabilities.
      blank: a class.
      labels: int32 [batch, R], classes that may extend a prefix, or blank, which does not.
      bonuses: what an extension adds to the bonus, of a shape that broadcasts to [batch, K, R]; -inf forbids it.
    """
    shape = tf.shape(beam.last)
    width, count = shape[1], tf.shape(labels)[1]
    exists, total = beam.exists, beam.total
    is_parent = tf.reduce_all(tf.equal(expand(beam.id, 2), expand(beam.parent, 1)), -1)
    is_parent &= expand(exists, 2) & expand(exists & (beam.last >= 0), 1)

    # A label that repeats the last one only follows a blank.
    repeats = tf.equal(expand(beam.last, 2), expand(beam.last, 1))
    extended = tf.where(repeats, expand(beam.blank, -1), expand(total, -1))
    extended = tf.reduce_max(only(is_parent, extended), 1)
    last = tf.gather(frame, tf.maximum(beam.last, 0), batch_dims=1)
    stays = beam._replace(
        blank=total + expand(frame[:, blank], 1),
        label=only(beam.last >= 0, log_add_exp(beam.label + last, extended + last)),
    )

    wide = expand(tf.cast(labels, tf.int64), 1)
    is_last = tf.equal(expand(beam.last, -1), wide)
    log_probs = tf.where(is_last, expand(beam.blank, -1), expand(total, -1))
    log_probs += expand(tf.gather(frame, labels, batch_dims=1), 1)
    bonuses = tf.zeros_like(log_probs) + expand(beam.bonus, -1) + bonuses
    is_in_beam = tf.matmul(tf.cast(is_parent, tf.float32), tf.cast(is_last, tf.float32)) > 0
    may_extend = expand(exists, -1) & tf.logical_not(is_in_beam) & expand(tf.not_equal(labels, blank), 1)

    def flat(x):
        return tf.reshape(x, tf.stack([shape[0], width * count]))

    # Of equal scores top_k prefers the first: stays, then lower prefixes, then the order of labels.
    scores = tf.concat([only(exists, stays.total + beam.bonus), flat(only(may_extend, log_probs + bonuses))], 1)
    best, places = tf.math.top_k(only(scores > NOTHING, scores), width)
    is_new, extension = places >= width, tf.maximum(places - width, 0)
    parents = tf.where(is_new, extension // count, places)
    added = tf.gather(labels, extension % count, batch_dims=1)
    stays, from_beam = stays.at(parents), beam.at(parents)
    ids = from_beam.id * tf.constant(_MULTIPLIERS, tf.int64) + expand(tf.cast(added, tf.int64), -1) + 1
    new = _Beam(
        only(tf.logical_not(is_new), stays.blank),
        tf.where(is_new, tf.gather(flat(log_probs), extension, batch_dims=1), stays.label),
        tf.where(is_new, tf.gather(flat(bonuses), extension, batch_dims=1), stays.bonus),
        tf.where(is_new, tf.cast(added, tf.int64), stays.last),
        tf.where(expand(is_new, -1), ids % tf.constant(_MODULI, tf.int64), stays.id),
        tf.where(expand(is_new, -1), from_beam.id, stays.parent),
    )
    is_kept = best > NOTHING
    return new.or_missing(is_kept), tf.where(is_kept, parents, 0), tf.where(is_kept & is_new, added, -1)


@composition("CtcBeamSearchStep", [2, 1, 3, 3, 3, 0, 0])
def _ctc_beam_search_step(logits, is_frame, weights, prefixes, label_scores, lm_weight, label_bonus, *, blank_index):
    """Advances by all labels. Ids of prefixes are other hashes than the op's: a search uses the one or the other."""
    logits, blank = counted(logits), _blank(logits, blank_index)
    beam = _Beam(*(weights[..., i] for i in range(3)), prefixes[..., 0], prefixes[..., 1:3], prefixes[..., 3:])
    scores = tf.cast(counted(label_scores), tf.float64)
    bonuses = only(scores > NOTHING, lm_weight * scores + label_bonus)
    labels = tf.broadcast_to(index_range(logits), tf.shape(logits))
    advanced, parents, added = _advance(beam, _frame_log_probs(logits, tf.float64), blank, labels, bonuses)
    stayed = beam.or_missing(beam.exists)
    beam = _Beam(*(_where_frame(is_frame, *pair) for pair in zip(advanced, stayed, strict=True)))
    places = tf.where(beam.exists, tf.range(tf.shape(weights)[1]), 0)
    return (
        tf.stack([beam.blank, beam.label, beam.bonus], 2),
        tf.concat([expand(beam.last, -1), beam.id, beam.parent], 2),
        _where_frame(is_frame, parents, places),
        _where_frame(is_frame, added, tf.zeros_like(added) - 1),
    )


def _where_frame(is_frame, new, old):
    return tf.where(tf.reshape(is_frame, [-1] + [1] * (new.shape.rank - 1)), new, old)


@composition("CtcBeamSearchDecode", [3, 1, 0])
def _ctc_beam_search_decode(logits, logit_lengths, label_bonus, *, blank_index, beam_width, top_paths, pad_id):
    """Advances by the best labels of each frame. Computes in the scores' dtype; the op in float64."""
    lengths, is_valid = _valid_lengths(logits, logit_lengths)
    logits, blank = counted(logits), _blank(logits, blank_index)
    shape = tf.shape(logits)
    batch, frames, classes = shape[0], shape[1], shape[2]
    # Of these one at most is blank, and one repeats a prefix's last label (ctc_beams.h).
    count = tf.minimum(classes, beam_width + 1)
    is_blank = tf.equal(tf.range(classes), blank)
    label_bonus = tf.cast(label_bonus, logits.dtype)

    def step(t, sequences, num_labels, *beam):
        beam, frame = _Beam(*beam), tf.gather(logits, t, axis=1)
        _, labels = tf.math.top_k(only(tf.logical_not(is_blank), frame), count)
        advanced, parents, added = _advance(beam, _frame_log_probs(frame, logits.dtype), blank, labels, label_bonus)
        is_frame = t < lengths
        old, num_old = (tf.gather(x, parents, batch_dims=1) for x in (sequences, num_labels))
        is_added = expand(added >= 0, -1) & tf.equal(tf.range(frames), expand(num_old, -1))
        new = tf.where(is_added, expand(added, -1), old), num_old + tf.cast(added >= 0, tf.int32), *advanced
        return [_where_frame(is_frame, *pair) for pair in zip(new, (sequences, num_labels, *beam), strict=True)]

    size = tf.stack([batch, beam_width])
    nothing = tf.fill(size, tf.constant(NOTHING, logits.dtype))
    is_first = tf.equal(tf.range(beam_width), 0)
    ids = tf.zeros(tf.concat([size, [2]], 0), tf.int64)
    empty = _Beam(
        zero_if(is_first, nothing), nothing, tf.zeros_like(nothing), tf.fill(size, tf.constant(-1, tf.int64)), ids, ids
    )
    sequences = tf.fill(tf.stack([batch, beam_width, frames]), pad_id)
    sequences, num_labels, *beam = loop(frames, step, sequences, tf.zeros(size, tf.int32), *empty)
    beam = _Beam(*(x[:, :top_paths] for x in beam))
    exists = beam.exists & expand(is_valid, 1)
    log_probs = tf.where(expand(is_valid, 1), beam.total, tf.constant(NAN, logits.dtype))
    return (
        tf.where(expand(exists, -1), sequences[:, :top_paths], pad_id),
        zero_if(tf.logical_not(exists), num_labels[:, :top_paths]),
        log_probs + beam.bonus,
        log_probs,
    )
