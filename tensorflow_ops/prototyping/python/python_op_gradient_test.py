"""Tests of python_op's gradients: first and second order, forward mode, missing gradients."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_MODES = {"eager": lambda f: f, "graph": tf.function}
_NUMBERS = iter(range(10**6))


def _name():
    """Returns an unused op name."""
    return f"test::gradient_{next(_NUMBERS)}"


def _same(x, *unused):
    return tf.TensorSpec(x.shape, x.dtype)


def _cube():
    """Returns x^3, its gradient and its second gradient. The gradient uses saved values."""

    @tfo.python_op(_name(), out=_same, saved=lambda x: {"square": _same(x), "count": tf.TensorSpec([], tf.int64)})
    def cube(x):
        return x**3, {"square": x * x, "count": np.array(x.size)}

    @cube.register_gradient
    def gradient(ctx, dy):
        assert ctx.saved["count"] == ctx.inputs[0].size and ctx.forward is None
        np.testing.assert_array_equal(ctx.outputs[0], ctx.inputs[0] ** 3)
        return 3 * ctx.saved["square"] * dy

    @gradient.register_gradient
    def second(ctx, ddx):
        x, dy = ctx.inputs
        np.testing.assert_array_equal(ctx.forward.outputs[0], x**3)
        np.testing.assert_allclose(ctx.outputs[0], 3 * x * x * dy, rtol=1e-6)
        assert ctx.forward.inputs[0] is x
        return 6 * x * dy * ddx, 3 * ctx.saved["square"] * ddx

    return cube, gradient, second


def _gradient(function, *inputs, upstream=None):
    """Returns the gradients of function(*inputs); callers may wrap this in a tf.function."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = function(*inputs)
    return tape.gradient(y, inputs, output_gradients=upstream)


class FirstOrderTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(mode=list(_MODES), inside=[False, True])
    def test_two_inputs_and_outputs(self, mode, inside):
        out = lambda x, w: (tf.TensorSpec([x.shape[0], w.shape[1]], x.dtype), tf.TensorSpec([], x.dtype))  # noqa: E731

        @tfo.python_op(_name(), out=out)
        def product(x, w):
            return x @ w, np.sum(x)

        @product.register_gradient
        def _(ctx, dy, dtotal):
            x, w = ctx.inputs
            return dy @ w.T + dtotal, x.T @ dy

        generator = np.random.default_rng(0)
        x, w, dy = (tf.constant(generator.normal(size=s)) for s in ((2, 3), (3, 4), (2, 4)))

        def theirs(x, w):
            return tf.matmul(x, w), tf.reduce_sum(x)

        f = product if inside else _MODES[mode](product)
        for part, upstream in (
            (lambda results: results, [dy, tf.constant(2.0, tf.float64)]),
            (lambda results: results[0], dy),
            (lambda results: results, None),
        ):
            ours = lambda x, w: _gradient(lambda *i: part(f(*i)), x, w, upstream=upstream)  # noqa: E731, B023
            ours = _MODES[mode](ours) if inside else ours
            expected = _gradient(lambda *i: part(theirs(*i)), x, w, upstream=upstream)  # noqa: B023
            self.assertAllClose(ours(x, w), expected, rtol=1e-12)

    @parameterized.product(mode=list(_MODES), dtype=["float16", "bfloat16", "float32", "float64", "complex64"])
    def test_dtypes(self, mode, dtype):
        op = tfo.python_op(_name(), out=_same)(lambda x: x * x)
        op.register_gradient(lambda ctx, dy: dy.dtype.type(2) * np.conj(ctx.inputs[0]) * dy)
        x = tf.cast([1.0, -2.0], dtype)
        if dtype == "complex64":
            x += tf.cast(1j, dtype)
        f = _MODES[mode](op)
        (gradient,) = _gradient(f, x)
        self.assertEqual(gradient.dtype, dtype)
        self.assertAllEqual(gradient, _gradient(tf.square, x)[0])

    @parameterized.parameters(*_MODES)
    def test_inputs_without_gradient(self, mode):
        out = lambda x, indices, mask, scale: (tf.TensorSpec(indices.shape, tf.int32), tf.TensorSpec([None], x.dtype))  # noqa: E731
        received = []

        @tfo.python_op(_name(), out=out, non_differentiable=["scale"])
        def gather(x, indices, mask, scale):
            return indices, x[indices] * mask * scale

        @gather.register_gradient
        def _(ctx, dindices, dy):
            received.append(dindices)
            x, indices, mask, scale = ctx.inputs
            dx = np.zeros_like(x)
            np.add.at(dx, indices, dy * mask * scale)
            return dx, None, None, None

        x = tf.Variable([1.0, 2.0, 3.0])
        scale = tf.Variable(2.0)
        with tf.GradientTape() as tape:
            indices, y = _MODES[mode](lambda: gather(x, [0, 0, 2], [True, True, False], scale))()
        self.assertAllEqual(indices, [0, 0, 2])
        gradients = tape.gradient(y, [x, scale])
        self.assertAllEqual(gradients[0], [4.0, 0.0, 0.0])
        self.assertIsNone(gradients[1])
        self.assertEqual(received, [None])

    @parameterized.parameters(*_MODES)
    def test_integer_results_have_no_gradient(self, mode):
        op = tfo.python_op(_name(), out=lambda x: tf.TensorSpec([], tf.int64))(lambda x: np.argmax(x))
        x = tf.constant([1.0, 3.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cast(_MODES[mode](op)(x), tf.float32)
        self.assertIsNone(tape.gradient(y, x))

    @parameterized.parameters(*_MODES)
    def test_attributes_and_sparse_upstream_gradients(self, mode):
        op = tfo.python_op(_name(), out=_same)(lambda x, *, factor: x * x.dtype.type(factor))
        op.register_gradient(lambda ctx, dy: dy * dy.dtype.type(ctx.attributes["factor"]))
        x = tf.constant([1.0, 2.0, 3.0])
        f = _MODES[mode](lambda x: tf.gather(op(x, factor=3), [2, 2]))
        self.assertAllEqual(_gradient(f, x)[0], [0.0, 0.0, 6.0])

    def test_through_loops_and_branches(self):
        cube, _, _ = _cube()

        @tf.function
        def f(x):
            for _ in tf.range(3):
                x = cube(x) if tf.reduce_sum(x) > 0 else -x
            return x

        x = tf.constant([1.1, 0.9], tf.float64)
        self.assertAllClose(_gradient(f, x)[0], 27 * x**26, rtol=1e-12)
        self.assertAllClose(_gradient(f, -x)[0], -9 * x**8, rtol=1e-12)

    def test_trains_a_variable(self):
        cube, _, _ = _cube()
        variable = tf.Variable(2.0)
        optimizer = tf.keras.optimizers.SGD(0.1)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = cube(variable)
            optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])

        step()
        self.assertAllClose(variable, 0.8)

    @parameterized.parameters(*_MODES)
    def test_arrays_in_the_context_are_read_only(self, mode):
        for get_array in (
            lambda ctx, dy: ctx.inputs[0],
            lambda ctx, dy: ctx.outputs[0],
            lambda ctx, dy: ctx.saved,
            lambda ctx, dy: dy,
        ):
            op = tfo.python_op(_name(), out=_same, saved=_same)(lambda x: (x + 1, x + 2))

            @op.register_gradient
            def _(ctx, dy, get_array=get_array):
                get_array(ctx, dy)[...] = 0
                return dy

            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "the gradient of .*read-only"):
                _gradient(_MODES[mode](op), tf.constant([1.0]))

    def test_numeric(self):
        cube, _, _ = _cube()
        x = tf.constant(np.random.default_rng(0).normal(size=[5]))
        for f in (cube, lambda x: _gradient(cube, x)[0]):
            theirs, numeric = tf.test.compute_gradient(f, [x])
            self.assertAllClose(theirs, numeric, rtol=1e-6, atol=1e-6)


class SecondOrderTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters("eager", "graph", "graph around the tapes", "graph around the inner tape")
    def test_second_order(self, mode):
        cube, _, _ = _cube()
        x = tf.constant([1.0, -2.0])
        dy = tf.constant([0.5, 3.0])
        f = tf.function(cube) if mode == "graph" else cube

        def first(x, dy):
            return _gradient(f, x, upstream=dy)[0]

        first = tf.function(first) if mode == "graph around the inner tape" else first
        second = lambda x, dy: _gradient(first, x, dy)  # noqa: E731
        second = tf.function(second) if mode == "graph around the tapes" else second
        dx, ddy = second(x, dy)
        self.assertAllClose(dx, 6 * x * dy)
        self.assertAllClose(ddy, 3 * x * x)

    @parameterized.parameters(*_MODES)
    def test_forward_mode(self, mode):
        cube, _, _ = _cube()
        x, tangent = tf.constant([1.0, -2.0]), tf.constant([0.5, 3.0])
        with tf.autodiff.ForwardAccumulator(x, tangent) as accumulator:
            y = _MODES[mode](cube)(x)
        self.assertAllClose(accumulator.jvp(y), 3 * x * x * tangent)

    @parameterized.parameters(*_MODES)
    def test_slots_without_gradient_are_none(self, mode):
        """The op has integer and float inputs and outputs; both gradients get None for the integers."""
        out = lambda n, x: (tf.TensorSpec([], tf.int32), _same(x))  # noqa: E731
        seen = []

        @tfo.python_op(_name(), out=out)
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
        f = _MODES[mode](lambda x: power(3, x)[1])
        self.assertAllClose(_gradient(lambda x: _gradient(f, x)[0], x)[0], 6 * x)
        self.assertEqual(seen, [(None, None, None, (2,))])

    def test_gradient_functions_can_be_called(self):
        _, gradient, second = _cube()
        self.assertEqual(gradient.__name__, "gradient")
        self.assertRegex(repr(second), r"<the gradient of the gradient of test::gradient_\d+>")
        with self.assertRaises(AttributeError):
            gradient(None, 1.0)


class MissingTest(parameterized.TestCase, tf.test.TestCase):
    """A missing gradient raises; it never becomes None or 0."""

    def _op(self, gradient=False):
        @tfo.python_op("test::half", out=_same, replace=True)
        def half(x):
            return x / 2

        if gradient:
            half.register_gradient(lambda ctx, dy: dy / 2)
        return half

    @parameterized.product(mode=[*_MODES, "all in a graph"], twice=[False, True])
    def test_gradient(self, mode, twice):
        half = self._op()
        f = _MODES.get(mode, lambda f: f)(half)
        g = lambda x: _gradient(f, x)  # noqa: E731
        with self.assertRaisesRegex(
            LookupError, r"test::half has no gradient. Register one: @half.register_gradient .*or put tf.stop_gradient"
        ):
            (tf.function(g) if mode == "all in a graph" else g)(tf.constant([1.0]))

    @parameterized.parameters(*_MODES, "all in a graph")
    def test_calls_and_stopped_gradients_need_no_gradient(self, mode):
        half = self._op()
        f = _MODES.get(mode, lambda f: f)(lambda x: tf.stop_gradient(half(x)) * x)
        g = lambda x: _gradient(f, x)[0]  # noqa: E731
        self.assertAllEqual((tf.function(g) if mode == "all in a graph" else g)(tf.constant([4.0])), [2.0])

    @parameterized.parameters(*_MODES, "all in a graph")
    def test_second_order(self, mode):
        f = _MODES.get(mode, lambda f: f)(self._op(gradient=True))
        g = lambda x: _gradient(lambda x: _gradient(f, x)[0] * x, x)  # noqa: E731
        self.assertAllEqual(_gradient(f, tf.constant([1.0]))[0], [0.5])
        with self.assertRaisesRegex(LookupError, "the gradient of test::half has no gradient, which second-order"):
            (tf.function(g) if mode == "all in a graph" else g)(tf.constant([1.0]))

    @parameterized.product(mode=list(_MODES), order=[1, 2])
    def test_third_order(self, mode, order):
        cube, _, _second = _cube()
        x = tf.constant([1.0])
        third = lambda x: _gradient(lambda x: _gradient(lambda x: _gradient(cube, x)[0], x)[0], x)[0]  # noqa: E731
        with self.assertRaisesRegex(
            (LookupError, tf.errors.UnknownError), r"the gradient of the gradient of test::gradient_\d+ has no gradient"
        ):
            _MODES[mode](third)(x)

    @parameterized.product(mode=list(_MODES), gradient=[False, True])
    def test_forward_mode(self, mode, gradient):
        f = _MODES[mode](self._op(gradient))
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

    @parameterized.parameters(*_MODES)
    def test_forward_mode_without_tangents_needs_no_gradient(self, mode):
        x = tf.constant([1.0])
        with tf.autodiff.ForwardAccumulator(x, x):
            y = _MODES[mode](self._op())(tf.constant([4.0]))
        self.assertAllEqual(y, [2.0])

    @parameterized.parameters(*_MODES)
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
            op = tfo.python_op("test::pair", out=lambda x, y, n: (_same(x), _same(y)), check_finite=True, replace=True)(
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
                _gradient(_MODES[mode](lambda x, y, op=op: op(x, y, 3)), x, tf.identity(x))

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
        self.assertAllEqual(_gradient(f, tf.constant([1.0]))[0], [0.5])


if __name__ == "__main__":
    tf.test.main()
