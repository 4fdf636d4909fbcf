"""Tests of deform_conv2d."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python.library import ops


class DeformConv2dTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(("VALID", 1, 1), ("SAME", 1, 2), ("SAME", 2, 1), ("SAME", 1, 1))
    def test_zero_offsets_equal_conv2d(self, padding, stride, dilation):
        # Sums of 9 * 16 products, of numbers around 1: float32 rounds to 2e-5 at most, conv2d in its own order.
        generator = np.random.default_rng(0)
        features = generator.normal(size=[2, 9, 11, 16]).astype(np.float32)
        filters = generator.normal(size=[3, 3, 16, 8]).astype(np.float32)
        wide = features.astype(np.float64), filters.astype(np.float64)
        expected = tf.nn.conv2d(*wide, stride, padding, dilations=dilation)
        offsets = tf.zeros([*expected.shape[:3], 18])
        actual = tfo.nn.deform_conv2d(features, offsets, filters, padding=padding, strides=stride, dilations=dilation)
        self.assertAllClose(actual, expected, rtol=0, atol=2e-5)

    def test_16_bit_features_are_read_at_float32_places(self):
        # At 1999.25, float16 places would be whole.
        features = tf.cast(tf.range(2048) % 7, tf.float16)[tf.newaxis, tf.newaxis, :, tf.newaxis]
        offsets = tf.tile([[[[0.0, 0.25]]]], [1, 1, 2048, 1])
        result = tfo.nn.deform_conv2d(features, offsets, tf.ones([1, 1, 1, 1], tf.float16))
        self.assertAllClose(result[0, 0, 1999, 0], 1999 % 7 + 0.25, atol=2e-3)

    def test_the_op_takes_one_tensor_for_an_option(self):
        inputs = tf.ones([1, 3, 3, 1]), tf.zeros([1, 1, 1, 18]), tf.ones([3, 3, 1, 1])
        with self.assertRaisesRegex(ValueError, "bias has 2 tensors, expected at most one"):
            ops.tensorflow_ops_deform_conv2d(*inputs, mask=[], bias=[tf.zeros([1])] * 2)


class DeformConv2DLayerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(("same", 2), ("valid", 1), (1, 1), (((1, 2), (0, 1)), 2))
    def test_starts_as_a_convolution(self, padding, stride):
        features = tf.constant(np.random.default_rng(0).normal(size=[2, 9, 8, 4]), tf.float32)
        layer = tfo.layers.DeformConv2D(6, (3, 2), strides=stride, padding=padding, groups=2, offset_groups=2)
        result = layer(features)
        self.assertEqual(tuple(result.shape), layer.compute_output_shape(features.shape))
        padded, same = features, padding == "same"
        if not isinstance(padding, str):
            sides = padding if isinstance(padding, tuple) else ((padding, padding),) * 2
            padded = tf.pad(features, [(0, 0), *sides, (0, 0)])
        # tf.nn.conv2d has no groups on the CPU: two convolutions.
        expected = [
            tf.nn.conv2d(
                padded[..., 2 * g : 2 * g + 2],
                layer.kernel[..., 3 * g : 3 * g + 3],
                stride,
                "SAME" if same else "VALID",
            )
            for g in range(2)
        ]
        self.assertAllClose(result, tf.concat(expected, -1), rtol=0, atol=1e-5)

    @parameterized.parameters(
        ("same", 1, 1), (((1, 1), (1, 1)), 1, 1), ("valid", 1, 2), ("same", 2, (2, 3)),
        (((1, 2), (0, 1)), (1, 2), (1, 2)),
    )  # fmt: skip
    def test_offsets_equal_conv2d_and_have_gradients(self, padding, strides, dilations):
        # In float64, tf.nn.conv2d's gradients refuse dilations on the CPU.
        generator = np.random.default_rng(2)
        features = generator.normal(size=[1, 7, 8, 2])
        options = {"strides": strides, "padding": padding, "dilation_rate": dilations, "offset_groups": 2}
        layer = tfo.layers.DeformConv2D(2, (2, 3), **options, modulated=True, dtype="float64")
        layer.build(features.shape)
        for weight in (layer.offset_kernel, layer.offset_bias):
            weight.assign(generator.normal(size=weight.shape) * 0.2)
        sides, same = ((0, 0), (0, 0)), padding == "same"
        if not isinstance(padding, str):
            sides = padding
        numbers = layer.offset_bias.value + tf.nn.conv2d(
            tf.pad(features, [(0, 0), *sides, (0, 0)]),
            layer.offset_kernel.value,
            strides,
            "SAME" if same else "VALID",
            dilations=dilations,
        )
        expected = tfo.nn.deform_conv2d(
            features,
            numbers[..., :24],
            layer.kernel.value,
            mask=tf.sigmoid(numbers[..., 24:]),
            strides=strides,
            padding=padding.upper() if isinstance(padding, str) else padding,
            dilations=dilations,
        )
        self.assertEqual(tuple(expected.shape), layer.compute_output_shape(features.shape))
        self.assertAllClose(layer(features), expected, rtol=1e-11, atol=1e-11)

        with tf.GradientTape() as tape:
            result = tf.reduce_sum(layer(features) ** 2)
        for d in tape.gradient(result, layer.trainable_variables):
            self.assertGreater(np.abs(d).max(), 0)
        tfo.testing.assert_gradients(layer, [features])

    def test_dilated_offsets_accept_sizes_known_at_run_time(self):
        layer = tfo.layers.DeformConv2D(3, 3, padding="same", dilation_rate=2)
        features = tf.random.normal([2, 9, 8, 4])
        expected = layer(features)
        function = tf.function(layer.call, input_signature=[tf.TensorSpec([None, None, None, 4])])
        self.assertAllClose(function(features), expected, rtol=0, atol=1e-6)

    @parameterized.parameters(
        ([0, 6, 7, 4], {}), ([0, 6, 7, 4], {"padding": 1, "strides": 2, "modulated": True}), ([2, 2, 7, 4], {}),
        ([2, 1, 7, 4], {}), ([2, 0, 7, 4], {"padding": "same"}), ([0, 6, 7, 4], {"dtype": "mixed_float16"}),
    )  # fmt: skip
    def test_empty_results(self, shape, options):
        layer = tfo.layers.DeformConv2D(4, 3, **options)
        layer.build(shape)
        features = tf.zeros(shape)

        def run(features):
            with tf.GradientTape() as tape:
                tape.watch(features)
                result = layer(features)
            return result, *tape.gradient(result, [features, *(w.value for w in layer.weights)])

        specs = tf.TensorSpec([None] * 4), tf.TensorSpec([None, *shape[1:]]), tf.TensorSpec([shape[0], None, None, 4])
        for function in (run, *(tf.function(run, [spec]) for spec in specs)):
            result, *gradients = function(features)
            self.assertEqual(tuple(result.shape), layer.compute_output_shape(shape))
            for gradient, x in zip(gradients, [features, *layer.weights], strict=True):
                self.assertAllEqual(gradient, tf.zeros(x.shape))

    @parameterized.parameters(*itertools.product(("valid", "same", 1, ((0, 2), (1, 0))), (1, 2), (1, 2)))
    def test_no_examples_in_a_graph_without_gradients(self, padding, strides, dilation):
        # Where only the convolution reads it, grappler merges a pad into one.
        layer = tfo.layers.DeformConv2D(5, 3, padding=padding, strides=strides, dilation_rate=dilation)
        layer.build([None, 6, 7, 4])
        for spec in (tf.TensorSpec([None, 6, 7, 4]), tf.TensorSpec([None, None, None, 4])):
            function = tf.function(layer.call, [spec])
            for shape in ([0, 6, 7, 4], [2, 6, 7, 4], [2, 1, 7, 4]):
                if spec.is_compatible_with(tf.zeros(shape)):
                    self.assertEqual(tuple(function(tf.zeros(shape)).shape), layer.compute_output_shape(shape))

    def test_round_trip(self):
        layer = tfo.layers.DeformConv2D(4, 3, padding=((1, 0), (0, 2)), modulated=True, activation="relu", name="d")
        copy = tfo.layers.DeformConv2D.from_config(layer.get_config())
        self.assertEqual(copy.get_config(), layer.get_config())

    def test_mixed_precision(self):
        layer = tfo.layers.DeformConv2D(4, 3, padding="same", modulated=True, dtype="mixed_bfloat16")
        result = layer(tf.ones([1, 5, 5, 2]))
        self.assertEqual(result.dtype, tf.bfloat16)
        self.assertEqual(layer.offset_kernel.dtype, "float32")

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "filters is 5, expected a multiple of groups, 2"):
            tfo.layers.DeformConv2D(5, 3, groups=2)
        with self.assertRaisesRegex(ValueError, "features have 3 channels, expected a multiple of offset_groups, 2"):
            tfo.layers.DeformConv2D(4, 3, offset_groups=2)(tf.ones([1, 5, 5, 3]))


if __name__ == "__main__":
    tf.test.main()
