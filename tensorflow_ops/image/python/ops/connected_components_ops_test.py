"""Tests of tfo.image.connected_components: dtypes, ranks, planes. Its C++ test proves values."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_TYPES = (np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
_IMAGES = np.random.default_rng(2).integers(0, 3, (2, 15, 20, 4), np.int32)


class ConnectedComponentsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_TYPES)
    def test_every_dtype(self, dtype):
        values = (0, 1, 1) if dtype is np.bool_ else (0, np.iinfo(dtype).max, np.iinfo(dtype).min or 1)
        same = np.array((0, 1, 1 if dtype is np.bool_ else 2))
        found = tfo.image.connected_components(np.array(values, dtype)[_IMAGES], connectivity=np.int64(4))
        self.assertEqual((found.labels.dtype, found.counts.dtype), (tf.int32, tf.int32))
        for actual, expected in zip(found, tfo.image.connected_components(same[_IMAGES]), strict=True):
            self.assertAllEqual(actual, expected)

    def test_each_plane_is_numbered_anew_in_one_trace_for_every_rank(self):
        for connectivity in (4, 8):

            @tf.function(input_signature=[tf.TensorSpec(None, tf.int32)])
            def label(images, connectivity=connectivity):
                return tfo.image.connected_components(images, connectivity=connectivity)

            labels, counts = label(_IMAGES)
            self.assertAllEqual(counts, np.max(labels, (1, 2)))
            for n in range(2):
                for c in range(4):
                    plane, count = label(_IMAGES[n, ..., c])
                    self.assertAllEqual(labels[n, ..., c], plane)
                    self.assertAllEqual(counts[n, c], count)
            without_channels = label(_IMAGES[..., 0])
            self.assertAllEqual(without_channels.labels, labels[..., 0])
            self.assertAllEqual(without_channels.counts, counts[:, 0])

    def test_numbers_of_a_whole_batch(self):
        """The recipe of the docstring."""
        images = np.array([[[1, 0, 1]], [[0, 1, 2]]])
        labels, counts = tfo.image.connected_components(images)
        before = tf.cumsum(counts, exclusive=True)[:, tf.newaxis, tf.newaxis]
        self.assertAllEqual(tf.where(labels > 0, labels + before, 0), [[[1, 0, 2]], [[0, 3, 4]]])

    def test_too_many_pixels(self):
        label = tf.function(tfo.image.connected_components)
        with self.assertRaisesRegex(ValueError, r"images are \[65536,32768\], expected planes of fewer than 2"):
            label.get_concrete_function(tf.TensorSpec([2**16, 2**15], tf.bool))
        label.get_concrete_function(tf.TensorSpec([2**16, 2**15 - 1], tf.bool))


if __name__ == "__main__":
    tf.test.main()
