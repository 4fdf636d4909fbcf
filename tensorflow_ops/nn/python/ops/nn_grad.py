"""Gradients and vectorization of the nn ops: kernels for the first order, formulas for higher orders.

The formulas call ops that have gradients, so that every order exists, and compute in
float32 for 16-bit tensors. In them x are logits, p probabilities, l = log p, d the
upstream gradient of the first gradient, g the upstream gradient of the second.

An op passes two numbers of each row, `largest` and `rest`, to its gradient op. They are
functions of the logits and no public results: gradients to them are dropped, and the
gradients to logits include the path through them.
"""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, pfor
from tensorflow_ops.core.python.gradients import call, is_needed
from tensorflow_ops.core.python.library import ops


def _at_least_float32(*tensors):
    """Casts 16-bit tensors to float32."""
    return [tf.cast(t, arguments.at_least_float32(t.dtype)) for t in tensors]


def _sum(t):
    """Sums over classes."""
    return tf.reduce_sum(t, -1, keepdims=True)


def _multiply_no_nan(t, factor):
    """Returns the product, which is 0 where the factor is 0, even if t is NaN or infinite."""
    return tf.math.multiply_no_nan(t, factor)


@tf.RegisterGradient("TensorflowOps>Softmax")
def _softmax_grad(op, d_output):
    return call(ops.tensorflow_ops_softmax_grad, op, d_output, op.outputs[0])


@tf.RegisterGradient("TensorflowOps>SoftmaxGrad")
def _softmax_grad_grad(op, g):
    """Differentiates p (d - sum d p), or d - e^l sum d for the log-softmax."""
    dtype = g.dtype
    wide_g, d, output = _at_least_float32(g, *op.inputs)
    if op.get_attr("log"):
        p = tf.exp(output)
        to_d = wide_g - _sum(_multiply_no_nan(wide_g, p))
        to_output = -_multiply_no_nan(wide_g, p) * _sum(d)
    else:
        to_d = ops.tensorflow_ops_softmax_grad(g, op.inputs[1])
        to_output = wide_g * (d - _sum(_multiply_no_nan(d, output))) - d * _sum(_multiply_no_nan(wide_g, output))
    return tf.cast(to_d, dtype), tf.cast(to_output, dtype)


@tf.RegisterGradient("TensorflowOps>SoftmaxEntropy")
def _entropy_grad(op, d_entropy, *_):
    (logits,) = op.inputs
    return ops.tensorflow_ops_softmax_entropy_grad(logits, d_entropy, *op.outputs)


@tf.RegisterGradient("TensorflowOps>SoftmaxEntropyGrad")
def _entropy_grad_grad(op, g):
    """Differentiates -d p (l + H), H being the entropy."""
    logits, d, *rows = op.inputs
    x, g = _at_least_float32(logits, g)
    to_d = tf.reduce_sum(g * ops.tensorflow_ops_softmax_entropy_grad(x, tf.ones_like(d), *rows), -1)

    p = ops.tensorflow_ops_softmax(x)
    entropy = ops.tensorflow_ops_softmax_entropy(x, Tvalue=x.dtype).entropy[..., tf.newaxis]
    # l + H. A class at -inf contributes nothing.
    excess = ops.tensorflow_ops_softmax(x, log=True) + entropy
    excess = tf.where(tf.math.is_inf(x) & (x < 0), tf.zeros_like(excess), excess)
    centred = g - _sum(g * p)
    to_logits = -d[..., tf.newaxis] * p * (centred * (excess + 1) - _sum(g * p * excess))
    return tf.cast(to_logits, logits.dtype), to_d, None, None, None


@tf.RegisterGradient("TensorflowOps>SparseSoftmaxCrossEntropy")
def _label_loss_grad(op, d_loss, *_):
    logits, labels = op.inputs
    _, largest, rest = op.outputs
    gradient = ops.tensorflow_ops_sparse_softmax_cross_entropy_grad
    return call(gradient, op, logits, labels, d_loss, largest, rest), None


@tf.RegisterGradient("TensorflowOps>SparseSoftmaxCrossEntropyGrad")
def _label_loss_grad_grad(op, g):
    """Differentiates d (a p - t), a = 1 + 2 z lse."""
    logits, labels, d, *rows = op.inputs
    x, g = _at_least_float32(logits, g)
    each = call(ops.tensorflow_ops_sparse_softmax_cross_entropy_grad, op, x, labels, tf.ones_like(d), *rows)
    to_d = tf.reduce_sum(g * each, -1)

    constant = _is_all_masked(rows[1])
    if op.get_attr("ignores"):
        constant |= tf.equal(tf.cast(labels, tf.int64), op.get_attr("ignore_index"))  # fits: int32 or int64
    x, d = _zero_rows(constant, x, d)
    p = ops.tensorflow_ops_softmax(x)
    to_logits = ops.tensorflow_ops_softmax_grad(g, p)
    if op.get_attr("z_loss"):
        twice_z = 2 * sum(op.get_attr("z_loss"))
        to_logits += twice_z * (tf.reduce_logsumexp(x, -1, keepdims=True) * to_logits + p * _sum(g * p))
    to_logits *= -d if op.get_attr("log_prob") else d
    return tf.cast(to_logits, logits.dtype), None, to_d, None, None


def _is_all_masked(rest):
    """Returns which rows have all logits at -inf; the kernels mark them by rest = -1."""
    return tf.equal(rest, -1)


def _zero_rows(rows, x, d):
    """Returns logits and the upstream gradient, as a column, with zeros in the given rows.

    These rows then have gradient 0, and no NaN.
    """
    x = tf.where(rows[..., tf.newaxis], tf.zeros_like(x), x)
    return x, tf.where(rows, tf.zeros_like(d), d)[..., tf.newaxis]


@tf.RegisterGradient("TensorflowOps>SoftmaxCrossEntropy")
def _cross_entropy_grad(op, d_loss, *_):
    labels, logits = op.inputs
    _, *rows = op.outputs

    def gradients(to_labels):
        gradient = ops.tensorflow_ops_softmax_cross_entropy_grad
        return call(gradient, op, labels, logits, d_loss, *rows, to_labels=to_labels)

    if isinstance(op, tf.Operation):
        # A graph requests both gradients and mostly reads one. With an op for each it prunes the other.
        return gradients(True).d_labels, gradients(False).d_logits
    to_labels = is_needed(op, 0)
    both = gradients(to_labels)
    return both.d_labels if to_labels else None, both.d_logits


@tf.RegisterGradient("TensorflowOps>SoftmaxCrossEntropyGrad")
def _cross_entropy_grad_grad(op, g, g_labels):
    """Differentiates d (p sum t - t) and, for labels, -(1 - e) d l."""
    labels, logits, d, *rows = op.inputs
    y, x, g, g_labels = _at_least_float32(labels, logits, g, g_labels)
    keep, has_labels = 1 - sum(op.get_attr("label_smoothing")), op.get_attr("to_labels")
    each = call(ops.tensorflow_ops_softmax_cross_entropy_grad, op, y, x, tf.ones_like(d), *rows)
    to_d = tf.reduce_sum(g * each.d_logits, -1)
    if has_labels:
        to_d += tf.reduce_sum(_multiply_no_nan(each.d_labels, g_labels), -1)

    x, d = _zero_rows(_is_all_masked(rows[1]), x, d)
    p = ops.tensorflow_ops_softmax(x)
    to_labels = keep * d * (_sum(g * p) - g)
    label_sum = keep * _sum(y) + (1 - keep)
    to_logits = d * label_sum * ops.tensorflow_ops_softmax_grad(g, p)
    if has_labels:
        to_logits -= keep * d * (g_labels - p * _sum(g_labels))
    return tf.cast(to_labels, labels.dtype), tf.cast(to_logits, logits.dtype), to_d, *[None] * len(rows)


@tf.RegisterGradient("TensorflowOps>GaussianKl")
def _gaussian_kl_grad(op, d_divergence):
    q_mean, q_log_variance, *p = op.inputs
    gradients = ops.tensorflow_ops_gaussian_kl_grad(d_divergence, q_mean, q_log_variance, p)
    return [gradients.d_q_mean, gradients.d_q_log_variance, *gradients.d_p]


@tf.RegisterGradient("TensorflowOps>GaussianKlGrad")
def _gaussian_kl_grad_grad(op, *g):
    """Differentiates d m/v, d (r - 1) / 2 and, for p, -d m/v, -d (r - 1 + m^2/v) / 2.

    m = m_q - m_p, v = e^s_p, r = e^(s_q - s_p). A product with 0 is 0, even if the other
    factor overflows.
    """
    d, q_mean, q_log_variance, *p = op.inputs
    mean, log_ratio, *p_wide = _at_least_float32(q_mean, q_log_variance, *p)
    g_mean, g_log, *g_p = _at_least_float32(*g)
    inverse_deviation = tf.ones_like(mean)
    g_square = tf.zeros_like(mean)  # upstream gradient of m^2/v
    if p:
        mean -= p_wide[0]
        log_ratio -= p_wide[1]
        inverse_deviation = tf.exp(-0.5 * p_wide[1])
        g_mean, g_log, g_square = g_mean - g_p[0], g_log - g_p[1], -0.5 * g_p[1]
    scaled_mean = _multiply_no_nan(inverse_deviation, mean)
    g_mean = _multiply_no_nan(inverse_deviation, g_mean)
    by_mean = g_mean * scaled_mean
    by_log = 0.5 * _multiply_no_nan(tf.math.expm1(log_ratio), g_log)
    by_square = _multiply_no_nan(scaled_mean**2, g_square)
    to_d = tf.reduce_sum(by_mean + by_log + by_square, -1)

    d = d[..., tf.newaxis]
    by_deviation = _multiply_no_nan(inverse_deviation, scaled_mean)
    to_mean = d * (_multiply_no_nan(inverse_deviation, g_mean) + 2 * _multiply_no_nan(by_deviation, g_square))
    to_log = d * 0.5 * _multiply_no_nan(tf.exp(log_ratio), g_log)
    gradients = [to_mean, to_log]
    if p:
        gradients += [-to_mean, -to_log - d * (by_mean + by_square)]
    return [to_d, *(tf.cast(gradient, q_mean.dtype) for gradient in gradients)]


# They take any batch dims: the iterations become the first one.
_VECTORIZED = (
    "Softmax",
    "SoftmaxGrad",
    "SoftmaxEntropy",
    "SoftmaxEntropyGrad",
    "SparseSoftmaxCrossEntropy",
    "SparseSoftmaxCrossEntropyGrad",
    "SoftmaxCrossEntropy",
    "GaussianKl",
    "GaussianKlGrad",
)

for _name in _VECTORIZED:
    pfor.register(f"TensorflowOps>{_name}")(pfor.convert_batched)


@pfor.register("TensorflowOps>SoftmaxCrossEntropyGrad")
def _convert_cross_entropy_grad(pfor_input):
    # Without to_labels the second output, d_labels, is empty: a [0], without batch dims.
    return pfor.convert_batched(pfor_input, unstacked=() if pfor_input.op.get_attr("to_labels") else (1,))
