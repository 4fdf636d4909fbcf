"""Tests of XLA: tf.function(jit_compile=True). opcheck's `xla` tests values of every public op."""

import unittest

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_LOGITS = tf.constant(3 * np.random.default_rng(0).normal(size=[5, 7]), tf.float32)


def setUpModule():
    if library.xla_error:
        raise unittest.SkipTest(library.xla_error)


def _compiled(function):
    return tf.function(function, jit_compile=True, autograph=False)


class CallsTest(tf.test.TestCase):
    def _assert_same_bits(self, expected, found):
        for x, y in zip(expected, found, strict=True):
            self.assertEqual((x.dtype, x.shape, x.numpy().tobytes()), (y.dtype, y.shape, y.numpy().tobytes()))

    def test_same_bits_for_any_number_of_rows(self):
        """Rows that keep several threads busy, and none."""

        def losses_and_gradient(x):
            labels = tf.range(tf.shape(x)[0])
            with tf.GradientTape() as tape:
                tape.watch(x)
                losses = tfo.nn.sparse_softmax_cross_entropy(labels, x, label_smoothing=0.1, ignore_index=3)
            return losses, tape.gradient(losses, x)

        compiled = tf.function(losses_and_gradient, jit_compile=True, input_signature=[tf.TensorSpec([None, 500])])
        x = tf.random.stateless_normal([64, 500], [1, 2])
        for rows in (64, 0, 5, 64):
            self._assert_same_bits(losses_and_gradient(x[:rows]), compiled(x[:rows]))

    def test_same_bits_in_16_bits(self):
        def pooled_and_gradients(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                pooled = tfo.detection.roi_align(*tensors, tf.range(40) % 2, 7, sampling_ratio=2)
            return pooled, *tape.gradient(pooled, tensors, pooled)

        features = tf.cast(tf.random.stateless_normal([2, 24, 30, 32], [1, 2]), tf.bfloat16)
        corners = tf.random.stateless_uniform([40, 2], [3, 4], 0, 30)
        tensors = features, tf.concat([corners, corners + tf.random.stateless_uniform([40, 2], [5, 6], 1, 25)], 1)
        self._assert_same_bits(pooled_and_gradients(*tensors), _compiled(pooled_and_gradients)(*tensors))

    def test_gradient_of_a_gradient(self):
        def gradients(x):
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = tfo.nn.softmax(x)
                gradient = tape.gradient(y, x, x)
            return gradient, outer.gradient(gradient, x, x)

        x = 3 * tf.random.stateless_normal([64, 500], [1, 2])
        expected, found = gradients(x), _compiled(gradients)(x)
        self._assert_same_bits(expected[:1], found[:1])
        # TensorFlow's own ops sum rows, and XLA in another order.
        self.assertAllClose(expected[1], found[1], rtol=0, atol=1e-4 * float(tf.reduce_max(tf.abs(expected[1]))))

    def test_inside_a_loop_and_a_branch(self):
        def run(x, left_out):
            def body(i, x):
                return i + 1, tf.cond(i == left_out, lambda: x, lambda: tfo.nn.log_prob_from_logits(x + 1))

            return tf.while_loop(lambda i, x: i < 4, body, [0, x])[1]

        left_out = tf.constant(2)
        self.assertAllClose(_compiled(run)(_LOGITS, left_out), run(_LOGITS, left_out), rtol=1e-6)

    def test_program_contains_one_call_for_equal_ops(self):
        def twice(x):
            return tfo.nn.softmax(x) + tfo.nn.softmax(x)

        program = _compiled(twice).experimental_get_compiler_ir(_LOGITS)
        self.assertRegex(
            program("hlo"), r'custom_call_target="tensorflow_ops.kernel".*op = "?\\?"TensorflowOps>Softmax'
        )
        self.assertEqual(program("optimized_hlo").count("custom-call("), 1)


class ErrorTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        (lambda i: tfo.nn.sparse_softmax_cross_entropy(i, np.zeros([3, 5], "f")), [1, 7, 4]),
        (lambda i: tfo.detection.roi_pool(np.zeros([2, 4, 4, 1], "f"), np.zeros([3, 4], "f"), i, 2), [0, 1, 2]),
    )
    def test_bad_values_raise_the_same_error(self, function, bad):
        compiled, good = _compiled(function), tf.constant([1, 0, 1])
        with self.assertRaises(tf.errors.InvalidArgumentError) as expected:
            function(tf.constant(bad))
        for _ in range(3):
            self.assertAllEqual(compiled(good), function(good))
            with self.assertRaises(tf.errors.InvalidArgumentError) as found:
                compiled(tf.constant(bad))
            # Without the eager error's prefix "{{function_node ...}}" and suffix "[Op:...]".
            text = expected.exception.message.rpartition("}} ")[2].partition(" [Op:")[0]
            self.assertIn(text, found.exception.message)

    def test_results_without_elements_are_checked(self):
        pool = _compiled(lambda i: tfo.detection.roi_pool(np.zeros([1, 4, 4, 0], "f"), np.zeros([1, 4], "f"), i, 2))
        self.assertEqual(pool(tf.constant([0])).shape, [1, 2, 2, 0])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"box_indices\[0\] is 7"):
            pool(tf.constant([7]))

    def test_values_that_decide_shapes_are_arguments_or_constants(self):
        features, boxes, indices = tf.ones([1, 4, 4, 3]), tf.zeros([2, 4]), tf.zeros([2], tf.int32)

        @_compiled
        def pool(size):
            return tfo.detection.roi_pool(features, boxes, indices, size)

        self.assertEqual(pool(tf.constant([2, 3])).shape, [2, 2, 3, 3])
        self.assertEqual(pool(tf.constant([1, 1])).shape, [2, 1, 1, 3])

        @_compiled
        def pool_by_values(x):
            return tfo.detection.roi_pool(features, boxes, indices, tf.cast(tf.random.uniform([2]) + x, tf.int32))

        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError,
            "output_size must be known when XLA compiles TensorflowOps>RoiPool, because it decides the shape",
        ):
            pool_by_values(tf.constant(2.0))

    def test_checked_values_that_decide_shapes_are_named(self):
        images, state, ids = tf.ones([2, 8, 8, 3]), tf.zeros([2, 1]), {"bos_id": 0, "eos_ids": [1]}
        step = lambda tokens, state: (tf.one_hot(tokens, 5), state)  # noqa: E731
        sizes = {"batch_size": 2, "max_length": 4}
        searches = (
            (tfo.seq2seq.beam_search, {"beam_width": 2}),
            (tfo.seq2seq.stochastic_beam_search, {"beam_width": 2, "seed": [1, 2]}),
            (tfo.seq2seq.sample, {"seed": [1, 2]}),
        )
        calls = [("sigma", 2.0, lambda sigma: tfo.image.elastic_transform(images, seed=[1, 2], sigma=sigma))]
        for name, options in (("batch_size", {"max_length": 2}), ("max_length", {"batch_size": 2})):

            def create(size, options=options, name=name):
                return tfo.seq2seq.KeyValueCache.create(num_heads=1, depth=1, **options, **{name: size}).keys

            calls.append((name, 3, create))
        for search, options in searches:
            for name in ("batch_size", "max_length"):

                def call(size, search=search, options=options, name=name):
                    return search(step, state, **ids, **options, **{**sizes, name: size})[0]

                calls.append((name, sizes[name], call))
        for name, value, call in calls:
            # From an argument, XLA knows it.
            self.assertEqual(_compiled(call)(tf.constant(value)).shape, call(value).shape)
            expected = f"{name} must be known when XLA compiles, because it decides a shape: expected a constant"
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, expected):
                _compiled(lambda x, call=call: call(x + tf.cast(tf.random.uniform([]), x.dtype)))(tf.constant(value))

    def test_sizes_of_values_are_refused_by_name(self):
        @_compiled
        def pool_some(features, boxes):
            some = tf.boolean_mask(boxes, boxes[:, 2] > 1)
            return tfo.detection.roi_pool(features, some, tf.zeros_like(some[:, 0], tf.int32), 2)

        with self.assertRaisesRegex(
            tf.errors.UnimplementedError, r"boxes has shape f32\[<=3,4\].*TensorflowOps>RoiPool needs all sizes"
        ):
            pool_some(tf.ones([1, 4, 4, 3]), tf.constant([[0.0, 0, 1, 1], [0, 0, 2, 2], [0, 0, 3, 3]]))

    def test_values_that_decide_no_shape_may_be_computed(self):
        @_compiled
        def trace(tokens, parents, lengths, pad):
            return tfo.seq2seq.gather_tree(tokens, parents, lengths, pad_id=tf.reduce_max(tokens) + pad)

        tokens, parents, lengths = tf.constant([[[1, 2]], [[3, 4]]]), tf.constant([[[0, 0]], [[1, 0]]]), [[2, 1]]
        self.assertAllEqual(trace(tokens, parents, lengths, 5), [[[2, 2]], [[3, 9]]])


if __name__ == "__main__":
    tf.test.main()
