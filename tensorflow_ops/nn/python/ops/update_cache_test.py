"""Tests of update_cache: dtypes, eager calls. nn_memory_test.py has loops."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo


class UpdateCacheTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("bool", "int8", "uint8", "int32", "int64", "complex64", "bfloat16")
    def test_dtypes(self, dtype):
        cache = tf.cast(np.arange(40).reshape(2, 5, 4) % 3, dtype)
        rows = tf.cast(np.arange(16).reshape(2, 2, 4) % 2, dtype)
        y = tfo.nn.update_cache(cache, rows, tf.constant([3, 1], tf.int64))
        self.assertAllEqual(y, tf.stack([tf.concat([cache[0, :3], rows[0]], 0),
                                         tf.concat([cache[1, :1], rows[1], cache[1, 3:]], 0)]))  # fmt: skip

    def test_an_eager_call_changes_no_tensor(self):
        cache = tf.zeros([1, 3, 2])
        tfo.nn.update_cache(cache, tf.ones([1, 1, 2]), 1)
        self.assertAllEqual(cache, tf.zeros([1, 3, 2]))

    def test_dtypes_without_a_kernel_raise(self):
        for x in (tf.fill([1, 3], "a"), tf.cast(tf.zeros([1, 3]), tf.dtypes.experimental.float8_e5m2)):
            for run in (tfo.nn.update_cache, tf.function(tfo.nn.update_cache)):
                with self.assertRaisesRegex(ValueError, f"cache are {x.dtype.name}, expected numbers or bools"):
                    run(x, x, 0)


if __name__ == "__main__":
    tf.test.main()
