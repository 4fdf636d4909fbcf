"""Tests of linear_cross_entropy against the loss of all logits at once."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library


def _at_once(features, weight, labels, bias, **options):
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
    # With 40,000 classes of 8 bytes a chunk has 256 rows, so 600 rows take three chunks.
    @pairwise(
        sizes=[(7, 5, 11), (600, 3, 40_000)],
        graph=[False, True],
        weighted=[False, True],
        softcap=[None, 2.5],
        smoothing=[0.0, 0.1],
    )
    def test_equals_the_unchunked_loss(self, sizes, graph, weighted, softcap, smoothing):
        tensors, labels = _problem(*sizes)
        labels[3] = -1
        options = {
            **{"ignore_index": -1, "label_smoothing": smoothing, "z_loss": 0.01, "softcap": softcap},
            **{"class_weights": np.linspace(0, 2, sizes[2]) if weighted else None, "return_log_sum_exp": True},
        }
        upstream = np.random.default_rng(0).normal(size=[2, sizes[0]])

        def ours(features, weight, bias):
            return tf.stack(tfo.nn.linear_cross_entropy(features, weight, labels, bias=bias, **options))

        call = tf.function(ours, input_signature=[tf.TensorSpec([None] * t.shape.rank, t.dtype) for t in tensors])
        results, gradients = _gradients(call if graph else ours, tensors, upstream)
        expected_results, expected = _gradients(
            lambda features, weight, bias: tf.stack(_at_once(features, weight, labels, bias, **options)),
            tensors,
            upstream,
        )
        self.assertAllClose(results, expected_results, rtol=1e-12)
        for actual, gradient in zip(gradients, expected, strict=True):
            self.assertAllClose(actual, gradient, rtol=1e-9, atol=1e-12)

    def test_without_bias_in_any_rank(self):
        (features, weight, _), labels = _problem(6, 4, 9)
        loss = tfo.nn.linear_cross_entropy(tf.reshape(features, [2, 3, 4]), weight, labels.reshape(2, 3))
        self.assertAllClose(loss, tf.reshape(_at_once(features, weight, labels, 0.0), [2, 3]), rtol=1e-12)

    def test_second_order(self):
        tensors, labels = _problem(5, 3, 4)

        def second(function):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                _, gradients = _gradients(function, tensors, np.arange(1.0, 6.0))
                total = tf.add_n([tf.reduce_sum(g**2) for g in gradients])
            return tape.gradient(total, tensors)

        ours = second(lambda f, w, b: tfo.nn.linear_cross_entropy(f, w, labels, bias=b))
        for actual, expected in zip(ours, second(lambda f, w, b: _at_once(f, w, labels, b)), strict=True):
            self.assertAllClose(actual, expected, rtol=1e-9, atol=1e-12)

    @parameterized.parameters(("one row", False), ("signs", True), ("zeros", False))
    def test_upstream_gradients(self, upstream, graph):
        tensors, labels = _problem(600, 3, 40_000, tf.float32)
        d = {
            "one row": np.arange(600) == 300,  # not in the first chunk
            "signs": np.where(np.arange(600) % 2, -1.0, 3.0),
            "zeros": np.zeros(600),
        }[upstream].astype(np.float32)

        def ours(f, w, b):
            return tfo.nn.linear_cross_entropy(f, w, labels, bias=b)

        _, gradients = _gradients(tf.function(ours) if graph else ours, tensors, d)
        _, expected = _gradients(lambda f, w, b: _at_once(f, w, labels, b), tensors, d)
        for gradient, reference in zip(gradients, expected, strict=True):
            self.assertAllClose(gradient, reference, rtol=1e-4, atol=1e-6 * max(1.0, np.abs(reference).max()))
        # Rows with zero upstream have zero gradients.
        self.assertAllEqual(np.any(gradients[0].numpy() != 0, -1), d != 0)

    def test_16_bit_gradients_are_summed_in_32_bits(self):
        """Each chunk adds less than half a unit of the sum, which a 16-bit sum would lose."""
        rows = 256 * 16
        features, weight = tf.ones([rows, 1], tf.bfloat16), tf.zeros([1, 70_000])
        labels = np.zeros(rows, np.int32)
        _, gradients = _gradients(
            lambda f, w: tfo.nn.linear_cross_entropy(f, w, labels), [features, weight], np.ones(rows)
        )
        self.assertEqual([g.dtype for g in gradients], [tf.bfloat16, tf.float32])
        self.assertAllClose(gradients[1][0, 0], -rows * (1 - 1 / 70_000), rtol=2e-3)
        self.assertAllClose(gradients[1][0, 1:], np.full(69_999, rows / 70_000), rtol=1e-2)

    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_softcap_derivative_is_not_rounded(self, dtype):
        """1 - tanh^2 of logits rounded to 16 bits would have no correct digit where it is small."""
        features, weight = tf.constant([[1.0]], dtype), tf.constant([[6.0, -6.0]], dtype)
        with tf.GradientTape() as tape:
            tape.watch(weight)
            loss = tfo.nn.linear_cross_entropy(features, weight, [1], softcap=1.5)
        p = 1 / (1 + np.exp(-2 * 1.5 * np.tanh(4.0)))
        slope = 1 - np.tanh(4.0) ** 2
        self.assertAllClose(tape.gradient(loss, weight), [[p * slope, -p * slope]], rtol=1e-2, atol=0)

    def test_gradients_have_the_dtypes_of_their_inputs(self):
        (features, weight, bias), labels = _problem(6, 4, 9, tf.float32)
        half = tf.cast(features, tf.float16)
        loss, gradients = _gradients(
            lambda f, w, b: tfo.nn.linear_cross_entropy(f, w, labels, bias=b), [half, weight, bias], 1.0
        )
        self.assertEqual([g.dtype for g in gradients], [tf.float16, tf.float32, tf.float32])
        self.assertAllClose(loss, _at_once(features, weight, labels, bias), rtol=1e-2, atol=1e-2)

    @parameterized.parameters((tf.int32, False), (tf.int64, True))
    def test_one_trace_for_all_sizes(self, dtype, compiled):
        if compiled and library.xla_error:
            self.skipTest(library.xla_error)

        @tf.function(
            input_signature=[tf.TensorSpec([None, None]), tf.TensorSpec([None, None]), tf.TensorSpec([None], dtype)],
            jit_compile=compiled,
        )
        def gradients(features, weight, labels):
            with tf.GradientTape() as tape:
                tape.watch([features, weight])
                loss = tfo.nn.linear_cross_entropy(features, weight, labels)
            return loss, *tape.gradient(loss, [features, weight])

        for sizes in ((1, 1, 1), (5, 3, 7), (0, 3, 7), (600, 2, 40_000), (513, 2, 40_000)):
            (features, weight, _), labels = _problem(*sizes, tf.float32)
            loss, d_features, d_weight = gradients(features, weight, labels)
            expected_loss, expected = _gradients(
                lambda f, w, labels=labels: _at_once(f, w, labels, 0.0), [features, weight], 1.0
            )
            self.assertAllClose(loss, expected_loss, rtol=1e-5)
            self.assertAllClose(d_features, expected[0], rtol=1e-4, atol=1e-5)
            self.assertAllClose(d_weight, expected[1], rtol=1e-4, atol=1e-5)
        self.assertEqual(gradients.experimental_get_tracing_count(), 1)

    def test_ignored_rows_with_nan_features(self):
        (features, weight, _), labels = _problem(4, 3, 5)
        features = tf.tensor_scatter_nd_update(features, [[1]], [[np.nan] * 3])
        labels[1] = -1
        loss, gradients = _gradients(
            lambda f, w: tfo.nn.linear_cross_entropy(f, w, labels, ignore_index=-1), [features, weight], np.ones(4)
        )
        self.assertEqual(loss[1], 0)
        self.assertAllEqual(gradients[0][1], np.zeros(3))
        self.assertTrue(np.isfinite(gradients[0]).all())

    @parameterized.parameters(
        ((2, 3, 4), (4, 7), (3, 2)),
        ((2, 4), (8, 7), (1,)),  # the same number of elements
        ((2, 4), (2, 7), (4,)),
        ((2, 4), (3, 7), (2,)),
        ((2, 4), (4, 7), (3,)),
    )
    def test_mismatched_shapes_at_run_time(self, features, weight, labels):
        specs = [tf.TensorSpec(None), tf.TensorSpec(None), tf.TensorSpec(None, tf.int32)]
        for compiled in {False, library.xla_error is None}:
            call = tf.function(tfo.nn.linear_cross_entropy, input_signature=specs, jit_compile=compiled)
            self.assertEqual(call(tf.zeros([2, 3, 4]), tf.zeros([4, 7]), tf.zeros([2, 3], tf.int32)).shape, [2, 3])
            # XLA, which knows all shapes, may refuse a later op before it runs the check.
            text = "" if compiled else "the shape of features is .*, expected the shape of labels"
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, text):
                call(tf.zeros(features), tf.zeros(weight), tf.zeros(labels, tf.int32))


if __name__ == "__main__":
    tf.test.main()
