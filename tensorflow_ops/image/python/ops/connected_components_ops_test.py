"""Tests of tfo.image.connected_components against a flood fill."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_TYPES = (np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
_STEPS = {4: ((-1, 0), (1, 0), (0, -1), (0, 1))}
_STEPS[8] = (*_STEPS[4], (-1, -1), (-1, 1), (1, -1), (1, 1))


def _flood_fill(image, connectivity):
    """Returns the labels and the count of an image [H, W]."""
    labels, count = np.zeros(image.shape, np.int32), 0
    for start in map(tuple, np.argwhere(image)):
        if labels[start]:
            continue
        count += 1
        labels[start], left = count, [start]
        while left:
            y, x = left.pop()
            for dy, dx in _STEPS[connectivity]:
                at = y + dy, x + dx
                inside = 0 <= at[0] < image.shape[0] and 0 <= at[1] < image.shape[1]
                if inside and image[at] == image[start] and not labels[at]:
                    labels[at] = count
                    left.append(at)
    return labels, count


def _images():
    rng = np.random.default_rng(0)
    return {
        "noise": rng.random((60, 90)) < 0.55,
        "negative values": rng.integers(-2, 2, (40, 65)),
    }


class ValuesTest(parameterized.TestCase, tf.test.TestCase):
    def _check(self, image, connectivity):
        labels, count = tfo.image.connected_components(image, connectivity=connectivity)
        expected, expected_count = _flood_fill(image, connectivity)
        self.assertEqual((labels.dtype, count.dtype, count.shape), (tf.int32, tf.int32, []))
        self.assertAllEqual(labels, expected)
        self.assertEqual(int(count), expected_count)

    @parameterized.product(name=tuple(_images()), connectivity=(4, 8))
    def test_equals_a_flood_fill(self, name, connectivity):
        self._check(_images()[name], connectivity)

    @parameterized.parameters(*_TYPES)
    def test_every_dtype(self, dtype):
        image = np.random.default_rng(1).integers(0, 3, (20, 33))
        limits = (0, 1, 1) if dtype is np.bool_ else (0, np.iinfo(dtype).max, np.iinfo(dtype).min or 1)
        self._check(np.array(limits, dtype)[image], 4)

    def test_values_that_differ_in_high_bits_only(self):
        image = np.array([[1, 1 + 2**40, 1 + 2**40, 2**40]], np.int64)
        self.assertAllEqual(tfo.image.connected_components(image).labels, [[1, 2, 2, 3]])

    def test_each_plane_is_numbered_anew(self):
        images = np.random.default_rng(2).integers(0, 3, (2, 4, 15, 20))  # [N, C, H, W]
        for connectivity in (4, 8):
            expected = [[_flood_fill(plane, connectivity) for plane in image] for image in images]
            labels, counts = tfo.image.connected_components(np.moveaxis(images, 1, -1), connectivity=connectivity)
            self.assertAllEqual(np.moveaxis(labels, -1, 1), [[labels for labels, _ in row] for row in expected])
            self.assertAllEqual(counts, [[count for _, count in row] for row in expected])
            labels, counts = tfo.image.connected_components(images[0], connectivity=connectivity)
            self.assertAllEqual(labels, [labels for labels, _ in expected[0]])
            self.assertAllEqual(counts, [count for _, count in expected[0]])

    def test_numbers_of_a_whole_batch(self):
        """The recipe of the docstring."""
        images = np.array([[[1, 0, 1]], [[0, 1, 2]]])
        labels, counts = tfo.image.connected_components(images)
        before = tf.cumsum(counts, exclusive=True)[:, tf.newaxis, tf.newaxis]
        self.assertAllEqual(tf.where(labels > 0, labels + before, 0), [[[1, 0, 2]], [[0, 3, 4]]])


class GraphTest(parameterized.TestCase, tf.test.TestCase):
    def test_one_trace_serves_every_rank(self):
        @tf.function(input_signature=[tf.TensorSpec(None, tf.int32)])
        def label(images):
            return tfo.image.connected_components(images)

        images = np.random.default_rng(4).integers(0, 2, (2, 9, 20), np.int32)
        for value in (images[0], images):
            self.assertAllEqual(label(value).labels, tfo.image.connected_components(value).labels)
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, r"images must be \[H, W\].*with input shapes \[4\]"
        ):
            label(tf.zeros([4], tf.int32))


class ErrorTest(parameterized.TestCase, tf.test.TestCase):
    def test_too_many_pixels(self):
        label = tf.function(tfo.image.connected_components)
        with self.assertRaisesRegex(ValueError, r"images are \[65536,32768\], expected planes of fewer than 2"):
            label.get_concrete_function(tf.TensorSpec([2**16, 2**15], tf.bool))
        label.get_concrete_function(tf.TensorSpec([2**16, 2**15 - 1], tf.bool))


if __name__ == "__main__":
    tf.test.main()
