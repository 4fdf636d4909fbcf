"""For tests of python_op: modes, names, declarations, differentiable ops."""

import numpy as np
import tensorflow as tf

from tensorflow_ops.prototyping import python_op

MODES = {"eager": lambda f: f, "graph": tf.function}
_NUMBERS = iter(range(10**6))


def op_name():
    """Returns an unused op name."""
    return f"test::op_{next(_NUMBERS)}"


def same(x, *unused):
    """Returns a declaration: the output is like the first input."""
    return tf.TensorSpec(x.shape, x.dtype)


def gradients_of(function, *inputs, upstream=None):
    """Returns the gradients of function(*inputs); callers may wrap this in a tf.function."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = function(*inputs)
    return tape.gradient(y, inputs, output_gradients=upstream)


def cube_op():
    """Returns x^3, its gradient and its second gradient. The gradient uses saved values."""

    @python_op(op_name(), out=same, saved=lambda x: {"square": same(x), "count": tf.TensorSpec([], tf.int64)})
    def cube(x):
        return x**3, {"square": x * x, "count": np.array(x.size)}

    @cube.register_gradient
    def first(ctx, dy):
        assert ctx.saved["count"] == ctx.inputs[0].size and ctx.forward is None
        np.testing.assert_array_equal(ctx.outputs[0], ctx.inputs[0] ** 3)
        return 3 * ctx.saved["square"] * dy

    @first.register_gradient
    def second(ctx, ddx):
        x, dy = ctx.inputs
        np.testing.assert_array_equal(ctx.forward.outputs[0], x**3)
        np.testing.assert_array_equal(ctx.outputs[0], 3 * ctx.saved["square"] * dy)
        assert ctx.forward.inputs[0] is x
        return 6 * x * dy * ddx, 3 * ctx.saved["square"] * ddx

    return cube, first, second


def product_op(vmap):
    """Returns (twice differentiable op, shapes of x in its calls): x @ w for x [.., m, k] and w [.., k, n]."""
    calls = []
    out = lambda x, w: tf.TensorSpec([x.shape[0], w.shape[1]], x.dtype)  # noqa: E731

    @python_op(op_name(), out=out, vmap=vmap)
    def product(x, w):
        calls.append(x.shape)
        return x @ w

    @product.register_gradient
    def first(ctx, dy):
        x, w = ctx.inputs
        return dy @ w.swapaxes(-1, -2), x.swapaxes(-1, -2) @ dy

    @first.register_gradient
    def _(ctx, ddx, ddw):
        x, w, dy = ctx.inputs
        return dy @ ddw.swapaxes(-1, -2), ddx.swapaxes(-1, -2) @ dy, ddx @ w + x @ ddw

    return product, calls
