"""Tests of python_op's inputs, attributes and results, eagerly and in graphs."""

import enum

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from python_op_testing import MODES, op_name, same

import tensorflow_ops as tfo


class ValuesTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        mode=list(MODES),
        dtype=["float16", "bfloat16", "float32", "float64", "complex64", "int8", "uint16", "int64", "bool"],
    )
    def test_dtypes(self, mode, dtype):
        dtype = tf.as_dtype(dtype)
        seen = []
        op = tfo.python_op(op_name(), out=same)(lambda x: seen.append((type(x), x.dtype, x.shape)) or x)
        for x in ([1, 0, 2], 1, np.zeros([0, 3])):
            x = np.array(x, dtype.as_numpy_dtype)
            y = MODES[mode](op)(tf.constant(x))
            self.assertEqual(y.dtype, dtype)
            self.assertAllEqual(y, x)
            self.assertEqual(seen.pop(), (np.ndarray, x.dtype, x.shape))

    @parameterized.product(
        mode=list(MODES),
        value=[
            "ä",
            b"ab\0",
            ["a", "bc"],
            ["a", b"\xff"],
            np.array(["a", "bc"]),
            np.array([b"a", b"bc"]),
            [b"a", b"bc\0"],
            np.str_("a"),
        ],
    )
    def test_strings_of_any_type_may_be_returned(self, mode, value):
        op = tfo.python_op(op_name(), out=tf.TensorSpec(None, tf.string))(lambda x: value)
        expected = [
            item.encode() if isinstance(item, str) else bytes(item) for item in np.ravel(np.array(value, object))
        ]
        self.assertAllEqual(tf.reshape(MODES[mode](op)(0), [-1]), expected)

    @parameterized.parameters(*MODES)
    def test_reads_variables_and_arrays(self, mode):
        op = tfo.python_op(op_name(), out=same)(lambda x: x * x)
        variable = tf.Variable([3.0])
        self.assertAllEqual(MODES[mode](lambda: op(variable))(), [9.0])
        self.assertAllEqual(MODES[mode](lambda: op(np.array([2.0])))(), [4.0])
        self.assertAllEqual(MODES[mode](lambda: op(np.array([2.0], ">f8")))(), [4.0])
        variable.assign_add([1.0])
        self.assertAllEqual(op(variable), [16.0])

    @parameterized.parameters(*MODES)
    def test_inputs_are_read_only(self, mode):
        @tfo.python_op(op_name(), out=same)
        def op(x):
            x[...] = 0
            return x

        for x in (tf.constant([1.0, 2.0]), tf.constant(1.0), tf.constant(["a"]), tf.zeros([1], tf.bfloat16)):
            before = x.numpy()
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"read-only.*Inputs may not be written to"):
                MODES[mode](op)(x)
            self.assertAllEqual(x, before)

    @parameterized.product(mode=list(MODES), keep=[None, tuple, list, dict])
    def test_results_do_not_share_memory_with_arrays_that_the_function_keeps(self, mode, keep):
        arrays = [np.zeros(64, np.float32) for _ in range(128)]  # some are aligned to 64 bytes
        self.assertNotEmpty([array for array in arrays if array.ctypes.data % 64 == 0])
        views = [array.reshape(8, 8) for array in arrays[64:]]
        kept = [*arrays[:64], *views]
        if keep:
            kept = [{"a": a, "b": b} if keep is dict else keep((a, b)) for a, b in zip(arrays[:64], views, strict=True)]
        out = tf.nest.map_structure(lambda array: tf.TensorSpec(None), kept[0])
        call = MODES[mode](tfo.python_op(op_name(), out=out)(lambda i: kept[i]))
        results = [call(tf.constant(i)) for i in range(len(kept))]
        for array in arrays:
            array[...] = 7
        self.assertAllEqual([tf.reduce_sum(y) for y in tf.nest.flatten(results)], [0.0] * len(arrays))

    @parameterized.parameters(*MODES)
    def test_input_may_be_returned(self, mode):
        op = tfo.python_op(op_name(), out=same)(lambda x: x)
        variable = tf.Variable([1.0] * 64)
        result = MODES[mode](lambda: op(variable))()
        variable.assign_add([1.0] * 64)
        self.assertAllEqual(result, [1.0] * 64)

    def test_keeps_the_static_shape(self):
        def out(x, y):
            return tf.TensorSpec([x.shape[0], 3, None], tf.int32), tf.TensorSpec(None, tf.float32)

        op = tfo.python_op(op_name(), out=out)(lambda x, y: (np.zeros([x.shape[0], 3, 5], np.int32), y))
        shapes = []

        @tf.function(input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec(None)])
        def call(x, y):
            first, second = op(x, y)
            shapes.append((first.shape.as_list(), second.shape.rank, op(tf.zeros([4, 2]), y)[0].shape.as_list()))
            return first, second

        first, second = call(tf.zeros([7, 2]), tf.zeros([1]))
        self.assertEqual(shapes, [([None, 3, None], None, [4, 3, None])])
        self.assertEqual((first.shape, second.shape), ([7, 3, 5], [1]))
        call(tf.zeros([8, 2]), tf.zeros([]))
        self.assertLen(shapes, 1)

    def test_may_be_an_argument_of_a_graph(self):
        """tf.function unwraps callables that have a __wrapped__ attribute."""
        seen = []
        op = tfo.python_op(op_name(), out=same)(lambda x: seen.append(type(x)) or x)
        call = tf.function(lambda op, x: op(x))
        call(op, tf.constant([1.0]))
        self.assertEqual(seen, [np.ndarray])


class AttributesTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*MODES)
    def test_any_python_value(self, mode):
        class Colour(enum.Enum):
            RED = 1

        seen = []

        @tfo.python_op(op_name(), out=lambda x, *, dtype: tf.TensorSpec(x.shape, dtype))
        def cast(x, scale=2.0, *, dtype, options=None):
            seen.append((scale, options))
            return (x * scale).astype(dtype.as_numpy_dtype)

        options = {"c": Colour.RED, "l": [1, (None, "b")], "f": len, "a": np.arange(3)}
        self.assertAllEqual(MODES[mode](lambda x: cast(x, dtype=tf.int32, options=options))([1.0]), [2])
        self.assertAllEqual(cast([1.0], 3.0, dtype=tf.float64), [3.0])
        self.assertEqual(seen[0][0], 2.0)
        self.assertEqual({**seen[0][1], "a": list(seen[0][1]["a"])}, {**options, "a": [0, 1, 2]})
        self.assertEqual(seen[1], (3.0, None))

    @parameterized.parameters(
        (1, True), (1, 1.0), (0.0, -0.0), ([1], (1,)), ({"a": 1}, {"a": 2}), (np.float32(1), np.float64(1)),
        (np.arange(3), np.arange(3) + 1), ("1", b"1"), (lambda: 1, lambda: 2), ([len], [max]), (tf.int32, "int32"),
    )  # fmt: skip
    def test_different_values_stay_different_in_a_graph(self, a, b):
        op = tfo.python_op(op_name(), out=tf.TensorSpec([], tf.string))(lambda x, *, value: repr(value))
        first, second, third = tf.function(lambda: (op(0, value=a), op(0, value=b), op(0, value=a)))()
        self.assertEqual([first, second, third], [repr(a).encode(), repr(b).encode(), repr(a).encode()])

    @parameterized.parameters(*MODES)
    def test_later_changes_of_a_list_do_not_affect_a_graph(self, mode):
        op = tfo.python_op(op_name(), out=tf.TensorSpec([], tf.float32))(lambda *, values: np.float32(sum(values)))
        values = [1, 2]
        call = MODES[mode](lambda: op(values=values))
        first = call()
        values.append(4)
        self.assertAllEqual([first, call()], [3.0, 7.0] if mode == "eager" else [3.0, 3.0])

    def test_name_becomes_the_nodes_name(self):
        op = tfo.python_op(op_name(), out=same)(lambda x: x)
        with tf.Graph().as_default():
            self.assertEqual(op(tf.zeros([]), name="mine").op.name, "mine")
            self.assertStartsWith(op(tf.zeros([])).op.name, "test_op_")
        self.assertAllEqual(op([1.0], name="mine"), [1.0])

    def test_parameter_may_be_called_name(self):
        op = tfo.python_op(op_name(), out=tf.TensorSpec([], tf.string))(lambda *, name: name)
        self.assertEqual(op(name="x"), b"x")

    def test_bad_arguments(self):
        op = tfo.python_op("test::arguments", out=same)(lambda x, *, scale=1.0: x)
        with self.assertRaisesRegex(
            TypeError, r"test::arguments: .*shape=\(\).* is a tensor in the attributes \['scale'\]"
        ):
            op([1.0], scale=[tf.constant(1.0)])
        with self.assertRaisesRegex(TypeError, r"test::arguments\(x, \*, scale=1.0\): missing.*'x'"):
            op()
        with self.assertRaisesRegex(TypeError, r"test::arguments.*unexpected keyword argument 'factor'"):
            op([1.0], factor=2)
        with self.assertRaisesRegex(TypeError, r"test::arguments.*too many positional"):
            op([1.0], 2.0)


class KernelTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*MODES)
    def test_kernel_replaces_the_function(self, mode):
        @tfo.python_op(op_name(), out=same)
        def relu(x, *, scale=1.0):
            """Scales positive values."""
            return np.maximum(x, 0) * np.float32(scale)

        before = tf.function(relu)
        x = tf.constant([-1.0, 2.0])
        before(x)
        calls = []

        @relu.register_kernel
        def kernel(x, *, scale):
            calls.append(scale)
            return tf.nn.relu(x) * scale

        self.assertAllEqual(MODES[mode](relu)(x), [0.0, 2.0])
        self.assertEqual(calls, [1.0])
        self.assertAllEqual(MODES[mode](relu)(x, scale=3.0), [0.0, 6.0])
        self.assertAllEqual(MODES[mode](relu.reference)(x, scale=3.0), [0.0, 6.0])
        self.assertAllEqual(before(x), [0.0, 2.0])
        self.assertEqual(calls, [1.0, 3.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = MODES[mode](relu)(x)
        self.assertAllEqual(tape.gradient(y, x), [0.0, 1.0])  # the kernel's gradient
        self.assertEqual((relu.__name__, relu.__doc__), ("relu", "Scales positive values."))
        with self.assertRaisesRegex(ValueError, r"already has a kernel: .*python_op_test.py"):
            relu.register_kernel(kernel)

    @parameterized.parameters(*MODES)
    def test_results_of_the_kernel_are_checked_against_the_declaration(self, mode):
        for kernel, message in (
            (
                lambda x: tf.cast(x, tf.float64),
                r"its kernel: its result has dtype float64 and shape \(1,\), declared float32",
            ),
            (
                lambda x: x[None],
                r"its kernel: its result has dtype float32 and shape \(1, 1\), declared float32 and \(1,\)",
            ),
            (lambda x: [x, x], r"its kernel"),
        ):
            op = tfo.python_op(op_name(), out=same)(lambda x: x)
            op.register_kernel(kernel)
            with self.assertRaisesRegex((tf.errors.InvalidArgumentError, ValueError), message):
                MODES[mode](op)([1.0])

    def test_kernel_must_be_a_function(self):
        op = tfo.python_op(op_name(), out=same)(lambda x: x)
        with self.assertRaisesRegex(TypeError, "register_kernel got a int, expected a function"):
            op.register_kernel(3)


if __name__ == "__main__":
    tf.test.main()
