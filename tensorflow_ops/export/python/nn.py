"""Compositions of the ops of tensorflow_ops/nn/ along rows. nn_sequences.py and nn_deformable.py have the others.

Where an op raises an error for a value on a CPU, such as a label out of range, compositions return what a GPU does: NaN
for the row or the example. Graphs without this package have no portable way to raise it.
"""

from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.export.python.compositions import composition

NOTHING, NAN = -float("inf"), float("nan")


def widened(x):
    """Casts 16-bit floats to float32: the dtype of sums."""
    return tf.cast(x, arguments.at_least_float32(x.dtype))


def finite(x):
    return tf.equal(x - x, 0)


class Rows(NamedTuple):
    """What softmaxes of logits [..., classes] share."""

    largest: tf.Tensor  # [...]
    rest: tf.Tensor  # [...], the sum of e^(logit - largest), less 1; -1 where all logits are -inf
    below: tf.Tensor  # [..., classes], logit - largest; logit where largest is -inf
    exp: tf.Tensor  # [..., classes], e^below

    @property
    def log_sum(self):
        """The logarithm of the sum; 0 where all logits are -inf."""
        return zero_if(tf.equal(self.rest, -1), log1p(self.rest))

    @property
    def log_prob(self):
        """The log-softmax."""
        return self.below - expand(self.log_sum, -1)


def rows_of(logits):
    """Returns the `Rows` of wide logits. A NaN or +inf makes `rest` and its row of `exp` or of `below` NaN."""
    largest = tf.reduce_max(logits, -1)
    below = logits - expand(finite_or_zero(largest), -1)
    exp = tf.exp(below)
    # The largest term, 1, is left out of the sum and not subtracted from it: log1p of a sum near 1 needs it exact.
    is_first = tf.equal(index_range(logits), expand(tf.argmax(logits, -1, tf.int32), -1))
    return Rows(largest, tf.reduce_sum(exp - tf.cast(is_first, exp.dtype), -1), below, exp)


def log1p(x):
    """Returns log(1 + x), precise near 0, without the op, which ONNX lacks and LiteRT computes as log(1 + x)."""
    total = 1 + x
    is_tiny = tf.equal(total, 1)
    # What rounding changes in x, it changes in the logarithm by the same factor.
    factor = x / tf.where(is_tiny, tf.ones_like(x), total - 1)
    return tf.where(is_tiny, x, tf.math.log(total) * factor)


def expand(x, *axes):
    """Inserts axes, one after the other: of unknown dims, LiteRT does not convert x[:, tf.newaxis]."""
    for axis in axes:
        x = tf.expand_dims(x, axis)
    return x


def finite_or_zero(largest):
    """Returns a maximum to subtract before e^x: 0 for -inf."""
    # LiteRT's converter makes constants of infinity the largest finite numbers, which infinity does not equal.
    return tf.where(largest <= NOTHING, tf.zeros_like(largest), largest)


def index_range(tensor, dtype=tf.int32):
    """Returns the indices of the last axis."""
    return tf.range(tf.shape(tensor, dtype)[-1])


def as_int32(index):
    """Casts indices and lengths. Those that int32 does not hold become others that are out of range, too."""
    return index if index.dtype == tf.int32 else tf.cast(tf.clip_by_value(index, -1, arguments.MAX_INT32), tf.int32)


def zero_if(condition, values):
    """Returns values, and zero where the condition holds."""
    return tf.where(condition, tf.zeros_like(values), values)


@composition("Softmax", [None])
def softmax(logits, *, log):
    rows = rows_of(widened(logits))
    if log:
        return tf.cast(rows.log_prob, logits.dtype)
    total = tf.where(tf.equal(rows.rest, -1), tf.ones_like(rows.rest), rows.rest + 1)
    return tf.cast(rows.exp / expand(total, -1), logits.dtype)


@composition("SoftmaxEntropy", [None])
def _softmax_entropy(logits):
    rows = rows_of(widened(logits))
    weighted = tf.reduce_sum(zero_if(tf.equal(rows.exp, 0), rows.exp * rows.below), -1)
    entropy = rows.log_sum - weighted / (rows.rest + 1)
    return zero_if(tf.equal(rows.rest, -1), entropy), rows.largest, rows.rest


@composition("SoftmaxCrossEntropy", [None, None])
def _softmax_cross_entropy(labels, logits, *, label_smoothing):
    smoothing = sum(label_smoothing)
    rows = rows_of(widened(logits))
    labels = widened(labels) * (1 - smoothing)
    labels += smoothing / tf.cast(tf.shape(logits)[-1], labels.dtype)
    label_sum = tf.reduce_sum(labels, -1)
    # 0 * -inf is 0.
    of_labels = tf.reduce_sum(zero_if(tf.equal(labels, 0), labels * rows.below), -1)
    loss = label_sum * rows.log_sum - of_labels
    return tf.where(tf.math.is_nan(rows.rest), rows.rest, loss), rows.largest, rows.rest, label_sum


@composition("SparseSoftmaxCrossEntropy", [None, None])
def _sparse_softmax_cross_entropy(logits, labels, *, ignores, ignore_index, label_smoothing, z_loss, log_prob):
    smoothing, z = sum(label_smoothing), sum(z_loss)
    rows = rows_of(widened(logits))
    classes = tf.shape(logits)[-1]
    is_class = (labels >= 0) & (labels < tf.cast(classes, labels.dtype))
    places = tf.reshape(zero_if(tf.logical_not(is_class), labels), [-1])
    of_labels = tf.gather(tf.reshape(rows.below, tf.stack([-1, classes])), places, batch_dims=1)
    # Both terms are positive: the logarithm, and how far the label's logit is below the largest.
    loss = rows.log_sum - tf.reshape(of_labels, tf.shape(labels))
    if smoothing:
        loss = (1 - smoothing) * loss + smoothing * (rows.log_sum - tf.reduce_mean(rows.below, -1))
    if z:
        loss += z * tf.square(finite_or_zero(rows.largest) + rows.log_sum)
    loss = tf.where(tf.math.is_nan(rows.rest), rows.rest, loss)
    loss = tf.where(is_class, loss, tf.constant(NAN, loss.dtype))
    if ignores:
        loss = zero_if(tf.equal(labels, ignore_index), loss)
    return -loss if log_prob else loss, rows.largest, rows.rest


@composition("GaussianKl", [None, None, None])
def _gaussian_kl(q_mean, q_log_variance, p):
    means, log_variances = widened(q_mean), widened(q_log_variance)
    if p:
        p_mean, p_log_variance = map(widened, p)
        means -= p_mean
        log_variances -= p_log_variance
        # The square root of 1 / variance, whose square overflows before the result does.
        means = zero_if(tf.equal(means, 0), means * tf.exp(p_log_variance * -0.5))
    return 0.5 * (tf.reduce_sum(_exp_minus_tangent(log_variances), -1) + tf.reduce_sum(tf.square(means), -1))


def _exp_minus_tangent(x):
    """Returns e^x - 1 - x, precise near 0: there, half a square times a series."""
    near = tf.clip_by_value(x, -1.0, 1.0)
    series = tf.ones_like(near)
    for n in range(20, 2, -1):
        series = 1 + near / n * series
    exp = tf.exp(x)
    # Above 40, 1 + x adds no bits, and would make infinity NaN.
    far = tf.where(x > 40, exp, exp - 1 - x)
    return tf.where(tf.abs(x) < 1, 0.5 * near * near * series, far)
