"""Tests of depthwise_conv2d."""

import numpy as np
import pairwise_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_OPTIONS = {"strides": [1, 1, 1, 1], "padding": "SAME"}


def _with_gradients(function, images, filters, **options):
    with tf.GradientTape() as tape:
        tape.watch((images, filters))
        outputs = function(images, filters, **options)
        to_outputs = tf.reshape(tf.sin(tf.range(tf.cast(tf.size(outputs), tf.float64))), tf.shape(outputs))
        loss = tf.reduce_sum(outputs * tf.cast(to_outputs, outputs.dtype))
    return outputs, *tape.gradient(loss, (images, filters))


class DepthwiseConv2dTest(tf.test.TestCase, parameterized.TestCase):
    def _equals_tensorflow(self, image, kernel, channels=5, multiplier=1, tolerance=1e-12, **options):
        images = tf.constant(_RNG.normal(size=[2, *image, channels]))
        filters = tf.constant(_RNG.normal(size=[*kernel, channels, multiplier]))
        options = _OPTIONS | options
        if isinstance(options["strides"], int):
            options["strides"] = [1, options["strides"], options["strides"], 1]
        expected = _with_gradients(tf.nn.depthwise_conv2d, images, filters, **options)
        actual = _with_gradients(tfo.nn.depthwise_conv2d, images, filters, **options)
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, tolerance, tolerance)

    def test_equals_tensorflow(self):
        sizes = (8, 9), (7, 12), (2, 3), (1, 1)
        kernels = (3, 3), (5, 5), (7, 7), (2, 4), (9, 1)
        for image, kernel, strides, channels in pairwise_testing.pairs_of(sizes, kernels, (1, 2), (1, 5, 16, 33)):
            self._equals_tensorflow(image, kernel, channels, strides=strides)
            if image[0] >= kernel[0] and image[1] >= kernel[1]:
                self._equals_tensorflow(image, kernel, channels, strides=strides, padding="VALID")

    @parameterized.parameters(
        {"multiplier": 2}, {"multiplier": 3, "strides": 2}, {"dilations": [2, 3]}, {"strides": 3},
        {"dilations": [1, 2], "multiplier": 2}, {"padding": "VALID", "dilations": [2, 2]},
        {"padding": [[0, 0], [1, 2], [3, 0], [0, 0]]}, {"padding": [[0, 0], [9, 8], [0, 0], [0, 0]], "strides": 2},
    )  # fmt: skip
    def test_options_equal_tensorflow(self, **options):
        self._equals_tensorflow((9, 8), (3, 3), **options)

    @parameterized.parameters(
        ([1, 2, 1, 1], [1, 1], "SAME"), ([1, 1, 3, 1], [2, 1], "SAME"), ([1, 2, 2, 1], [2, 3], "VALID"),
        ([1, 3, 2, 1], [1, 2], [[0, 0], [2, 1], [1, 3], [0, 0]]),
    )  # fmt: skip
    def test_strides_that_tensorflow_refuses(self, strides, dilations, padding):
        images, filters = tf.constant(_RNG.normal(size=[2, 9, 8, 3])), tf.constant(_RNG.normal(size=[3, 2, 3, 2]))
        options = {"strides": strides, "padding": padding, "dilations": dilations}

        def by_taps(images, filters, **_):
            sides = [[0, 0]] * 4 if isinstance(padding, str) else padding
            if padding == "SAME":
                reach = [2 * dilations[0] + 1, dilations[1] + 1]
                more = [
                    max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip((9, 8), strides[1:3], reach, strict=True)
                ]
                sides = [[0, 0], *([m // 2, m - m // 2] for m in more), [0, 0]]
            images = tf.pad(images, sides)
            rows = (images.shape[1] - 2 * dilations[0] - 1) // strides[1] + 1
            columns = (images.shape[2] - dilations[1] - 1) // strides[2] + 1
            total = 0.0
            for y in range(3):
                for x in range(2):
                    read = images[:, y * dilations[0] :: strides[1], x * dilations[1] :: strides[2]][:, :rows, :columns]
                    total += tf.repeat(read, 2, axis=3) * tf.reshape(filters[y, x], [-1])
            return total

        expected = _with_gradients(by_taps, images, filters)
        actual = _with_gradients(tfo.nn.depthwise_conv2d, images, filters, **options)
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other, 1e-12, 1e-12)

    def test_channels_first(self):
        images, filters = tf.constant(_RNG.normal(size=[2, 5, 6, 3])), tf.constant(_RNG.normal(size=[3, 3, 3, 1]))
        padding = [[0, 0], [1, 0], [2, 1], [0, 0]]
        expected = tfo.nn.depthwise_conv2d(images, filters, [1, 1, 2, 1], padding)
        first = tf.transpose(images, [0, 3, 1, 2])
        padding = [padding[i] for i in (0, 3, 1, 2)]
        actual = tfo.nn.depthwise_conv2d(first, filters, [1, 1, 1, 2], padding, "NCHW")
        self.assertAllEqual(tf.transpose(actual, [0, 2, 3, 1]), expected)

    @parameterized.parameters(("SAME", [0, 4, 3, 8]), ("VALID", [0, 3, 2, 8]))
    def test_no_images(self, padding, shape):
        images, filters = tf.zeros([0, 7, 6, 8]), tf.ones([3, 3, 8, 1])
        for run in (tfo.nn.depthwise_conv2d, tf.function(tfo.nn.depthwise_conv2d)):
            outputs, *gradients = _with_gradients(run, images, filters, strides=[1, 2, 2, 1], padding=padding)
            self.assertEqual(outputs.shape, shape)
            self.assertAllEqual(gradients[0], images)
            self.assertAllEqual(gradients[1], tf.zeros_like(filters))

    @parameterized.parameters(("bfloat16", 2e-2), ("float16", 3e-3), ("float32", 1e-5))
    def test_narrow_dtypes(self, dtype, tolerance):
        # Sums of 900 ones, which 16 bits do not count.
        images, filters = tf.ones([1, 30, 30, 3], dtype), tf.ones([3, 3, 3, 1], dtype)
        with tf.GradientTape() as tape:
            tape.watch(filters)
            outputs = tfo.nn.depthwise_conv2d(images, filters, **_OPTIONS)
        gradient = tape.gradient(outputs, filters)[..., 0]
        rows = np.array([29, 30, 29])
        self.assertAllClose(tf.cast(gradient, tf.float64), np.tile(np.outer(rows, rows)[..., None], 3), tolerance)

        # Taps that meet no pixel.
        one, filters = tf.ones([1, 1, 1, 8], dtype), tf.ones([5, 5, 8, 1], dtype)
        with tf.GradientTape() as tape:
            tape.watch(filters)
            outputs = tfo.nn.depthwise_conv2d(one, filters, [1, 2, 2, 1], "SAME")
        gradient = tape.gradient(outputs, filters)
        self.assertAllEqual(gradient, tf.pad(tf.ones([1, 1, 8, 1], dtype), [[2, 2], [2, 2], [0, 0], [0, 0]]))

    @parameterized.parameters({}, {"strides": [1, 2, 1, 1]}, {"dilations": [2, 1], "padding": "VALID"})
    def test_numeric_gradients(self, **options):
        images, filters = _RNG.normal(size=[2, 6, 5, 2]), _RNG.normal(size=[3, 2, 2, 2])
        run = lambda x, f: tfo.nn.depthwise_conv2d(x, f, **(_OPTIONS | options))  # noqa: E731
        tfo.testing.assert_gradients(run, [images, filters])


if __name__ == "__main__":
    tf.test.main()
