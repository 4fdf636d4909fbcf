"""Tests of multiscale_deformable_attention."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_LEVELS = ((6, 5), (3, 4), (1, 1))
_PIXELS = sum(h * w for h, w in _LEVELS)


def _arguments(batch=2, queries=4, heads=2, depth=5, points=(2, 2, 2), seed=0):
    generator = np.random.default_rng(seed)
    shape = [batch, queries, heads, sum(points)]
    values = generator.normal(size=[batch, _PIXELS, heads, depth])
    return values, generator.uniform(-0.3, 1.3, [*shape, 2]), generator.normal(size=shape)


class MultiscaleDeformableAttentionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters((3, 1, 2), (0, 4, 1), (2, 2, 2))
    def test_points_of_each_level(self, *points):
        """Each level and head has one value, so that the result is a weighted sum of levels."""
        _, _, weights = _arguments(points=points)
        of_levels = np.array([1.0, 10, 100])
        values = np.repeat(of_levels, [h * w for h, w in _LEVELS])[np.newaxis, :, np.newaxis, np.newaxis]
        values = values * np.array([1.0, 3])[:, np.newaxis] * np.ones([2, 1, 1, 5])
        expected = weights @ np.repeat(of_levels, points) * [1, 3]  # [N, Q, heads]
        locations = np.full([*weights.shape, 2], 0.5)
        actual = tfo.nn.multiscale_deformable_attention(
            values, tf.constant(_LEVELS, tf.int32), locations, weights, num_points=list(points)
        )
        self.assertAllClose(actual, np.repeat(expected, 5, -1), rtol=1e-12)
        if len(set(points)) == 1:  # the same without num_points
            shape = [*weights.shape[:3], 3, -1]
            by_level = locations.reshape([*shape, 2]), weights.reshape(shape)
            self.assertAllClose(tfo.nn.multiscale_deformable_attention(values, _LEVELS, *by_level), actual, rtol=1e-12)

    def test_gradients_equal_differences(self):
        values, locations, weights = _arguments(batch=1, queries=2, depth=3, points=(1, 2, 1))

        def fn(values, locations, weights):
            return tfo.nn.multiscale_deformable_attention(values, _LEVELS, locations, weights, num_points=(1, 2, 1))

        tfo.testing.assert_gradients(fn, [values, locations, weights])

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

    def test_second_derivatives_are_refused(self):
        values, locations, weights = (tf.constant(a) for a in _arguments())
        with tf.GradientTape() as outer:
            outer.watch(locations)
            with tf.GradientTape() as inner:
                inner.watch(locations)
                result = tfo.nn.multiscale_deformable_attention(
                    values, _LEVELS, locations, weights, num_points=(2, 2, 2)
                )
            first = inner.gradient(result, locations)
        with self.assertRaisesRegex(LookupError, "multiscale_deformable_attention has no second derivatives"):
            outer.gradient(first, locations)

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

    @parameterized.parameters(
        ([[6, 5], [3, 4], [1, 2]], {}, "spatial_shapes have 44 pixels, expected the 43 of values"),
        ([[6, 5], [3, 4], [0, 1]], {}, r"spatial_shapes\[2\] is \(0, 1\), expected a positive"),
        ([[6, 5], [3, 4], [-1, -1]], {}, r"spatial_shapes\[2\] is \(-1, -1\), expected a positive"),
        ([[2**40, 2**40], [3, 4], [1, 1]], {}, r"spatial_shapes\[0\] is \(1099511627776"),
        ([[6, 5], [2**24 + 1, 1], [1, 1]], {}, r"spatial_shapes\[1\] is \(16777217, 1\), .* at most 2\^24"),
        ([[6, 5], [3, 4], [1, 2**24 + 1]], {}, r"spatial_shapes\[2\] is \(1, 16777217\), .* at most 2\^24"),
        ([[6, 5], [13, 1]], {}, "num_points|attention_weights"),
        ([6, 5], {}, "spatial_shapes must be"),
        ([[6.0, 5.0]], {}, "spatial_shapes are float32, expected integers"),
        (_LEVELS, {"num_points": (2, 2)}, "attention_weights|num_points"),
        (_LEVELS, {"num_points": 2}, "num_points is 2, expected None"),
        (_LEVELS, {"num_points": (3, 4, -1)}, "num_points is -1, expected an int"),
    )
    def test_errors_name_the_argument(self, levels, options, message):
        values, locations, weights = _arguments()
        options = {"num_points": (2, 2, 2), **options}
        with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), message):
            tfo.nn.multiscale_deformable_attention(values, levels, locations, weights, **options)


if __name__ == "__main__":
    tf.test.main()
