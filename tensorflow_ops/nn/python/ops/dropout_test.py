"""Tests of dropout: the bits of tf.nn.experimental.stateless_dropout."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_DTYPES = "float16", "bfloat16", "float32", "float64"


def _bits(x):
    return tf.bitcast(x, tf.uint8)


def _run(function, x, rate, seed, upstream):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x, rate, seed=seed)
    return y, tape.gradient(y, x, upstream)


class DropoutTest(tf.test.TestCase, parameterized.TestCase):
    def _is_tensorflows(self, x, rate, seed, upstream=None):
        upstream = tf.cast(_RNG.normal(size=x.shape), x.dtype) if upstream is None else upstream
        expected = _run(tf.nn.experimental.stateless_dropout, x, rate, seed, upstream)

        def run():
            return _run(tfo.nn.dropout, x, rate, seed, upstream)

        for actual in (run(), tf.function(run)()):
            for one, other in zip(actual, expected, strict=True):
                self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
                self.assertAllEqual(_bits(one), _bits(other))

    @parameterized.product(
        dtype=_DTYPES, size=(0, 1, 3, 4, 5, 63, 64, 65, 127, 4099), seed=([3, 4], [-1, 2**31 - 1], [-(2**50), 2**60])
    )
    def test_is_tensorflows(self, dtype, size, seed):
        x = tf.cast(_RNG.normal(size=[size]), dtype)
        seed = tf.constant(seed, tf.int64 if max(seed) >= 2**31 else tf.int32)
        self._is_tensorflows(x, 0.3, seed)

    @parameterized.product(
        dtype=_DTYPES,
        # Some round to 1 in some dtypes; others are between two numbers of one.
        rate=(0, 0.0, 1e-300, 1e-9, 0.1, 1 / 3, 0.5, np.float32(0.7), 0.9, 0.998, 0.99999, 1 - 2**-40, 0.5 + 2**-45),
    )
    def test_rates(self, dtype, rate):
        if dtype == "float16" and rate > 0.9999:
            # TensorFlow's gradient is NaN: the scale is infinite, and nothing is kept.
            with np.errstate(all="raise"):
                y, to_x = _run(tfo.nn.dropout, tf.ones([70], dtype), rate, [1, 2], tf.ones([70], dtype))
            self.assertAllEqual([y, to_x], tf.zeros([2, 70]))
            return
        self._is_tensorflows(tf.cast(_RNG.normal(size=[64, 129]), dtype), rate, [1, 2])

    @parameterized.parameters(*_DTYPES)
    def test_infinity_nan_and_subnormal_numbers(self, dtype):
        tiny = float(np.finfo(tf.as_dtype(dtype).as_numpy_dtype).smallest_subnormal) if dtype != "bfloat16" else 1e-40
        x = tf.cast(_RNG.choice([np.inf, -np.inf, np.nan, -0.0, tiny, 5 * tiny, -1.5], size=[300]), dtype)
        self._is_tensorflows(x, 0.5, [5, 6], x[::-1])

    def test_large_tensors_on_all_threads(self):
        self._is_tensorflows(tf.constant(_RNG.normal(size=[4099, 1031]), tf.float32), 0.1, [7, 8])

    def test_second_derivatives(self):
        x, seed = tf.constant(_RNG.normal(size=[3, 7])), [1, 2]
        with tf.GradientTape() as outer:
            outer.watch(x)
            y, to_x = _run(tfo.nn.dropout, x, 0.4, seed, x**2)
        expected = tf.where(y != 0, 2 * x / 0.6, tf.zeros_like(x))
        self.assertAllClose(outer.gradient(to_x, x), expected)

    def test_same_numbers_under_xla_and_in_maps(self):
        x, seed = tf.ones([5, 9]), tf.constant([3, 4])
        expected = tfo.nn.dropout(x, 0.5, seed=seed)
        compiled = tf.function(lambda x: tfo.nn.dropout(x, 0.5, seed=seed), jit_compile=True)
        self.assertAllEqual(compiled(x), expected)
        mapped = tf.vectorized_map(lambda x: tfo.nn.dropout(x, 0.5, seed=seed), tf.stack([x, 2 * x]))
        self.assertAllEqual(mapped, tf.stack([expected, 2 * expected]))

    def test_errors(self):
        for rate in (tf.constant(0.5), tf.Variable(0.5)):
            with self.assertRaisesRegex(ValueError, r"rate is a tensor, expected a number in \[0, 1\)"):
                tfo.nn.dropout(tf.ones([3]), rate, seed=[1, 2])
        with self.assertRaisesRegex(ValueError, "seed is uint8, expected two integers, int32 or int64"):
            tfo.nn.dropout(tf.ones([3]), 0.5, seed=tf.constant([1, 2], tf.uint8))


if __name__ == "__main__":
    tf.test.main()
