"""Tests of XLA: tf.function(jit_compile=True). opcheck's `xla` tests values of every public op."""

import unittest

import ml_dtypes
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_RNG = np.random.default_rng(0)
_CORNERS = _RNG.uniform(0, 30, [40, 2])
_BOXES = np.concatenate([_CORNERS, _CORNERS + _RNG.uniform(1, 25, [40, 2])], 1)
_INDICES = _RNG.integers(0, 2, 40, np.int32)
_LABELS = _RNG.integers(0, 500, 64, np.int32)


def setUpModule():
    if library.xla_error:
        raise unittest.SkipTest(library.xla_error)


def _features(*shape):
    return _RNG.normal(size=shape)


def _logits(*shape):
    return 3 * _RNG.normal(size=shape)


# Functions of differentiable tensors, with inputs that keep several threads busy.
_OPS = {
    "roi_align": (
        lambda f, b: tfo.detection.roi_align(f, b, _INDICES, 7, sampling_ratio=2),
        [_features(2, 24, 30, 32), _BOXES],
    ),
    "sparse_softmax_cross_entropy": (
        lambda x: tfo.nn.sparse_softmax_cross_entropy(_LABELS, x, label_smoothing=0.1, z_loss=0.01, ignore_index=3),
        [_logits(64, 500)],
    ),
}


def _has_boxes(name):
    """Returns whether an op has gradients to boxes, which have no gradient."""
    return any(array is _BOXES for array in _OPS[name][1])


def _weights(tensor):
    return tf.constant(np.cos(np.arange(tensor.shape.num_elements())).reshape(tensor.shape), tensor.dtype)


def _derivatives(function, order):
    """Returns a function that computes the output, its gradients, and for order 2 those gradients' gradients."""

    def compute(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            if order == 1:
                results, values = [], [function(*tensors)]
            else:
                results = _derivatives(function, 1)(*tensors)
                results, values = results[:1], results[1:]
        weights = [_weights(value) for value in values]
        gradients = tape.gradient(values, tensors, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [*results, *values, *gradients]

    return compute


def _compiled(function):
    return tf.function(function, jit_compile=True, autograph=False)


class ValuesTest(parameterized.TestCase, tf.test.TestCase):
    def _check(self, name, dtype, order):
        function, arrays = _OPS[name]
        tensors = [tf.constant(a, tf.float32 if a is _BOXES and dtype != "float64" else dtype) for a in arrays]
        expected, found = _derivatives(function, order)(*tensors), _compiled(_derivatives(function, order))(*tensors)
        for i, (x, y) in enumerate(zip(expected, found, strict=True)):
            self.assertEqual((x.dtype, x.shape), (y.dtype, y.shape))
            if i <= len(tensors):  # the output and its gradients
                self.assertEqual(x.numpy().tobytes(), y.numpy().tobytes(), f"result {i}")
            else:  # TensorFlow's own ops add up to a hundred terms, and XLA in another order
                x, y = tf.cast(x, tf.float64), tf.cast(y, tf.float64)
                epsilon = ml_dtypes.finfo(dtype).eps
                self.assertAllClose(x, y, rtol=0, atol=64 * float(epsilon) * float(tf.reduce_max(tf.abs(x))))

    @parameterized.parameters(*_OPS)
    def test_gradients_have_the_same_bits(self, name):
        self._check(name, "float32", order=1 if _has_boxes(name) else 2)

    @parameterized.product(name=("roi_align", "sparse_softmax_cross_entropy"), dtype=("bfloat16", "float64"))
    def test_other_dtypes_have_the_same_bits(self, name, dtype):
        self._check(name, dtype, order=1)

    def test_results_without_elements(self):
        pool = _compiled(lambda f, b, i: tfo.detection.roi_pool(f, b, i, 2))
        self.assertEqual(pool(tf.zeros([1, 4, 4, 3]), tf.zeros([0, 4]), tf.zeros([0], tf.int32)).shape, [0, 2, 2, 3])

    def test_shapes_compile_again(self):
        function = tf.function(tfo.nn.softmax, jit_compile=True, input_signature=[tf.TensorSpec([None, 7])])
        for batch in (3, 0, 5, 3):
            x = tf.constant(_logits(batch, 7), tf.float32)
            self.assertAllEqual(function(x), tfo.nn.softmax(x))

    def test_inside_a_loop_and_a_branch(self):
        def run(x, left_out):
            def body(i, x):
                return i + 1, tf.cond(i == left_out, lambda: x, lambda: tfo.nn.log_prob_from_logits(x + 1))

            return tf.while_loop(lambda i, x: i < 4, body, [0, x])[1]

        x, left_out = tf.constant(_logits(5, 7), tf.float32), tf.constant(2)
        self.assertAllClose(_compiled(run)(x, left_out), run(x, left_out), rtol=1e-6)

    def test_program_contains_one_call_for_equal_ops(self):
        def twice(x):
            return tfo.nn.softmax(x) + tfo.nn.softmax(x)

        x = tf.constant(_logits(5, 7), tf.float32)
        program = _compiled(twice).experimental_get_compiler_ir(x)
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
