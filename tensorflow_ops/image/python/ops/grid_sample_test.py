"""Tests of grid_sample and dense_image_warp: options in gradients, dtypes, batches. C++ tests prove values."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library


class GridSampleTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("bilinear", "border", False), ("bilinear", "reflection", True), ("bicubic", "border", True),
        ("bicubic", "zeros", False),
    )  # fmt: skip
    def test_options_reach_the_gradients(self, mode, padding_mode, align_corners):
        rng = np.random.default_rng(0)
        features, grid = (tf.constant(rng.uniform(-1.4, 1.4, size)) for size in ([2, 3, 4, 2], [2, 7, 2]))

        def sample(features, grid):
            options = {"padding_mode": padding_mode, "align_corners": align_corners}
            return tfo.image.grid_sample(features, grid, mode=mode, **options)

        tfo.testing.assert_gradients(sample, [features, grid])

    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_places_of_16_bit_features_are_float32(self, dtype):
        # 16 bits hold no fraction at column 4097.
        features = tf.cast(tf.range(5000.0) % 7, dtype)[tf.newaxis, tf.newaxis, :, tf.newaxis]
        y = tfo.image.grid_sample(features, [[[4097.25, 0.0]]], normalized=False)
        left, right = 4097 % 7, 4098 % 7
        self.assertEqual(y.dtype, dtype)
        self.assertEqual(float(y[0, 0, 0]), 0.75 * left + 0.25 * right)

    def test_features_of_any_order_and_grid_once(self):
        features, grid = tf.random.normal([1, 4, 5, 2], dtype=tf.float64), tf.constant([[[0.3, -0.4]]], tf.float64)

        def cubed(features):
            return tf.reduce_sum(tfo.image.grid_sample(features, grid) ** 3)

        def gradient_of_cubed(features):
            with tf.GradientTape() as tape:
                tape.watch(features)
                y = cubed(features)
            return tape.gradient(y, features)

        tfo.testing.assert_gradients(cubed, (features,))
        tfo.testing.assert_gradients(gradient_of_cubed, (features,))
        with tf.GradientTape() as outer:
            outer.watch(grid)
            with tf.GradientTape() as tape:
                tape.watch(grid)
                y = tf.reduce_sum(tfo.image.grid_sample(features, grid) ** 2)
            gradient = tape.gradient(y, grid)
        with self.assertRaisesRegex(LookupError, "the gradient of grid_sample to its grid has no gradient"):
            outer.gradient(gradient, grid)

    def _batches(self):
        """Yields (features, grid) of which one serves all of the other, and the same with copies."""
        rng = np.random.default_rng(0)
        features, places = rng.normal(size=(3, 4, 5, 2)), rng.uniform(-1.2, 1.2, (3, 6, 7, 2))
        for one_image, one_grid, rank in ((1, 3, 4), (3, 1, 4), (1, 3, 3), (3, 1, 3), (1, 1, 4)):
            x, grid = features[:one_image], places[:one_grid]
            grid = grid if rank == 4 else grid[:, 0]
            count = max(one_image, one_grid)
            yield x, grid, np.broadcast_to(x, (count, *x.shape[1:])), np.broadcast_to(grid, (count, *grid.shape[1:]))

    def test_one_image_or_grid_serves_a_batch(self):
        for x, grid, features, grids in self._batches():

            def call(x, grid):
                with tf.GradientTape() as tape:
                    tape.watch([x, grid])
                    y = tfo.image.grid_sample(x, grid)
                    loss = tf.reduce_sum(y**2)
                return y, *tape.gradient(loss, [x, grid])

            y, d_features, d_grids = (t.numpy() for t in call(tf.constant(features), tf.constant(grids)))
            expected = (
                y,
                d_features.sum(0, keepdims=True) if len(x) == 1 else d_features,
                d_grids.sum(0, keepdims=True) if len(grid) == 1 else d_grids,
            )
            specs = [tf.TensorSpec([1 if len(a) == 1 else None, *[None] * (a.ndim - 1)], tf.float64) for a in (x, grid)]
            for run in (call, tf.function(call), tf.function(call, input_signature=specs)):
                for actual, value in zip(run(tf.constant(x), tf.constant(grid)), expected, strict=True):
                    self.assertAllClose(actual, value)
            trace = tf.function(lambda a, b: call(a, b)[0]).get_concrete_function(*specs)
            self.assertTrue(trace.output_shapes.is_compatible_with(y.shape))
            self.assertEqual(trace.output_shapes.rank, y.ndim)

    def test_one_image_under_vectorized_map_and_xla(self):
        rng = np.random.default_rng(1)
        images, grids = rng.normal(size=(2, 1, 4, 5, 3)), rng.uniform(-1, 1, (2, 3, 6, 7, 2))
        expected = [tfo.image.grid_sample(a, b) for a, b in zip(images, grids, strict=True)]
        mapped = tf.vectorized_map(
            lambda x: tfo.image.grid_sample(*x), (tf.constant(images), tf.constant(grids)), False
        )
        self.assertAllClose(mapped, expected)
        if not library.xla_error:
            call = tf.function(tfo.image.grid_sample, jit_compile=True)
            self.assertAllClose(call(images[0], grids[0]), expected[0])


class DenseImageWarpTest(tf.test.TestCase):
    def test_equals_grid_sample(self):
        rng = np.random.default_rng(2)
        images, flow = tf.constant(rng.normal(size=(2, 5, 6, 3))), tf.constant(rng.uniform(-4, 4, (2, 5, 6, 2)))
        rows, columns = np.mgrid[:5, :6]

        def sampled(images, flow):
            grid = tf.stack([columns - flow[..., 1], rows - flow[..., 0]], -1)
            return tfo.image.grid_sample(images, grid, padding_mode="border", normalized=False)

        results = []
        for function in (tfo.image.dense_image_warp, sampled):
            with tf.GradientTape() as tape:
                tape.watch([images, flow])
                y = function(images, flow)
                weighted = y * np.arange(6.0)[:, np.newaxis]
            results.append([y, *tape.gradient(weighted, [images, flow])])
        for actual, expected in zip(*results, strict=True):
            self.assertAllClose(actual, expected)

    def test_the_static_size_is_that_of_images_or_flow(self):
        specs = tf.TensorSpec([None, 5, None, 3]), tf.TensorSpec([2, None, 6, 2])
        traced = tf.function(tfo.image.dense_image_warp).get_concrete_function(*specs)
        self.assertEqual(traced.structured_outputs.shape.as_list(), [2, 5, 6, 3])


if __name__ == "__main__":
    tf.test.main()
