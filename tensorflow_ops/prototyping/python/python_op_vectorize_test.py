"""Tests of python_ops in tf.vectorized_map and in jacobians, against a loop."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_NUMBERS = iter(range(10**6))


def _name():
    """Returns an unused op name."""
    return f"test::vectorize_{next(_NUMBERS)}"


def _product(vmap):
    """Returns (twice differentiable op, shapes of x in its calls): x @ w for x [.., m, k] and w [.., k, n]."""
    calls = []

    @tfo.python_op(_name(), out=lambda x, w: tf.TensorSpec([x.shape[0], w.shape[1]], x.dtype), vmap=vmap)
    def product(x, w):
        calls.append(x.shape)
        return x @ w

    @product.register_gradient
    def gradient(ctx, dy):
        x, w = ctx.inputs
        return dy @ w.swapaxes(-1, -2), x.swapaxes(-1, -2) @ dy

    @gradient.register_gradient
    def _(ctx, ddx, ddw):
        x, w, dy = ctx.inputs
        return dy @ ddw.swapaxes(-1, -2), ddx.swapaxes(-1, -2) @ dy, ddx @ w + x @ ddw

    return product, calls


def _random(*shape):
    return tf.constant(np.random.default_rng(len(shape)).normal(size=shape))


_X, _W = (5, 2, 3), (5, 3, 4)


class VectorizedMapTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(vmap=["batched", "sequential"], shared=["", "x", "w"])
    def test_values_and_calls(self, vmap, shared):
        product, calls = _product(vmap)
        x, w = _random(*(_X[1:] if shared == "x" else _X)), _random(*(_W[1:] if shared == "w" else _W))
        args = {"": (x, w), "x": (w,), "w": (x,)}[shared]
        f = {"": lambda a: product(*a), "x": lambda a: product(x, a[0]), "w": lambda a: product(a[0], w)}[shared]
        self.assertAllClose(tf.vectorized_map(f, args, fallback_to_while_loop=False), x @ w)
        self.assertEqual(calls, [(5, 2, 3)] if vmap == "batched" else [(2, 3)] * 5)

    @parameterized.product(vmap=["batched", "sequential"], shared=["", "x", "w"])
    def test_gradient_of_the_map(self, vmap, shared):
        x, w = _random(*(_X[1:] if shared == "x" else _X)), _random(*(_W[1:] if shared == "w" else _W))

        def gradients(product):
            args = {"": lambda: (x, w), "x": lambda: (w,), "w": lambda: (x,)}[shared]
            f = {"": lambda a: product(*a), "x": lambda a: product(x, a[0]), "w": lambda a: product(a[0], w)}[shared]
            with tf.GradientTape() as outer:
                outer.watch([x, w])
                with tf.GradientTape() as tape:
                    tape.watch([x, w])
                    y = tf.vectorized_map(f, args(), fallback_to_while_loop=False)
                    total = tf.reduce_sum(tf.sin(y))
                first = tape.gradient(total, [x, w])
                norm = tf.reduce_sum(tf.square(first[0])) + tf.reduce_sum(tf.sin(first[1]))
            return first + outer.gradient(norm, [x, w])

        for ours, theirs in zip(gradients(_product(vmap)[0]), gradients(tf.matmul), strict=True):
            self.assertEqual(ours.shape, theirs.shape)
            self.assertAllClose(ours, theirs, rtol=1e-10)

    @parameterized.product(vmap=["batched", "sequential"])
    def test_gradient_inside_the_map(self, vmap):
        product, calls = _product(vmap)
        x, w = _random(*_X), _random(*_W)

        def gradient(function):
            def f(args):
                with tf.GradientTape() as tape:
                    tape.watch(args)
                    y = tf.reduce_sum(tf.sin(function(*args)))
                return tape.gradient(y, args)

            return tf.vectorized_map(f, (x, w), fallback_to_while_loop=False)

        self.assertAllClose(gradient(product), gradient(tf.matmul))
        self.assertLen(calls, 1 if vmap == "batched" else 5)

    @parameterized.product(vmap=["batched", "sequential"])
    def test_nested_maps(self, vmap):
        """The outer map stacks x and w, the inner map x only."""
        product, calls = _product(vmap)
        x, w = _random(7, 5, 2, 3), _random(7, 3, 4)

        def maps(function):
            def outer(args):
                x, w = args
                return tf.vectorized_map(lambda x: function(x, w), x, fallback_to_while_loop=False)

            return tf.vectorized_map(outer, (x, w), fallback_to_while_loop=False)

        def gradients(function):
            with tf.GradientTape() as tape:
                tape.watch([x, w])
                y = tf.reduce_sum(tf.sin(maps(function)))
            return tape.gradient(y, [x, w])

        self.assertAllClose(maps(product), maps(tf.matmul))
        self.assertEqual(calls, [(7, 5, 2, 3)] if vmap == "batched" else [(2, 3)] * 35)
        self.assertAllClose(gradients(product), gradients(tf.matmul))

    @parameterized.product(vmap=["batched", "sequential"], shape=[(0, 2, 3), (3, 0, 3)])
    def test_empty(self, vmap, shape):
        product, _ = _product(vmap)
        w = _random(3, 4)
        y = tf.vectorized_map(lambda x: product(x, w), tf.zeros(shape, tf.float64), fallback_to_while_loop=False)
        self.assertEqual(y.shape, (*shape[:2], 4))

    @parameterized.product(vmap=["batched", "sequential"])
    def test_unknown_shapes_scalars_and_strings(self, vmap):
        op = tfo.python_op(_name(), out=lambda x, s: (s, x), vmap=vmap)(lambda x, s: (s, x + 1))

        @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec([None], tf.string)])
        def f(x, s):
            y = tf.vectorized_map(lambda args: op(*args), (x, s), fallback_to_while_loop=False)
            return (*y, y[1].shape.rank is None)

        strings, numbers, unknown = f(tf.range(3.0), tf.constant(["a", "bc\0", ""]))
        self.assertAllEqual(strings, [b"a", b"bc\0", b""])
        self.assertAllEqual(numbers, [1.0, 2.0, 3.0])
        self.assertTrue(unknown)

    def test_static_shapes(self):
        product, _ = _product("batched")

        @tf.function(input_signature=[tf.TensorSpec([None, 2, 3]), tf.TensorSpec([3, 4])])
        def f(x, w):
            y = tf.vectorized_map(lambda x: product(x, w), x)
            self.assertEqual(y.shape.as_list(), [None, 2, 4])
            return y

        f(tf.zeros([1, 2, 3]), tf.zeros([3, 4]))

    def test_op_without_mapped_inputs_runs_once(self):
        product, calls = _product("batched")
        x, w = _random(2, 3), _random(3, 4)
        y = tf.vectorized_map(lambda i: product(x, w) * i, tf.range(3.0, dtype=tf.float64))
        self.assertAllClose(y[2], 2 * x @ w)
        self.assertLen(calls, 1)

    def test_function_that_does_not_accept_batches_raises(self):
        op = tfo.python_op(_name(), out=lambda x: tf.TensorSpec([], x.dtype), vmap="batched")(np.sum)
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, r"its result has shape \[\], declared \[3\] \(vmap: \[3\] calls in one\)"
        ):
            tf.vectorized_map(op, tf.zeros([3, 2]))

    def test_results_of_different_sizes_raise(self):
        op = tfo.python_op(_name(), out=lambda x: tf.TensorSpec([None], x.dtype))(np.unique)
        self.assertAllEqual(tf.vectorized_map(op, tf.constant([[2, 1], [4, 3]])), [[1, 2], [3, 4]])
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, r"its result differs in shape between calls: \[\(1,\), \(2,\)\]"
        ):
            tf.vectorized_map(op, tf.constant([[2, 1], [3, 3]]))

    def test_gradient_may_have_its_own_vmap(self):
        calls = []
        op = tfo.python_op(_name(), out=lambda x: x, vmap="batched")(lambda x: x * 2)

        @op.register_gradient(vmap="sequential")
        def _(ctx, dy):
            calls.append(dy.shape)
            return dy * 2

        def f(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = op(x)
            return tape.gradient(y, x)

        self.assertAllEqual(tf.vectorized_map(f, tf.zeros([3, 2])), np.full([3, 2], 2.0))
        self.assertEqual(calls, [(2,)] * 3)

    def test_numpy_function_falls_back_as_before(self):
        f = lambda x: tf.numpy_function(np.sin, [x], tf.float32, stateful=False)  # noqa: E731
        self.assertAllClose(tf.vectorized_map(f, tf.range(3.0)), np.sin(np.arange(3.0)))


class JacobianTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(vmap=["batched", "sequential"], graph=[False, True])
    def test_jacobian_and_hessian(self, vmap, graph):
        product, _ = _product(vmap)
        x, w = _random(2, 3), _random(3, 4)
        f = tf.function(product) if graph else product

        def derivatives(function):
            with tf.GradientTape(persistent=True) as outer:
                outer.watch([x, w])
                with tf.GradientTape(persistent=True) as tape:
                    tape.watch([x, w])
                    y = tf.sin(function(x, w))
                first = tape.gradient(y, w)
            return [*tape.jacobian(y, [x, w]), outer.jacobian(first, x)]

        for ours, theirs in zip(derivatives(f), derivatives(tf.matmul), strict=True):
            self.assertAllClose(ours, theirs, rtol=1e-10)

    @parameterized.parameters("batched", "sequential")
    def test_batch_jacobian(self, vmap):
        op = tfo.python_op(_name(), out=lambda x: x, vmap=vmap)(lambda x: x**2)
        op.register_gradient(lambda ctx, dy: 2 * ctx.inputs[0] * dy)
        x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = op(x)
        self.assertAllEqual(tape.batch_jacobian(y, x), [[[2, 0], [0, 4]], [[6, 0], [0, 8]]])


if __name__ == "__main__":
    tf.test.main()
