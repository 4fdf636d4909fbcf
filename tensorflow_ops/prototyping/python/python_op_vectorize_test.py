"""Tests of python_ops in tf.vectorized_map and in jacobians, beyond those of python_op_opcheck_test.py."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from python_op_testing import gradients_of, op_name, product_op

import tensorflow_ops as tfo

_VMAPS = ["batched", "sequential"]


def _random(*shape):
    return tf.constant(np.random.default_rng(len(shape)).normal(size=shape))


def _map(function, args):
    return tf.vectorized_map(function, args, fallback_to_while_loop=False)


def _gradients_of_a_map(function, x, w):
    """Returns values, and gradients of two orders. A factor of two dims is the same in all calls."""
    stacked = [a for a in (x, w) if a.shape.rank == 3]

    def call(args):
        args = iter(args)
        return function(*(next(args) if a.shape.rank == 3 else a for a in (x, w)))

    with tf.GradientTape() as outer:
        outer.watch([x, w])
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = _map(call, stacked)
            total = tf.reduce_sum(tf.sin(y))
        first = tape.gradient(total, [x, w])
        norm = tf.reduce_sum(tf.square(first[0])) + tf.reduce_sum(tf.sin(first[1]))
    return [y, *first, *outer.gradient(norm, [x, w])]


def _map_of_gradients(function, x, w):
    return _map(lambda args: gradients_of(lambda *args: tf.sin(function(*args)), *args), (x, w))


def _nested_maps(function, x, w):
    """The outer map stacks x and w, the inner map x only."""

    def maps(x, w):
        return _map(lambda args: _map(lambda x: function(x, args[1]), args[0]), (x, w))

    return [maps(x, w), *gradients_of(lambda x, w: tf.sin(maps(x, w)), x, w)]


def _jacobians(function, x, w):
    with tf.GradientTape(persistent=True) as outer:
        outer.watch([x, w])
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, w])
            y = tf.sin(function(x, w))
        first = tape.gradient(y, w)
    return [*tape.jacobian(y, [x, w]), outer.jacobian(first, x)]


class VectorizedMapTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        [{"vmap": vmap} for vmap in _VMAPS],
        # The shapes of x in batched calls, and the number of sequential ones.
        [
            {"of": _gradients_of_a_map, "x": (5, 2, 3), "w": (5, 3, 4), "batched": [(5, 2, 3)], "each": 5},
            {"of": _gradients_of_a_map, "x": (2, 3), "w": (5, 3, 4), "batched": [(5, 2, 3)], "each": 5},
            {"of": _gradients_of_a_map, "x": (5, 2, 3), "w": (3, 4), "batched": [(5, 2, 3)], "each": 5},
            {"of": _map_of_gradients, "x": (5, 2, 3), "w": (5, 3, 4), "batched": [(5, 2, 3)], "each": 5},
            {"of": _nested_maps, "x": (7, 5, 2, 3), "w": (7, 3, 4), "batched": [(7, 5, 2, 3)] * 2, "each": 70},
            {"of": _jacobians, "x": (2, 3), "w": (3, 4), "batched": [(2, 3)], "each": 1},
        ],
    )
    def test_is_like_matmul(self, vmap, of, x, w, batched, each):
        x, w = _random(*x), _random(*w)
        op, calls = product_op(vmap)
        for ours, theirs in zip(of(op, x, w), of(tf.matmul, x, w), strict=True):
            self.assertEqual(ours.shape, theirs.shape)
            self.assertAllClose(ours, theirs, rtol=1e-10)
        self.assertEqual(calls, batched if vmap == "batched" else [(2, 3)] * each)

    def test_jacobian_of_a_graph(self):
        op, _ = product_op("batched")
        x, w = _random(2, 3), _random(3, 4)
        for ours, theirs in zip(_jacobians(tf.function(op), x, w), _jacobians(tf.matmul, x, w), strict=True):
            self.assertAllClose(ours, theirs, rtol=1e-10)

    @parameterized.product(vmap=_VMAPS, shape=[(0, 2, 3), (3, 0, 3)])
    def test_empty(self, vmap, shape):
        op, _ = product_op(vmap)
        w = _random(3, 4)
        y = _map(lambda x: op(x, w), tf.zeros(shape, tf.float64))
        self.assertEqual(y.shape, (*shape[:2], 4))

    @parameterized.product(vmap=_VMAPS)
    def test_unknown_shapes_scalars_and_strings(self, vmap):
        op = tfo.python_op(op_name(), out=lambda x, s: (s, x), vmap=vmap)(lambda x, s: (s, x + 1))

        @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec([None], tf.string)])
        def f(x, s):
            y = _map(lambda args: op(*args), (x, s))
            return (*y, y[1].shape.rank is None)

        strings, numbers, unknown = f(tf.range(3.0), tf.constant(["a", "bc\0", ""]))
        self.assertAllEqual(strings, [b"a", b"bc\0", b""])
        self.assertAllEqual(numbers, [1.0, 2.0, 3.0])
        self.assertTrue(unknown)

    def test_static_shapes(self):
        op, _ = product_op("batched")

        @tf.function(input_signature=[tf.TensorSpec([None, 2, 3]), tf.TensorSpec([3, 4])])
        def f(x, w):
            y = tf.vectorized_map(lambda x: op(x, w), x)
            self.assertEqual(y.shape.as_list(), [None, 2, 4])
            return y

        f(tf.zeros([1, 2, 3]), tf.zeros([3, 4]))

    def test_op_without_mapped_inputs_runs_once(self):
        op, calls = product_op("batched")
        x, w = _random(2, 3), _random(3, 4)
        y = tf.vectorized_map(lambda i: op(x, w) * i, tf.range(3.0, dtype=tf.float64))
        self.assertAllClose(y[2], 2 * x @ w)
        self.assertLen(calls, 1)

    def test_function_that_does_not_accept_batches_raises(self):
        op = tfo.python_op(op_name(), out=lambda x: tf.TensorSpec([], x.dtype), vmap="batched")(np.sum)
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, r"its result has shape \[\], declared \[3\] \(vmap: \[3\] calls in one\)"
        ):
            tf.vectorized_map(op, tf.zeros([3, 2]))

    def test_results_of_different_sizes_raise(self):
        op = tfo.python_op(op_name(), out=lambda x: tf.TensorSpec([None], x.dtype))(np.unique)
        self.assertAllEqual(tf.vectorized_map(op, tf.constant([[2, 1], [4, 3]])), [[1, 2], [3, 4]])
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, r"its result differs in shape between calls: \[\(1,\), \(2,\)\]"
        ):
            tf.vectorized_map(op, tf.constant([[2, 1], [3, 3]]))

    def test_gradient_may_have_its_own_vmap(self):
        calls = []
        op = tfo.python_op(op_name(), out=lambda x: x, vmap="batched")(lambda x: x * 2)

        @op.register_gradient(vmap="sequential")
        def _(ctx, dy):
            calls.append(dy.shape)
            return dy * 2

        self.assertAllEqual(_map(lambda x: gradients_of(op, x)[0], tf.zeros([3, 2])), np.full([3, 2], 2.0))
        self.assertEqual(calls, [(2,)] * 3)

    def test_numpy_function_falls_back_as_before(self):
        f = lambda x: tf.numpy_function(np.sin, [x], tf.float32, stateful=False)  # noqa: E731
        self.assertAllClose(tf.vectorized_map(f, tf.range(3.0)), np.sin(np.arange(3.0)))

    @parameterized.parameters(*_VMAPS)
    def test_batch_jacobian(self, vmap):
        op = tfo.python_op(op_name(), out=lambda x: x, vmap=vmap)(lambda x: x**2)
        op.register_gradient(lambda ctx, dy: 2 * ctx.inputs[0] * dy)
        x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = op(x)
        self.assertAllEqual(tape.batch_jacobian(y, x), [[[2, 0], [0, 4]], [[6, 0], [0, 8]]])


if __name__ == "__main__":
    tf.test.main()
