"""Tests of multiscale_deformable_attention."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo


class MultiscaleDeformableAttentionTest(tf.test.TestCase, parameterized.TestCase):
    def test_a_whole_pixel_has_the_slope_of_the_next_cell(self):
        values = np.float64([0, 1, 4, 9]).reshape(1, 4, 1, 1)
        # The centres of pixels 1 and 3, and 0.5 to the left of pixel 0, where its weight starts.
        locations = tf.constant(((np.float64([1, 3, -1]) + 0.5) / 4).reshape(1, 3, 1, 1, 1, 1))
        locations = tf.concat([locations, tf.fill(locations.shape, tf.constant(0.5, tf.float64))], -1)
        with tf.GradientTape() as tape:
            tape.watch(locations)
            result = tfo.nn.multiscale_deformable_attention(values, [[1, 4]], locations, np.ones([1, 3, 1, 1, 1]))
        self.assertAllClose(result[0, :, 0], [1, 9, 0])
        slopes = tape.gradient(result, locations)[0, :, 0, 0, 0, 0]
        self.assertAllClose(slopes, [4 * 3, 4 * -9, 4 * 0])

    def test_16_bit_values_are_sampled_at_float32_places(self):
        # 2048 pixels: a float16 place would be off by up to half a pixel.
        width = 2048
        values = tf.cast(tf.range(width) % 7, tf.float16)[tf.newaxis, :, tf.newaxis, tf.newaxis]
        x = (np.float32([1500.25, 1999.75]) + 0.5) / width
        locations = tf.constant(np.stack([x, np.float32([0.5, 0.5])], -1).reshape(1, 2, 1, 1, 1, 2))
        result = tfo.nn.multiscale_deformable_attention(values, [[1, width]], locations, tf.ones([1, 2, 1, 1, 1]))
        self.assertAllClose(result[0, :, 0], [1500 % 7 + 0.25, 1999 % 7 + 0.75], atol=2e-3)

    @parameterized.parameters(
        ([0, 1, 2**32, 2**31], [0, 1, 2**32, 1, 1]),  # heads * channels
        ([1, 1, 1, 2], [1, 2**62, 1, 1, 0]),  # N * Q * heads * channels
    )
    def test_outputs_of_2_63_numbers_are_refused(self, values, weights):
        with self.assertRaisesRegex(
            (ValueError, tf.errors.InvalidArgumentError), r"fewer than 2\^63 numbers in \[N, Q, heads \* channels\]"
        ):
            tfo.nn.multiscale_deformable_attention(
                tf.zeros(values), [[1, 1]], tf.zeros([*weights, 2]), tf.zeros(weights)
            )

    @parameterized.parameters(
        ([2, 1, 1, 3], [2, 0, 1, 1, 2**40]),
        ([0, 1, 1, 3], [0, 2, 1, 1, 2**40]),
        ([2, 1, 0, 3], [2, 3, 0, 1, 2**40]),
        ([1, 1, 1, 0], [1, 2**60, 1, 1, 0]),
        ([2**60, 1, 1, 0], [2**60, 0, 1, 1, 1]),
    )
    def test_empty_weights_of_any_shape_have_zero_gradients(self, values, weights):
        tensors = [tf.ones(values), tf.ones([*weights, 2]), tf.ones(weights)]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = tfo.nn.multiscale_deformable_attention(tensors[0], [[1, 1]], *tensors[1:])
        # TensorFlow's own upstream gradient wraps sides in int32.
        gradients = tape.gradient(result, tensors, output_gradients=tf.ones(result.shape))
        for tensor, d in zip(tensors, gradients, strict=True):
            self.assertEqual(d.shape, tensor.shape)
            if tensor.shape.num_elements():  # NumPy has no larger sides without elements
                self.assertAllEqual(d, tf.zeros_like(d))


if __name__ == "__main__":
    tf.test.main()
