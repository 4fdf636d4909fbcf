"""Tests of gaussian_kl: values, gradients, broadcasting, bad input.

nn_grad_test.py tests higher orders, nn_graph_test.py graphs, nn_memory_test.py memory.
"""

import itertools
import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo

_NAN = math.nan
_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_ULP = {tf.float16: 2.0**-10, tf.bfloat16: 2.0**-7, tf.float32: 2.0**-23, tf.float64: 2.0**-52}


def _wide(tensor):
    return np.asarray(tf.cast(tensor, tf.float64)).astype(np.longdouble)


def _value_dtype(dtype):
    return tf.float64 if dtype == tf.float64 else tf.float32


def _gaussian(shape, dtype, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    return tuple(tf.cast(rng.normal(size=shape) * scale, dtype) for _ in range(2))


def _gradient_to_log(q):
    with tf.GradientTape() as tape:
        tape.watch(q)
        result = tfo.nn.gaussian_kl(q)
    return tf.cast(tape.gradient(result, q[1]), tf.float64)


class _Reference:
    """For each dim, in 80 bits: the divergence, its gradients, and scales of their rounding errors."""

    def __init__(self, q, p=None):
        (q_mean, q_log), (p_mean, p_log) = map(_wide, q), map(_wide, p or (0.0, 0.0))
        ratio, mean = q_log - p_log, q_mean - p_mean
        # Computes e^d - 1 - d from its series where the difference would cancel.
        series = sum(ratio**n / math.factorial(n) for n in range(2, 20))
        self.by_variance = np.where(np.abs(ratio) < 1, series, np.expm1(ratio) - ratio)
        self.square = mean**2 * np.exp(-p_log)
        self.divergence = 0.5 * (self.by_variance + self.square)
        to_mean, to_log = mean * np.exp(-p_log), 0.5 * np.expm1(ratio)
        self.gradients = [to_mean, to_log, -to_mean, -to_log - 0.5 * self.square][: 4 if p else 2]
        # Rounding s_q - s_p and s_p / 2 changes their exponentials.
        rounding = 1 + np.abs(ratio) + np.abs(p_log)
        self.scale = self.divergence * rounding
        scales = [np.abs(to_mean), np.abs(to_log) + np.exp(np.minimum(ratio, 0)) * (np.abs(ratio) > 1)]
        scales += [scales[0], scales[1] + 0.5 * self.square]
        self.scales = [scale * rounding for scale in scales[: len(self.gradients)]]


class UlpTestCase(parameterized.TestCase, tf.test.TestCase):
    def assert_ulps(self, actual, expected, ulps, scale=None):
        """Asserts that errors are at most `ulps` units in the last place of the expected values, or of `scale`."""
        dtype = actual.dtype
        actual, expected = _wide(actual), np.asarray(expected)
        self.assertEqual(actual.shape, expected.shape)
        self.assertTrue(np.isfinite(actual).all())
        scale = np.abs(expected) if scale is None else scale
        error = np.abs(actual - expected)
        error = np.divide(error, scale * _ULP[dtype], where=error > 0, out=np.zeros_like(error))
        self.assertLessEqual(np.max(error, initial=0), ulps)


class ValueTest(UlpTestCase):
    @pairwise(dtype=_DTYPES, scale=(1e-4, 1.5), unit=(False, True))
    def test_equals_the_definition(self, dtype, scale, unit):
        shape = [2, 3, 64]
        q, p = _gaussian(shape, dtype, 1, scale), None if unit else _gaussian(shape, dtype, 2, scale)
        expected = _Reference(q, p)
        result = tfo.nn.gaussian_kl(q, p)
        self.assertEqual(result.dtype, _value_dtype(dtype))
        self.assert_ulps(result, expected.divergence.sum(-1), 4, expected.scale.sum(-1))

        d = tf.cast(np.random.default_rng(3).normal(size=shape[:-1]), result.dtype)
        tensors = [*q, *(p or ())]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = tfo.nn.gaussian_kl(tensors[:2], tensors[2:] or None)
        wide_d = _wide(d)[..., np.newaxis]
        gradients = tape.gradient(result, tensors, output_gradients=d)
        tiny = 2.0**-24 if dtype == tf.float16 else 0  # the smallest float16 number
        for gradient, expected_gradient, scale in zip(gradients, expected.gradients, expected.scales, strict=True):
            self.assertEqual(gradient.dtype, dtype)
            size = np.abs(wide_d) * scale + tiny / _ULP[dtype]
            self.assert_ulps(gradient, wide_d * expected_gradient, 0.6 if dtype.size == 2 else 6, size)

    @pairwise(dtype=_DTYPES, d=(1e-2, 1e-4, 1e-10), unit=(False, True))
    def test_small_differences(self, dtype, d, unit):
        """The textbook formula gives 0 or noise for these."""
        for sign in (1, -1):
            q = (tf.zeros([1], dtype), tf.cast([sign * d], dtype))
            log = _wide(q[1])
            exact = 0.25 * log**2 * (1 + log / 3 + log**2 / 12 + log**3 / 60)
            p = None if unit else (q[0], tf.zeros([1], dtype))
            result = tfo.nn.gaussian_kl([t[:, tf.newaxis] for t in q], p)
            # The smallest differences are 0 in float16.
            self.assertAllEqual(result > 0, exact > 0)
            rtol = 1e-10 if d > 1e-3 and dtype == tf.float64 else 4 * _ULP[_value_dtype(dtype)]
            self.assertAllClose(result, exact.astype(np.float64), rtol=rtol, atol=1e-45)
            expected, atol = 0.5 * np.expm1(log.astype(np.float64)), 2.0**-24 * (dtype == tf.float16)
            self.assertAllClose(_gradient_to_log(q), expected, rtol=_ULP[dtype], atol=atol)

    @pairwise(dtype=_DTYPES, log=(-110.0, 1000.0))
    def test_variances_beyond_the_dtype(self, dtype, log):
        mean, log_variance = (tf.cast([[value, value]], dtype) for value in (3.0, log))
        tensors = [mean, log_variance, mean, log_variance]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = tfo.nn.gaussian_kl(tensors[:2], tensors[2:])
        self.assertAllEqual(result, [0])
        for gradient in tape.gradient(result, tensors):
            self.assertAllEqual(gradient, [[0, 0]])
        if abs(log) > 110:  # 0.5 is below bfloat16's spacing here
            return
        # Log variances that differ by 0.5: half of e^0.5 - 1 - 0.5.
        result = tfo.nn.gaussian_kl((mean, log_variance + 0.5), (mean, log_variance))
        self.assertAllClose(result, [math.exp(0.5) - 1.5], rtol=4e-7)

    def test_distance_of_means_with_tiny_variances(self):
        """(m_q - m_p)^2 e^-s_p is finite, although e^-s_p overflows."""
        q, p = ((tf.constant([1e-20]), tf.constant([-95.0])), (tf.constant([0.0]), tf.constant([-95.0])))
        expected = 0.5 * np.float64(np.float32(1e-20)) ** 2 * math.exp(95)
        self.assertAllClose(tfo.nn.gaussian_kl(q, p), expected, rtol=1e-5)

    @parameterized.parameters(*zip(_DTYPES, (2, 5, 40, 300), range(4), strict=True))
    def test_nan_stays_in_its_row(self, dtype, dims, at):
        tensors = [t.numpy() for t in (*_gaussian([5, dims], dtype, 1), *_gaussian([5, dims], dtype, 2))]
        expected = tfo.nn.gaussian_kl(tensors[:2], tensors[2:]).numpy()
        tensors[at][2, dims // 2] = _NAN
        result = tfo.nn.gaussian_kl(tensors[:2], tensors[2:]).numpy()
        self.assertTrue(np.isnan(result[2]))
        np.testing.assert_array_equal(np.delete(result, 2), np.delete(expected, 2))

    @pairwise(dtype=(tf.float16, tf.float32), unit=(False, True))
    def test_infinite_inputs(self, dtype, unit):
        means, logs = (-np.inf, 0.0, 1.0, np.inf), (-np.inf, -2.0, 0.0, 3.0, np.inf)
        cases = itertools.product(means, logs, (0.0,) if unit else means, (0.0,) if unit else logs)
        q_mean, q_log, p_mean, p_log = np.transpose([*cases])
        with np.errstate(all="ignore"):
            log_quotient, distance = q_log - p_log, np.abs(q_mean - p_mean)
            variance_term = np.where(np.isinf(log_quotient), np.inf, np.expm1(log_quotient) - log_quotient)
            # Limits: zero distance times any precision, and finite distance times zero precision, are 0.
            mean_term = np.where(
                (distance == 0) | (np.isfinite(distance) & (p_log == np.inf)), 0, distance**2 * np.exp(-p_log)
            )
        expected = (variance_term + mean_term) / 2
        # A second dim adds zero.
        tensors = [tf.cast(np.stack([t, np.zeros_like(t)], -1), dtype) for t in (q_mean, q_log, p_mean, p_log)]
        result = tfo.nn.gaussian_kl(tensors[:2], None if unit else tensors[2:]).numpy()
        self.assertAllClose(result, expected, rtol=1e-6)
        self.assertTrue(np.isinf(expected).any() and np.isfinite(expected).any())
        no_limit = (np.isinf(q_mean) & ((q_mean == p_mean) | (p_log == np.inf))) | (np.isinf(q_log) & (q_log == p_log))
        self.assertAllEqual(np.isnan(result), no_limit | (np.isinf(p_mean) & (p_log == np.inf)))
        infinite = np.isinf([q_mean, q_log, p_mean, p_log]).any(0)
        self.assertTrue(np.isposinf(result[infinite & ~np.isnan(result)]).all())

    @parameterized.parameters(0, -2)
    def test_any_axis(self, axis):
        q, p = _gaussian([3, 4, 5], tf.float64, 1), _gaussian([3, 4, 5], tf.float64, 2)
        expected = np.sum(_Reference(q, p).divergence, axis)
        self.assertAllClose(tfo.nn.gaussian_kl(q, p, axis=axis), expected.astype(np.float64), rtol=1e-14)
        any_rank = tf.function(
            lambda *t: tfo.nn.gaussian_kl(t[:2], t[2:], axis=axis),
            input_signature=[tf.TensorSpec(None, tf.float64)] * 4,
        )
        self.assertAllClose(any_rank(*q, *p), expected.astype(np.float64), rtol=1e-14)


class BroadcastTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        shapes=(
            ([3, 4], [4], [], [3, 1]),
            ([1], [2, 5], [2, 1], [1, 5]),
            ([], [], [4], []),
            ([2, 1, 3], [4, 1], [3], [1]),
            ([0, 4], [4], [1, 1], []),
        ),
        graph=(False, True),
    )
    def test_shapes_and_gradients(self, shapes, graph):
        tensors = [tf.constant(np.random.default_rng(i).normal(size=shape)) for i, shape in enumerate(shapes)]
        full = np.broadcast_shapes(*shapes)

        def run(function, tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                result = function(tensors[:2], tensors[2:])
            return result, tape.gradient(result, tensors)

        def broadcast(q, p):
            q_mean, q_log, p_mean, p_log = (tf.broadcast_to(t, full) for t in (*q, *p))
            ratio = q_log - p_log
            return 0.5 * tf.reduce_sum(tf.exp(ratio) - 1 - ratio + (q_mean - p_mean) ** 2 * tf.exp(-p_log), -1)

        expected, expected_gradients = run(broadcast, tensors)
        call = tf.function(
            lambda *t: run(tfo.nn.gaussian_kl, list(t)), input_signature=[tf.TensorSpec(None, tf.float64)] * 4
        )
        result, gradients = call(*tensors) if graph else run(tfo.nn.gaussian_kl, tensors)
        self.assertAllClose(result, expected, rtol=1e-12)
        for gradient, expected_gradient, tensor in zip(gradients, expected_gradients, tensors, strict=True):
            self.assertEqual(gradient.shape, tensor.shape)
            self.assertAllClose(gradient, expected_gradient, rtol=1e-12, atol=1e-12)

    def test_dtypes(self):
        wide, half = tf.constant([0.5], tf.float64), tf.constant([0.5], tf.float16)
        self.assertEqual(tfo.nn.gaussian_kl((wide, 0.1)).dtype, tf.float64)
        self.assertEqual(tfo.nn.gaussian_kl((0.0, wide), (half, 1)).dtype, tf.float64)
        self.assertEqual(tfo.nn.gaussian_kl((half, half), (wide, wide)).dtype, tf.float32)
        self.assertEqual(tfo.nn.gaussian_kl(([0, 1], 0)).dtype, tf.float32)
        self.assertAllEqual(tfo.nn.gaussian_kl((half, half), (wide, wide)), 0)

    @parameterized.product(unknown=(0, 1, 2, 3))
    def test_unknown_rank_may_be_the_largest(self, unknown):
        specs = [tf.TensorSpec([2, 3])] * 4
        specs[unknown] = tf.TensorSpec(None)
        kl = tf.function(lambda *t: tfo.nn.gaussian_kl(t[:2], t[2:]), input_signature=specs)
        self.assertIsNone(kl.get_concrete_function().structured_outputs.shape.rank)
        for shape in ([], [3], [2, 3], [5, 1, 3]):
            tensors = [tf.random.stateless_normal(shape if i == unknown else [2, 3], [i, 0]) for i in range(4)]
            self.assertAllClose(kl(*tensors), tfo.nn.gaussian_kl(tensors[:2], tensors[2:]), rtol=1e-6)

    def test_known_shapes_are_checked_despite_an_unknown_rank(self):
        for known in ((0, 1), (0, 3), (1, 2)):
            specs = [tf.TensorSpec(None)] * 4
            specs[known[0]], specs[known[1]] = tf.TensorSpec([2, 3]), tf.TensorSpec([4])
            kl = tf.function(lambda *t: tfo.nn.gaussian_kl(t[:2], t[2:]), input_signature=specs)
            with self.assertRaisesRegex(ValueError, r"\[2,3\].* \[4\].*, expected shapes that broadcast"):
                kl.get_concrete_function()


class BadInputTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        ([1.0], None, {}, r"q is 1 tensors, expected a pair \(mean, log_variance\)"),
        (tf.zeros([2, 3]), None, {}, "q is a .*Tensor, expected a pair"),
        (([1.0], [1.0]), [1.0], {}, "p is 1 tensors, expected a pair"),
        ((np.zeros(2, np.int32), [1.0]), None, {}, "q's means are int32, expected float16"),
        ((tf.zeros(2), tf.zeros(2, tf.float64)), None, {}, "q's tensors are float32 and float64, expected one dtype"),
        ((0.0, 1.0), None, {}, "means and log variances are a scalar, expected at least one dim"),
        (
            (tf.zeros([2, 3]), 0.0),
            None,
            {"axis": 2},
            r"axis is 2, expected \[-2, 2\): means and log variances are \[2,3\]",
        ),
        (
            (tf.zeros(2), tf.zeros(3)),
            None,
            {},
            r"q's means \[2\], q's log variances \[3\], expected shapes that broadcast",
        ),
        (
            (tf.zeros(2), tf.zeros(2)),
            (tf.zeros([4, 3]), 0.0),
            {},
            r"p's means \[4,3\], p's log variances \[\], expected",
        ),
    )
    def test_errors_found_in_python(self, q, p, options, message):
        with self.assertRaisesRegex(ValueError, message):
            tfo.nn.gaussian_kl(q, p, **options)

    def test_at_run_time(self):
        call = tf.function(lambda *t: tfo.nn.gaussian_kl(t), input_signature=[tf.TensorSpec(None)] * 2)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"must be \[\.\.\., classes\]"):
            call(1.0, 2.0)
        with self.assertRaises(tf.errors.InvalidArgumentError):
            call(tf.zeros(2), tf.zeros(3))


if __name__ == "__main__":
    tf.test.main()
