"""Cross entropies of classes, behind keras.losses.SparseCategoricalCrossentropy and CategoricalCrossentropy."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.layers.python.switch.served import Original, backend, served
from tensorflow_ops.nn.python.ops import cross_entropy


def _logits(output, from_logits, axis, labels_rank, name):
    """Returns logits, those before a softmax if Keras sees one, or Original."""
    tensor = tf.convert_to_tensor(output)
    rank = tensor.shape.rank
    if not rank or labels_rank != rank - (name == "sparse_categorical_crossentropy"):
        return Original("labels of another rank")
    if axis not in (-1, rank - 1):
        return Original("another axis")
    if tensor.dtype not in arguments.FLOAT_DTYPES:
        return Original(f"{tensor.dtype.name} logits")
    logits, are_logits = backend().nn._get_logits(output, from_logits, "Softmax", name)
    return tf.convert_to_tensor(logits) if are_logits else Original("probabilities that no softmax made")


@served("sparse_categorical_crossentropy", "backend.nn")
def sparse_categorical_crossentropy(original, target, output, from_logits=False, axis=-1):
    del original
    labels = tf.cast(tf.convert_to_tensor(target), tf.int64)  # fits: the original casts, too
    rank = len(output.shape)
    if labels.shape.rank == rank and rank and labels.shape[-1] == 1:
        labels = tf.squeeze(labels, -1)
    logits = _logits(output, from_logits, axis, labels.shape.rank, "sparse_categorical_crossentropy")
    if isinstance(logits, Original):
        return logits
    if not labels.shape.is_compatible_with(logits.shape[:-1]):
        return Original("shapes that differ")  # an error
    return tf.cast(cross_entropy.sparse_softmax_cross_entropy(labels, logits), logits.dtype)


@served("categorical_crossentropy", "backend.nn")
def categorical_crossentropy(original, target, output, from_logits=False, axis=-1):
    del original
    labels = tf.convert_to_tensor(target)
    logits = _logits(output, from_logits, axis, labels.shape.rank, "categorical_crossentropy")
    if isinstance(logits, Original):
        return logits
    if not labels.shape.is_compatible_with(logits.shape):
        return Original("shapes that differ")  # an error
    if labels.dtype == logits.dtype:
        wide = logits
    else:
        # As the original, which rounds no wide labels to 16 bits.
        wide = tf.cast(logits, arguments.at_least_float32(logits.dtype))
        labels = tf.cast(labels, wide.dtype)
    return tf.cast(cross_entropy.softmax_cross_entropy(labels, wide), logits.dtype)
