"""Tests of zero_out and zero_out_with_index: values, errors, gradients. opcheck tests the rest."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python.library import ops

_DTYPES = (
    tf.float16,
    tf.bfloat16,
    tf.float32,
    tf.float64,
    tf.int8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.uint8,
    tf.uint16,
    tf.uint32,
    tf.uint64,
    tf.complex64,
    tf.complex128,
    tf.qint8,
    tf.quint8,
    tf.qint16,
    tf.quint16,
    tf.qint32,
)
_DIFFERENTIABLE = (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128)
_SHAPES = ((), (1,), (5,), (2, 3), (2, 3, 4), (3, 1, 2, 2), (2, 2, 1, 2, 3), (2, 1, 3, 1, 2, 2))
_EMPTY_SHAPES = ((0,), (0, 3), (2, 0, 4), (1, 2, 3, 4, 5, 0))


def _random_bytes(shape, dtype):
    """Returns non-zero bytes [*shape, size of dtype], NaNs included."""
    return np.random.default_rng(1).integers(1, 256, [*shape, dtype.size]).astype(np.uint8)


def _from_bytes(array, dtype):
    return tf.bitcast(array[..., 0] if dtype.size == 1 else array, dtype)


def _to_bytes(tensor):
    array = tf.bitcast(tensor, tf.uint8).numpy()
    return array[..., np.newaxis] if tensor.dtype.size == 1 else array


def _reference(array, keep, item_dims=0):
    """Returns a copy with all but one item set to zero. An item has the array's last `item_dims` dims."""
    result = np.zeros_like(array)
    shape = array.shape[: array.ndim - item_dims]
    if math.prod(shape):
        at = np.unravel_index(keep, shape)
        result[at] = array[at]
    return result


def _zeroed_with_index(keep):
    return lambda x: tfo.zero_out_with_index(x, preserve_index=keep).zeroed


# (name, function, index of the kept element)
_FUNCTIONS = (
    ("zero_out", tfo.zero_out, 0),
    ("with_index_0", _zeroed_with_index(0), 0),
    ("with_index_3", _zeroed_with_index(3), 3),
)


class ForwardTest(parameterized.TestCase, tf.test.TestCase):
    def test_accepts_every_number_type(self):
        for op in (tfo.zero_out, lambda x: tfo.zero_out_with_index(x).zeroed):
            with tf.Graph().as_default():
                attrs = op(1.0).op.op_def.attr
            (allowed,) = (attr.allowed_values.list.type for attr in attrs if attr.name == "T")
            self.assertCountEqual(map(tf.as_dtype, allowed), _DTYPES)

    @parameterized.parameters(*_DTYPES)
    def test_keeps_the_first_element_bit_by_bit(self, dtype):
        for shape in _SHAPES + _EMPTY_SHAPES:
            array = _random_bytes(shape, dtype)
            x = _from_bytes(array, dtype)
            zeroed = tfo.zero_out(x)
            self.assertEqual(zeroed.dtype, dtype)
            self.assertAllEqual(_to_bytes(zeroed), _reference(array, 0, item_dims=1))
            self.assertAllEqual(_to_bytes(x), array)  # the input is unchanged

    @parameterized.parameters(*_DTYPES)
    def test_keeps_any_element_bit_by_bit(self, dtype):
        for shape in _SHAPES:
            array = _random_bytes(shape, dtype)
            size = math.prod(shape)
            for keep in {0, size // 2, size - 1}:
                x = _from_bytes(array, dtype)
                zeroed, index = tfo.zero_out_with_index(x, preserve_index=keep)
                self.assertEqual(zeroed.dtype, dtype)
                self.assertAllEqual(_to_bytes(zeroed), _reference(array, keep, item_dims=1))
                self.assertEqual(index.dtype, tf.int32)
                self.assertAllEqual(index, [keep])
                self.assertAllEqual(_to_bytes(x), array)

    def test_tf_guide_example(self):
        self.assertAllEqual(tfo.zero_out([[6, 5, 4], [3, 2, 1]]), [[6, 0, 0], [0, 0, 0]])

    def test_result_has_names(self):
        result = tfo.zero_out_with_index([4.0, 5.0], preserve_index=1)
        self.assertEqual(result._fields, ("zeroed", "index"))
        self.assertAllEqual(result.zeroed, [0.0, 5.0])
        self.assertAllEqual(result.index, [1])

    def test_ops_have_the_given_name(self):
        with tf.Graph().as_default():
            self.assertEqual(tfo.zero_out(1.0, name="first").op.name, "first")
            self.assertEqual(tfo.zero_out(1.0, "second").op.name, "second")
            self.assertEqual(tfo.zero_out_with_index(1.0, name="third").zeroed.op.name, "third")


class BadInputTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        ((4,), 4, r"preserve_index is 4, expected \[0, 4\): x has 4 elements"),
        ((2, 2), -1, r"preserve_index is -1, expected \[0, 4\)"),
        ((4,), 2**62, rf"preserve_index is {2**62}, expected \[0, 4\)"),
        ((), 1, r"preserve_index is 1, expected \[0, 1\)"),
        ((0, 3), 0, r"preserve_index is 0, expected \[0, 0\): x has 0 elements"),
    )
    def test_index_out_of_range(self, shape, keep, message):
        x = tf.ones(shape)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            tfo.zero_out_with_index(x, preserve_index=keep)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            tf.function(lambda y: tfo.zero_out_with_index(y, preserve_index=keep))(x)

    def test_strings_and_booleans_raise(self):
        for x in (tf.constant(["a"]), tf.constant([True])):
            for op in (tfo.zero_out, tfo.zero_out_with_index):
                with self.assertRaisesRegex(ValueError, "x are (string|bool), expected numbers"):
                    op(x)
                with self.assertRaisesRegex((TypeError, ValueError), "string|bool"):
                    tf.function(op)(x)


class GradientTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(function=_FUNCTIONS, dtype=_DIFFERENTIABLE)
    def test_gradient_is_upstream_at_the_kept_element(self, function, dtype):
        _, function, keep = function
        rng = np.random.default_rng(5)
        x, upstream = (tf.cast(rng.integers(1, 99, [2, 3]), dtype) for _ in range(2))

        def gradient(x, upstream):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return tape.gradient(y, x, output_gradients=upstream)

        result = gradient(x, upstream)
        self.assertEqual(result.dtype, dtype)
        self.assertAllEqual(result, _reference(upstream.numpy(), keep))

    @parameterized.named_parameters(*_FUNCTIONS)
    def test_numeric_gradient(self, function, keep):
        del keep
        x = tf.constant(np.random.default_rng(7).normal(size=[2, 3]))
        theoretical, numeric = tf.test.compute_gradient(function, [x])
        self.assertAllClose(theoretical[0], numeric[0], atol=1e-10)
        self.assertEqual(np.count_nonzero(theoretical[0]), 1)

    @parameterized.named_parameters(*_FUNCTIONS)
    def test_integers_have_no_gradient(self, function, keep):
        del keep
        x = tf.constant([1, 2, 3, 4])
        for gradient in (_gradient_or_none, tf.function(_gradient_or_none)):
            self.assertIsNone(gradient(function, x))


def _gradient_or_none(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x)


class CcGradientTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(tf.float16, tf.float32, tf.float64, tf.complex64)
    def test_symbolic_gradient_runs_the_gradient_that_cc_registered(self, dtype):
        @tf.function(input_signature=[tf.TensorSpec(None, dtype)])
        def forward(x):
            return tuple(ops.tensorflow_ops_zero_out_with_index(x=x, preserve_index=2))

        concrete = forward.get_concrete_function()

        @tf.function
        def gradient(x, d_zeroed, d_index):
            (dx,) = tf.raw_ops.SymbolicGradient(input=[x, d_zeroed, d_index], Tout=[dtype], f=concrete)
            return dx

        x = tf.cast([[1, 2], [3, 4]], dtype)
        upstream = tf.cast([[5, 6], [7, 8]], dtype)
        self.assertAllEqual(gradient(x, upstream, tf.constant([0])), [[0, 0], [7, 0]])
        # `index` is an integer, so its upstream gradient is ignored.
        self.assertAllEqual(gradient(x, upstream, tf.constant([9])), [[0, 0], [7, 0]])

    def test_python_uses_the_cc_gradient(self):
        @tf.function
        def gradient(x):
            return _gradient_or_none(_zeroed_with_index(1), x)

        graph = gradient.get_concrete_function(tf.TensorSpec([3], tf.float32)).graph
        library = graph.as_graph_def().library.function
        ops_used = {node.op for function in library for node in function.node_def}
        self.assertIn("SymbolicGradient", ops_used)


if __name__ == "__main__":
    tf.test.main()
