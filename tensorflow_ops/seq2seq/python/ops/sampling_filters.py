"""Filters of sampling: which tokens of a distribution may be drawn. For `sample` and for processors.

Weights are unnormalized probabilities, float64 [rows, N]. A filter returns bool [rows, N].
"""

import tensorflow as tf


def shifted(logits):
    """Returns logits as float64 [rows, N], the largest of a row at 0, and whether a row has a token, bool [rows]."""
    logits = tf.stop_gradient(tf.cast(logits, tf.float64))
    largest = tf.reduce_max(logits, -1, keepdims=True)
    exists = largest > -float("inf")
    # Zeros for rows without a token, which would give NaN.
    return tf.where(exists, logits - largest, tf.zeros_like(logits)), exists[:, 0]


def top_p(weights, p):
    """Keeps the smallest set of likeliest tokens with a total of at least p, of weights in decreasing order."""
    before = tf.cumsum(weights, axis=-1, exclusive=True)
    return before < p * tf.reduce_sum(weights, -1, keepdims=True)


def min_p(weights, p):
    """Keeps the tokens at least p times as likely as the likeliest."""
    return weights >= p * tf.reduce_max(weights, -1, keepdims=True)


def typical_p(weights, p):
    """Keeps the smallest set with a total of at least p, in order of the distance between -log p and the entropy."""
    probabilities = weights / tf.reduce_sum(weights, -1, keepdims=True)
    surprise = -tf.math.log(probabilities)
    entropy = tf.reduce_sum(tf.math.multiply_no_nan(surprise, probabilities), -1, keepdims=True)
    distance = tf.abs(surprise - entropy)
    order = tf.argsort(distance, stable=True)
    before = tf.cumsum(tf.gather(probabilities, order, batch_dims=1), axis=-1, exclusive=True)
    distances = tf.where(before < p, tf.gather(distance, order, batch_dims=1), tf.zeros_like(distance))
    # All tokens at the same distance as the last one of the set are in it.
    return distance <= tf.reduce_max(distances, -1, keepdims=True)
