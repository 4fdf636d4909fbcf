"""Tests of layer_norm, rms_norm and group_norm beyond opcheck: large means, rows of one value, unknown sizes, maps."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_FUNCTIONS = {
    "layer_norm": tfo.nn.layer_norm,
    "rms_norm": tfo.nn.rms_norm,
    "group_norm": lambda x, *factors: tfo.nn.group_norm(x, *factors, groups=4),
}


class NormalizationTest(tf.test.TestCase, parameterized.TestCase):
    def test_a_large_mean_keeps_the_variance(self):
        # E[x^2] - E[x]^2 would lose it: 1e6 has an ulp of 0.06 in float32.
        x = np.float32(1000 + _RNG.normal(size=[5, 2, 300]))
        wide = np.float64(x)
        for y, axes in ((tfo.nn.layer_norm(x), (2,)), (tfo.nn.group_norm(x, groups=1), (1, 2))):
            z = wide - wide.mean(axes, keepdims=True)
            expected = z / np.sqrt(np.square(z).mean(axes, keepdims=True) + 1e-3)
            self.assertAllClose(y, expected, rtol=0, atol=1e-4)

    def test_a_number_far_from_the_others_keeps_their_distances(self):
        x = _RNG.normal(size=[2, 1, 3000]).astype(np.float32)
        x[0, 0, 0] = x[1, 0, 1234] = 1e6
        z = np.float64(x) - np.float64(x).mean(2, keepdims=True)
        expected = z / np.sqrt(np.square(z).mean(2, keepdims=True) + 1e-3)
        for y in (tfo.nn.layer_norm(x), tfo.nn.group_norm(x, groups=1), tfo.nn.group_norm(x[:, 0, :, None], groups=1)):
            self.assertAllClose(tf.reshape(y, x.shape), expected, rtol=5e-6, atol=5e-8)

    def test_equal_numbers_give_beta(self):
        for value in (0.0, 3.0, 1e20, -7e-30):
            x = tf.fill([2, 3, 48], value)
            beta = _RNG.normal(size=48)
            self.assertAllClose(tfo.nn.layer_norm(x, None, beta), np.broadcast_to(beta, [2, 3, 48]), 1e-6, 1e-6)

    @parameterized.parameters(*_FUNCTIONS)
    def test_a_nan_stays_in_its_own_group(self, name):
        x = _RNG.normal(size=[3, 4]).astype(np.float32)
        x[1, 2] = np.nan
        y = np.isnan(_FUNCTIONS[name](x))
        self.assertFalse(y[[0, 2]].any())
        self.assertEqual(y[1].all(), name != "group_norm")
        self.assertTrue(y[1, 2])

    @parameterized.product(name=tuple(_FUNCTIONS), shape=([None, None, 8], [2, None, None], None))
    def test_unknown_sizes(self, name, shape):
        x, d = (tf.constant(_RNG.normal(size=[2, 3, 8])) for _ in range(2))
        gamma = tf.constant(_RNG.normal(size=8))

        def gradients(x, d, gamma):
            with tf.GradientTape() as tape:
                tape.watch([x, gamma])
                y = _FUNCTIONS[name](x, gamma)
            return y, *tape.gradient(y, [x, gamma], d)

        spec = tf.TensorSpec(shape, tf.float64)
        compiled = tf.function(gradients, input_signature=[spec, spec, tf.TensorSpec(None, tf.float64)])
        for actual, expected in zip(compiled(x, d, gamma), gradients(x, d, gamma), strict=True):
            self.assertAllEqual(actual, expected)

    @parameterized.parameters(*_FUNCTIONS)
    def test_jacobians_call_few_ops(self, name):
        x, gamma = (tf.constant(_RNG.normal(size=shape)) for shape in ([2, 8], [8]))

        def jacobians(parallel):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch([x, gamma])
                y = _FUNCTIONS[name](x, gamma)
            return [tape.jacobian(y, of, experimental_use_pfor=parallel) for of in (x, gamma)]

        for actual, expected in zip(jacobians(True), jacobians(False), strict=True):
            self.assertAllClose(actual, expected, rtol=1e-12, atol=1e-12)
        graph = tf.function(lambda: jacobians(True)).get_concrete_function().graph
        self.assertNotIn("While", {op.type for op in graph.get_operations()})

    def test_factors_of_other_dtypes(self):
        x = tf.cast(_RNG.normal(size=[3, 8]), tf.float16)
        gamma = _RNG.normal(size=8)
        y = tfo.nn.layer_norm(x, gamma, tf.constant(gamma, tf.float16))
        self.assertEqual(y.dtype, tf.float16)
        wide = tfo.nn.layer_norm(tf.cast(x, tf.float64), gamma, np.float16(gamma))
        self.assertAllClose(y, wide, rtol=2e-3, atol=2e-3)
        with self.assertRaisesRegex(ValueError, "the dims of the axes"):
            tfo.nn.layer_norm(x, gamma[:7])

    def test_shapes_found_at_run_time(self):
        @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)])
        def layer_norm(x, gamma):
            return tfo.nn.layer_norm(x, gamma, axis=[-2, -1])

        group_norm = tf.function(lambda x: tfo.nn.group_norm(x, groups=1), input_signature=[tf.TensorSpec(None)])
        self.assertAllClose(tf.reduce_sum(layer_norm(tf.range(24.0)[:, None, None], tf.ones([1, 1]))), 0)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "gamma.*the dims of the axes"):
            layer_norm(tf.ones([4, 3, 2]), tf.ones([2, 3]))
        for function, x in ((lambda x: layer_norm(x, x), tf.ones([3])), (group_norm, tf.ones([3]))):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "inputs' rank"):
                function(x)


if __name__ == "__main__":
    tf.test.main()
