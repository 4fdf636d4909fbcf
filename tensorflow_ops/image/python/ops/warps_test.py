"""Tests of map_coordinates and elastic_transform: modes, gradients, seeds, Keras's displacements."""

import itertools
import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library
from tensorflow_ops.image.python.ops import warps
from tensorflow_ops.image.python.ops.warps import FILL_MODES

# SciPy 1.17's scipy.ndimage.map_coordinates([10, 20, 40, 80], [_PLACES], order=order, mode=mode, cval=7).
_PLACES = [-4.5, -3.25, -1.5, -1.0, -0.75, -0.5, 0.0, 0.5, 1.75, 2.5, 3.0, 3.25, 3.5, 4.5, 6.0, 7.75]
_SCIPY = {
    "constant": (
        [7, 7, 7, 7, 7, 7, 10, 20, 40, 80, 80, 7, 7, 7, 7, 7],
        [7, 7, 7, 7, 7, 7, 10, 15, 35, 60, 80, 7, 7, 7, 7, 7],
    ),
    "grid-constant": (
        [7, 7, 7, 7, 7, 10, 10, 20, 40, 80, 80, 80, 7, 7, 7, 7],
        [7, 7, 7, 7, 7.75, 8.5, 10, 15, 35, 60, 80, 61.75, 43.5, 7, 7, 7],
    ),
    "nearest": (
        [10, 10, 10, 10, 10, 10, 10, 20, 40, 80, 80, 80, 80, 80, 80, 80],
        [10, 10, 10, 10, 10, 10, 10, 15, 35, 60, 80, 80, 80, 80, 80, 80],
    ),
    "reflect": (
        [80, 40, 20, 10, 10, 10, 10, 20, 40, 80, 80, 80, 80, 80, 20, 10],
        [80, 50, 15, 10, 10, 10, 10, 15, 35, 60, 80, 80, 80, 60, 20, 10],
    ),
    "grid-mirror": (
        [80, 40, 20, 10, 10, 10, 10, 20, 40, 80, 80, 80, 80, 80, 20, 10],
        [80, 50, 15, 10, 10, 10, 10, 15, 35, 60, 80, 80, 80, 60, 20, 10],
    ),
    "mirror": (
        [40, 80, 40, 20, 20, 20, 10, 20, 40, 80, 80, 80, 40, 40, 10, 40],
        [30, 70, 30, 20, 17.5, 15, 10, 15, 35, 60, 80, 70, 60, 30, 10, 35],
    ),
    "wrap": (
        [40, 80, 40, 40, 40, 80, 10, 20, 40, 80, 80, 10, 20, 40, 10, 40],
        [30, 70, 30, 40, 50, 60, 10, 15, 35, 60, 80, 12.5, 15, 30, 10, 35],
    ),
    "grid-wrap": (
        [10, 20, 80, 80, 80, 10, 10, 20, 40, 80, 80, 80, 10, 20, 40, 10],
        [45, 17.5, 60, 80, 62.5, 45, 10, 15, 35, 60, 80, 62.5, 45, 15, 40, 27.5],
    ),
}


def _in_numpy(image, places, order, fill_mode, fill_value):
    """Samples one image [H, W, C] at places [n, 2]: the definition, with pixels far outside copied by np.pad."""
    far = 40
    modes = {"nearest": "edge", "reflect": "symmetric", "grid-mirror": "symmetric", "mirror": "reflect"}
    modes |= {"grid-wrap": "wrap", "wrap": "edge"}
    options = {"mode": modes[fill_mode]} if fill_mode in modes else {"constant_values": fill_value}
    results = []
    shape = image.shape[:2]
    size = np.float64(shape)
    if fill_mode == "wrap":
        places = np.where((places < 0) | (places > size - 1), places % (size - 1), places)
    periods = {"reflect": 2 * size, "grid-mirror": 2 * size, "mirror": 2 * (size - 1), "grid-wrap": size}
    if fill_mode in periods:
        places = places % periods[fill_mode]
    padded = np.pad(image, [(far, far)] * 2 + [(0, 0)], **options)
    for place in places:
        if fill_mode == "constant" and any(p < 0 or p > size - 1 for p, size in zip(place, shape, strict=True)):
            results.append(np.full(image.shape[-1], fill_value))
            continue
        at = place + far
        low = np.floor(at + (0.5 if order == 0 else 0)).astype(int)
        y, x = (at - low) * order
        a, b, c, d = (padded[low[0] + i, low[1] + j] for i in (0, 1) for j in (0, 1))
        results.append((1 - y) * ((1 - x) * a + x * b) + y * ((1 - x) * c + x * d))
    return np.stack(results)


class MapCoordinatesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*itertools.product(FILL_MODES, (0, 1)))
    def test_equals_scipy_on_an_axis(self, fill_mode, order):
        row = tf.constant([10.0, 20.0, 40.0, 80.0])[tf.newaxis, tf.newaxis, :, tf.newaxis]
        for image, axes in ((row, (0.0, 1.0)), (tf.transpose(row, [0, 2, 1, 3]), (1.0, 0.0))):
            coordinates = tf.constant(_PLACES)[:, tf.newaxis] * axes
            y = tfo.image.map_coordinates(
                image, coordinates[tf.newaxis], order=order, fill_mode=fill_mode, fill_value=7
            )
            self.assertAllClose(y[0, :, 0], _SCIPY[fill_mode][order])

    @parameterized.parameters(*itertools.product(FILL_MODES, (0, 1)))
    def test_equals_the_definition(self, fill_mode, order):
        rng = np.random.default_rng(0)
        for channels, dtype in ((1, np.float32), (3, np.float32), (3, np.float16), (20, np.float64)):
            images = rng.normal(size=(2, 5, 7, channels)).astype(dtype)
            coordinates = rng.uniform(-15, 20, (2, 4, 25, 2)).astype(np.float32)
            y = tfo.image.map_coordinates(images, coordinates, order=order, fill_mode=fill_mode, fill_value=0.3)
            self.assertEqual(y.shape, (2, 4, 25, channels))
            flat = coordinates.reshape(2, 100, 2).astype(np.float64)
            for actual, *inputs in zip(y, images.astype(np.float64), flat, strict=True):
                expected = _in_numpy(*inputs, order, fill_mode, 0.3)
                rounding = 2e-3 if dtype == np.float16 else 1e-5
                self.assertAllClose(tf.reshape(actual, [100, channels]), expected, rounding, rounding)

    @parameterized.parameters(*itertools.product(FILL_MODES, (0, 1)))
    def test_places_beside_halves_and_far_outside(self, fill_mode, order):
        images = np.float32(np.random.default_rng(0).normal(size=[1, 5, 8, 1]))
        halves = np.float32(np.arange(-39, 40) / 2) + np.float32(1e-20)  # TensorFlow takes denormals for 0
        beside = np.nextafter(halves, np.float32([[-99], [0.25], [99]])).reshape(-1)
        places = np.stack([beside, beside[::-1]], -1)
        if fill_mode not in ("constant", "grid-constant", "nearest"):
            places = np.float32([*places, [0, 2**23 + 1], [2**23 + 1, 0], [-(2**23) - 3, 2**31], [1e30, -1e30]])
        y = tfo.image.map_coordinates(images, places[np.newaxis], order=order, fill_mode=fill_mode)
        expected = _in_numpy(images[0].astype(np.float64), places.astype(np.float64), order, fill_mode, 0)
        self.assertAllClose(y[0], expected, 1e-6, 1e-6)

    def test_fill_values_have_64_bits(self):
        images = tf.zeros([1, 2, 2, 1], tf.float64)
        y = tfo.image.map_coordinates(images, [[[9.0, 9.0]]], fill_value=0.1)
        self.assertEqual(float(y[0, 0, 0]), 0.1)

    @parameterized.parameters(*FILL_MODES)
    def test_options_reach_the_gradients(self, fill_mode):
        rng = np.random.default_rng(0)
        images = tf.constant(rng.uniform(-1, 1, [2, 3, 4, 2]))
        places = tf.constant(rng.integers(-3, 6, [2, 9, 2]) + rng.uniform(0.2, 0.8, [2, 9, 2]))

        def sample(images, coordinates):
            return tfo.image.map_coordinates(images, coordinates, fill_mode=fill_mode, fill_value=0.7)

        tfo.testing.assert_gradients(sample, [images, places])

    def test_wild_coordinates(self):
        wild = [np.nan, np.inf, -np.inf, 1e30, -1e30, 3e38, 2.0**31]
        coordinates = tf.constant([[[y, 0.5] for y in wild] + [[0.5, x] for x in wild]])
        images = tf.random.normal([1, 3, 4, 2])
        for order, fill_mode in itertools.product((0, 1), FILL_MODES):
            with tf.GradientTape() as tape:
                tape.watch([images, coordinates])
                y = tfo.image.map_coordinates(images, coordinates, order=order, fill_mode=fill_mode, fill_value=5)
            d_images, d_coordinates = tape.gradient(y, [images, coordinates])
            is_far = fill_mode in ("constant", "grid-constant")
            has_infinity = is_far or fill_mode == "nearest"
            nan = [True, not has_infinity, not has_infinity, False, False, False, False] * 2
            self.assertAllEqual(tf.math.is_nan(y[0, :, 0]), nan)
            self.assertAllEqual(tf.math.is_finite(d_images), tf.ones_like(d_images, tf.bool))
            self.assertAllEqual(d_coordinates[0, 0], [0, 0])
            if is_far:
                self.assertAllEqual(y[0, 1:7], tf.fill([6, 2], 5.0))

    def test_in_tf_data_with_an_unknown_batch(self):
        images, coordinates = np.float32(np.random.rand(10, 5, 6, 3)), np.float32(np.random.rand(10, 4, 2) * 7)
        warp = lambda x, at: tfo.image.map_coordinates(x, at, fill_mode="reflect")  # noqa: E731
        batches = tf.data.Dataset.from_tensor_slices((images, coordinates)).batch(4).map(warp, 2)
        self.assertEqual(batches.element_spec.shape.as_list(), [None, 4, 3])
        self.assertAllEqual(tf.concat(list(batches), 0), warp(images, coordinates))


class ElasticTransformTest(tf.test.TestCase, parameterized.TestCase):
    def _images(self, dtype=tf.float32):
        return tf.cast(tf.random.stateless_uniform([4, 20, 24, 3], [5, 6]), dtype)

    @parameterized.parameters(2.5, 9.0, 0.4, 20.0, 300.0, 2000.0, 8e8, 1431655766.0, 3e38)
    def test_samples_at_filtered_noise(self, sigma):
        shape = 2, 50, 40
        images = tf.random.stateless_uniform([*shape, 3], [5, 6])
        bits = tf.random.stateless_uniform([2, *shape], [1, 2], None, None, tf.uint32, alg="philox").numpy()
        first, second = (np.floor(bits / 2.0**9) + 0.5) / 2.0**23
        noise = np.sqrt(-2 * np.log(first)) * [np.cos(2 * np.pi * second), np.sin(2 * np.pi * second)]
        self.assertAllClose([noise.mean(), noise.std()], [0, 1], atol=0.03)
        reach = 3 * math.floor(sigma)
        if reach < 10**6:
            total = np.sum(np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2))
        else:
            total = math.sqrt(2 * math.pi) * sigma * math.erf(3 / math.sqrt(2))
        away = np.arange(50)[:, np.newaxis] - np.arange(50)
        weights = np.where(np.abs(away) <= reach, np.exp(-0.5 * (away / sigma) ** 2), 0) / total
        filtered = sigma * (weights @ noise @ weights[:40, :40])
        coordinates = np.mgrid[:50, :40].transpose(1, 2, 0) + 9 * filtered.transpose(1, 2, 3, 0)
        y = tfo.image.elastic_transform(images, seed=[1, 2], alpha=9, sigma=sigma)
        self.assertAllClose(y, tfo.image.map_coordinates(images, coordinates, fill_mode="reflect"), atol=1e-4)
        y = tfo.image.elastic_transform(
            images, seed=[1, 2], alpha=9, sigma=sigma, order=0, fill_mode="grid-constant", fill_value=3
        )
        expected = tfo.image.map_coordinates(images, coordinates, order=0, fill_mode="grid-constant", fill_value=3)
        self.assertGreater(np.mean(np.isclose(y, expected)), 0.99)  # halves may round otherwise
        call = tf.function(
            lambda x, sigma: tfo.image.elastic_transform(x, seed=[1, 2], alpha=9, sigma=sigma),
            [tf.TensorSpec([None] * 4), tf.TensorSpec([])],
        )
        self.assertAllClose(
            call(images, sigma), tfo.image.map_coordinates(images, coordinates, fill_mode="reflect"), atol=1e-4
        )

    def test_long_filters_of_long_images_take_parts(self):
        images = tf.random.stateless_uniform([1, 3000, 2, 1], [5, 6], dtype=tf.float64)
        y = tfo.image.elastic_transform(images, seed=[1, 2], alpha=2e3, sigma=500.0)
        noise = warps._normal_pairs([1, 3000, 2], [1, 2]).numpy().astype(np.float64)
        away = np.arange(3000)[:, np.newaxis] - np.arange(3000)
        weights = np.where(np.abs(away) <= 1500, np.exp(-0.5 * (away / 500) ** 2), 0)
        weights /= np.sum(np.exp(-0.5 * (np.arange(-1500, 1501) / 500) ** 2))
        moves = 500 * (weights @ noise @ weights[:2, :2])
        self.assertGreater(np.abs(moves).max(), 0.01)
        coordinates = np.mgrid[:3000, :2].transpose(1, 2, 0) + 2e3 * moves.transpose(1, 2, 3, 0)
        self.assertAllClose(y, tfo.image.map_coordinates(images, coordinates, fill_mode="reflect"), 1e-9, 1e-9)

    def test_one_image_and_its_mask(self):
        image = self._images()[0]
        mask = tf.cast(image[..., :1] > 0.5, tf.float32)
        options = {"seed": [1, 2], "alpha": 9.0, "sigma": 3.0, "order": 0}
        expected = tfo.image.elastic_transform(tf.concat([image, mask], -1)[tf.newaxis], **options)[0]
        for x, y in ((image, expected[..., :3]), (mask, expected[..., 3:])):
            self.assertAllEqual(tfo.image.elastic_transform(x, **options), y)
            dataset = tf.data.Dataset.from_tensors(x).map(lambda x: tfo.image.elastic_transform(x, **options))
            self.assertAllEqual(next(iter(dataset)), y)
            call = tf.function(lambda x: tfo.image.elastic_transform(x, **options), [tf.TensorSpec([None, None, None])])
            self.assertAllEqual(call(x), y)

    def test_each_image_moves_on_its_own_along_both_axes(self):
        own = tf.constant(np.float32(np.mgrid[:20, :24].transpose(1, 2, 0)))
        both = tf.tile(own[tf.newaxis], [2, 1, 1, 1])
        moved = tfo.image.elastic_transform(both, seed=[1, 2], alpha=1.0, fill_mode="nearest")
        offsets = (moved - own)[:, 4:16, 4:20]  # no place is beyond the border
        self.assertGreater(tf.reduce_min(tf.math.reduce_std(offsets, 0)), 0)
        self.assertNotAllClose(offsets[..., 0], offsets[..., 1], atol=0.1)

    def test_of_unknown_sizes_in_tf_data(self):
        images = self._images()
        expected = tfo.image.elastic_transform(images, seed=[1, 2])
        dataset = tf.data.Dataset.from_tensors(images).unbatch().batch(4)
        transform = lambda x: tfo.image.elastic_transform(x, seed=[1, 2])  # noqa: E731
        self.assertAllClose(next(iter(dataset.map(transform))), expected, atol=1e-4)
        call = tf.function(transform, input_signature=[tf.TensorSpec(None, tf.float32)])
        self.assertAllClose(call(images), expected, atol=1e-4)
        self.assertEmpty(call(images[:0]))

    def test_the_seed_of_a_graph_may_be_a_tensor(self):
        images, seed = self._images(), tf.constant([1, 2**31 + 2], tf.int64)
        transform = lambda x, seed: tfo.image.elastic_transform(x, seed=seed)  # noqa: E731
        expected = transform(images, [1, 2**31 + 2])
        self.assertNotAllClose(expected, transform(images, [1, 2]), atol=0.1)
        self.assertAllClose(expected, transform(images, [1, 2**32 + 2**31 + 2]), atol=1e-4)
        for jit_compile in (False, True)[: 1 if library.xla_error else 2]:
            call = tf.function(transform, jit_compile=jit_compile)
            self.assertAllClose(call(images, seed), expected, atol=1e-4)

    def test_dtypes(self):
        expected = tfo.image.elastic_transform(self._images(), seed=[1, 2])
        for dtype in (tf.float16, tf.bfloat16):
            y = tfo.image.elastic_transform(self._images(dtype), seed=[1, 2])
            self.assertEqual(y.dtype, dtype)
            self.assertAllClose(tf.cast(y, tf.float32), expected, atol=0.02)
        self.assertEqual(tfo.image.elastic_transform(self._images(tf.float64), seed=[1, 2]).dtype, tf.float64)

    def test_alpha_and_sigma_may_be_tensors(self):
        images = self._images()
        expected = tfo.image.elastic_transform(images, seed=[1, 2], alpha=7.0, sigma=2.0)
        call = tf.function(lambda *args: tfo.image.elastic_transform(images, seed=[1, 2], alpha=args[0], sigma=args[1]))
        self.assertAllClose(call(tf.constant(7.0), tf.constant(2.0)), expected, atol=1e-4)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "sigma is -1, expected a finite number above 0"):
            call(tf.constant(7.0), tf.constant(-1.0))


if __name__ == "__main__":
    tf.test.main()
