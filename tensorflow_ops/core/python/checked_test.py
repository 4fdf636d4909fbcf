"""Tests of `arguments`: the same errors eagerly, in graphs, under vectorized_map and under XLA; conversions."""

import array
import collections
import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tensorflow_ops.core.python import arguments, library


def _non_negative(x):
    return arguments.checked("lengths", x, x >= tf.zeros([], x.dtype), "none below 0")


def _ways(dtype):
    """Returns functions that call a function eagerly, in graphs, with constants in one, and compiled."""
    unknown = [tf.TensorSpec(None, dtype)]
    ways = {
        "eager": lambda f: f,
        "graph": lambda f: tf.function(f, autograph=False),
        "unknown shape": lambda f: tf.function(f, input_signature=unknown, autograph=False),
        # TensorFlow folds what it can compute: an op without its argument's check.
        "constants": lambda f: lambda x: tf.function(lambda: f(tf.constant(x.numpy())), autograph=False)(),
    }
    return ways if library.xla_error else ways | {"xla": lambda f: tf.function(f, jit_compile=True, autograph=False)}


class CheckedTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        dtype=(tf.int8, tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64),
        case=(
            (3, "lengths is -2, "),
            ([4, 0, 1], r"lengths\[1\] is -2, "),
            ([[1, 2, 3], [4, 5, 6]], r"lengths\[0,2\] is -2, "),
        ),
    )
    def test_returns_valid_values_and_names_the_first_other(self, dtype, case):
        values, text = case
        for name, way in _ways(dtype).items():
            with self.subTest(name):
                function = way(_non_negative)
                self.assertAllEqual(function(tf.constant(values, dtype)), values)
                bad = np.array(values)
                bad.reshape(-1)[bad.size // 3] = -2
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, text + "expected none below 0"):
                    function(tf.constant(bad, dtype))

    def test_one_condition_for_all_values(self):
        def check(shape, valid):
            return arguments.checked("the shape of x", shape, valid, "[2, 2]")

        for name, way in _ways(tf.int32).items():
            if name not in ("unknown shape", "constants"):  # `way` gives one argument
                with self.assertRaisesRegex(
                    tf.errors.InvalidArgumentError, r"the shape of x is \[2,3\], expected \[2, 2\]"
                ):
                    way(check)(tf.constant([2, 3]), tf.constant(False))

    def test_a_shape_of_one_dim_has_brackets(self):
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"the shape of x is \[3\], expected \[2\]"):
            arguments.checked("the shape of x", tf.constant([3]), tf.constant(False), "[2]")

    def test_a_condition_for_each_row(self):
        x = tf.constant([[1, 2], [3, 4]])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"x\[1\] is \[3,4\], expected others"):
            arguments.checked("x", x, tf.constant([True, False]), "others")

    def test_no_values(self):
        for name, way in _ways(tf.int32).items():
            with self.subTest(name):
                self.assertEqual(way(_non_negative)(tf.zeros([0, 3], tf.int32)).shape, [0, 3])

    def test_a_condition_of_another_shape_is_refused(self):
        def check(x):
            return arguments.checked("x", x, tf.constant([True, True]), "others")

        for call in (check, tf.function(check)):
            with self.assertRaisesRegex(ValueError, "valid must have leading dims of values: .*are 3 and 2"):
                call(tf.zeros([3]))

    def test_each_iteration_of_vectorized_map(self):
        for name, way in _ways(tf.int32).items():
            with self.subTest(name):
                function = way(lambda x: tf.vectorized_map(_non_negative, x, fallback_to_while_loop=False))
                self.assertAllEqual(function(tf.constant([[1, 2], [3, 4]])), [[1, 2], [3, 4]])
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"lengths\[1,0\] is -1"):
                    function(tf.constant([[1, 2], [-1, 4]]))

    def test_a_condition_of_the_iteration_only(self):
        def check(valid):
            return arguments.checked("x", tf.constant([5, 6]), valid, "others")

        self.assertAllEqual(tf.vectorized_map(check, tf.constant([True, True])), [[5, 6]] * 2)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"x\[1\] is \[5,6\]"):
            tf.vectorized_map(check, tf.constant([True, False]))

    def test_gradients_pass(self):
        x = tf.constant([1.0, 2.0])
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = _non_negative(x) ** 3
            first = tape.gradient(y, x)
        self.assertAllEqual(first, [3, 12])
        self.assertAllEqual(outer.gradient(first, x), [6, 12])
        with tf.autodiff.ForwardAccumulator(x, tf.constant([1.0, 10.0])) as accumulator:
            y = _non_negative(x) ** 3
        self.assertAllEqual(accumulator.jvp(y), [3, 120])

    def test_an_unused_result_is_not_checked_in_a_graph(self):
        @tf.function
        def unused(x):
            _non_negative(x)
            return x

        self.assertAllEqual(unused(tf.constant([-1])), [-1])


class CheckedInXlaTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        if library.xla_error:
            self.skipTest(library.xla_error)

    def test_a_checked_value_may_decide_a_size(self):
        @tf.function(jit_compile=True)
        def zeros(n):
            return tf.zeros([arguments.int_scalar("n", n, 1)])

        for n in (3, 5):
            self.assertEqual(zeros(tf.constant(n)).shape, [n])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"n is 0, expected an int in \[1, 2147483647\]"):
            zeros(tf.constant(0))

    def test_other_values_do_not_compile_again(self):
        @tf.function(jit_compile=True)
        def add(n):
            return arguments.int_scalar("n", n, 1) + 1

        programs = {add.experimental_get_compiler_ir(tf.constant(n))("hlo") for n in (3, 4)}
        self.assertLen(programs, 1)

    def test_a_branch_that_does_not_run_is_not_checked(self):
        @tf.function(jit_compile=True)
        def choose(x, first):
            return tf.cond(first, lambda: _non_negative(tf.constant([-1])), lambda: x)

        self.assertAllEqual(choose(tf.constant([-5]), tf.constant(False)), [-5])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"lengths\[0\] is -1"):
            choose(tf.constant([-5]), tf.constant(True))


class OnHostTest(tf.test.TestCase):
    def test_checks_that_only_know_sizes_stay_on_the_host(self):
        signature = [tf.TensorSpec(None), tf.TensorSpec([], tf.int64), tf.TensorSpec([])]

        @tf.function(autograph=False, input_signature=signature)
        def check(x, n, rate):
            with tf.device("GPU:0"):
                n, rate = arguments.int_scalar("n", n, 1), arguments.number("rate", rate, fits=lambda x: x > 0)
                return arguments.with_shape("x", x, [n, 2, ...], "sizes"), rate

        ops = check.get_concrete_function().graph.get_operations()
        # Others have kernels in device memory only, from where results are copied, which waits.
        in_host_memory = {"Shape", "Const", "Pack", "ZerosLike"}
        self.assertLessEqual({op.type for op in ops if "GPU" in op.device}, in_host_memory | {"Slice", "EnsureShape"})


class IntScalarTest(tf.test.TestCase):
    def test_an_int64_beyond_32_bits_is_refused(self):
        function = tf.function(lambda n: arguments.int_scalar("n", n, 1))
        self.assertEqual(function(tf.constant(2**31 - 1, tf.int64)), 2**31 - 1)
        for n in (0, 2**31, 2**32 + 3, -(2**63)):
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, rf"n is {n}, expected an int in \[1, 2147483647\]"
            ):
                function(tf.constant(n, tf.int64))

    def test_a_scalar_of_unknown_rank(self):
        for convert, dtype in (
            (lambda x: arguments.int_scalar("n", x, 1), tf.int64),
            (lambda x: arguments.number("n", x), tf.float64),
        ):
            function = tf.function(convert, autograph=False, input_signature=[tf.TensorSpec(None, dtype)])
            self.assertEqual(function(tf.constant(3, dtype)), 3)
            self.assertEqual(function.get_concrete_function().structured_outputs.shape, [])
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"the shape of n is \[1\], expected \[\]"):
                function(tf.constant([3], dtype))


class NumberTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(float("nan"), float("inf"), -1.0)
    def test_a_tensor_is_checked_like_a_float(self, value):
        def above_zero(x):
            return arguments.number("rate", x, "a number above 0", lambda x: x > 0)

        with self.assertRaisesRegex(ValueError, "rate is .*, expected a number above 0"):
            above_zero(value)
        for name, way in _ways(tf.float32).items():
            if name not in ("eager", "constants"):
                with self.subTest(name):
                    self.assertEqual(way(above_zero)(tf.constant(0.5)), 0.5)
                    with self.assertRaisesRegex(
                        tf.errors.InvalidArgumentError, "rate is .*, expected a number above 0"
                    ):
                        way(above_zero)(tf.constant(value))


class WholeNumbersTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        (tf.int32, np.int64([5, 2**32]), 4294967296),
        (tf.int32, np.int64([5, -(2**31) - 1]), -2147483649),
        (tf.int32, np.uint32([5, 2**32 - 1]), 4294967295),
        (tf.int32, np.float32([5, 0.9]), 0.9),
        (tf.int32, np.float32([5, 2**31]), r"2.14748365e\+09"),
        (tf.int32, np.float64([5, np.nan]), "nan"),
        (tf.int32, np.float16([5, np.inf]), "inf"),
        (tf.int64, np.uint64([5, 2**63]), 9223372036854775808),
        (tf.int64, np.float64([5, 2.0**63]), r"9.2233720368547758e\+18"),
    )
    def test_others_are_errors_that_show_them(self, dtype, values, shown):
        for name, way in _ways(values.dtype).items():
            function = way(lambda x: arguments.whole_numbers("ids", x, dtype))
            for index in (1, 0):  # beside a valid one, and alone
                message = rf"ids\[{index}\] is {shown}, expected a whole number of {8 * dtype.size} bits"
                with self.subTest(name), self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                    function(tf.constant(values[1 - index :]))

    @parameterized.parameters(
        *((tf.int32, x) for x in (np.int64([-(2**31), 2**31 - 1]), np.float32([-(2**31), 7]), np.uint8([0, 255]))),
        *((tf.int64, x) for x in (np.uint64([0, 2**63 - 1]), np.float64([-(2.0**63), 2**53]), np.int32([-1, 1]))),
        (tf.int32, np.int64([])),
    )
    def test_those_that_fit_stay(self, dtype, values):
        for name, way in _ways(values.dtype).items():
            with self.subTest(name):
                numbers = way(lambda x: arguments.whole_numbers("ids", x, dtype))(tf.constant(values))
                self.assertEqual(numbers.dtype, dtype)
                self.assertAllEqual(numbers, values.astype(dtype.as_numpy_dtype))

    def test_integers_of_python_do_not_wrap(self):
        for way in (lambda f: f, lambda f: tf.function(f, autograph=False)):
            for value in (2**32 + 1, [0, 2**31], [[-(2**31) - 1]], [np.int64(2**40)]):
                with self.assertRaisesRegex(ValueError, r"ids is -?\d+, expected a whole number of 32 bits"):
                    way(functools.partial(arguments.dense_tensor, "ids", value, tf.int32))()
                wide = way(functools.partial(arguments.int_tensor, "ids", value))()
                self.assertAllEqual(wide, np.int64(value))
            with self.assertRaisesRegex(ValueError, f"ids is {2**63}, expected a whole number of 64 bits"):
                way(functools.partial(arguments.int_tensor, "ids", [0, 2**63]))()

    def test_other_sequences_and_arrays_do_not_wrap(self):
        kinds = (lambda x: range(x, x + 2), lambda x: array.array("q", [x, x + 1]), lambda x: np.array([x, x + 1]))
        kinds += (
            lambda x: collections.deque([x, x + 1]),
            lambda x: _Foreign([x, x + 1]),
            lambda x: [_Foreign(x), x + 1],
            lambda x: [array.array("q", [x]), range(x + 1, x + 2)],
        )
        for kind in kinds:
            self.assertAllEqual(tf.reshape(arguments.dense_tensor("ids", kind(5), tf.int32), [-1]), [5, 6])
            with self.assertRaisesRegex(ValueError, "ids is 4294967296, expected a whole number of 32 bits"):
                arguments.dense_tensor("ids", kind(2**32), tf.int32)

    def test_tensors_in_lists_do_not_wrap(self):
        for way in (lambda f: f, lambda f: tf.function(f, autograph=False)):
            convert = way(lambda x: arguments.dense_tensor("ids", [x, 2], tf.int32))
            self.assertAllEqual(convert(tf.constant(7, tf.int64)), [7, 2])
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "ids is 4294967296, expected a whole number"):
                convert(tf.constant(2**32))
            with self.assertRaisesRegex(ValueError, "ids are float32, expected int32"):
                convert(tf.constant(1.5))
            with self.assertRaisesRegex(ValueError, "ids are bool, expected int32"):
                convert(tf.constant(True))
            by_hint = way(lambda x: arguments.int_tensor("ids", [x, 2]))
            self.assertAllEqual(by_hint(tf.constant(2**32)), [2**32, 2])
            self.assertAllEqual(by_hint(tf.constant(1.5)), [1.5, 2])


class _Foreign:
    """An array of another library, whose dtype TensorFlow does not know."""

    dtype = "torch.int64"

    def __init__(self, values):
        self._values = np.int64(values)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self._values, dtype)


class ConversionTest(tf.test.TestCase):
    def test_an_eager_tensor_of_the_dtype_is_returned_as_it_is(self):
        tensor = tf.constant([1.5])
        self.assertIs(arguments.dense_tensor("x", tensor), tensor)
        for convert in (arguments.dense_tensor, arguments.cast_tensor, arguments.tensor_of_kind):
            self.assertIs(convert("x", tensor, tf.float32), tensor)

    def test_other_dtypes_are_cast_or_refused(self):
        tensor = tf.constant([1.5])
        self.assertAllEqual(arguments.cast_tensor("x", tensor, tf.int32), [1])
        self.assertEqual(arguments.tensor_of_kind("x", tensor, tf.float64).dtype, tf.float64)
        with self.assertRaisesRegex(ValueError, "x cannot be int32"):
            arguments.dense_tensor("x", tensor, tf.int32)
        with self.assertRaisesRegex(ValueError, "x are float32, expected int32"):
            arguments.tensor_of_kind("x", tensor, tf.int32)

    def test_a_graph_captures_an_eager_tensor(self):
        outer, inner = tf.constant([1.0]), []
        tf.function(lambda: inner.append(arguments.dense_tensor("x", outer)), autograph=False)()
        self.assertTrue(tf.is_symbolic_tensor(inner[0]))


if __name__ == "__main__":
    tf.test.main()
