"""Gradients and vectorization of the ops of conditional random fields.

The gradient of crf_log_likelihood is a kernel's; it has a gradient to its upstream gradient, in which it is linear,
since forward mode needs it. Other second derivatives do not exist.
"""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, pfor
from tensorflow_ops.core.python.gradients import is_needed, refuse
from tensorflow_ops.core.python.library import ops


@tf.RegisterGradient("TensorflowOps>CrfLogLikelihood")
def _likelihood_grad(op, d):
    d_logits, d_transitions = ops.tensorflow_ops_crf_log_likelihood_grad(*op.inputs, d)
    return None, d_logits, d_transitions, None


def _along(inputs, dd_logits, dd_transitions):
    """Returns the derivative of each example's log likelihood as logits and transitions move."""
    labels, logits, transitions, lengths = inputs
    dtype = arguments.at_least_float32(logits.dtype)
    ones = tf.ones_like(lengths, dtype)
    d_logits, _ = ops.tensorflow_ops_crf_log_likelihood_grad(*inputs, ones)
    along_logits = tf.reduce_sum(tf.cast(d_logits, dtype) * tf.cast(dd_logits, dtype), [1, 2])

    # The gradient to transitions is a sum over examples: one at a time.
    def along_transitions(example):
        labels, logits, lengths = (x[tf.newaxis] for x in example)
        one = [labels, logits, transitions, lengths]
        _, d_transitions = ops.tensorflow_ops_crf_log_likelihood_grad(*one, tf.ones([1], dtype))
        return tf.reduce_sum(d_transitions * dd_transitions)

    # An empty example more: XLA does not compile loops over none.
    examples = [tf.pad(x, [[0, 1]] + [[0, 0]] * dims) for x, dims in ((labels, 1), (logits, 2), (lengths, 0))]
    return along_logits + tf.map_fn(along_transitions, examples, fn_output_signature=dtype)[:-1]


@tf.RegisterGradient("TensorflowOps>CrfLogLikelihoodGrad")
def _likelihood_grad_grad(op, dd_logits, dd_transitions):
    to_upstream = _along(op.inputs[:4], dd_logits, dd_transitions) if is_needed(op, 4) else None
    reason = "crf_log_likelihood has no second derivatives"
    refused = [refuse(op, i, reason, [dd_logits, dd_transitions]) for i in (1, 2)]
    return [None, *refused, None, to_upstream]


@tf.RegisterGradient("TensorflowOps>CrfMarginals")
def _marginals_grad(op, upstream):
    return [*(refuse(op, i, "crf_marginals has no gradient", [upstream]) for i in (0, 1)), None]


@tf.RegisterGradient("TensorflowOps>CrfDecode")
def _decode_grad(op, _, d_scores):
    """Differentiates the scores, which are sums along the best sequence."""
    logits, transitions, lengths = op.inputs
    labels, tags = op.outputs[0], tf.shape(logits)[2]
    mask = tf.sequence_mask(lengths, tf.shape(logits)[1], dtype=d_scores.dtype)
    one_hot = tf.one_hot(labels, tags, dtype=d_scores.dtype)
    d_logits = one_hot * (mask * d_scores[:, tf.newaxis])[..., tf.newaxis]
    # Counted by pairs of tags: products of one-hot vectors would have a tensor of [frames, tags, tags].
    wide = tf.cast(labels, tf.int64)  # fits: int32 or int64
    pairs = wide[:, :-1] * tf.cast(tags, tf.int64) + wide[:, 1:]  # fits: a size
    counts = mask[:, 1:] * d_scores[:, tf.newaxis]
    d_transitions = tf.math.unsorted_segment_sum(counts, pairs, tags * tags)
    return tf.cast(d_logits, logits.dtype), tf.reshape(d_transitions, tf.shape(transitions)), None


def _convert(transitions):
    """Returns the converter of an op whose input `transitions` has no batch."""
    return lambda pfor_input: pfor.convert_folded(pfor_input, shared=[transitions])


pfor.register("TensorflowOps>CrfLogLikelihood")(_convert(2))
pfor.register("TensorflowOps>CrfMarginals")(_convert(1))
pfor.register("TensorflowOps>CrfDecode")(_convert(1))
