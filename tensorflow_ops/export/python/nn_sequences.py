"""Compositions of the ops of sequences in tensorflow_ops/nn/: losses of transcripts, conditional random fields.

Sums over paths are logarithms. A loop over frames keeps a row for each example, which stays after the example's length.
"""

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import (
    NAN,
    NOTHING,
    as_int32,
    expand,
    finite_or_zero,
    index_range,
    rows_of,
    softmax,
    widened,
    zero_if,
)


def log_sum_exp(x, axis):
    """Returns log sum e^x; -inf for numbers that are all -inf, NaN for a NaN or +inf."""
    largest = tf.reduce_max(x, axis, keepdims=True)
    total = tf.reduce_sum(tf.exp(x - finite_or_zero(largest)), axis)
    return tf.math.log(total) + finite_or_zero(tf.squeeze(largest, axis))


def log_add_exp(*tensors):
    """Returns log sum e^x of tensors."""
    return log_sum_exp(tf.stack(tensors), 0)


def before(x, count=1, value=NOTHING):
    """Moves columns of [rows, columns] to the right by `count`, and fills the first ones with `value`."""
    return tf.pad(x, [[0, 0], [count, 0]], constant_values=value)[:, : tf.shape(x)[1]]


def at(x, index):
    """Returns column index[i] of each row i."""
    return tf.reduce_sum(zero_if(tf.not_equal(index_range(x, index.dtype), expand(index, 1)), x), -1)


def loop(count, body, *state):
    """Returns the state after body(i, *state) for i in [0, count). Static shapes may differ between iterations."""
    shapes = [tf.TensorShape([None] * x.shape.rank) for x in state]
    _, *state = tf.while_loop(
        lambda i, *_: i < count,
        lambda i, *state: (i + 1, *body(i, *state)),
        (tf.constant(0), *state),
        shape_invariants=(tf.TensorShape([]), *shapes),
    )
    return state


def stacked(rows, body, *state):
    """Returns rows and a state after body(i, *state), which returns row i and a new state. Ignores the rows' values.

    Collects rows in blocks: LiteRT copies what a loop collects in each step.
    """
    count = tf.shape(rows)[0]
    length = tf.cast(tf.math.ceil(tf.sqrt(tf.cast(tf.maximum(count, 1), tf.float32))), tf.int32)
    blocks = (count + length - 1) // length
    missing = blocks * length - count  # of the first block

    def append(rows, tail):
        return tf.concat([rows[tf.shape(tail)[0] :], tail], 0)

    def append_block(i, rows, *state):
        first = i * length - missing

        def append_row(block, j, *state):
            row, *state = body(first + j, *state)
            return append(block, expand(row, 0)), j + 1, *state

        # tf2onnx gives what conditions read the same name in both loops, unless its place in the state differs.
        block, _, *state = tf.while_loop(
            lambda _, j, *state: j < length,
            append_row,
            (rows[:length], tf.maximum(-first, 0), *state),
            shape_invariants=tuple(tf.TensorShape([None] * x.shape.rank) for x in (rows, i, *state)),
        )
        return append(rows, block), *state

    return loop(blocks, append_block, rows, *state)


class _Sequences:
    """Labels [batch, labels] and lengths [batch] as int32, and whether they are valid."""

    def __init__(self, labels, logits, label_lengths, logit_lengths, blank_index, least_frames):
        shape = tf.shape(logits)
        frames, classes = shape[1], shape[-1]
        self.blank = classes - 1 if blank_index == -1 else tf.constant(blank_index)
        self.label_lengths, self.frames = as_int32(label_lengths), as_int32(logit_lengths)
        is_label = index_range(labels) < expand(self.label_lengths, 1)
        labels = as_int32(labels)
        is_valid = (labels >= 0) & (labels < classes) & tf.not_equal(labels, self.blank)
        self.is_valid = tf.reduce_all(is_valid | tf.logical_not(is_label), 1)
        self.is_valid &= (self.label_lengths >= 0) & (self.label_lengths <= tf.shape(labels)[1])
        self.is_valid &= (self.frames >= least_frames) & (self.frames <= frames)
        self.labels = tf.where(is_label & is_valid, labels, self.blank)

    def loss(self, log_probability):
        return tf.where(self.is_valid, -log_probability, tf.constant(NAN, log_probability.dtype))


@composition("CtcLoss", [2, 3, 1, 1])
def _ctc_loss(labels, logits, label_lengths, logit_lengths, *, blank_index, zero_infinity):
    """Sums over paths through blank, label, blank, label, ..., blank (Graves et al. 2006)."""
    s = _Sequences(labels, logits, label_lengths, logit_lengths, blank_index, 0)
    rows = rows_of(widened(logits))
    log_probs = rows.log_prob
    shape = tf.shape(s.labels)
    states = tf.stack([tf.fill(shape, s.blank), s.labels], 2)
    states = tf.pad(tf.reshape(states, [shape[0], 2 * shape[1]]), [[0, 0], [0, 1]])
    is_label = tf.equal(index_range(states) % 2, 1)
    states = tf.where(is_label, states, s.blank)
    # A path may leave out the blank between labels that differ.
    may_skip = is_label & tf.not_equal(states, before(states, 2, -1))

    def step(t, paths):
        emitted = tf.gather(tf.gather(log_probs, t, axis=1), states, batch_dims=1)
        skipped = tf.where(may_skip, before(paths, 2), tf.constant(NOTHING, paths.dtype))
        to = log_add_exp(paths, before(paths), skipped) + emitted
        return [tf.where(expand(t < s.frames, 1), to, paths)]

    first = tf.zeros([shape[0], 1], log_probs.dtype)
    first = tf.pad(first, [[0, 0], [0, 2 * shape[1]]], constant_values=NOTHING)
    (paths,) = loop(tf.shape(logits)[1], step, first)
    # The last blank, and the last label; before(paths), as an example without labels has none.
    last = 2 * s.label_lengths
    loss = s.loss(log_add_exp(at(paths, last), at(before(paths), last)))
    if zero_infinity:
        loss = zero_if(loss >= -NOTHING, loss)
    is_padding = index_range(rows.rest) >= expand(s.frames, 1)
    return loss, zero_if(is_padding, rows.largest), zero_if(is_padding, rows.rest)


@composition("RnntLoss", [2, 4, 1, 1])
def _rnnt_loss(labels, logits, label_lengths, logit_lengths, *, blank_index):
    """Sums over paths through frames and labels, by diagonals: a node's predecessors are on the one before."""
    s = _Sequences(labels, logits, label_lengths, logit_lengths, blank_index, 1)
    rows = rows_of(widened(logits))
    log_probs = rows.log_prob
    classes = index_range(logits)

    def of_classes(index):
        """Returns the log probabilities of classes index [batch, labels + 1 or 1] by diagonals."""
        is_class = tf.equal(classes, expand(index, 1, 3))
        return _diagonals(tf.reduce_sum(zero_if(tf.logical_not(is_class), log_probs), -1))

    blanks = of_classes(tf.reshape(s.blank, [1, 1]))
    nexts = of_classes(tf.pad(s.labels, [[0, 0], [0, 1]]))
    labels = tf.range(tf.shape(logits)[2])
    last_diagonal = s.frames - 1 + s.label_lengths

    def step(d, paths, total):
        # paths[u]: to node (d - u, u). Others have none.
        is_node = (d >= labels) & (d - labels < tf.shape(logits)[1])
        paths = tf.where(is_node, paths, tf.constant(NOTHING, paths.dtype))
        to_right, up = (paths + tf.gather(of, d, axis=2) for of in (blanks, nexts))
        total = tf.where(tf.equal(d, last_diagonal), at(to_right, s.label_lengths), total)
        return log_add_exp(to_right, before(up)), total

    first = tf.zeros([tf.shape(logits)[0], 1], log_probs.dtype)
    paths = tf.pad(first, [[0, 0], [0, tf.shape(s.labels)[1]]], constant_values=NOTHING)
    _, total = loop(tf.shape(blanks)[2], step, paths, first[:, 0])
    is_padding = index_range(rows.rest) > expand(s.label_lengths, 1, 2)
    is_padding |= expand(tf.range(tf.shape(logits)[1]) >= expand(s.frames, 1), -1)
    return s.loss(total), zero_if(is_padding, rows.largest), zero_if(is_padding, rows.rest)


def _diagonals(nodes):
    """Returns x[b, u, d] = nodes[b, d - u, u] of nodes [batch, frames, labels + 1]; -inf where there is none."""
    shape = tf.shape(nodes)
    batch, frames, states = shape[0], shape[1], shape[2]
    # Rows that are one longer than those read from them move by one each.
    padded = tf.pad(tf.transpose(nodes, [0, 2, 1]), [[0, 0], [0, 0], [0, states]], constant_values=NOTHING)
    flat = tf.reshape(padded, tf.stack([batch, states * (frames + states)]))
    return tf.reshape(flat[:, : states * (frames + states - 1)], tf.stack([batch, states, frames + states - 1]))


class _Crf:
    """Scores of tags [batch, frames, tags] and of transitions, and lengths [batch] as int32."""

    def __init__(self, logits, transitions, lengths):
        self.logits, self.transitions, self.lengths = widened(logits), transitions, as_int32(lengths)
        self.frames = tf.shape(logits)[1]
        # None without examples: an update of an empty tensor is an error.
        self.steps = self.frames * tf.minimum(tf.shape(logits)[0], 1)
        self.is_frame = tf.range(self.frames) < expand(self.lengths, 1)
        self.has_length = (self.lengths >= 0) & (self.lengths <= self.frames)
        # [frames, batch, tags]
        self.by_frames = tf.transpose(self.logits, [1, 0, 2])
        self.nan = tf.constant(NAN, self.logits.dtype)

    def paths(self, best):
        """Returns the scores of all paths to each tag, or of the best, at all frames and at the last one.

        [frames, batch, tags] and [batch, tags], less the shifts [batch], the third result. After an example's length,
        the scores of its last frame.
        """

        def reduce(scores):
            return tf.reduce_max(_without_nan(scores), 1) if best else log_sum_exp(scores, 1)

        def step(t, by_frames, scores, shifts):
            to = zero_if(tf.equal(t, 0), reduce(expand(scores, 2) + self.transitions)) + self.by_frames[t]
            if best:
                to = _without_nan(to)
            shift = tf.reduce_max(to, 1)
            shift = tf.where(tf.math.is_finite(shift), shift, tf.zeros_like(shift))
            scores = tf.where(expand(t < self.lengths, 1), to - expand(shift, 1), scores)
            shifts += zero_if(t >= self.lengths, shift)
            return with_row(by_frames, t, scores), scores, shifts

        zeros = tf.zeros(tf.shape(self.by_frames)[1:], self.logits.dtype)
        return loop(self.steps, step, tf.zeros_like(self.by_frames), zeros, tf.reduce_sum(zeros, 1))


def _without_nan(scores):
    return tf.where(tf.math.is_nan(scores), tf.constant(NOTHING, scores.dtype), scores)


def with_row(rows, i, row):
    """Returns rows with another row i."""
    return tf.tensor_scatter_nd_update(rows, tf.reshape(i, [1, 1]), expand(row, 0))


@composition("CrfLogLikelihood", [2, 3, 2, 1])
def _crf_log_likelihood(labels, logits, transitions, lengths):
    crf = _Crf(logits, transitions, lengths)
    labels, tags = as_int32(labels), tf.shape(logits)[2]
    is_tag = (labels >= 0) & (labels < tags)
    labels = zero_if(tf.logical_not(is_tag), labels)
    is_valid = crf.has_length & tf.reduce_all(is_tag | tf.logical_not(crf.is_frame), 1)
    is_label = tf.equal(tf.range(tags), expand(labels, -1)) & expand(crf.is_frame, -1)
    score = tf.reduce_sum(zero_if(tf.logical_not(is_label), crf.logits), [1, 2])
    pairs = tf.gather(tf.reshape(transitions, [-1]), labels[:, :-1] * tags + labels[:, 1:])
    score += tf.reduce_sum(zero_if(tf.logical_not(crf.is_frame[:, 1:]), pairs), 1)
    _, last, shifts = crf.paths(best=False)
    log_z = shifts + log_sum_exp(last, 1)
    result = tf.where(log_z <= NOTHING, log_z, score - log_z)
    result = zero_if((result > 0) | tf.equal(crf.lengths, 0), result)
    return tf.where(is_valid, result, crf.nan)


@composition("CrfMarginals", [3, 2, 1])
def _crf_marginals(logits, transitions, lengths):
    crf = _Crf(logits, transitions, lengths)
    before, last, _ = crf.paths(best=False)

    def step(i, marginals, after):
        t = crf.frames - 1 - i
        marginals = with_row(marginals, t, softmax(before[t] + after, log=False))
        after = log_sum_exp(crf.transitions + expand(crf.by_frames[t] + after, 1), 2)
        largest = tf.reduce_max(after, 1, keepdims=True)
        after -= tf.where(tf.math.is_finite(largest), largest, tf.zeros_like(largest))
        return marginals, zero_if(expand(t >= crf.lengths, 1), after)

    # Not before, whose -inf LiteRT's converter would multiply by 0 to set a row.
    marginals, _ = loop(crf.steps, step, tf.zeros_like(before), tf.zeros_like(last))
    marginals = zero_if(expand(tf.logical_not(crf.is_frame), -1), tf.transpose(marginals, [1, 0, 2]))
    return tf.where(expand(crf.has_length, 1, 2), marginals, crf.nan)


@composition("CrfDecode", [3, 2, 1])
def _crf_decode(logits, transitions, lengths):
    crf = _Crf(logits, transitions, lengths)
    before, last, shifts = crf.paths(best=True)
    score = zero_if(tf.equal(crf.lengths, 0), tf.reduce_max(last, 1) + shifts)
    to_tags = tf.transpose(transitions)

    def step(i, labels, tag):
        # Scores before[t] of an example's last frame, or of a frame with a tag after it.
        t = crf.frames - 1 - i
        is_last = expand(t + 1 >= crf.lengths, 1)
        ways = before[t] + zero_if(is_last, tf.gather(to_tags, tag))
        tag = tf.argmax(_without_nan(ways), 1, tf.int32)
        return with_row(labels, t, zero_if(t >= crf.lengths, tag)), tag

    labels = tf.zeros(tf.shape(before)[:2], tf.int32)
    labels, _ = loop(crf.steps, step, labels, tf.zeros_like(crf.lengths))
    return tf.transpose(labels), tf.where(crf.has_length, score, crf.nan)
