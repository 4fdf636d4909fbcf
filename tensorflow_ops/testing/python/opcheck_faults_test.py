"""Tests that opcheck finds each planted fault with the right tests only, and accepts correct functions.

The file is one table of faults with the functions that have them.
"""

import re
import time

import numpy as np
import shard_testing
import tensorflow as tf
from absl.testing import parameterized
from opcheck_testing import (
    OTHER,
    X,
    cube,
    gradient_of_another_element,
    square_without_gradient,
    swallows_nan,
    wrong_in_bfloat16,
)

# TensorFlow has no public function for registering a converter.
from tensorflow.python.ops.parallel_for.pfor import RegisterPFor

import tensorflow_ops as tfo

_VARIABLE = tf.Variable(2.0)


@tf.custom_gradient
def _gradient_that_is_not_linear(x):
    """Correct if upstream has a single non-zero element."""
    return (
        tf.identity(x),
        lambda dy: (
            tf.where(dy != 0, dy, tf.reduce_sum(dy) * 0)
            * tf.cast(tf.where(tf.math.count_nonzero(dy) > 1, 3, 1), dy.dtype)
        ),
    )


def _no_gradient_to_b(a, b):
    return a + tf.stop_gradient(b)


class _Racy(tf.Module):
    """Stores its input in a buffer that all calls share."""

    def __init__(self):
        super().__init__()
        self._scratch = tf.Variable(X, shape=tf.TensorShape(None), trainable=False)

    def call(self, x):
        @tf.custom_gradient
        def double(x):
            if x.dtype != tf.float32:
                return 2 * x, lambda dy: 2 * dy
            self._scratch.assign(x)
            if tf.executing_eagerly():
                time.sleep(0.0005)
            return tf.ensure_shape(2 * self._scratch, x.shape), lambda dy: 2 * dy

        return double(x)


def _random_last_bit(x):
    if x.dtype != tf.float32:
        return tf.identity(x)
    return x * (1 + 2**-23 * tf.cast(tf.random.uniform(tf.shape(x)) < 0.5, tf.float32))


def _numpy_relu(x):
    @tf.custom_gradient
    def function(x):
        def relu(array):
            # In eager mode the array is a copy and may be read-only.
            result = np.maximum(array, np.zeros_like(array))
            if array.flags.writeable:
                array[...] = result
            return result

        y = tf.ensure_shape(tf.numpy_function(relu, [x], x.dtype), x.shape)
        return y, lambda dy: dy * tf.cast(x > 0, dy.dtype)

    return function(x)


def _with_static_shape(x, shape):
    return tf.raw_ops.PlaceholderWithDefault(input=x, shape=shape)


def _fixed_static_shape(x):
    return tf.identity(x) if x.shape.is_fully_defined() else _with_static_shape(x, [3, 4])


def _no_static_shape(x):
    return _with_static_shape(x, tf.TensorShape(None))


@tf.function
def _traced_for_each_size(x):
    return x * 2


def _float32_for_16_bits(x):
    return 2 * (tf.cast(x, tf.float32) if x.dtype.size == 2 else x)


def _aborts_when_empty(x):
    with tf.control_dependencies([tf.cond(tf.size(x) == 0, _abort, tf.no_op)]):
        return tf.identity(x)


def _abort():
    return tf.raw_ops.Abort(error_msg="planted", exit_without_error=False)


def _aborts_when_a_is_longer(a, b):
    """Not for any other sizes: each abort takes a new process, a second."""
    with tf.control_dependencies([tf.cond(tf.size(a) > tf.size(b), _abort, tf.no_op)]):
        return a * b


def _index_error_when_empty(x):
    if x.shape.rank is not None and 0 in x.shape.as_list():
        raise IndexError("no first element")
    return tf.identity(x)


def _rejects_empty(x):
    if x.shape.rank is not None and 0 in x.shape.as_list():
        raise ValueError("x is empty")
    return tf.identity(x)


@tf.custom_gradient
def _square_with_wrong_gradient(x):
    return x**2, lambda dy: dy * x


@tf.custom_gradient
def _gradient_with_a_shortcut(x):
    """Correct for any upstream, but forward mode differentiates the branch for ones."""
    return 2 * x, lambda dy: tf.where(tf.reduce_all(dy == 1), 2 * tf.ones_like(dy), 2 * dy)


@tf.custom_gradient
def _overflows_for_scaled_loss(x):
    return tf.identity(x), lambda dy: dy * 2000 / 2000


def _wrong_in_loops(x):
    return x * (1.5 if "while" in getattr(tf.compat.v1.get_default_graph(), "name", "") else 1)


def _accepts_any(x, n):
    return x * n


def _no_xla(x):
    return tf.reshape(tf.strings.to_number(tf.strings.as_string(tf.stop_gradient(x))), tf.shape(x)) * 0 + tf.sin(x)


def _sample(fn, *args, **options):
    return tfo.testing.OpSample(fn, args or (X,), None, options)


_NO_ABORT = {"xla": "Abort has no kernel", "vectorization": "Abort has no converter"}
_NEW_PROCESSES = {test: "irrelevant here" for test in ("saved_model", "distribution")}
# name: (sample, tests that fail, regular expression for the first one's message)
_FAULTS = {
    "a wrong gradient that sums to the right one": (
        _sample(gradient_of_another_element),
        ["gradients", "forward_mode"],
        r"d output\[\d, \d\] / d args\[0\]\[\d, \d\]: analytic",
    ),
    "a gradient that is not linear in upstream": (
        _sample(_gradient_that_is_not_linear),
        ["gradients", "forward_mode"],
        "d a random combination of outputs",
    ),
    "an undeclared None": (
        _sample(_no_gradient_to_b, X, OTHER),
        ["missing_gradients"],
        r"gradient to args\[1\] is None eagerly",
    ),
    "a gradient where None is declared": (
        _sample(tf.multiply, X, OTHER, non_differentiable=1),
        ["missing_gradients"],
        r"args\[1\] is declared non_differentiable, but has a gradient",
    ),
    "a race": (
        _sample(_Racy().call, skip={**_NEW_PROCESSES, "vectorization": "a variable", "xla": "of any shape"}),
        ["determinism"],
        "beside others in threads: output has other bits",
    ),
    "different bits in each run": (
        _sample(_random_last_bit, skip={"vectorization": "random", "xla": "random"}),
        ["determinism"],
        "the next run: output has other bits",
    ),
    "a changed input": (
        _sample(
            _numpy_relu,
            vectorize=False,
            xla=False,
            skip={**_NEW_PROCESSES, "determinism": "NumPy is in this process"},
        ),
        ["inputs_unmodified"],
        r"a tf.function changes its input: args\[0\]\[\d, \d\] is 0, expected -",
    ),
    "a static shape of another size": (
        _sample(_fixed_static_shape),
        ["static_shapes"],
        r"static shape \(3, 4\), and \(\d+, \d+\) at run time",
    ),
    "no static shape": (
        _sample(_no_static_shape, skip={"vectorization": "no converter"}),
        ["static_shapes"],
        "output has static shape <unknown>",
    ),
    "a trace for each size": (
        _sample(_traced_for_each_size),
        ["retracing"],
        r"each new size of args\[0\] dim 0 traces",
    ),
    "float16 that becomes float32": (_sample(_float32_for_16_bits), ["dtypes"], "float16: output is float32, expected"),
    "a wrong declared dtype": (
        _sample(tf.nn.relu, output_dtype={"bfloat16": "float32"}),
        ["dtypes"],
        "bfloat16: output is bfloat16, expected float32",
    ),
    "wrong values in one dtype": (_sample(wrong_in_bfloat16), ["dtypes"], r"in bfloat16: output\[\d, \d\] is"),
    "a value that differs from the reference": (
        _sample(tf.nn.relu, reference=lambda x: np.abs(x)),
        ["dtypes", "extreme_values"],
        r"against the reference: output\[\d, \d\] is 0, expected",
    ),
    "a crash on empty input": (
        _sample(_aborts_when_empty, skip=_NO_ABORT),
        ["extreme_values"],
        r"empty: args\[0\] dim 0: the process died of SIGABRT",
    ),
    "a crash on bad input": (
        _sample(_aborts_when_a_is_longer, X, OTHER, skip=_NO_ABORT),
        ["bad_input"],
        r"args\[0\] .*: the process died of SIGABRT",
    ),
    "an IndexError on empty input": (
        _sample(_index_error_when_empty, skip={"bad_input": "raises the same error"}),
        ["extreme_values"],
        "IndexError: no first element",
    ),
    "no empty input": (_sample(_rejects_empty), ["extreme_values"], "no empty input is accepted; declare empty=False"),
    "edge_args that raise": (
        _sample(_rejects_empty, empty=False, edge_args=[(tf.zeros([0, 4]),)]),
        ["extreme_values"],
        r"edge_args\[0\]: ValueError: x is empty",
    ),
    "a NaN that is lost": (
        _sample(swallows_nan, reference=lambda x: x),
        ["extreme_values"],
        r"nan in args\[0\], against the reference: output\[1, 2\] is 0, expected nan",
    ),
    "a kernel that is missing in a new process": (
        _sample(tfo.nn.softmax, imports=()),
        ["saved_model"],
        "Op type not registered 'TensorflowOps>Softmax'.*imports= names what must be",
    ),
    "a missing module": (
        _sample(tf.nn.relu, imports=("no_such_module",)),
        ["saved_model"],
        "ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "a function that cannot be saved": (
        _sample(lambda x: x * tf.cast(_VARIABLE, x.dtype), skip={"vectorization": "reads a variable"}),
        ["saved_model"],
        "it cannot be saved: .*captures tensor",
    ),
    "a wrong vectorized_map": (
        _sample(tfo.zero_out),
        ["vectorization"],
        r"vectorized_map over args\[0\]: output\[\d, 0, 0\] is 0, expected",
    ),
    "no vectorized_map": (
        _sample(lambda x: tfo.zero_out_with_index(x).zeroed, empty=False, imports=("tensorflow_ops",)),
        ["vectorization"],
        "No pfor vectorization defined for TensorflowOps>ZeroOutWithIndex",
    ),
    "a vectorized_map that is declared missing": (
        _sample(tf.nn.relu, vectorize=False),
        ["vectorization"],
        "vectorize=False is declared, but",
    ),
    "a wrong second order": (
        _sample(
            cube(_square_with_wrong_gradient),
            skip={"forward_mode": "TensorFlow raises for custom gradients in custom gradients"},
        ),
        ["second_order"],
        "wrong gradients",
    ),
    "a second order that is lost": (
        _sample(cube(lambda x: tf.stop_gradient(x) ** 2)),
        ["second_order"],
        r"analytic 0 \(the gradient is None\), numeric",
    ),
    "a missing second order that is declared": (
        _sample(cube(square_without_gradient), second_order=True, skip={"saved_model": "has no second order"}),
        ["second_order", "forward_mode"],
        r"but of the gradient to args\[0\]: LookupError",
    ),
    "a second order that is declared missing": (
        _sample(tf.square, second_order=False),
        ["second_order"],
        "second_order=False is declared, but second derivatives are right",
    ),
    "a gradient that is constant where upstream is one": (
        _sample(_gradient_with_a_shortcut),
        ["forward_mode"],
        r"forward mode over a tf.function: the change of output along .*, times random numbers, is 0, expected",
    ),
    "missing forward mode that is declared": (
        _sample(cube(square_without_gradient), forward_mode=True, skip={"saved_model": "has no second order"}),
        ["forward_mode"],
        r"forward_mode=True is declared, but forward mode over a tf.function raises for args\[0\]: LookupError",
    ),
    "forward mode that is declared missing": (
        _sample(tf.square, forward_mode=False),
        ["forward_mode"],
        "forward_mode=False is declared, but forward mode is right",
    ),
    "an overflow of a scaled loss": (
        _sample(_overflows_for_scaled_loss),
        ["mixed_precision"],
        r"float32 factor of args\[0\] is (nan|inf|-inf), expected",
    ),
    "wrong values in a loop": (_sample(_wrong_in_loops), ["graph_modes"], r"in a tf.while_loop: output\[\d, \d\] is"),
    "bad input that is accepted": (
        _sample(_accepts_any, X, X, bad_args=[((X, -X), "negative")]),
        ["bad_input"],
        r"bad_args\[0\] eagerly: no error, expected one with 'negative'",
    ),
    "a different error message": (
        _sample(tf.matmul, X, tf.transpose(X), bad_args=[((X, X), "no such words")]),
        ["bad_input"],
        r"bad_args\[0\] eagerly: InvalidArgumentError: .*expected a message with 'no such words'",
    ),
    "no XLA": (_sample(_no_xla, dtypes=["float32"], skip={"vectorization": "strings"}), ["xla"], "compiled by XLA: "),
    "XLA that is declared missing": (
        _sample(tf.nn.relu, xla=False),
        ["xla"],
        "xla=False is declared, but XLA compiles it",
    ),
}


@RegisterPFor("TensorflowOps>ZeroOut")
def _wrong_converter(pfor_input):
    from tensorflow.python.ops.parallel_for.pfor import wrap

    (x,) = [pfor_input.stacked_input(i) for i in range(pfor_input.num_inputs)]
    return wrap(tfo.zero_out(x), True)


def _user_function(a, options, *, scale):
    """A function with nests of inputs and outputs and a keyword argument."""
    y = tf.einsum("bi,ij->bj", a, options["weight"]) * scale
    return {"y": y, "pair": (tf.reduce_sum(y, 1), tf.argmax(y, 1))}


def _log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


_GOOD = {
    "relu": _sample(tf.nn.relu),
    "matmul": _sample(tf.matmul, X, tf.transpose(OTHER), bad_args=[((X, X), "size|[Dd]im")]),
    "softmax cross entropy": _sample(
        tf.nn.sparse_softmax_cross_entropy_with_logits,
        tf.constant([1, 0, 3]),
        X,
        reference=lambda labels, x: -np.take_along_axis(_log_softmax(x), labels[..., np.newaxis], -1)[..., 0],
    ),
    "nests and a keyword": tfo.testing.OpSample(
        _user_function, [X, {"weight": tf.concat([X, OTHER[:1]], 0)}], {"scale": 2}
    ),
    "complex numbers": tfo.testing.OpSample(
        lambda z: (z * tf.math.conj(z) + z**2, tf.math.abs(z)), [tf.complex(X, OTHER)], None, {}
    ),
    "integers": _sample(lambda x: x[::-1], tf.constant([[1, 2, 3], [4, 5, 6]])),
    "a boolean mask": _sample(
        lambda x: tf.boolean_mask(x, x > 0),
        data_dependent_shapes=True,
        unknown_rank=False,
        skip={"xla": "XLA pads data-dependent sizes"},
    ),
    "fixed dtypes": _sample(
        lambda x, y: tf.cast(x, tf.float32) * y[:, :1], X, OTHER, output_dtype="float32", fixed_dtype=1
    ),
    "a zero gradient": _sample(tf.math.round, non_differentiable=0),
}


_CHECKED = shard_testing.part_of({name: sample for name, (sample, _, _) in _FAULTS.items()} | _GOOD)


class FaultsTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.results = tfo.testing.opcheck_samples(_CHECKED, raise_on_failure=False)

    @parameterized.parameters(*(_FAULTS.keys() & _CHECKED.keys()))
    def test_finds(self, name):
        _, tests, message = _FAULTS[name]
        results = self.results[name]
        self.assertEqual(list(results.failures), tests, f"\n{results}")
        self.assertRegex(results[tests[0]].detail, re.compile(message, re.DOTALL))

    @parameterized.parameters(*(_GOOD.keys() & _CHECKED.keys()))
    def test_finds_nothing_in(self, name):
        self.assertEmpty(self.results[name].failures, f"\n{self.results[name]}")


if __name__ == "__main__":
    tf.test.main()
