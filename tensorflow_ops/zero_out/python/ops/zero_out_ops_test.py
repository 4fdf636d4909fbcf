"""Tests of zero_out and zero_out_with_index."""

import math
import os

import numpy as np
import process_testing
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

    def test_large_input_gives_the_same_bits_in_every_run(self):
        x = np.random.default_rng(2).normal(size=[1000, 1003]).astype(np.float32)
        keep = 777_777
        expected = _reference(x, keep).tobytes()
        for _ in range(5):
            self.assertEqual(tfo.zero_out_with_index(x, preserve_index=keep).zeroed.numpy().tobytes(), expected)
            self.assertEqual(tfo.zero_out(x).numpy().tobytes(), _reference(x, 0).tobytes())

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

    def test_one_trace_serves_every_rank_and_size(self):
        @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])
        def both(x):
            return tfo.zero_out(x), *tfo.zero_out_with_index(x, preserve_index=0)

        for shape in _SHAPES:
            x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
            first, zeroed, index = both(x)
            self.assertAllEqual(first, _reference(x, 0))
            self.assertAllEqual(zeroed, _reference(x, 0))
            self.assertAllEqual(index, [0])
        self.assertEqual(both.experimental_get_tracing_count(), 1)

    @parameterized.parameters((None,), ([],), ([None],), ([3],), ([None, 3],), ([2, None, 0, None],))
    def test_static_shape_is_the_inputs(self, shape):
        @tf.function(input_signature=[tf.TensorSpec(shape, tf.int32)])
        def both(x):
            return tfo.zero_out(x), *tfo.zero_out_with_index(x)

        first, zeroed, index = both.get_concrete_function().structured_outputs
        self.assertEqual(_as_list(first.shape), shape)
        self.assertEqual(_as_list(zeroed.shape), shape)
        self.assertEqual(index.shape.as_list(), [1])

    def test_runs_in_a_while_loop(self):
        x = tf.constant([3.0, 4.0, 5.0])
        total = tf.function(
            lambda: tf.while_loop(lambda i, _: i < 4, lambda i, total: (i + 1, total + tfo.zero_out(x)), [0, 0 * x])[1]
        )()
        self.assertAllEqual(total, [12.0, 0.0, 0.0])

    @parameterized.named_parameters(*_FUNCTIONS)
    def test_vectorized_map_equals_a_loop(self, function, keep):
        x = np.random.default_rng(4).normal(size=[5, 2, 4]).astype(np.float32)
        mapped = tf.vectorized_map(function, tf.constant(x))
        self.assertAllEqual(mapped, np.stack([_reference(row, keep) for row in x]))


def _as_list(shape):
    return None if shape.rank is None else shape.as_list()


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
                with self.assertRaisesRegex((TypeError, tf.errors.InvalidArgumentError), "string|bool"):
                    op(x)
                with self.assertRaisesRegex((TypeError, ValueError), "string|bool"):
                    tf.function(op)(x)


class GradientTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(function=_FUNCTIONS, graph=(False, True), dtype=_DIFFERENTIABLE)
    def test_gradient_is_upstream_at_the_kept_element(self, function, graph, dtype):
        _, function, keep = function
        rng = np.random.default_rng(5)
        x, upstream = (tf.cast(rng.integers(1, 99, [2, 3]), dtype) for _ in range(2))

        def gradient(x, upstream):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return tape.gradient(y, x, output_gradients=upstream)

        if graph:
            gradient = tf.function(gradient)
        result = gradient(x, upstream)
        self.assertEqual(result.dtype, dtype)
        self.assertAllEqual(result, _reference(upstream.numpy(), keep))

    @parameterized.product(function=_FUNCTIONS, graph=(False, True))
    def test_every_order_of_a_cube(self, function, graph):
        """The derivatives of sum(w f(x)^3) are w times 3 x^2, 6 x and 6 at the kept element."""
        _, function, keep = function
        rng = np.random.default_rng(6)
        x, w = rng.normal(size=[2, 2, 2]), rng.normal(size=[2, 2, 2])

        def all_orders(x):
            with tf.GradientTape() as third:
                third.watch(x)
                with tf.GradientTape() as second:
                    second.watch(x)
                    with tf.GradientTape() as first:
                        first.watch(x)
                        y = tf.reduce_sum(w * function(x) ** 3)
                    dx = first.gradient(y, x)
                ddx = second.gradient(dx, x)
            return dx, ddx, third.gradient(ddx, x)

        if graph:
            all_orders = tf.function(all_orders)
        dx, ddx, dddx = all_orders(tf.constant(x))
        self.assertAllClose(dx, _reference(3 * w * x**2, keep), rtol=1e-14)
        self.assertAllClose(ddx, _reference(6 * w * x, keep), rtol=1e-14)
        self.assertAllClose(dddx, _reference(6 * w, keep), rtol=1e-14)

    @parameterized.named_parameters(*_FUNCTIONS)
    def test_numeric_gradient(self, function, keep):
        del keep
        x = tf.constant(np.random.default_rng(7).normal(size=[2, 3]))
        theoretical, numeric = tf.test.compute_gradient(function, [x])
        self.assertAllClose(theoretical[0], numeric[0], atol=1e-10)
        self.assertEqual(np.count_nonzero(theoretical[0]), 1)

        def gradient_of_cube(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x) ** 3
            return tape.gradient(y, x)

        theoretical, numeric = tf.test.compute_gradient(gradient_of_cube, [x])
        self.assertAllClose(theoretical[0], numeric[0], atol=1e-4)
        self.assertEqual(np.count_nonzero(theoretical[0]), 1)

    @parameterized.named_parameters(*_FUNCTIONS)
    def test_jacobian_has_a_single_one(self, function, keep):
        x = tf.constant(np.random.default_rng(8).normal(size=[2, 3]))
        expected = np.zeros([6, 6])
        expected[keep, keep] = 1
        for use_pfor in (True, False):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = function(x)
            jacobian = tape.jacobian(y, x, experimental_use_pfor=use_pfor)
            self.assertAllEqual(tf.reshape(jacobian, [6, 6]), expected)

    @parameterized.named_parameters(*_FUNCTIONS)
    def test_one_trace_of_the_gradient_serves_every_size(self, function, keep):
        @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])
        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x) ** 2
            return tape.gradient(y, x)

        for shape in ((4,), (2, 3), (5, 1, 2)):
            x = np.random.default_rng(9).normal(size=shape).astype(np.float32)
            self.assertAllEqual(gradient(x), _reference(2 * x, keep))
        self.assertEqual(gradient.experimental_get_tracing_count(), 1)

    @parameterized.named_parameters(*_FUNCTIONS)
    def test_gradient_keeps_the_static_shape(self, function, keep):
        del keep

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return tape.gradient(y, x)

        self.assertEqual(gradient.get_concrete_function().output_shapes.as_list(), [None, 4])

    def test_scalar_and_empty_gradients(self):
        for x, expected in ((tf.constant(3.0), 1.0), (tf.zeros([0, 2]), np.zeros([0, 2]))):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tfo.zero_out(x)
            self.assertAllEqual(tape.gradient(y, x), expected)

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


class SavedModelTest(tf.test.TestCase):
    def test_round_trip_in_a_new_process(self):
        class Model(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32)])
            def forward(self, x):
                return (tfo.zero_out(x), *tfo.zero_out_with_index(x, preserve_index=2))

            @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32)])
            def gradients(self, x):
                with tf.GradientTape(persistent=True) as tape:
                    tape.watch(x)
                    first = tfo.zero_out(x) ** 2
                    third = tfo.zero_out_with_index(x, preserve_index=2).zeroed ** 2
                return tape.gradient(first, x), tape.gradient(third, x)

        directory = self.get_temp_dir()
        path = os.path.join(directory, "model")
        tf.saved_model.save(Model(), path)
        printed = process_testing.output(
            directory,
            """
            import sys
            import tensorflow as tf
            import tensorflow_ops

            model = tf.saved_model.load(sys.argv[1])
            x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
            print(*(y.numpy().ravel().tolist() for y in model.forward(x)))
            print(*(y.numpy().ravel().tolist() for y in model.gradients(x)))
            with tf.GradientTape() as tape:
                tape.watch(x)
                first, zeroed, _ = model.forward(x)
                y = first * x + zeroed * x
            print(tape.gradient(y, x).numpy().ravel().tolist())
            """,
            path,
        )
        self.assertEqual(
            printed.splitlines(),
            [
                "[1.0, 0.0, 0.0, 0.0] [0.0, 0.0, 3.0, 0.0] [2]",
                "[2.0, 0.0, 0.0, 0.0] [0.0, 0.0, 6.0, 0.0]",
                "[2.0, 0.0, 6.0, 0.0]",
            ],
        )


if __name__ == "__main__":
    tf.test.main()
