"""Gradients of the nn ops: of the first order by kernels, of higher ones by formulas.

The formulas are made of ops that have gradients, so that every order exists, and are
computed in float32 for 16-bit tensors. x are logits, p probabilities, l their
logarithms; g is what comes in, d what came in to the first gradient.

Two numbers of each row, largest and rest, pass from an op to its gradient op. They are
no results: what comes in to them is dropped, and gradient ops have no gradient to them
but count them to the logits.
"""

import tensorflow as tf

from tensorflow_ops.core.python.library import ops
from tensorflow_ops.nn.python.ops import nn_arguments

_LABEL_LOSS_ATTRS = ("ignores", "ignore_index", "label_smoothing", "z_loss", "log_prob")


def _attrs(op, *names):
    """The attrs that an op and its gradient op share."""
    return {name: op.get_attr(name) for name in names}


def _is_needed(op, index):
    """Does anyone ask for the gradient to this input? A tape tells; a graph drops what nobody reads."""
    return index not in (getattr(op, "skip_input_indices", None) or ())


def _wide(*tensors):
    """16-bit tensors as float32."""
    return [tf.cast(t, nn_arguments.value_dtype(t.dtype)) for t in tensors]


def _sum(t):
    """Over classes."""
    return tf.reduce_sum(t, -1, keepdims=True)


def _no_nan(t, factor):
    """Their product, 0 where the factor is, whatever t is."""
    return tf.math.multiply_no_nan(t, factor)


@tf.RegisterGradient("TensorflowOps>Softmax")
def _softmax_grad(op, d_output):
    return ops.tensorflow_ops_softmax_grad(d_output, op.outputs[0], **_attrs(op, "log"))


@tf.RegisterGradient("TensorflowOps>SoftmaxGrad")
def _softmax_grad_grad(op, g):
    """Of p (d - sum d p); of d - e^l sum d."""
    dtype = g.dtype
    wide_g, d, output = _wide(g, *op.inputs)
    if op.get_attr("log"):
        p = tf.exp(output)
        to_d = wide_g - _sum(_no_nan(wide_g, p))
        to_output = -_no_nan(wide_g, p) * _sum(d)
    else:
        to_d = ops.tensorflow_ops_softmax_grad(g, op.inputs[1])
        to_output = wide_g * (d - _sum(_no_nan(d, output))) - d * _sum(_no_nan(wide_g, output))
    return tf.cast(to_d, dtype), tf.cast(to_output, dtype)


@tf.RegisterGradient("TensorflowOps>SoftmaxEntropy")
def _entropy_grad(op, d_entropy, *_):
    (logits,) = op.inputs
    return ops.tensorflow_ops_softmax_entropy_grad(logits, d_entropy, *op.outputs)


@tf.RegisterGradient("TensorflowOps>SoftmaxEntropyGrad")
def _entropy_grad_grad(op, g):
    """Of -d p (l + H)."""
    logits, d, *rows = op.inputs
    x, g = _wide(logits, g)
    to_d = tf.reduce_sum(g * ops.tensorflow_ops_softmax_entropy_grad(x, tf.ones_like(d), *rows), -1)

    p = ops.tensorflow_ops_softmax(x)
    entropy = ops.tensorflow_ops_softmax_entropy(x, Tvalue=x.dtype).entropy[..., tf.newaxis]
    # l + H, where a class at -inf has no part.
    excess = ops.tensorflow_ops_softmax(x, log=True) + entropy
    excess = tf.where(tf.math.is_inf(x) & (x < 0), tf.zeros_like(excess), excess)
    centred = g - _sum(g * p)
    to_logits = -d[..., tf.newaxis] * p * (centred * (excess + 1) - _sum(g * p * excess))
    return tf.cast(to_logits, logits.dtype), to_d, None, None, None


@tf.RegisterGradient("TensorflowOps>SparseSoftmaxCrossEntropy")
def _label_loss_grad(op, d_loss, *_):
    logits, labels = op.inputs
    _, largest, rest = op.outputs
    attrs = _attrs(op, *_LABEL_LOSS_ATTRS)
    return ops.tensorflow_ops_sparse_softmax_cross_entropy_grad(logits, labels, d_loss, largest, rest, **attrs), None


@tf.RegisterGradient("TensorflowOps>SparseSoftmaxCrossEntropyGrad")
def _label_loss_grad_grad(op, g):
    """Of d (a p - t), a = 1 + 2 z lse."""
    logits, labels, d, *rows = op.inputs
    x, g = _wide(logits, g)
    attrs = _attrs(op, *_LABEL_LOSS_ATTRS)
    each = ops.tensorflow_ops_sparse_softmax_cross_entropy_grad(x, labels, tf.ones_like(d), *rows, **attrs)
    to_d = tf.reduce_sum(g * each, -1)

    constant = _has_no_class(rows[1])
    if attrs["ignores"]:
        constant |= tf.cast(labels, tf.int64) == attrs["ignore_index"]
    x, d = _without(constant, x, d)
    p = ops.tensorflow_ops_softmax(x)
    to_logits = ops.tensorflow_ops_softmax_grad(g, p)
    if attrs["z_loss"]:
        twice_z = 2 * sum(attrs["z_loss"])
        to_logits += twice_z * (tf.reduce_logsumexp(x, -1, keepdims=True) * to_logits + p * _sum(g * p))
    to_logits *= -d if attrs["log_prob"] else d
    return tf.cast(to_logits, logits.dtype), None, to_d, None, None


def _has_no_class(rest):
    """Is a row all of -inf?"""
    return tf.equal(rest, -1)


def _without(rows, x, d):
    """Logits and what came in, as columns, with zeros in the rows: no gradient passes there, and no NaN."""
    x = tf.where(rows[..., tf.newaxis], tf.zeros_like(x), x)
    return x, tf.where(rows, tf.zeros_like(d), d)[..., tf.newaxis]


@tf.RegisterGradient("TensorflowOps>SoftmaxCrossEntropy")
def _cross_entropy_grad(op, d_loss, *_):
    labels, logits = op.inputs
    _, *rows = op.outputs
    attrs = _attrs(op, "label_smoothing")

    def gradients(to_labels):
        return ops.tensorflow_ops_softmax_cross_entropy_grad(
            labels, logits, d_loss, *rows, to_labels=to_labels, **attrs
        )

    if isinstance(op, tf.Operation):
        # A graph asks for both, and most often reads one: an op for each is dropped if nobody reads it.
        return gradients(True).d_labels, gradients(False).d_logits
    to_labels = _is_needed(op, 0)
    both = gradients(to_labels)
    return both.d_labels if to_labels else None, both.d_logits


@tf.RegisterGradient("TensorflowOps>SoftmaxCrossEntropyGrad")
def _cross_entropy_grad_grad(op, g, g_labels):
    """Of d (p sum t - t), and of -(1 - e) d l to labels."""
    labels, logits, d, *rows = op.inputs
    y, x, g, g_labels = _wide(labels, logits, g, g_labels)
    attrs = _attrs(op, "label_smoothing", "to_labels")
    keep = 1 - sum(attrs["label_smoothing"])
    each = ops.tensorflow_ops_softmax_cross_entropy_grad(y, x, tf.ones_like(d), *rows, **attrs)
    to_d = tf.reduce_sum(g * each.d_logits, -1)
    if attrs["to_labels"]:
        to_d += tf.reduce_sum(_no_nan(each.d_labels, g_labels), -1)

    x, d = _without(_has_no_class(rows[1]), x, d)
    p = ops.tensorflow_ops_softmax(x)
    to_labels = keep * d * (_sum(g * p) - g)
    label_sum = keep * _sum(y) + (1 - keep)
    to_logits = d * label_sum * ops.tensorflow_ops_softmax_grad(g, p)
    if attrs["to_labels"]:
        to_logits -= keep * d * (g_labels - p * _sum(g_labels))
    return tf.cast(to_labels, labels.dtype), tf.cast(to_logits, logits.dtype), to_d, *[None] * len(rows)


@tf.RegisterGradient("TensorflowOps>GaussianKl")
def _gaussian_kl_grad(op, d_divergence):
    q_mean, q_log_variance, *p = op.inputs
    gradients = ops.tensorflow_ops_gaussian_kl_grad(d_divergence, q_mean, q_log_variance, p)
    return [gradients.d_q_mean, gradients.d_q_log_variance, *gradients.d_p]


@tf.RegisterGradient("TensorflowOps>GaussianKlGrad")
def _gaussian_kl_grad_grad(op, *g):
    """Of d m/v, d (r - 1) / 2 and, for p, -d m/v, -d (r - 1 + m^2/v) / 2: m = m_q - m_p, v = e^s_p, r = e^(s_q - s_p).

    A product with 0 is 0, also where the other factor leaves the dtype's range.
    """
    d, q_mean, q_log_variance, *p = op.inputs
    mean, log_ratio, *p_wide = _wide(q_mean, q_log_variance, *p)
    g_mean, g_log, *g_p = _wide(*g)
    deviation = tf.ones_like(mean)  # its inverse
    g_square = tf.zeros_like(mean)  # what comes in to m^2/v
    if p:
        mean -= p_wide[0]
        log_ratio -= p_wide[1]
        deviation = tf.exp(-0.5 * p_wide[1])
        g_mean, g_log, g_square = g_mean - g_p[0], g_log - g_p[1], -0.5 * g_p[1]
    scaled_mean = _no_nan(deviation, mean)
    g_mean = _no_nan(deviation, g_mean)
    by_mean = g_mean * scaled_mean
    by_log = 0.5 * _no_nan(tf.math.expm1(log_ratio), g_log)
    by_square = _no_nan(scaled_mean**2, g_square)
    to_d = tf.reduce_sum(by_mean + by_log + by_square, -1)

    d = d[..., tf.newaxis]
    to_mean = d * (_no_nan(deviation, g_mean) + 2 * _no_nan(_no_nan(deviation, scaled_mean), g_square))
    to_log = d * 0.5 * _no_nan(tf.exp(log_ratio), g_log)
    gradients = [to_mean, to_log]
    if p:
        gradients += [-to_mean, -to_log - d * (by_mean + by_square)]
    return [to_d, *(tf.cast(gradient, q_mean.dtype) for gradient in gradients)]
