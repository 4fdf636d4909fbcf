"""Tests of the nn ops' gradients of second and higher order.

The references are compositions of TensorFlow ops, finite differences and, for masks, the same rows without the masked
classes.
"""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo

_INF, _NAN = math.inf, math.nan
_ROUNDING = {tf.float16: 4e-3, tf.bfloat16: 3e-2, tf.float32: 2e-5, tf.float64: 1e-12}
_LABELS = np.array([[1, 0, 4], [2, 3, 1]])
_IGNORED = np.array([[1, 0, 4], [2, 3, -1]])


def _random(seed, shape=(2, 3, 5)):
    return np.random.default_rng(seed).normal(size=shape)


def _log_softmax(x):
    return x - tf.reduce_logsumexp(x, -1, keepdims=True)


def _entropy(x):
    return -tf.reduce_sum(tf.exp(_log_softmax(x)) * _log_softmax(x), -1)


def _dense(t, x, smoothing=0.0):
    return -tf.reduce_sum(((1 - smoothing) * t + smoothing / x.shape[-1]) * _log_softmax(x), -1)


def _sparse(x):
    loss = _dense(tf.one_hot(_LABELS, 5, dtype=x.dtype), x, 0.1) + 0.01 * tf.reduce_logsumexp(x, -1) ** 2
    return loss * (_IGNORED >= 0)


def _kl(q_mean, q_log, *p):
    p_mean, p_log = p or [tf.zeros_like(q_mean)] * 2
    ratio = q_log - p_log
    return 0.5 * tf.reduce_sum(tf.exp(ratio) - 1 - ratio + (q_mean - p_mean) ** 2 * tf.exp(-p_log), -1)


# name: (function, composition that is accurate for these values, number of tensors)
_FUNCTIONS = {
    "softmax": (tfo.nn.softmax, lambda x: tf.exp(_log_softmax(x)), 1),
    "log_prob_from_logits": (tfo.nn.log_prob_from_logits, _log_softmax, 1),
    "softmax_entropy": (tfo.nn.softmax_entropy, _entropy, 1),
    "softmax_cross_entropy": (
        lambda t, x: tfo.nn.softmax_cross_entropy(t, x, label_smoothing=0.1),
        lambda t, x: _dense(t, x, 0.1),
        2,
    ),
    "sparse_softmax_cross_entropy": (
        lambda x: tfo.nn.sparse_softmax_cross_entropy(_IGNORED, x, ignore_index=-1, label_smoothing=0.1, z_loss=0.01),
        _sparse,
        1,
    ),
    "label_log_prob": (
        lambda x: tfo.nn.label_log_prob(_LABELS, x),
        lambda x: -_dense(tf.one_hot(_LABELS, 5, dtype=x.dtype), x),
        1,
    ),
    "gaussian_kl": (lambda *t: tfo.nn.gaussian_kl(t[:2], t[2:]), _kl, 4),
    "gaussian_kl of the unit Gaussian": (lambda *t: tfo.nn.gaussian_kl(t), _kl, 2),
}


def _derivative(function):
    """Returns a function for the gradients of a weighted sum of a function's results."""

    def gradients(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            results = tf.nest.flatten(function(*tensors))
            parts = [r * tf.cast(_random(9 + i, r.shape), r.dtype) for i, r in enumerate(results) if r is not None]
            # 16-bit sums would overflow or lose terms.
            total = tf.add_n([tf.reduce_sum(tf.cast(part, tf.float64)) for part in parts])
        return tape.gradient(total, tensors)

    return gradients


class HigherOrderTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_FUNCTIONS)
    def test_third_order_equals_the_formula(self, name):
        ours, formula, count = _FUNCTIONS[name]
        tensors = [tf.constant(_random(i)) for i in range(count)]
        for _ in range(3):
            ours, formula = _derivative(ours), _derivative(formula)
        results, expected = ours(*tensors), formula(*tensors)
        for result, expected_result in zip(results, expected, strict=True):
            self.assertAllClose(result, expected_result, rtol=1e-9, atol=1e-10)
        self.assertGreater(np.abs(expected[-1]).max(), 0.01)


_MASKABLE = {
    "softmax": tfo.nn.softmax,
    "softmax_entropy": tfo.nn.softmax_entropy,
    "sparse": lambda x: tfo.nn.sparse_softmax_cross_entropy([2, 0], x),
    "sparse with z_loss": lambda x: tfo.nn.sparse_softmax_cross_entropy([2, 0], x, z_loss=0.1),
    "dense": lambda x: tfo.nn.softmax_cross_entropy([[0.5, 0, 0.5, 0, 0], [1.0, 0, 0, 0, 0]], x),
    "label_log_prob": lambda x: tfo.nn.label_log_prob([2, 0], x),
}


class MaskTest(parameterized.TestCase, tf.test.TestCase):
    def _second(self, function, x, v):
        """Returns the gradient, and the gradient of its product with v."""
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
                weights = tf.cast(_random(6, y.shape), y.dtype)
                y = tf.reduce_sum(y * weights)
            gradient = tape.gradient(y, x)
            along = tf.reduce_sum(gradient * tf.cast(v, x.dtype))
        return gradient, outer.gradient(along, x)

    @parameterized.product(name=tuple(_MASKABLE), dtype=(tf.float32, tf.float64))
    def test_equals_the_gradients_without_the_masked_classes(self, name, dtype):
        function = _MASKABLE[name]
        x, v = _random(1, [2, 5]), _random(2, [2, 5])
        masked, far = x.copy(), x.copy()
        masked[:, [1, 3]], far[:, [1, 3]] = -_INF, -1e4  # e^-1e4 underflows to 0
        for result, expected in zip(
            self._second(function, tf.cast(masked, dtype), v),
            self._second(function, tf.cast(far, dtype), v),
            strict=True,
        ):
            self.assertAllEqual(result[:, 1], [0, 0])
            self.assertAllClose(result, expected, rtol=_ROUNDING[dtype], atol=_ROUNDING[dtype])
            self.assertGreater(np.abs(expected).max(), 0.01)

    def test_unmasked_log_probabilities(self):
        x, v = tf.constant([[1.0, -_INF, 2.0, 0.5]], tf.float64), [[1.0, 5.0, 2.0, 4.0]]

        def loss(x):
            log_p = tfo.nn.log_prob_from_logits(x)
            return tf.reduce_sum(tf.where(log_p > -_INF, log_p, 0.0) ** 2, -1)

        def without(x):
            return tf.reduce_sum(_log_softmax(x) ** 2, -1)

        kept = [0, 2, 3]
        expected = self._second(without, tf.gather(x, kept, axis=1), np.take(v, kept, 1))
        for result, expected_kept in zip(self._second(loss, x, v), expected, strict=True):
            self.assertAllEqual(result[0, 1], 0)
            self.assertAllClose(tf.gather(result, kept, axis=1), expected_kept, rtol=1e-12)

    @pairwise(name=tuple(_MASKABLE), dtype=(tf.float16, tf.float64))
    def test_fully_masked_row_does_not_affect_other_rows(self, name, dtype):
        function = _MASKABLE[name]
        x, v = _random(1, [2, 5]), _random(2, [2, 5])
        expected = self._second(function, tf.cast(x, dtype), v)
        x[1] = -_INF
        for result, expected_rows in zip(self._second(function, tf.cast(x, dtype), v), expected, strict=True):
            self.assertAllEqual(tf.cast(result[1], tf.float64), np.zeros(5))
            self.assertAllEqual(result[0], expected_rows[0])
            self.assertGreater(np.abs(tf.cast(result[0], tf.float64)).max(), 0)

    @parameterized.parameters(*_MASKABLE)
    def test_nan_stays_in_its_row(self, name):
        function = _MASKABLE[name]
        x, v = _random(1, [2, 5]), _random(2, [2, 5])
        expected = self._second(function, tf.constant(x), v)
        x[1, 2] = _NAN
        for result, expected_rows in zip(self._second(function, tf.constant(x), v), expected, strict=True):
            self.assertTrue(np.isnan(result[1]).all())
            self.assertAllEqual(result[0], expected_rows[0])

    @parameterized.parameters(_NAN, _INF, -_INF, 3.0)
    def test_ignored_rows_have_no_gradient(self, value):
        x, v = tf.constant([[value, 1.0, value], [0.0, 1.0, 2.0]]), tf.ones([2, 3]) * [1.0, 2.0, 3.0]
        for options in ({}, {"label_smoothing": 0.1, "z_loss": 0.1}):
            gradient, second = self._second(
                lambda x, options=options: tfo.nn.sparse_softmax_cross_entropy([-1, 1], x, ignore_index=-1, **options),
                x,
                v,
            )
            self.assertAllEqual([gradient[0], second[0]], np.zeros([2, 3]))
            self.assertAllGreater(np.abs([gradient[1], second[1]]), 0)

    @parameterized.parameters(*_MASKABLE)
    def test_extremes_of_float16(self, name):
        x = tf.constant([[65504.0, -65504, 65504, -65504, 0], [-65504] * 5], tf.float16)
        for result in self._second(_MASKABLE[name], x, _random(2, [2, 5])):
            self.assertTrue(np.isfinite(result).all())

    def test_gaussian_kl_of_variances_beyond_the_dtype(self):
        """Log variances have second gradients where e^s overflows or underflows."""
        for log in (-110.0, 110.0):
            mean, logs = tf.constant([[3.0, 4.0]]), tf.constant([[log, log]])

            def gradient(q_log, p_log, mean=mean):
                with tf.GradientTape() as tape:
                    tape.watch(q_log)
                    y = tfo.nn.gaussian_kl((mean, q_log), (mean, p_log))
                return tape.gradient(y, q_log)

            with tf.GradientTape() as tape:
                tape.watch(logs)
                y = gradient(logs, tf.identity(tf.stop_gradient(logs)))
            self.assertAllClose(tape.gradient(y, logs), [[0.5, 0.5]], rtol=1e-6)


if __name__ == "__main__":
    tf.test.main()
