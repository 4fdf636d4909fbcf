"""Tests of caches by tfo.layers.use_fused_ops."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)


def _normal(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


class SliceUpdateTest(tf.test.TestCase, parameterized.TestCase):
    def _is_keras(self, calls, original=0, free=0):
        expected = [keras.ops.slice_update(*args) for args in calls]
        with tfo.layers.use_fused_ops(["slice_update"]):
            actual = [keras.ops.slice_update(*args) for args in calls]
            counts = tfo.layers.fused_ops()["slice_update"]
            self.assertEqual((counts["fused"], counts["original"]), (len(calls) - original - free, original))
        for one, other in zip(actual, expected, strict=True):
            self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
            self.assertAllEqual(one, other)

    def test_is_keras_function(self):
        cache = _normal(3, 5, 4, 2)
        at = tf.constant(2)
        self._is_keras(
            [
                (cache, [0, at, 0, 0], _normal(3, 2, 4, 2)),
                (cache, (0, 0, tf.constant(1, tf.int64), tf.constant(0, tf.int64)), _normal(3, 5, 1, 2)),
                (cache, [at, 0, 0, 0], _normal(1, 5, 4, 2)),
                (cache, [0, 0, 0, 1], _normal(3, 5, 4, 1)),
                (cache, [0, tf.constant(9), 0, 0], _normal(3, 2, 4, 2)),
                (cache, [0, -7, 0, 0], _normal(3, 2, 4, 2)),
                (cache, [0, at, 0, 0], _normal(3, 0, 4, 2)),
                (np.arange(12).reshape(2, 6), [0, at], np.full([2, 3], 7)),
                (np.ones(6, bool), [at], np.zeros(3, bool)),
            ]
        )

    def test_falls_back_to_keras(self):
        cache = _normal(3, 5, 4)
        calls = [
            (cache, [0, 1, 1], _normal(3, 2, 2)),
            (cache, tf.constant([0, 1, 0]), _normal(3, 2, 4)),
            (cache, [tf.constant(1), tf.constant(2), 0], _normal(2, 1, 4)),
            (cache, [0, 0, 0], _normal(3, 5, 4)),
        ]
        self._is_keras(calls, original=3, free=1)

    def test_in_a_graph_with_a_gradient(self):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 5, 2, 3]),
                tf.TensorSpec([None, 1, 2, 3]),
                tf.TensorSpec([], tf.int32),
            ]
        )
        def gradients(cache, rows, at):
            with tf.GradientTape() as tape:
                tape.watch([cache, rows])
                y = keras.ops.slice_update(cache, [0, at, 0, 0], rows)
            self.assertEqual(y.shape.as_list(), [None, 5, 2, 3])
            return y, tape.gradient(y, [cache, rows])

        cache, rows = _normal(2, 5, 2, 3), _normal(2, 1, 2, 3)
        with tfo.layers.use_fused_ops():
            y, (d_cache, d_rows) = gradients(cache, rows, 3)
        expected = cache.copy()
        expected[:, 3:4] = rows
        self.assertAllEqual(y, expected)
        self.assertAllEqual(d_rows, np.ones_like(rows))
        self.assertAllEqual(d_cache, np.repeat([1, 1, 1, 0, 1], 6).reshape(1, 5, 2, 3) * np.ones_like(cache))

    @parameterized.parameters(None, True)
    def test_batches_of_unknown_sizes(self, jit_compile):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 5, 3]),
                tf.TensorSpec([None, 2, 3]),
                tf.TensorSpec([None, 5, 1]),
                tf.TensorSpec([], tf.int32),
            ],
            jit_compile=jit_compile,
        )
        def updated(cache, rows, columns, at):
            with tf.GradientTape() as tape:
                tape.watch([cache, rows])
                y = keras.ops.slice_update(cache, [0, at, 0], rows)
                y = keras.ops.slice_update(y, [0, 0, 2], columns)
                loss = tf.reduce_sum(y * y)
            return y, *tape.gradient(loss, [cache, rows])

        cache = _normal(4, 5, 3)
        with tfo.layers.use_fused_ops(["slice_update"]):
            for examples, columns in ((4, 4), (2, 4), (4, 1), (0, 0)):
                rows, columns = _normal(examples, 2, 3), _normal(columns, 5, 1)
                for at, place in ((1, 1), (9, 3), (-2, 0)):
                    y, d_cache, d_rows = updated(cache, rows, columns, at)
                    expected = cache.copy()
                    expected[:examples, place : place + 2] = rows
                    expected[: len(columns), :, 2:] = columns
                    self.assertAllEqual(y, expected)
                    is_kept = np.ones_like(cache)
                    is_kept[:examples, place : place + 2] = 0
                    is_kept[: len(columns), :, 2:] = 0
                    self.assertAllClose(d_cache, 2 * cache * is_kept)
                    is_kept = np.ones_like(rows)
                    is_kept[: len(columns), :, 2:] = 0
                    self.assertAllClose(d_rows, 2 * rows * is_kept)
            self.assertEqual(tfo.layers.fused_ops(), {"slice_update": {"fused": 2, "original": 0}})

    @parameterized.parameters(None, True)
    def test_in_a_loop_of_batches_of_unknown_sizes(self, jit_compile):
        @tf.function(input_signature=[tf.TensorSpec([None, 5]), tf.TensorSpec([None, 1])], jit_compile=jit_compile)
        def filled(cache, rows):
            step = lambda i, cache: (i + 1, keras.ops.slice_update(cache, [0, i], rows))  # noqa: E731
            return tf.while_loop(lambda i, _: i < 4, step, [1, cache])[1]

        with tfo.layers.use_fused_ops(["slice_update"]):
            for examples in (2, 1):
                expected = np.zeros([2, 5])
                expected[:examples, 1:4] = 1
                self.assertAllEqual(filled(tf.zeros([2, 5]), tf.ones([examples, 1])), expected)


if __name__ == "__main__":
    tf.test.main()
