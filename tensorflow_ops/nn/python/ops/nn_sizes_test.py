"""Tests of the nn functions on one very long row, very many short rows, and each number of classes up to 70."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_INF = float("inf")
_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_ULP = {tf.float16: 2.0**-10, tf.bfloat16: 2.0**-7, tf.float32: 2.0**-23, tf.float64: 2.0**-52}


def _wide(tensor):
    return np.asarray(tf.cast(tensor, tf.float64))


def _lse(x):
    """Returns the log-sum-exp of rows in float64. NumPy uses pairwise summation."""
    largest = x.max(-1)
    return largest + np.log(np.exp(x - largest[..., np.newaxis]).sum(-1))


def _gradient(function, x, upstream=None):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x, output_gradients=upstream)


class LongRowTest(parameterized.TestCase, tf.test.TestCase):
    """Ten million classes: a naive float32 sum would lose accuracy."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(1)
        cls.x = rng.standard_normal([1, 10_000_000], np.float32)
        cls.x[0, 5_000_000] = 15
        cls.wide = cls.x.astype(np.float64)
        cls.lse = _lse(cls.wide)
        cls.p = np.exp(cls.wide - cls.lse)

    def test_softmax_log_prob_and_entropy(self):
        y = tfo.nn.softmax(self.x).numpy()
        self.assertLess(np.max(np.abs(y / self.p - 1) / (1 + (self.lse - self.wide) / 4)), 4 * 2.0**-23)
        self.assertAllClose(np.sum(y, dtype=np.float64), 1, rtol=1e-6)
        y = tfo.nn.log_prob_from_logits(self.x).numpy()
        self.assertLess(np.max(np.abs(y - (self.wide - self.lse))), 3e-6)
        entropy = -np.sum(self.p * (self.wide - self.lse))
        self.assertAllClose(tfo.nn.softmax_entropy(self.x), [entropy], rtol=2e-6)
        d_x = _gradient(tfo.nn.softmax_entropy, tf.constant(self.x)).numpy()
        expected = -self.p * (self.wide - self.lse + entropy)
        self.assertLess(np.max(np.abs(d_x - expected) / (self.p * (self.lse - self.wide + entropy))), 4e-6)

    def test_tied_logits(self):
        x = tf.zeros([1, 10_000_000])
        self.assertAllClose(tfo.nn.softmax_entropy(x), [np.log(1e7)], rtol=2e-7)
        self.assertAllClose(tfo.nn.sparse_softmax_cross_entropy([7], x), [np.log(1e7)], rtol=2e-7)
        self.assertAllClose(tfo.nn.softmax(x)[0, ::999_999], np.full(11, 1e-7), rtol=2e-7)

    def test_all_classes_but_one_masked(self):
        x = np.full([1, 10_000_000], -_INF, np.float32)
        self.assertAllEqual(tfo.nn.softmax_entropy(x), [0])
        self.assertAllEqual(tfo.nn.sparse_softmax_cross_entropy([7], x), [_INF])
        x[0, 7_654_321] = -3
        self.assertAllEqual(tfo.nn.sparse_softmax_cross_entropy([7_654_321], x), [0])
        y = tfo.nn.softmax(x).numpy()
        self.assertEqual(y[0, 7_654_321], 1)
        self.assertEqual(np.count_nonzero(y), 1)
        d_x = _gradient(lambda x: tfo.nn.sparse_softmax_cross_entropy([3], x), tf.constant(x)).numpy()
        self.assertEqual((d_x[0, 3], d_x[0, 7_654_321], np.count_nonzero(d_x)), (-1, 1, 2))


class EachNumberOfClassesTest(parameterized.TestCase, tf.test.TestCase):
    """Covers every remainder of vectors, tiles and groups of rows, with labels first, last and in between."""

    @parameterized.parameters(*_DTYPES)
    def test_1_to_70_classes(self, dtype):
        for classes in range(1, 71):
            rows = 1 + classes * 7 % 37
            x = tf.cast(np.random.default_rng(classes).normal(size=[rows, classes]) * 3, dtype)
            labels = np.random.default_rng(1).integers(0, classes, rows)
            labels[0], labels[-1] = 0, classes - 1
            self._check(dtype, x, labels, f"{rows} rows of {classes} classes")

    def _check(self, dtype, x, labels, message):
        wide = _wide(x)
        lse = _lse(wide)[:, np.newaxis]
        log_p = wide - lse
        p, hot = np.exp(log_p), np.eye(x.shape[1])[labels]
        unit = {**_ULP, tf.float32: 4 * _ULP[tf.float32], tf.float64: 32 * _ULP[tf.float64]}[dtype]
        # Rounding x - max by half an ulp changes e^x.
        p_scale = p * (1 + np.abs(log_p) / 4)
        row_rtol = 1e-14 if dtype == tf.float64 else 1e-6
        tiny = 2.0**-24 if dtype == tf.float16 else 0

        def check(actual, expected, rtol, scale=1.0):
            error = np.abs(_wide(actual) - expected) - tiny
            self.assertLessEqual(np.max(error / (rtol * scale)), 1, message)

        check(tfo.nn.softmax(x), p, unit, p_scale)
        check(tfo.nn.log_prob_from_logits(x), log_p, unit, 1 + np.abs(log_p))
        entropy = -np.sum(p * log_p, -1, keepdims=True)
        check(tfo.nn.softmax_entropy(x), entropy[:, 0], row_rtol)
        check(_gradient(tfo.nn.softmax_entropy, x), -p * (log_p + entropy), unit, p_scale * (1 + np.abs(log_p)) * 2)
        check(tfo.nn.label_log_prob(labels, x), np.sum(log_p * hot, -1), row_rtol, 1 + np.max(np.abs(log_p), -1))
        d_x = _gradient(lambda x: tfo.nn.sparse_softmax_cross_entropy(labels, x), x)
        check(d_x, p - hot, unit, p_scale + hot)
        d_x = _gradient(lambda x: tfo.nn.softmax_cross_entropy(hot, x), x)
        check(d_x, p - hot, unit, p_scale + hot)
        loss = tfo.nn.softmax_cross_entropy(x, x)
        check(loss, -np.sum(wide * log_p, -1), row_rtol, 1 + np.sum(np.abs(wide * log_p), -1))
        d = tf.cast(tf.reverse(x, [1]), dtype)
        result, y = _gradient(tfo.nn.softmax, x, d), _wide(tfo.nn.softmax(x))
        expected = y * (_wide(d) - np.sum(y * _wide(d), -1, keepdims=True))
        check(result, expected, 2 * unit, y * np.max(1 + np.abs(wide), -1, keepdims=True))
        # KL of different Gaussians, and of equal ones.
        kl = 0.5 * np.sum(np.expm1(-wide / 2) + wide / 2 + np.exp(-wide) * wide**2 / 4, -1)
        halves = tf.cast(wide / 2, dtype)
        if dtype.size > 2:
            check(tfo.nn.gaussian_kl((x, halves), (halves, x)), kl, row_rtol, 1e-6 + 3 * kl)
        self.assertAllEqual(tfo.nn.gaussian_kl((x, halves), (x, halves)), np.zeros(len(wide)))


if __name__ == "__main__":
    tf.test.main()
