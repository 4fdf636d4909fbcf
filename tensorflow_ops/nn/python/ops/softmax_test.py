"""Tests of softmax, log_prob_from_logits and softmax_entropy: values, gradients, bad input.

nn_grad_test.py tests higher orders, nn_graph_test.py graphs, nn_memory_test.py memory.
"""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_INF, _NAN = math.inf, math.nan
_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
# The spacing of numbers above 1, and the absolute error of x e^x where e^x is subnormal or underflows.
_ULP = {tf.float16: 2.0**-10, tf.bfloat16: 2.0**-7, tf.float32: 2.0**-23, tf.float64: 2.0**-52}
_TINY = {tf.float16: 2.0**-25, tf.bfloat16: 2.0**-119, tf.float32: 2.0**-119, tf.float64: 2.0**-1012}
_FUNCTIONS = {
    "softmax": tfo.nn.softmax,
    "log_prob_from_logits": tfo.nn.log_prob_from_logits,
    "softmax_entropy": tfo.nn.softmax_entropy,
}


def _wide(tensor):
    return np.asarray(tf.cast(tensor, tf.float64)).astype(np.longdouble)


def _reference(logits):
    """Returns (p, log p, entropy) of rows in 80 bits."""
    x = _wide(logits)
    largest = x.max(-1, keepdims=True)
    x = x - np.where(largest == -_INF, 0, largest)
    e = np.exp(x)
    rest = e.copy()
    np.put_along_axis(rest, x.argmax(-1)[..., np.newaxis], 0, -1)
    rest = rest.sum(-1, keepdims=True)
    empty = largest == -_INF
    p = np.where(empty, 0, e / (1 + rest))
    log_p = np.where(empty, -_INF, x - np.log1p(rest))
    entropy = -np.where(p == 0, 0, p * np.where(p == 0, 0, log_p)).sum(-1)
    return p, log_p, entropy


def _value_dtype(dtype):
    return tf.float64 if dtype == tf.float64 else tf.float32


def _logits(shape, dtype, scale=3.0, masked=0.0, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) * scale
    x[rng.random(shape) < masked] = -_INF
    return tf.cast(x, dtype)


def _gradient(function, x, upstream):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x, output_gradients=tf.cast(upstream, y.dtype))


class UlpTestCase(parameterized.TestCase, tf.test.TestCase):
    def assert_ulps(self, actual, expected, ulps, scale=None):
        """Asserts that errors are at top `ulps` units in the last place of the expected values, or of `scale`."""
        dtype = actual.dtype
        actual, expected = _wide(actual), np.asarray(expected)
        self.assertEqual(actual.shape, expected.shape)
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(actual[~finite], expected[~finite])
        scale = np.abs(expected) if scale is None else np.broadcast_to(scale, expected.shape)
        error = np.maximum(np.abs(actual[finite] - expected[finite]) - _TINY[dtype], 0)
        error = np.divide(error, scale[finite] * _ULP[dtype], where=error > 0, out=np.zeros_like(error))
        self.assertLessEqual(np.max(error, initial=0), ulps)


class ValueTest(UlpTestCase):
    @parameterized.parameters(*_DTYPES)
    def test_equals_the_definition(self, dtype):
        x = _logits([2, 3, 64], dtype, scale=30.0, masked=0.3)
        p, log_p, entropy = _reference(x)
        result = tfo.nn.softmax(x)
        self.assertEqual(result.dtype, dtype)
        # A logit minus the largest is rounded once: e^x changes by half an ulp of the difference.
        below = np.where(p > 0, np.abs(log_p), 0)
        self.assert_ulps(result, p, 0.51 if dtype.size == 2 else 4, p * (1 + 0.125 * below))
        result = tfo.nn.log_prob_from_logits(x)
        self.assertEqual(result.dtype, dtype)
        sum_error = 0.125 * (p * below).sum(-1, keepdims=True)
        self.assert_ulps(result, log_p, 0.51 if dtype.size == 2 else 4, np.abs(log_p) + sum_error)
        result = tfo.nn.softmax_entropy(x)
        self.assertEqual(result.dtype, _value_dtype(dtype))
        self.assert_ulps(result, entropy, 4, entropy + 0.125 * (p * below**2).sum(-1))

    @parameterized.parameters(*_DTYPES)
    def test_extremes_of_the_dtype(self, dtype):
        top = float(dtype.max)
        rows = [[top, -top, 0], [-top, -top, -top], [top, top, top], [-_INF, -top, -_INF]]
        x = tf.cast(np.array(rows), dtype)
        third = 1 / 3
        expected = [[1, 0, 0], [third] * 3, [third] * 3, [0, 1, 0]]
        self.assert_ulps(tfo.nn.softmax(x), np.array(expected, np.longdouble), 1)
        entropy = np.array([0, np.log(3), np.log(3), 0], np.float64)
        self.assert_ulps(tfo.nn.softmax_entropy(x), entropy, 2)
        log_p = tfo.nn.log_prob_from_logits(x)
        self.assertAllEqual(tf.cast(log_p[0, :1], tf.float64), [0])
        self.assertAllLess(log_p[0, 1:], -0.9 * top)
        self.assertAllEqual(tf.cast(log_p[3], tf.float64), [-_INF, 0, -_INF])

    @parameterized.parameters((tf.float32, 87.3), (tf.float64, 708.3))
    def test_tails_down_to_the_smallest_normal_number(self, dtype, below):
        for classes in (2, 40):
            x = tf.constant([0.0] + [-below] * (classes - 1), dtype)
            p, _, _ = _reference(x[tf.newaxis])
            # The reference uses the rounded logit.
            self.assert_ulps(tfo.nn.softmax(x), p[0], 2)
            d = _gradient(tfo.nn.softmax, x, tf.one_hot(0, classes, dtype=dtype))
            self.assert_ulps(d[1:], -p[0, 1:] * p[0, 0], 2)

    @parameterized.parameters(*_FUNCTIONS)
    def test_any_axis(self, function):
        function = _FUNCTIONS[function]
        x = _logits([3, 4, 5, 6], tf.float32).numpy()
        for axis in range(-4, 4):
            expected = function(np.moveaxis(x, axis, -1)).numpy()
            if expected.ndim == 4:
                expected = np.moveaxis(expected, -1, axis)
            for result in (function(x, axis=axis), _any_rank(function, tf.float32, axis)(x)):
                np.testing.assert_array_equal(result.numpy(), expected)

    def test_input_may_be_a_list_or_a_single_row(self):
        self.assertAllEqual(tfo.nn.softmax([0.0, 0.0]), [0.5, 0.5])
        self.assertEqual(tfo.nn.softmax_entropy([0.0, -_INF]).shape, [])
        self.assertAllEqual(tfo.nn.log_prob_from_logits(np.zeros([1])), [0])


def _any_rank(function, dtype, axis, **options):
    return tf.function(lambda x: function(x, axis=axis), input_signature=[tf.TensorSpec(None, dtype)], **options)


class GradientTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(function=tuple(_FUNCTIONS), axis=(0, -1))
    def test_numeric(self, function, axis):
        function, x = _FUNCTIONS[function], _logits([2, 3, 2], tf.float64, 2)
        theoretical, numeric = tf.test.compute_gradient(lambda x: function(x, axis=axis), [x])
        self.assertAllClose(theoretical[0], numeric[0], rtol=1e-7, atol=1e-7)
        self.assertGreater(np.count_nonzero(np.abs(theoretical[0]) > 1e-3), 10)

    def test_gradient_of_unmasked_log_probabilities(self):
        x = tf.constant([[1.0, -_INF, 2.0], [-_INF, -_INF, -_INF]])

        def loss(x):
            log_p = tfo.nn.log_prob_from_logits(x)
            return tf.reduce_sum(tf.where(log_p > -_INF, log_p, 0.0))

        p = 1 / (1 + math.e)
        self.assertAllClose(_gradient(loss, x, 1.0), [[1 - 2 * p, 0, 2 * p - 1], [0, 0, 0]], rtol=1e-6)

    def test_upstream_of_classes_with_zero_probability_is_ignored(self):
        x = tf.constant([[0.0, 1.0, -_INF]])
        for d in (_NAN, _INF):
            gradient = _gradient(tfo.nn.softmax, x, [[1.0, 2.0, d]])
            self.assertAllClose(gradient, _gradient(tfo.nn.softmax, x, [[1.0, 2.0, 0.0]]), atol=0)


class BadInputTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        function=tuple(_FUNCTIONS),
        case=(
            ([1, 2], {}, "logits are int32, expected float16, bfloat16, float32 or float64"),
            (np.zeros([2, 3], np.complex64), {}, "logits are complex64, expected float16"),
            (1.0, {}, "logits are a scalar, expected at least one dim"),
            (np.zeros([2, 0], np.float32), {}, r"logits are \[2,0\], expected at least one class on axis -1"),
            (np.zeros([0, 2], np.float32), {"axis": 0}, r"logits are \[0,2\], expected at least one class on axis 0"),
            (np.zeros([2, 3], np.float32), {"axis": 2}, r"axis is 2, expected \[-2, 2\): logits are \[2,3\]"),
            (np.zeros([2, 3], np.float32), {"axis": -3}, r"axis is -3, expected \[-2, 2\): logits are \[2,3\]"),
            (np.zeros([2, 3], np.float32), {"axis": None}, "axis is None, expected an int"),
            (np.zeros([2, 3], np.float32), {"axis": (0, 1)}, r"axis is \(0, 1\), expected an int"),
            (np.zeros([2, 3], np.float32), {"axis": True}, "axis is True, expected an int"),
        ),
    )
    def test_errors_found_in_python(self, function, case):
        logits, options, message = case
        for call in (_FUNCTIONS[function], lambda *args, **kwargs: tf.function(_FUNCTIONS[function])(*args, **kwargs)):
            with self.assertRaisesRegex(ValueError, message):
                call(logits, **options)

    @parameterized.product(
        function=tuple(_FUNCTIONS),
        case=(
            (np.zeros([2, 0], np.float32), -1, r"logits must have at least one class, got \[2,0\]"),
            (np.float32(1), -1, r"logits must be \[\.\.\., classes\].* rank 0"),
        ),
    )
    def test_errors_at_run_time(self, function, case):
        logits, axis, message = case
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            _any_rank(_FUNCTIONS[function], tf.float32, axis)(logits)

    @parameterized.product(function=tuple(_FUNCTIONS), axis=(2, -3), compiled=(False, True))
    def test_axis_of_unknown_rank(self, function, axis, compiled):
        if compiled and library.xla_error:
            self.skipTest(library.xla_error)
        # Of rank 3 they are axes.
        good, bad = tf.ones([2, 3, 4]), tf.ones([2, 3])
        call = _any_rank(_FUNCTIONS[function], tf.float32, axis, jit_compile=compiled)
        self.assertAllEqual(call(good), _FUNCTIONS[function](good, axis=axis))
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, f"axis is {axis}, expected an axis of the tensor"):
            call(bad)


if __name__ == "__main__":
    tf.test.main()
