"""Tests of gradient_error and assert_gradients."""

import collections

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from opcheck_testing import gradient_of_another_element

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_X, _W, _B = (_RNG.normal(size=shape) for shape in ((3, 4), (4, 2), (2,)))
_Z = _RNG.normal(size=4) + 1j * _RNG.normal(size=4)
_Pair = collections.namedtuple("_Pair", "first second")


def _wrong_at(index, by):
    """Returns x^2 with one wrong element in its Jacobian."""

    @tf.custom_gradient
    def function(x):
        def gradient(dy):
            delta = tf.scatter_nd([index], tf.constant([by], x.dtype), x.shape)
            return 2 * x * dy + delta * dy

        return x**2, gradient

    return function


class GradientErrorTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (tf.sin, [tf.constant(_X)]),
        (tf.matmul, [_X, _W]),
        (
            lambda pair, b: {"a": pair.first @ pair.second + b, "b": [b**2]},
            [_Pair(tf.constant(_X), tf.constant(_W)), _B],
        ),
        (tf.gather, [tf.constant(_X), tf.constant([2, 0, 2])]),
        (lambda x, n: x**n, [tf.constant(_X), 3]),
        (lambda x: tf.reduce_sum(x), [tf.constant(2.0)]),
        (tf.square, [tf.constant(_Z)]),
        (tf.abs, [tf.constant(_Z)]),
        (tf.math.conj, [tf.constant(_Z)]),
        (lambda z: (tf.math.real(z) * tf.math.imag(z), tf.exp(z)), [tf.constant(_Z)]),
        (lambda x: tf.complex(x, x**2), [tf.constant(_X)]),
    )
    def test_right_gradients(self, function, args):
        for full in (True, False):
            result = tfo.testing.gradient_error(function, args, full=full)
            self.assertLess(result.error, 1e-8)
            self.assertTrue(result.ok)
            self.assertNotEmpty(result.inputs)
            tfo.testing.assert_gradients(function, args, full=full)

    @parameterized.product(dtype=(tf.float16, tf.bfloat16, tf.float32, tf.complex64), full=(True, False))
    def test_narrow_dtypes_are_compared_with_float64(self, dtype, full):
        x = tf.cast(_Z if dtype.is_complex else _X, dtype)
        result = tfo.testing.gradient_error(tf.math.tanh, [x], full=full)
        self.assertTrue(result.ok, str(result))
        self.assertEqual(result["args[0]"].dtype, dtype)
        # The error is the gradient's own rounding; numeric differences in the dtype would be less accurate.
        self.assertLess(result.error, {tf.float16: 3e-3, tf.bfloat16: 3e-2}.get(dtype, 1e-6))
        with self.assertRaisesRegex(AssertionError, "wrong gradients of 1 of 1 inputs"):
            tfo.testing.assert_gradients(tf.math.tanh, [x], full=full, tolerance=1e-12)

    def test_reports_the_location(self):
        x = tf.constant(_X)
        result = tfo.testing.gradient_error(lambda a, b: {"y": _wrong_at([1, 2], 0.25)(a) + b}, [x, x])
        wrong, right = result.inputs
        self.assertEqual((wrong.input, wrong.input_index), ("args[0]", (1, 2)))
        self.assertEqual((wrong.output, wrong.output_index), ("output['y']", (1, 2)))
        self.assertAllClose(wrong.analytic, 2 * _X[1, 2] + 0.25)
        self.assertAllClose(wrong.numeric, 2 * _X[1, 2])
        self.assertAllClose(wrong.error, 0.25)
        self.assertAllClose(result.error, 0.25)
        self.assertFalse(wrong.ok)
        self.assertTrue(right.ok)
        self.assertFalse(result.ok)

    def test_finds_one_element_of_many_along_random_directions(self):
        x = tf.constant(_RNG.normal(size=[40, 50]))
        result = tfo.testing.gradient_error(_wrong_at([17, 31], 0.5), [x])
        self.assertFalse(result.ok)
        self.assertTrue(tfo.testing.gradient_error(tf.square, [x]).ok)

    def test_complex_gradient_without_conjugation(self):
        @tf.custom_gradient
        def square(z):
            return z**2, lambda dy: 2 * z * dy

        self.assertGreater(tfo.testing.gradient_error(square, [tf.constant(_Z)]).error, 0.1)

    def test_wrong_gradient_with_the_right_sum(self):
        for full in (True, False):
            result = tfo.testing.gradient_error(gradient_of_another_element, [tf.constant(_X)], full=full)
            self.assertGreater(result.error, 0.5)

    def test_none_counts_as_zero(self):
        (entry,) = tfo.testing.gradient_error(lambda x: tf.stop_gradient(3 * x), [tf.constant(_X)]).inputs
        self.assertTrue(entry.missing)
        self.assertAllClose((entry.analytic, entry.numeric, entry.error), (0, 3, 3))
        self.assertTrue(tfo.testing.gradient_error(lambda x: tf.stop_gradient(x) * 0, [tf.constant(_X)]).ok)

    def test_nan_is_an_error(self):
        @tf.custom_gradient
        def function(x):
            return tf.identity(x), lambda dy: dy * float("nan")

        result = tfo.testing.gradient_error(function, [tf.constant(_X)])
        self.assertTrue(np.isnan(result.error))
        self.assertFalse(result.ok)

    def test_non_differentiable_inputs_are_skipped(self):
        def function(a, nest, *, scale):
            return tf.stop_gradient(a) * nest[1] * tf.stop_gradient(scale)

        x = tf.constant(_X)
        declared = {"non_differentiable": (0, (1, 0), "scale")}
        result = tfo.testing.gradient_error(function, [x, [x, x]], {"scale": tf.constant(2.0, tf.float64)}, **declared)
        self.assertEqual([entry.skipped is None for entry in result.inputs], [False, False, True, False])
        self.assertEqual([entry.input for entry in result.inputs], ["args[0]", "args[1][0]", "args[1][1]", "scale"])
        self.assertTrue(result.ok)
        self.assertFalse(tfo.testing.gradient_error(function, [x, [x, x]], {"scale": tf.constant(2.0, tf.float64)}).ok)

    def test_inputs_of_fixed_dtype(self):
        def function(x, y):
            if y.dtype != tf.float32:
                raise TypeError("y must be float32")
            return x * tf.cast(y, x.dtype)

        args = [tf.constant(_X, tf.float32), tf.constant(_X, tf.float32)]
        with self.assertRaisesRegex(TypeError, "y must be"):
            tfo.testing.gradient_error(function, args)
        self.assertTrue(tfo.testing.gradient_error(function, args, fixed_dtype=1).ok)

    def test_gradient_of_another_dtype(self):
        @tf.custom_gradient
        def function(x):
            return tf.identity(x), lambda dy: tf.cast(dy, tf.float32)

        with self.assertRaisesRegex((AssertionError, ValueError, tf.errors.InvalidArgumentError), "float32|float"):
            tfo.testing.gradient_error(function, [tf.constant(_X)])

    def test_nothing_to_compare(self):
        for function, args in (
            (tf.argmax, [tf.constant(_X)]),
            (tf.identity, [tf.zeros([0, 3])]),
            (lambda n: n + 1, [tf.constant(3)]),
        ):
            self.assertEqual(tfo.testing.gradient_error(function, args).error, 0)

    def test_seed_determines_the_result(self):
        x = tf.constant(_RNG.normal(size=[400]))
        results = {
            tfo.testing.gradient_error(_wrong_at([7], 0.5), [x], seed=seed)["args[0]"].analytic for seed in (1, 1, 2)
        }
        self.assertLen(results, 2)


class AssertGradientsTest(tf.test.TestCase):
    def test_report(self):
        x = tf.constant([[1.0, 2.0]], tf.float64)
        with self.assertRaises(AssertionError) as caught:
            tfo.testing.assert_gradients(lambda a, b: _wrong_at([0, 1], 0.5)(a) + b, [x, x])
        self.assertEqual(
            str(caught.exception),
            "wrong gradients of 1 of 2 inputs\n"
            "args[0] (float64): d output[0, 1] / d args[0][0, 1]: analytic 4.5, numeric 4, difference 0.5, "
            "tolerance 1e-06 * (1 + |numeric|)",
        )

    def test_tolerance(self):
        tfo.testing.assert_gradients(_wrong_at([0], 0.5), [tf.constant([1.0, 2.0])], tolerance=0.2)
        with self.assertRaises(AssertionError):
            tfo.testing.assert_gradients(_wrong_at([0], 0.5), [tf.constant([1.0, 2.0])], tolerance=0.1)


if __name__ == "__main__":
    tf.test.main()
