"""Tests of correlation_cost against NumPy code written from the definition."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo


def _correlation_cost(a, b, max_displacement, kernel_size=1, stride_1=1, stride_2=1, padding=0):
    """The definition, in float64."""
    a, b = (np.pad(np.float64(m), [(0, 0), (padding, padding), (padding, padding), (0, 0)]) for m in (a, b))
    kernel, r = (kernel_size - 1) // 2, max_displacement // stride_2
    border = max_displacement + kernel
    ys, xs = (range(border, size - border, stride_1) for size in a.shape[1:3])
    costs = np.zeros([len(a), len(ys), len(xs), (2 * r + 1) ** 2])
    for row, y in enumerate(ys):
        for column, x in enumerate(xs):
            window = a[:, y - kernel : y + kernel + 1, x - kernel : x + kernel + 1]
            for dy in range(-r, r + 1):
                for dx in range(-r, r + 1):
                    v, u = y + dy * stride_2, x + dx * stride_2
                    other = b[:, v - kernel : v + kernel + 1, u - kernel : u + kernel + 1]
                    channel = (dy + r) * (2 * r + 1) + dx + r
                    costs[:, row, column, channel] = (window * other).mean((1, 2, 3))
    return costs


def _maps(shape=(2, 6, 7, 3), dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape).astype(dtype), rng.normal(size=shape).astype(dtype)


class CorrelationCostTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        {"max_displacement": 2},
        {"max_displacement": 2, "padding": 2},
        {"max_displacement": 3, "stride_2": 2, "padding": 4, "kernel_size": 3},
        {"max_displacement": 1, "stride_1": 2, "padding": 3},
        {"max_displacement": 0},
    )
    def test_equals_the_definition(self, **options):
        a, b = _maps()
        expected = _correlation_cost(a, b, **options)
        self.assertAllClose(tfo.image.correlation_cost(a, b, **options), expected, rtol=1e-5, atol=1e-5)

    def test_channels_first(self):
        a, b = _maps()
        first = [np.moveaxis(m, -1, 1) for m in (a, b)]
        costs = tfo.image.correlation_cost(*first, max_displacement=2, data_format="NCHW")
        expected = _correlation_cost(a, b, max_displacement=2)
        self.assertAllClose(np.moveaxis(costs, 1, -1), expected, rtol=1e-5, atol=1e-5)

    def test_numeric_gradients_of_both_maps(self):
        a, b = (tf.constant(m) for m in _maps((1, 4, 5, 2), np.float64))
        weights = tf.constant(np.random.default_rng(1).normal(size=[1, 4, 5, 25]))

        def loss(a, b):
            costs = tfo.image.correlation_cost(a, b, max_displacement=2, padding=2)
            return tf.reduce_sum(weights * costs**2)

        tfo.testing.assert_gradients(loss, (a, b))

    def test_displacement_of_the_best_match(self):
        # b is a, moved down by 1 and left by 2.
        a, _ = _maps((1, 12, 12, 32))
        b = np.roll(a, (1, -2), (1, 2))
        costs = tfo.image.correlation_cost(a, b, max_displacement=3)
        best = tf.argmax(costs, -1)
        self.assertAllEqual(best, np.full(best.shape, (1 + 3) * 7 + (-2 + 3)))


class CorrelationCostLayerTest(tf.test.TestCase):
    def test_equals_the_function(self):
        a, b = _maps()
        layer = tfo.layers.CorrelationCost(2, stride_2=2, padding=2)
        expected = tfo.image.correlation_cost(a, b, max_displacement=2, stride_2=2, padding=2)
        self.assertAllEqual(layer(a, b), expected)
        self.assertEqual(layer.compute_output_shape(a.shape, b.shape), expected.shape)
        self.assertEqual(layer.compute_output_shape((None, None, 7, 3), b.shape), (None, None, 7, 9))
        copy = tfo.layers.CorrelationCost.from_config(layer.get_config())
        self.assertAllEqual(copy(a, b), expected)

    def test_channels_first_and_mixed_precision(self):
        a, b = (np.moveaxis(m, -1, 1) for m in _maps())
        layer = tfo.layers.CorrelationCost(1, data_format="NCHW", dtype="mixed_bfloat16")
        costs = layer(a, b)
        self.assertEqual(costs.dtype, tf.bfloat16)
        self.assertEqual(layer.compute_output_shape(a.shape, b.shape), costs.shape)

    def test_bad_options(self):
        with self.assertRaisesRegex(ValueError, "kernel_size is 2"):
            tfo.layers.CorrelationCost(1, kernel_size=2)
        with self.assertRaisesRegex(ValueError, "too small for max_displacement 4"):
            tfo.layers.CorrelationCost(4).compute_output_shape((1, 6, 7, 3), (1, 6, 7, 3))


if __name__ == "__main__":
    tf.test.main()
