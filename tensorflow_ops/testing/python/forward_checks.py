"""The check of forward mode: tf.autodiff.ForwardAccumulator, alone and over a tape."""

import numpy as np
import tensorflow as tf

from tensorflow_ops.testing.python import compare
from tensorflow_ops.testing.python import inputs as inputs_module
from tensorflow_ops.testing.python.inputs import is_differentiable
from tensorflow_ops.testing.python.subject import MISSING_GRADIENT, refusal_text


def forward_mode(s):
    """Checks Jacobian-vector products against gradients, and forward mode over a tape against a tape over a tape.

    One input has a tangent at a time; the others are constants.
    """
    s.need_gradients()
    wide = s.wide_inputs()
    traced = tf.function(wide.call, autograph=False)
    raised = []
    for k, i in enumerate(wide.differentiable):
        if s.gradients()[k] is None:
            continue
        tangent = inputs_module.random_like([wide.tensors[i]], s.seed + 13)[0]
        for what, function in (("forward mode", wide.call), ("forward mode over a tf.function", traced)):
            try:
                _check_products(s, wide, function, i, tangent, what)
            except MISSING_GRADIENT as error:
                raised.append(f"{what} raises for {wide.names[i]}: {refusal_text(error)[:100]}")
        refusal = _check_over_reverse(s, wide, i, tangent)
        if refusal:
            raised.append(refusal)
    required = s.declared.second_order if s.declared.forward_mode is None else s.declared.forward_mode
    if raised and required:
        option = "second_order" if s.declared.forward_mode is None else "forward_mode"
        raise AssertionError(f"{option}=True is declared, but {'; '.join(raised)}")
    if not raised and s.declared.forward_mode is False:
        raise AssertionError("forward_mode=False is declared, but forward mode is right")
    return "; ".join(raised) or None


def _check_products(s, wide, function, i, tangent, what):
    """Checks u . (J v) = (J^T u) . v, for each output's random u."""
    with tf.autodiff.ForwardAccumulator(wide.tensors[i], tangent) as accumulator:
        outputs = function(*wide.tensors)
    products = [accumulator.jvp(outputs[k]) for k in s.floats]
    upstream = inputs_module.random_like([outputs[k] for k in s.floats], s.seed + 17)
    for at, k in enumerate(s.floats):
        alone = [u if n == at else tf.zeros_like(u) for n, u in enumerate(upstream)]
        (gradient,) = wide.vjp(wide.tensors, alone, [i])[1]
        name = f"{what}: the change of {s.output_names[k]} along a random change of {wide.names[i]}"
        _check_equal(s, name, (upstream[at], products[at], outputs[k]), (gradient, tangent, wide.tensors[i]))


def _check_over_reverse(s, wide, i, tangent):
    """Checks a Hessian-vector product by forward over reverse against reverse over reverse.

    Returns the text of the error if forward over reverse is refused, or None.
    """
    upstream = inputs_module.random_like([s.expected[k] for k in s.floats], s.seed + 19)
    weight = inputs_module.random_like([wide.tensors[i]], s.seed + 23)[0]

    def of_outputs(outputs):
        return [tf.cast(u, y.dtype) for u, y in zip(upstream, outputs, strict=True)]

    def gradient(x):
        tensors = [x if n == i else t for n, t in enumerate(wide.tensors)]
        return wide.vjp(tensors, of_outputs, [i])[1][0]

    x = tf.identity(wide.tensors[i])
    try:
        with tf.GradientTape() as tape:
            tape.watch(x)
            first = gradient(x)
        expected = tape.gradient(first, x, weight)
    except MISSING_GRADIENT:
        expected = None
    try:
        with tf.autodiff.ForwardAccumulator(x, tangent) as accumulator:
            first = gradient(x)
        product = accumulator.jvp(first)
    except MISSING_GRADIENT as error:
        # Without second-order gradients there is no forward over reverse either: second_order checks those.
        if expected is None and s.declared.forward_mode is None:
            return None
        return f"forward over reverse raises for {wide.names[i]}: {refusal_text(error)[:100]}"
    if expected is not None:
        name = f"forward over reverse: the change of the gradient to {wide.names[i]} along its random change"
        _check_equal(s, name, (weight, product, x), (expected, tangent, x))
    return None


def _check_equal(s, name, found, expected):
    """Checks that two inner products are equal.

    Args:
      s: the Subject.
      name: of the products, in messages.
      found: (a vector, another one or None for zeros, a tensor of the dtype that the result is
        rounded in).
      expected: the same.
    """
    terms = [_terms(a, b) for a, b, _ in (found, expected)]
    tolerance = max(s.tolerances[t.dtype] for *_, t in (found, expected) if is_differentiable(t.dtype))
    allowed = tolerance * (1 + max(np.abs(t).sum() for t in terms))
    sums = [t.sum() for t in terms]
    # NaN equals NaN.
    if np.isnan(sums).all() or abs(sums[0] - sums[1]) <= allowed:
        return
    none = " (it is None)" if any(v is None for v in found) else ""
    raise AssertionError(
        f"{name}, times random numbers, is {sums[0]:.9g}{none}, expected {sums[1]:.9g} +- {allowed:.2g}"
    )


def _terms(a, b):
    """Returns the terms of the real inner product."""
    if a is None or b is None:
        return np.zeros(1)
    return np.real(np.conj(compare.wide(a)) * compare.wide(b)).reshape(-1)
