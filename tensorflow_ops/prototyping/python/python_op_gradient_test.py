"""Tests of python_op's gradients: first and second order, forward mode, missing gradients."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from python_op_testing import MODES, cube_op, gradients_of, op_name, same

import tensorflow_ops as tfo


class FirstOrderTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(mode=list(MODES), inside=[False, True])
    def test_outputs_without_upstream_gradient(self, mode, inside):
        op = tfo.python_op(op_name(), out=lambda x, w: (same(x), same(w)))(lambda x, w: (x * w, 3 * x))

        @op.register_gradient
        def _(ctx, d_product, d_tripled):
            x, w = ctx.inputs
            return w * d_product + 3 * d_tripled, x * d_product

        f = op if inside else MODES[mode](op)
        x, w = tf.constant([1.0, 2.0]), tf.constant([5.0, 7.0])
        for part, expected in ((lambda ys: ys, w + 3), (lambda ys: ys[0], w), (lambda ys: ys[1], [3.0, 3.0])):
            of_part = lambda x, w, part=part: gradients_of(lambda *i: part(f(*i)), x, w)[0]  # noqa: E731
            self.assertAllEqual((MODES[mode](of_part) if inside else of_part)(x, w), expected)

    @parameterized.parameters(*MODES)
    def test_integer_results_have_no_gradient(self, mode):
        op = tfo.python_op(op_name(), out=lambda x: tf.TensorSpec([], tf.int64))(lambda x: np.argmax(x))
        x = tf.constant([1.0, 3.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cast(MODES[mode](op)(x), tf.float32)
        self.assertIsNone(tape.gradient(y, x))

    @parameterized.parameters(*MODES)
    def test_attributes_and_sparse_upstream_gradients(self, mode):
        op = tfo.python_op(op_name(), out=same)(lambda x, *, factor: x * x.dtype.type(factor))
        op.register_gradient(lambda ctx, dy: dy * dy.dtype.type(ctx.attributes["factor"]))
        x = tf.constant([1.0, 2.0, 3.0])
        f = MODES[mode](lambda x: tf.gather(op(x, factor=3), [2, 2]))
        self.assertAllEqual(gradients_of(f, x)[0], [0.0, 0.0, 6.0])

    @parameterized.parameters(*MODES)
    def test_arrays_in_the_context_are_read_only(self, mode):
        for get_array in (
            lambda ctx, dy: ctx.inputs[0],
            lambda ctx, dy: ctx.outputs[0],
            lambda ctx, dy: ctx.saved,
            lambda ctx, dy: dy,
        ):
            op = tfo.python_op(op_name(), out=same, saved=same)(lambda x: (x + 1, x + 2))

            @op.register_gradient
            def _(ctx, dy, get_array=get_array):
                get_array(ctx, dy)[...] = 0
                return dy

            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "the gradient of .*read-only"):
                gradients_of(MODES[mode](op), tf.constant([1.0]))


class SecondOrderTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters("eager", "graph", "graph around the tapes", "graph around the inner tape")
    def test_second_order(self, mode):
        cube, _, _ = cube_op()
        x = tf.constant([1.0, -2.0])
        dy = tf.constant([0.5, 3.0])
        f = tf.function(cube) if mode == "graph" else cube

        def first(x, dy):
            return gradients_of(f, x, upstream=dy)[0]

        first = tf.function(first) if mode == "graph around the inner tape" else first
        second = lambda x, dy: gradients_of(first, x, dy)  # noqa: E731
        second = tf.function(second) if mode == "graph around the tapes" else second
        dx, ddy = second(x, dy)
        self.assertAllClose(dx, 6 * x * dy)
        self.assertAllClose(ddy, 3 * x * x)

    @parameterized.parameters(*MODES)
    def test_forward_mode(self, mode):
        cube, _, _ = cube_op()
        x, tangent = tf.constant([1.0, -2.0]), tf.constant([0.5, 3.0])
        with tf.autodiff.ForwardAccumulator(x, tangent) as accumulator:
            y = MODES[mode](cube)(x)
        self.assertAllClose(accumulator.jvp(y), 3 * x * x * tangent)

    @parameterized.parameters(*MODES)
    def test_slots_without_gradient_are_none(self, mode):
        """The op has integer and float inputs and outputs; both gradients get None for the integers."""
        out = lambda n, x: (tf.TensorSpec([], tf.int32), same(x))  # noqa: E731
        seen = []

        @tfo.python_op(op_name(), out=out)
        def power(n, x):
            return n, x ** int(n)

        @power.register_gradient
        def gradient(ctx, dn, dy):
            n, x = ctx.inputs
            return None, n.astype(x.dtype) * x ** (int(n) - 1) * dy

        @gradient.register_gradient
        def _(ctx, ddn, ddx):
            n, x, dm, dy = ctx.inputs
            seen.append((ddn, dm, ctx.outputs[0], ctx.outputs[1].shape))
            k = n.astype(x.dtype)
            return None, k * (k - 1) * x ** (int(n) - 2) * dy * ddx, None, k * x ** (int(n) - 1) * ddx

        x = tf.constant([1.0, -2.0])
        f = MODES[mode](lambda x: power(3, x)[1])
        self.assertAllClose(gradients_of(lambda x: gradients_of(f, x)[0], x)[0], 6 * x)
        self.assertEqual(seen, [(None, None, None, (2,))])

    def test_gradient_functions_can_be_called(self):
        _, first, second = cube_op()
        self.assertEqual(first.__name__, "first")
        self.assertRegex(repr(second), r"<the gradient of the gradient of test::op_\d+>")
        with self.assertRaises(AttributeError):
            first(None, 1.0)


_MODES = [*MODES, "all in a graph"]


def _derivative(mode, function, of=gradients_of):
    """Returns x -> of(function, x), with the function or all of it in a graph."""
    if mode in MODES:
        return lambda x: of(MODES[mode](function), x)
    return tf.function(lambda x: of(function, x))


class MissingTest(parameterized.TestCase, tf.test.TestCase):
    """A missing gradient raises; it never becomes None or 0."""

    def _op(self, gradient=False):
        @tfo.python_op("test::half", out=same, replace=True)
        def half(x):
            return x / 2

        if gradient:
            half.register_gradient(lambda ctx, dy: dy / 2)
        return half

    @parameterized.parameters(*_MODES)
    def test_gradient(self, mode):
        with self.assertRaisesRegex(
            LookupError, r"test::half has no gradient. Register one: @half.register_gradient .*or put tf.stop_gradient"
        ):
            _derivative(mode, self._op())(tf.constant([1.0]))

    @parameterized.parameters(*_MODES)
    def test_calls_and_stopped_gradients_need_no_gradient(self, mode):
        half = self._op()
        derivative = _derivative(mode, lambda x: tf.stop_gradient(half(x)) * x)
        self.assertAllEqual(derivative(tf.constant([4.0]))[0], [2.0])

    @parameterized.parameters(*_MODES)
    def test_second_order(self, mode):
        def second(f, x):
            return gradients_of(lambda x: gradients_of(f, x)[0] * x, x)

        half = self._op(gradient=True)
        self.assertAllEqual(_derivative(mode, half)(tf.constant([1.0]))[0], [0.5])
        with self.assertRaisesRegex(LookupError, "the gradient of test::half has no gradient, which second-order"):
            _derivative(mode, half, second)(tf.constant([1.0]))

    @parameterized.parameters(*MODES)
    def test_third_order(self, mode):
        cube, _, _ = cube_op()
        x = tf.constant([1.0])
        third = lambda x: gradients_of(lambda x: gradients_of(lambda x: gradients_of(cube, x)[0], x)[0], x)[0]  # noqa: E731
        with self.assertRaisesRegex(
            (LookupError, tf.errors.UnknownError), r"the gradient of the gradient of test::op_\d+ has no gradient"
        ):
            MODES[mode](third)(x)

    @parameterized.product(mode=list(MODES), gradient=[False, True])
    def test_forward_mode(self, mode, gradient):
        f = MODES[mode](self._op(gradient))
        x = tf.constant([1.0])
        message = "a gradient without a gradient of its own" if gradient else "no gradient"
        message = f"test::half has {message}, and forward mode .*ForwardAccumulator.* needs both"
        if mode == "graph":  # TensorFlow calls the gradients, without reference to forward mode
            message = (
                "the gradient of test::half has no gradient.*forward mode" if gradient else "test::half has no gradient"
            )
        with (
            self.assertRaisesRegex(LookupError, message),
            tf.autodiff.ForwardAccumulator(x, x) as accumulator,
        ):
            accumulator.jvp(f(x))

    @parameterized.parameters(*MODES)
    def test_forward_mode_without_tangents_needs_no_gradient(self, mode):
        x = tf.constant([1.0])
        with tf.autodiff.ForwardAccumulator(x, x):
            y = MODES[mode](self._op())(tf.constant([4.0]))
        self.assertAllEqual(y, [2.0])

    @parameterized.parameters(*MODES)
    def test_bad_results_of_the_gradient_raise(self, mode):
        for gradient, message in (
            (lambda ctx, dx, dy: (dx, None), r"returned None for y, expected an array.*non_differentiable=\['y'\]"),
            (lambda ctx, dx, dy: dx, "returned one ndarray, expected 3, to x, y, n"),
            (lambda ctx, dx, dy: (dx, dy, None, None), "returned 4 gradients, expected 3, to x, y, n"),
            (lambda ctx, dx, dy: (dx, dy, dx), "returned a gradient to n, which has none: expected None"),
            (lambda ctx, dx, dy: (dx, dy.astype(float), None), "the gradient to y has dtype float64, declared float32"),
            (lambda ctx, dx, dy: (dx, dy[:1], None), r"the gradient to y has shape \[1\], declared \[2\]"),
            (
                lambda ctx, dx, dy: (dx, 1 / 0, None),
                r"its function raised ZeroDivisionError: division by zero \(.*_test.py",
            ),
            (lambda ctx, dx, dy: (dx / np.float32(0), dy, None), r"the gradient to x is inf at \[0\], expected finite"),
        ):
            op = tfo.python_op("test::pair", out=lambda x, y, n: (same(x), same(y)), check_finite=True, replace=True)(
                lambda x, y, n: (x, y)
            )

            @op.register_gradient
            def _(ctx, *gradients, gradient=gradient):
                result = gradient(ctx, *gradients)
                return (*result, None) if isinstance(result, tuple) and len(result) == 2 else result

            x = tf.constant([1.0, 2.0])
            with (
                self.subTest(message),
                np.errstate(all="ignore"),
                self.assertRaisesRegex(tf.errors.OpError, f"the gradient of test::pair: .*{message}"),
            ):
                gradients_of(MODES[mode](lambda x, y, op=op: op(x, y, 3)), x, tf.identity(x))

    def test_registering(self):
        half = self._op()
        with self.assertRaisesRegex(TypeError, "test::half: register_gradient got a int, expected a function"):
            half.register_gradient(3)
        with self.assertRaisesRegex(ValueError, "test::half: vmap is 'fast', expected one of"):
            half.register_gradient(lambda ctx, dy: dy, vmap="fast")
        gradient = half.register_gradient(lambda ctx, dy: dy / 2)
        with self.assertRaisesRegex(ValueError, "test::half already has a gradient: .*python_op_gradient_test.py"):
            half.register_gradient(lambda ctx, dy: dy)
        gradient.register_gradient(lambda ctx, ddx: (0 * ddx, ddx / 2))
        with self.assertRaisesRegex(ValueError, "the gradient of test::half already has a gradient"):
            gradient.register_gradient(lambda ctx, dy: dy)

    def test_gradient_may_be_registered_after_tracing(self):
        half = self._op()
        f = tf.function(half)
        f(tf.constant([1.0]))
        half.register_gradient(lambda ctx, dy: dy / 2)
        self.assertAllEqual(gradients_of(f, tf.constant([1.0]))[0], [0.5])


if __name__ == "__main__":
    tf.test.main()
