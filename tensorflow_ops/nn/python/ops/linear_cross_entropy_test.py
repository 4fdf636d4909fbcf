"""linear_cross_entropy against the loss of the whole logits."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo


def _whole(features, weight, labels, bias, **options):
    return tfo.nn.sparse_softmax_cross_entropy(labels, tf.matmul(features, weight) + bias, **options)


def _problem(rows, dims, classes, dtype=tf.float64):
    generator = np.random.default_rng(rows)
    tensors = [generator.normal(size=shape) for shape in ((rows, dims), (dims, classes), (classes,))]
    labels = generator.integers(0, classes, rows)
    return [tf.cast(tensor, dtype) for tensor in tensors], labels


def _gradients(function, tensors, upstream):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss = function(*tensors)
        total = tf.reduce_sum(tf.cast(upstream, loss.dtype) * loss)
    return loss, tape.gradient(total, tensors)


class LinearCrossEntropyTest(tf.test.TestCase, parameterized.TestCase):
    # 40,000 classes of 8 bytes leave 256 rows for a chunk: 600 rows are three.
    @parameterized.product(sizes=[(7, 5, 11), (600, 3, 40_000)], graph=[False, True])
    def test_equals_the_loss_of_all_logits(self, sizes, graph):
        tensors, labels = _problem(*sizes)
        labels[3] = -1
        options = {"ignore_index": -1, "label_smoothing": 0.1, "z_loss": 0.01}
        upstream = np.random.default_rng(0).normal(size=sizes[0])

        def ours(features, weight, bias):
            return tfo.nn.linear_cross_entropy(features, weight, labels, bias=bias, **options)

        call = tf.function(ours, input_signature=[tf.TensorSpec([None] * t.shape.rank, t.dtype) for t in tensors])
        loss, gradients = _gradients(call if graph else ours, tensors, upstream)
        expected_loss, expected = _gradients(
            lambda features, weight, bias: _whole(features, weight, labels, bias, **options), tensors, upstream
        )
        self.assertAllClose(loss, expected_loss, rtol=1e-12)
        for actual, gradient in zip(gradients, expected, strict=True):
            self.assertAllClose(actual, gradient, rtol=1e-9, atol=1e-12)

    @parameterized.parameters(tf.float16, tf.bfloat16, tf.float32)
    def test_dtypes(self, dtype):
        (features, weight, bias), labels = _problem(6, 4, 9, dtype)
        loss = tfo.nn.linear_cross_entropy(features, weight, labels, bias=bias)
        self.assertEqual(loss.dtype, tf.float32)
        wide = [tf.cast(t, tf.float64) for t in (features, weight, bias)]
        rounding = {tf.float16: 1e-2, tf.bfloat16: 8e-2, tf.float32: 2e-6}[dtype]
        self.assertAllClose(tf.cast(loss, tf.float64), _whole(*wide[:2], labels, wide[2]), rtol=rounding, atol=rounding)

    def test_without_bias_in_any_rank(self):
        (features, weight, _), labels = _problem(6, 4, 9)
        loss = tfo.nn.linear_cross_entropy(tf.reshape(features, [2, 3, 4]), weight, labels.reshape(2, 3))
        self.assertAllClose(loss, tf.reshape(_whole(features, weight, labels, 0.0), [2, 3]), rtol=1e-12)

    def test_second_order(self):
        tensors, labels = _problem(5, 3, 4)

        def second(function):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                _, gradients = _gradients(function, tensors, np.arange(1.0, 6.0))
                total = tf.add_n([tf.reduce_sum(g**2) for g in gradients])
            return tape.gradient(total, tensors)

        ours = second(lambda f, w, b: tfo.nn.linear_cross_entropy(f, w, labels, bias=b))
        for actual, expected in zip(ours, second(lambda f, w, b: _whole(f, w, labels, b)), strict=True):
            self.assertAllClose(actual, expected, rtol=1e-9, atol=1e-12)

    def test_no_rows(self):
        (features, weight, bias), _ = _problem(0, 4, 9)
        loss, gradients = _gradients(
            lambda f, w, b: tfo.nn.linear_cross_entropy(f, w, np.zeros(0, np.int32), bias=b),
            [features, weight, bias],
            1.0,
        )
        self.assertEqual(loss.shape, [0])
        self.assertAllEqual(gradients[1], np.zeros((4, 9)))

    @parameterized.parameters(
        ((2, 3), (4, 5), (2,), r"features are \[2,3\]"),
        ((2, 3), (3, 5), (3,), r"labels are \[3\]"),
        ((2, 3), (3,), (2,), r"weight is \[3\]"),
        ((2, 3), (3, 0), (2,), r"weight is \[3,0\]"),
    )
    def test_errors(self, features, weight, labels, message):
        with self.assertRaisesRegex(ValueError, message):
            tfo.nn.linear_cross_entropy(tf.zeros(features), tf.zeros(weight), tf.zeros(labels, tf.int32))

    def test_bad_labels(self):
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"labels\[1\] is 5"):
            tfo.nn.linear_cross_entropy(tf.zeros([2, 3]), tf.zeros([3, 5]), [0, 5])


if __name__ == "__main__":
    tf.test.main()
