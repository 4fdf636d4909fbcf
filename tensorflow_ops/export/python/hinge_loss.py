"""The composition of HingeLoss. A label that is no class has a loss of zero, as on a GPU."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.export.python.compositions import composition


@composition("HingeLoss", [2, 1])
def _hinge_loss(logits, labels, *, ignore_index):
    wide = tf.cast(logits, arguments.at_least_float32(logits.dtype))
    classes = tf.shape(logits, tf.int64)[1]
    labels = tf.expand_dims(labels, -1)
    is_label = tf.equal(labels, tf.range(classes))
    has_loss = (labels >= 0) & (labels < classes) & tf.not_equal(labels, ignore_index)
    is_other = has_loss & tf.logical_not(is_label)
    x = wide - tf.reduce_sum(tf.where(is_label, wide, tf.zeros_like(wide)), -1, keepdims=True)
    terms = tf.where(1 + x < 0, tf.zeros_like(x), tf.square(1 + x))
    loss = tf.reduce_sum(tf.where(is_other, terms, tf.zeros_like(x)), -1)
    return tf.cast(loss, logits.dtype), tf.reduce_sum(tf.cast(is_other & (x > 0), tf.int32), -1)
