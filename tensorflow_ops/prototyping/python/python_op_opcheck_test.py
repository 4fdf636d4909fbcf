"""Runs opcheck on python_ops: derivatives of two orders, saved values, nests, integers, strings, a kernel."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from python_op_testing import cube_op, op_name, product_op, same

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_X, _W = (tf.constant(_RNG.normal(size=shape), tf.float32) for shape in ((2, 3), (3, 4)))
_NO_FILE = {"saved_model": "a SavedModel cannot hold a Python function", "distribution": "loads a SavedModel"}
_TWICE = {"second_order": True, "skip": {**_NO_FILE, "forward_mode": "over a gradient it needs third derivatives"}}
_PRODUCT = {**_TWICE, "dtypes": ("float16", "float32", "float64")}  # NumPy has no products in bfloat16
_INDEX_ERRORS = {test: "indices out of range are an IndexError" for test in ("extreme_values", "bad_input")}


def _nest():
    """Returns an op of several inputs and a nest of outputs, of which one is an integer."""

    def out(x, y):
        return {"sum": same(x), "parts": [same(x), (tf.TensorSpec([], tf.int32),)]}

    @tfo.python_op(op_name(), out=out)
    def nest(x, y):
        return {"parts": [x - y, (np.int32(x.size),)], "sum": x + y}

    nest.register_gradient(lambda ctx, d_difference, _, d_sum: (d_sum + d_difference, d_sum - d_difference))

    def call(x, y):
        result = nest(x, y=y)
        assert isinstance(result["parts"][1], tuple)
        return result

    return call


def _gather():
    """Returns an op with integer, boolean and declared inputs without gradient."""

    def out(x, indices, *others):
        return indices, tf.TensorSpec(indices.shape, x.dtype)

    @tfo.python_op(op_name(), out=out, non_differentiable=["scale"])
    def gather(x, indices, mask, scale):
        return indices, x[indices] * mask * scale

    @gather.register_gradient
    def _(ctx, d_indices, dy):
        assert d_indices is None
        x, indices, mask, scale = ctx.inputs
        dx = np.zeros_like(x)
        np.add.at(dx, indices, dy * mask * scale)
        return dx, None, None, None

    return gather


def _square():
    op = tfo.python_op(op_name(), out=same)(lambda x: x * x)
    op.register_gradient(lambda ctx, dy: 2 * np.conj(ctx.inputs[0]) * dy)
    return op


def _variadic():
    op = tfo.python_op(op_name(), out=same)(lambda x, *others: sum(others, start=x))
    op.register_gradient(lambda ctx, dy: (dy,) * len(ctx.inputs))
    return op


def _reverse():
    """Returns an op without gradient of any dtype."""
    return tfo.python_op(op_name(), out=same)(lambda x: x[::-1].copy())


def _relu():
    op = tfo.python_op(op_name(), out=same)(lambda x: np.maximum(x, 0))
    op.register_kernel(tf.nn.relu)
    return op


def _sample(fn, *args, **options):
    return tfo.testing.OpSample(fn, args, None, {"xla": False, "skip": _NO_FILE, **options})


_SAMPLES = {
    "saved values": _sample(cube_op()[0], _X, **_TWICE),
    "complex": _sample(_square(), tf.complex(_X, _X + 1)),
    "batched": _sample(product_op("batched")[0], _X, _W, **_PRODUCT),
    "sequential": _sample(product_op("sequential")[0], _X, _W, **_PRODUCT),
    "nest": _sample(
        _nest(), _X, 2 * _X, reference=lambda x, y: {"sum": x + y, "parts": [x - y, (np.int32(x.size),)]}
    ),
    "inputs without gradient": _sample(
        _gather(), tf.constant([1.0, 2.0, 3.0, 4.0, 5.0]), tf.constant([0, 0, 2]), tf.constant([True, True, False]),
        tf.constant(2.0), non_differentiable=3, skip={**_NO_FILE, **_INDEX_ERRORS},
    ),
    "variable number of inputs": _sample(_variadic(), _X, _X, 2 * _X, reference=lambda *x: sum(x)),
    "integers": _sample(_reverse(), tf.constant([[1, 2, 3], [4, 5, 6]], tf.int64), reference=np.flipud),
    "strings": _sample(_reverse(), tf.constant([["a", "bc\0"], ["", "d"], ["é", "e"]]), reference=np.flipud),
    "a kernel": _sample(_relu(), _X, xla=True, skip={}),
}  # fmt: skip


class OpcheckTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.results = tfo.testing.opcheck_samples(_SAMPLES, raise_on_failure=False)

    @parameterized.parameters(*_SAMPLES)
    def test_samples(self, name):
        self.assertEmpty(self.results[name].failures, f"\n{self.results[name]}")


if __name__ == "__main__":
    tf.test.main()
