"""Compositions of the ops of zero_out and core: against the ops."""

import compositions_testing as testing
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

_NUMBERS = (
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "qint8", "quint8", "qint16", "quint16", "qint32"),
)
_BITS = {"qint8": tf.int8, "quint8": tf.uint8, "qint16": tf.int16, "quint16": tf.uint16, "qint32": tf.int32}


def _numbers(shape, name):
    values = tf.reshape(tf.range(1, int(np.prod(shape)) + 1), shape)
    return tf.bitcast(tf.cast(values, _BITS.get(name, name)), tf.as_dtype(name))


def _bits(outputs):
    return [tf.bitcast(x, _BITS[x.dtype.name]) if x.dtype.name in _BITS else x for x in outputs]


class ZeroOutTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(dtype=_NUMBERS, shape=((2, 3), (0, 2)))
    def test_zero_out(self, dtype, shape):
        testing.check(self, "ZeroOut", [_numbers(shape, dtype)], {}, _bits)

    @pairwise(dtype=_NUMBERS, case=(((), 0), ((2, 3), 4)))
    def test_zero_out_with_index(self, dtype, case):
        shape, index = case
        testing.check(self, "ZeroOutWithIndex", [_numbers(shape, dtype)], {"preserve_index": index}, _bits)

    @parameterized.parameters(-4, 3)
    def test_index_out_of_range_is_an_error(self, index):
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "is not in"):
            testing.run_composition("ZeroOutWithIndex", [tf.ones([3])], {"preserve_index": index})


class CoreTest(tf.test.TestCase):
    def test_check_values_returns_them(self):
        attrs = {"argument": "x", "expected": "1", "on_gpu": True}
        testing.check(self, "CheckValues", [tf.constant([1, 2]), tf.constant([True, True])], attrs)
        testing.check(self, "CheckValues", [tf.constant("a"), tf.constant(True)], attrs)

    def test_check_values_does_not_check(self):
        attrs = {"argument": "x", "expected": "1", "on_gpu": True}
        inputs = [tf.constant([1, 2]), tf.constant([True, False])]
        self.assertAllEqual(testing.run_composition("CheckValues", inputs, attrs)[0], [1, 2])


if __name__ == "__main__":
    tf.test.main()
