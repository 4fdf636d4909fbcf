"""Tests of gelu and silu: options, tails, second derivatives, unknown ranks. opcheck tests the rest."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


# The definitions in NumPy, and our functions.
_GELU = np.vectorize(lambda x: x * math.erfc(-x * math.sqrt(0.5)) / 2)
_FUNCTIONS = {
    "gelu": (_GELU, tfo.nn.gelu),
    "gelu_tanh": (
        lambda x: x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
        lambda *args: tfo.nn.gelu(*args, approximate=True),
    ),
    "silu": (lambda x: x * _sigmoid(x), tfo.nn.silu),
}


class ActivationsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(name=tuple(_FUNCTIONS), has_bias=(False, True))
    def test_is_the_definition(self, name, has_bias):
        definition, function = _FUNCTIONS[name]
        x, bias = _RNG.normal(size=[4, 50, 9]) * 4, _RNG.normal(size=[9])
        args = (x, bias) if has_bias else (x,)
        self.assertAllClose(function(*args), definition(sum(args)), 1e-13, 1e-15)
        step = 1e-6
        with tf.GradientTape() as tape:
            args = list(map(tf.constant, args))
            tape.watch(args)
            outputs = function(*args)
        to_x, *to_bias = tape.gradient(outputs, args)
        slope = (definition(sum(args).numpy() + step) - definition(sum(args).numpy() - step)) / (2 * step)
        self.assertAllClose(to_x, slope, 1e-7, 1e-8)
        if has_bias:
            self.assertAllClose(to_bias[0], slope.sum((0, 1)), 1e-7, 1e-8)

    def test_tail_of_gelu(self):
        x = np.linspace(-13, -1, 1001, dtype=np.float32)
        self.assertAllClose(tfo.nn.gelu(x), _GELU(x.astype(float)), 1e-6, 0)

    @parameterized.product(name=tuple(_FUNCTIONS), dtype=("float32", "float64"))
    def test_second_derivatives(self, name, dtype):
        _, function = _FUNCTIONS[name]
        x, bias, up, other = (tf.constant(_RNG.normal(size=s), dtype) for s in ([7, 5], [5], [7, 5], [7, 5]))

        def gradients(x, bias, up):
            with tf.GradientTape() as tape:
                tape.watch((x, bias))
                outputs = function(x, bias)
            return tape.gradient(outputs, (x, bias), up)

        def scalar(x, bias, up):
            to_x, to_bias = gradients(x, bias, up)
            return tf.reduce_sum(to_x * other) + tf.reduce_sum(to_bias * other[0])

        with tf.GradientTape() as tape:
            tape.watch((x, bias, up))
            result = scalar(x, bias, up)
        actual = tape.gradient(result, (x, bias, up))
        wide = [tf.cast(t, tf.float64) for t in (x, bias, up)]
        other = tf.cast(other, tf.float64)
        for i, one in enumerate(actual):
            direction = tf.constant(_RNG.normal(size=one.shape))
            ends = [scalar(*wide[:i], wide[i] + step * direction, *wide[i + 1 :]) for step in (1e-5, -1e-5)]
            expected = (ends[0] - ends[1]) / 2e-5
            tolerance = 1e-4 if dtype == "float32" else 1e-7
            self.assertAllClose(tf.reduce_sum(tf.cast(one, tf.float64) * direction), expected, tolerance, tolerance)

    @parameterized.parameters(*_FUNCTIONS)
    def test_far_derivatives_are_finite(self, name):
        x = tf.constant([np.inf, -np.inf, 1e30, -1e30, 100, -100])
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = _FUNCTIONS[name][1](x)
            slope = inner.gradient(y, x)
        self.assertAllEqual(slope, [1, 0, 1, 0, 1, 0])
        self.assertAllClose(outer.gradient(slope, x), tf.zeros_like(x))

    def test_sums_of_each_iteration(self):
        x, bias, up = (tf.constant(_RNG.normal(size=s)) for s in ([4, 5], [3, 5], [3, 4, 5]))

        def gradients(bias, up):
            with tf.GradientTape() as tape:
                tape.watch((x, bias))
                y = tfo.nn.gelu(x, bias)
            return y, *tape.gradient(y, (x, bias), up)

        for one, other in (
            (
                tf.vectorized_map(lambda b: gradients(*b), (bias, up)),
                [gradients(*b) for b in zip(bias, up, strict=True)],
            ),
            (tf.vectorized_map(lambda u: gradients(bias[0], u), up), [gradients(bias[0], u) for u in up]),
            ([tf.vectorized_map(lambda u: tfo.nn.silu(u, bias[0]), up)], [[tfo.nn.silu(u, bias[0])] for u in up]),
        ):
            for i, results in enumerate(one):
                self.assertAllClose(results, tf.stack([o[i] for o in other]))

    def test_unknown_rank(self):
        x = _RNG.normal(size=[2, 3])
        for function in (lambda x: tfo.nn.gelu(x), lambda x: tfo.nn.gelu(x, [0.0, 1, 2])):
            traced = tf.function(function, [tf.TensorSpec(None, tf.float64)])
            self.assertAllEqual(traced(x), function(x))
        self.assertEqual(tfo.nn.gelu(1.0).shape, [])
        self.assertAllClose(tf.function(tfo.nn.silu, [tf.TensorSpec(None, tf.float64)])(1.0), _sigmoid(1))
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"features must be \[..., channels\]"):
            traced(1.0)
        with self.assertRaisesRegex(ValueError, "approximate is 1.5, expected"):
            tfo.nn.gelu(x, approximate=1.5)


if __name__ == "__main__":
    tf.test.main()
