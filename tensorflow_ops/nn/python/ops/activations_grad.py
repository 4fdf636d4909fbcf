"""Gradients and vectorization of gelu and silu: a kernel for the first order, formulas for higher ones."""

import math

import tensorflow as tf

from tensorflow_ops.core.python import arguments, pfor
from tensorflow_ops.core.python.gradients import call
from tensorflow_ops.core.python.library import ops

_TANH_FACTOR, _CUBIC = 2 * math.sqrt(2 / math.pi), 0.044715  # as in activation_formulas.h


@tf.RegisterGradient("TensorflowOps>BiasActivation")
def _activation_grad(op, d_output):
    features, *bias = op.inputs
    d = call(ops.tensorflow_ops_bias_activation_grad, op, d_output, features, bias)
    return [d.d_features, *d.d_bias]


def _curvature(activation, x):
    """Returns the second derivative at x."""
    is_far = tf.abs(x) > 800  # all are 0 there, and infinity would make NaN
    x = tf.where(is_far, tf.zeros_like(x), x)
    if activation == b"gelu":
        curvature = tf.exp(-0.5 * x * x) / math.sqrt(2 * math.pi) * (2 - x * x)
    else:
        # x s(w(x)), of the sigmoid s.
        if activation == b"silu":
            w, slope, slope_slope = x, 1, 0
        else:
            w = _TANH_FACTOR * (x + _CUBIC * x**3)
            slope, slope_slope = _TANH_FACTOR * (1 + 3 * _CUBIC * x * x), 6 * _TANH_FACTOR * _CUBIC * x
        s, rest = tf.sigmoid(w), tf.sigmoid(-w)
        curvature = s * rest * (2 * slope + x * (slope_slope + (rest - s) * slope * slope))
    return tf.where(is_far, tf.zeros_like(x), curvature)


@tf.RegisterGradient("TensorflowOps>BiasActivationGrad")
def _activation_grad_grad(op, g, *g_bias):
    d_output, features, *bias = op.inputs
    d, x, g = (tf.cast(t, arguments.at_least_float32(t.dtype)) for t in (d_output, features, g))
    for b, g_of_bias in zip(bias, g_bias, strict=True):
        x += tf.cast(b, x.dtype)
        g += tf.cast(g_of_bias, g.dtype)
    to_d = call(ops.tensorflow_ops_bias_activation_grad, op, tf.cast(g, d_output.dtype), features, bias).d_features
    to_x = g * d * _curvature(op.get_attr("activation"), x)
    to_bias = [tf.reduce_sum(to_x, tf.range(tf.rank(to_x) - 1)) for _ in bias]
    return [to_d, *(tf.cast(t, features.dtype) for t in (to_x, *to_bias))]


@pfor.register("TensorflowOps>BiasActivation")
def _convert_activation(pfor_input):
    if any(pfor_input.inputs[i].is_stacked for i in range(1, pfor_input.num_inputs)):
        return pfor.loop(pfor_input)
    pfor_input.stack_inputs([0])
    return [pfor.stacked(y) for y in pfor.call(pfor_input, [value.t for value in pfor_input.inputs])]


@pfor.register("TensorflowOps>BiasActivationGrad")
def _convert_activation_grad(pfor_input):
    has_bias = pfor_input.num_inputs > 2  # whose gradient sums each iteration
    return pfor.loop(pfor_input) if has_bias else pfor.convert_batched(pfor_input)
