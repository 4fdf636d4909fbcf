"""Tests of correlation_cost: values of its meaning and in NCHW, and its layer. Its C++ test proves values."""

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo


def _maps(shape=(2, 6, 7, 3)):
    rng = np.random.default_rng(0)
    return rng.normal(size=shape).astype(np.float32), rng.normal(size=shape).astype(np.float32)


class CorrelationCostTest(tf.test.TestCase):
    def test_displacement_of_the_best_match(self):
        # b is a, moved down by 1 and left by 2.
        a, _ = _maps((1, 12, 12, 32))
        b = np.roll(a, (1, -2), (1, 2))
        costs = tfo.image.correlation_cost(a, b, max_displacement=3)
        best = tf.argmax(costs, -1)
        self.assertAllEqual(best, np.full(best.shape, (1 + 3) * 7 + (-2 + 3)))
        self.assertAllClose(tf.reduce_max(costs, -1), np.mean(a[:, 3:-3, 3:-3] ** 2, -1), rtol=1e-5)
        first = tfo.image.correlation_cost(
            *(np.moveaxis(m, -1, 1) for m in (a, b)), max_displacement=3, data_format="NCHW"
        )
        self.assertAllEqual(np.moveaxis(first, 1, -1), costs)

    def test_strides_omit_windows_and_displacements(self):
        options = {"max_displacement": 2, "kernel_size": 3, "padding": 3}
        costs = tfo.image.correlation_cost(*_maps(), **options)
        expected = tf.reshape(costs, [2, 6, 7, 5, 5])[:, ::3, ::3, ::2, ::2]
        strided = tfo.image.correlation_cost(*_maps(), stride_1=3, stride_2=2, **options)
        self.assertAllClose(strided, tf.reshape(expected, [2, 2, 3, 9]), rtol=1e-5, atol=1e-5)


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
