"""Tests of the cross entropies and label_log_prob: masks, ignored rows, dtypes, each gradient.

cross_entropy_options_test.py tests values, nn_grad_test.py higher orders, nn_graph_test.py graphs, nn_memory_test.py
memory.
"""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo

_INF, _NAN = math.inf, math.nan
_ULP = {tf.float16: 2.0**-10, tf.float32: 2.0**-23}  # the spacing of numbers above 1


def _wide(tensor):
    return np.asarray(tf.cast(tensor, tf.float64)).astype(np.longdouble)


def _logits(shape, dtype, scale=3.0, seed=1):
    return tf.cast(np.random.default_rng(seed).normal(size=shape) * scale, dtype)


def _gradient(function, x, upstream):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x, output_gradients=tf.cast(upstream, y.dtype))


class LabelLossTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(dtype=(tf.float16, tf.float32), dense=(False, True))
    def test_masks(self, dtype, dense):
        x = tf.cast([[1, -_INF, 2, -_INF], [-_INF, 3, -_INF, -_INF], [1, -_INF, -_INF, -_INF]], dtype)
        labels = [2, 1, 3]  # the last label's class is masked

        def loss(x):
            if dense:
                return tfo.nn.softmax_cross_entropy(tf.one_hot(labels, 4), x)
            return tfo.nn.sparse_softmax_cross_entropy(labels, x)

        p = math.exp(-1) / (1 + math.exp(-1))
        self.assertAllClose(loss(x), [math.log1p(math.exp(-1)), 0, _INF], rtol=1e-6, atol=0)
        gradient = tf.cast(_gradient(loss, x, [1.0] * 3), tf.float64)
        self.assertAllClose(gradient, [[p, 0, -p, 0], [0] * 4, [1, 0, 0, -1]], rtol=2 * _ULP[dtype], atol=1e-7)

    @parameterized.parameters((3, -1), (40, 1), (40, 2**40))
    def test_ignored_rows_have_no_loss_and_no_gradient(self, classes, ignore_index):
        x = _logits([5, classes], tf.float32).numpy()
        x[1] = _NAN
        x[3] = -_INF
        labels = np.array([0, ignore_index, 2, ignore_index, 2], np.int64)

        def loss(x):
            return tfo.nn.sparse_softmax_cross_entropy(
                labels, x, ignore_index=ignore_index, label_smoothing=0.1, z_loss=0.1
            )

        d = tf.constant([1.0, _NAN, 3.0, _INF, 5.0])
        value, gradient = loss(x).numpy(), _gradient(loss, tf.constant(x), d).numpy()
        self.assertAllEqual(value[[1, 3]], [0, 0])
        self.assertAllEqual(gradient[[1, 3]].astype(np.float64), np.zeros([2, classes]))
        self.assertAllGreater(value[[0, 2, 4]], 0)
        self.assertAllGreater(np.abs(gradient[[0, 2, 4]].astype(np.float64)).max(-1), 0)

    def test_ignore_index_is_not_truncated_to_32_bits(self):
        labels = np.array([0, 1], np.int32)
        options = {"ignore_index": 2**32}  # 0 if truncated to 32 bits
        self.assertAllGreater(tfo.nn.sparse_softmax_cross_entropy(labels, tf.zeros([2, 3]), **options), 1)

    @parameterized.parameters(np.int8, np.uint8, np.int16, np.uint16, np.uint32)
    def test_labels_of_other_integer_dtypes_are_cast(self, dtype):
        labels = np.array([0, 100, 127], dtype)
        expected = tfo.nn.label_log_prob(labels.astype(np.int32), _logits([3, 130], tf.float32))
        self.assertAllEqual(tfo.nn.label_log_prob(labels, _logits([3, 130], tf.float32)), expected)

    def test_options_keep_64_bits(self):
        x = np.array([[1.0, 2.0, 4.0]])
        lse = 4 + np.log1p(np.exp(-3) + np.exp(-2))
        e, z = 0.1, 1 / 3
        expected = (1 - e) * (lse - 2) + e * (lse - 7 / 3) + z * lse**2
        loss = tfo.nn.sparse_softmax_cross_entropy([1], x, label_smoothing=e, z_loss=z)
        self.assertAllClose(loss, [expected], rtol=1e-15, atol=0)
        for tiny in (1e-300, 2.0**-150, 5e-324):
            self.assertAllClose(tfo.nn.sparse_softmax_cross_entropy([1], x, z_loss=tiny), [lse - 2], rtol=1e-15)


class DenseTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(False, True)
    def test_gradient_to_labels_of_masked_classes(self, graph):
        x = tf.constant([[0.0, -_INF, 0.0], [0.0, -_INF, 0.0], [-_INF] * 3])
        labels = tf.constant([[1.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, 0.0, 0.0]])

        def gradients(labels, x):
            with tf.GradientTape() as tape:
                tape.watch([labels, x])
                loss = tfo.nn.softmax_cross_entropy(labels, x)
            return loss, *tape.gradient(loss, [labels, x])

        loss, d_labels, d_logits = (tf.function(gradients) if graph else gradients)(labels, x)
        log = math.log(2)
        self.assertAllClose(loss, [log, _INF, 0])
        self.assertAllClose(d_labels, [[log, 0, log], [log, _INF, log], [0, 0, 0]])
        self.assertAllClose(d_logits, [[-0.5, 0, 0.5], [-0.25, -0.5, 0.75], [0, 0, 0]])

    @pairwise(graph=(False, True), to_labels=(False, True), traced=(False, True))
    def test_each_gradient_alone(self, graph, to_labels, traced):
        """Eager tapes, tapes in a graph and tapes around a tf.function take different paths."""
        labels, x = (tf.constant(np.random.default_rng(i).random([3, 5])) for i in (1, 2))
        loss = tf.function(tfo.nn.softmax_cross_entropy) if traced else tfo.nn.softmax_cross_entropy

        def gradient(labels, x):
            with tf.GradientTape() as tape:
                tape.watch(labels if to_labels else x)
                y = loss(labels, x)
            return tape.gradient(y, labels if to_labels else x)

        result = (tf.function(gradient) if graph else gradient)(labels, x)
        nats, total = -tf.math.log_softmax(x), tf.reduce_sum(labels, -1, keepdims=True)
        expected = nats if to_labels else total * tf.exp(-nats) - labels
        self.assertAllClose(result, expected, rtol=1e-12, atol=1e-14)

    @parameterized.parameters((tf.float32, 3, 0.0), (tf.bfloat16, 300, 0.1))
    def test_nan_labels_stay_in_their_row(self, dtype, classes, smoothing):
        x, labels = _logits([5, classes], dtype), tf.nn.softmax(_logits([5, classes], dtype, seed=2))

        def results(labels):
            with tf.GradientTape() as tape:
                tape.watch([x, labels])
                loss = tfo.nn.softmax_cross_entropy(labels, x, label_smoothing=smoothing)
            return [loss, *tape.gradient(loss, [x, labels])]

        expected_loss, expected_gradient, expected_to_labels = (_wide(t) for t in results(labels))
        for at in (0, classes // 2, classes - 1):
            bad = labels.numpy()
            bad[2, at] = _NAN
            loss, gradient, to_labels = (_wide(t) for t in results(tf.constant(bad)))
            self.assertTrue(np.isnan(loss[2]) and np.isnan(gradient[2]).all())
            np.testing.assert_array_equal(np.delete(loss, 2), np.delete(expected_loss, 2))
            np.testing.assert_array_equal(np.delete(gradient, 2, 0), np.delete(expected_gradient, 2, 0))
            np.testing.assert_array_equal(to_labels, expected_to_labels)

    @parameterized.parameters(tf.float32, tf.float64)
    def test_labels_need_not_sum_to_one(self, dtype):
        x, labels = _logits([4, 3], dtype), tf.exp(_logits([4, 3], dtype, seed=2))
        ours = _gradient(lambda x: tfo.nn.softmax_cross_entropy(labels, x), x, [1.0] * 4)
        theirs = _gradient(lambda x: tf.nn.softmax_cross_entropy_with_logits(labels, x), x, [1.0] * 4)
        p, total = tf.nn.softmax(x), tf.reduce_sum(labels, -1, keepdims=True)
        self.assertAllClose(ours, p * total - labels, rtol=1e-5)
        self.assertAllClose(theirs, p - labels, rtol=1e-5)

    def test_labels_are_cast(self):
        x = _logits([4, 3], tf.float16)
        expected = tfo.nn.softmax_cross_entropy(tf.one_hot([0, 1, 2, 0], 3, dtype=tf.float16), x)
        for dtype in (tf.float32, tf.float64, tf.int32, tf.bool):
            self.assertAllEqual(tfo.nn.softmax_cross_entropy(tf.cast(tf.one_hot([0, 1, 2, 0], 3), dtype), x), expected)

    @parameterized.parameters(0, -2)
    def test_any_axis(self, axis):
        labels, x = (_logits([3, 4, 5], tf.float64, seed=i).numpy() for i in (1, 2))
        expected = tfo.nn.softmax_cross_entropy(np.moveaxis(labels, axis, -1), np.moveaxis(x, axis, -1))
        self.assertAllEqual(tfo.nn.softmax_cross_entropy(labels, x, axis=axis), expected)
        any_rank = tf.function(
            lambda labels, x: tfo.nn.softmax_cross_entropy(labels, x, axis=axis),
            input_signature=[tf.TensorSpec(None, tf.float64)] * 2,
        )
        self.assertAllEqual(any_rank(labels, x), expected)


if __name__ == "__main__":
    tf.test.main()
