"""Tests of the errors that python_op raises, eagerly and in graphs."""

import ml_dtypes
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from python_op_testing import MODES, op_name, same

import tensorflow_ops as tfo


def _pair(x):
    return same(x), same(x)


# (message, out, function): errors of a call with [1, 2].
_WRONG_RESULTS = (
    (
        r"its result has dtype float64, declared float32; .astype\(float32\) converts it",
        same,
        lambda x: x.astype(np.float64),
    ),
    (
        r"out\['a'\]\[1\] has dtype bfloat16, declared float32",
        lambda x: {"a": _pair(x)},
        lambda x: {"a": (x, x.astype(ml_dtypes.bfloat16))},
    ),
    ("its result has dtype object, declared float32$|float32\n", same, lambda x: None),
    ("its result has dtype int64, declared string", tf.TensorSpec([1], tf.string), lambda x: np.array([3])),
    ("its result holds a int, declared string", tf.TensorSpec([2], tf.string), lambda x: np.array([b"a", 3], object)),
    (r"its result has shape \[1\], declared \[2\]", same, lambda x: x[:1]),
    (r"its result has shape \[1, 2\], declared \[2\]", same, lambda x: x[None]),
    (
        r"its result has shape \[1, 2\], declared \[\?, 3\]",
        tf.TensorSpec([None, 3], tf.float32),
        lambda x: x[None],
    ),
    (r"out\[1\] has shape \[0\], declared \[2\]", lambda x: [same(x)] * 2, lambda x: (x, x[:0])),
    ("out is one ndarray, declared a tuple of 2", _pair, lambda x: x),
    ("out is a tuple of 1, declared a tuple of 2", _pair, lambda x: (x,)),
    (r"out is a dict of \['b'\], declared a dict of \['a'\]", lambda x: {"a": same(x)}, lambda x: {"b": x}),
    (r"out\['a'\] is one ndarray, declared a tuple of 2", lambda x: {"a": _pair(x)}, lambda x: {"a": x}),
)


class ErrorsTest(parameterized.TestCase, tf.test.TestCase):
    """Every message is the same eagerly and in a graph."""

    def _raises(self, kind, message, out, function, mode, *args, **options):
        op = tfo.python_op("test::faulty", out=out, replace=True, **options)(function)
        with self.assertRaisesRegex(kind, f"test::faulty: {message}"):
            MODES[mode](op)(*args)

    @parameterized.product(mode=list(MODES), wrong=_WRONG_RESULTS)
    def test_wrong_results(self, mode, wrong):
        self._raises(tf.errors.InvalidArgumentError, *wrong, mode, [1.0, 2.0])

    @parameterized.parameters(*MODES)
    def test_result_without_saved_values(self, mode):
        message = r"its function returned a ndarray, expected a tuple \(out"
        self._raises(tf.errors.InvalidArgumentError, message, same, lambda x: x, mode, [1.0, 2.0], saved=same)

    def test_shape_is_checked_at_run_time_where_the_graph_has_none(self):
        op = tfo.python_op(op_name(), out=same)(lambda x: x[:1])
        call = tf.function(op, input_signature=[tf.TensorSpec([None])])
        self.assertAllEqual(call([1.0]), [1.0])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"its result has shape \[1\], declared \[2\]"):
            call([1.0, 2.0])

    @parameterized.product(
        mode=list(MODES),
        kinds=[
            (ValueError, tf.errors.InvalidArgumentError),
            (TypeError, tf.errors.InvalidArgumentError),
            (NotImplementedError, tf.errors.UnimplementedError),
            (MemoryError, tf.errors.ResourceExhaustedError),
            (ZeroDivisionError, tf.errors.UnknownError),
            (StopIteration, tf.errors.UnknownError),
        ],
    )
    def test_exception_keeps_its_type_and_message(self, mode, kinds):
        def function(x):
            raise kinds[0]("no luck")

        message = rf"its function raised {kinds[0].__name__}: no luck \(.*python_op_errors_test.py, line \d+\)"
        self._raises(kinds[1], message, same, function, mode, [1.0])

    def test_exception_is_the_cause_eagerly(self):
        op = tfo.python_op(op_name(), out=same)(lambda x: x[5])
        with self.assertRaises(tf.errors.UnknownError) as raised:
            op([1.0])
        self.assertIsInstance(raised.exception.__cause__, IndexError)

    @parameterized.parameters(*MODES)
    def test_check_finite(self, mode):
        function = lambda x: x / np.float32(0)  # noqa: E731
        self.assertAllEqual(tfo.python_op(op_name(), out=same)(function)([1.0]), [np.inf])
        message = r"its result is nan at \[1\], expected finite"
        log = lambda x: np.log(x)  # noqa: E731  (np.log has no signature)
        with np.errstate(all="ignore"):
            self._raises(tf.errors.InvalidArgumentError, message, same, log, mode, [1.0, -1.0], check_finite=True)

    @parameterized.product(
        mode=list(MODES),
        wrong=[
            (TypeError, "out raised TypeError: out is a TensorShape, expected a tf.TensorSpec", lambda x: x.shape),
            (TypeError, "out raised IndexError", lambda x: tf.TensorSpec([x.shape[3]], x.dtype)),
            (ValueError, "out declares no output", ()),
        ],
    )
    def test_bad_declarations(self, mode, wrong):
        self._raises(*wrong, lambda x: x, mode, [1.0])

    def test_declaration_that_needs_unknown_sizes_raises(self):
        op = tfo.python_op(op_name(), out=lambda x: tf.TensorSpec([x.shape[0] * 2], x.dtype))(lambda x: np.tile(x, 2))
        self.assertAllEqual(op([1.0]), [1.0, 1.0])
        with self.assertRaisesRegex(TypeError, "out raised TypeError: .*in a graph sizes may be None"):
            tf.function(op, input_signature=[tf.TensorSpec([None])])([1.0])

    def test_bad_definitions(self):
        for name in ("relu", "a::b::c", "a::", "::b", "a b::c", "a::1", "ä::b", None):
            with self.assertRaisesRegex(ValueError, f"python_op: name is {name!r}, expected 'namespace::op'"):
                tfo.python_op(name, out=same)
        with self.assertRaisesRegex(ValueError, "test::bad: vmap is 'parallel', expected one of"):
            tfo.python_op("test::bad", out=same, vmap="parallel")
        for function, message in (
            (lambda **x: x, r"takes \*\*keywords"),
            (lambda x, a=1, *rest: x, r"a default stands before \*rest"),
            (lambda x, y: x, r"test::bad: out takes 1 inputs, expected 2: \('x', 'y'\)"),
        ):
            with self.assertRaisesRegex(TypeError, message):
                tfo.python_op("test::bad", out=lambda x: x)(function)
        with self.assertRaisesRegex(ValueError, r"non_differentiable has \['y'\], expected names in \('x',\)"):
            tfo.python_op("test::bad", out=same, non_differentiable=["y"])(lambda x: x)
        with self.assertRaisesRegex(TypeError, "non_differentiable is the string 'x'"):
            tfo.python_op("test::bad", out=same, non_differentiable="x")(lambda x: x)

    def test_name_belongs_to_one_op(self):
        name = op_name()

        @tfo.python_op(name, out=same)
        def first(x):
            return x

        graph = tf.function(first)
        graph(tf.constant([1.0]))
        with self.assertRaisesRegex(
            ValueError,
            rf"{name} is already an op, made from first \(.*python_op_errors_test.py, line \d+\).*replace=True",
        ):
            tfo.python_op(name, out=same)(lambda x: x)
        second = tfo.python_op(name, out=same, replace=True)(lambda x: -x)
        del first
        self.assertAllEqual(graph(tf.constant([1.0])), [1.0])
        self.assertAllEqual(second([1.0]), [-1.0])


if __name__ == "__main__":
    tf.test.main()
