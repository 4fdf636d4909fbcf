"""CTC, which `keras.losses.CTC` calls."""

from numbers import Integral

import keras
import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.layers.python.switch.served import Original, served
from tensorflow_ops.nn.python.ops import sequence_arguments
from tensorflow_ops.nn.python.ops.ctc_loss import ctc_loss as fused_ctc_loss

# What tf.nn.ctc_loss takes for the logarithm of 0.
_CTC_INFINITY = -np.log(1e-307)


@served("ctc_loss", "backend.nn")
def ctc_loss(original, target, output, target_length, output_length, mask_index=0):
    labels, logits = map(keras.ops.convert_to_tensor, (target, output))
    if not (isinstance(labels, tf.Tensor) and isinstance(logits, tf.Tensor)):
        return Original("sparse or ragged tensors")
    if (labels.shape.rank, logits.shape.rank) != (2, 3):
        return Original("labels or logits of another rank")
    lengths = [tf.cast(x, tf.int32) for x in (target_length, output_length)]  # fits: the original casts, too
    batches = [x.shape[0] if x.shape.rank else 0 for x in (logits, labels, *lengths)]
    if len(set(batches) - {None}) > 1:
        return Original("batches that differ")
    if not isinstance(mask_index, Integral) or mask_index < -1:
        return Original(f"mask_index={mask_index}" if isinstance(mask_index, Integral) else "a tensor as mask_index")
    if logits.dtype not in arguments.FLOAT_DTYPES:
        logits = tf.cast(logits, keras.backend.result_type(logits.dtype, "float32"))
    labels, (label_lengths, logit_lengths) = tf.cast(labels, tf.int32), lengths  # fits: as above
    width, (batch, frames, classes) = tf.shape(labels)[1], tf.unstack(tf.shape(logits))
    is_label = (labels >= 0) & (labels < classes)
    is_label &= tf.not_equal(labels, sequence_arguments.blank_class(mask_index, logits))
    are_labels = tf.reduce_all(is_label | ~tf.sequence_mask(label_lengths, width))
    for lengths, end in ((label_lengths, width), (logit_lengths, frames)):
        are_labels &= tf.reduce_all((lengths >= 0) & (lengths <= end))
    if None in batches:
        for tensor in (labels, label_lengths, logit_lengths):
            are_labels &= tf.equal(tf.shape(tensor)[0], batch)

    def fused():
        loss = fused_ctc_loss(labels, logits, label_lengths, logit_lengths, blank_index=mask_index)
        # One example without a path must not end a training that Keras continues. Its gradient is 0.
        return tf.where(tf.math.is_inf(loss), tf.constant(_CTC_INFINITY, loss.dtype), loss)

    # Keras takes blanks, and numbers that are no class, for labels; ours refuses them.
    return tf.cond(are_labels, fused, lambda: original(target, output, target_length, output_length, mask_index))
