"""Tests of the errors that bad arguments of the cross entropies and label_log_prob raise."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_INF, _NAN = math.inf, math.nan
_X = np.zeros([2, 3], np.float32)
_NUMBER_IN = r"expected a number in \[0, 1\]"
_NOT_NEGATIVE = "expected a finite number that is not negative"


class BadInputTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        ([0, 1], np.zeros([2, 3], np.int32), {}, "logits are int32, expected float16"),
        ([0, 1], np.zeros([2, 0], np.float32), {}, r"logits are \[2,0\], expected at least one class on axis -1"),
        (0, 1.0, {}, "logits are a scalar"),
        ([0.0, 1.0], _X, {}, "labels are float32, expected int32 or int64"),
        (np.array([True, False]), _X, {}, "labels are bool, expected int32 or int64"),
        (np.zeros(2, np.uint64), _X, {}, "labels are uint64, expected int32 or int64"),
        ([0, 1, 2], _X, {}, r"labels are \[3\], expected \[2\]: logits' shape without the classes"),
        ([[0], [1]], _X, {}, r"labels are \[2,1\], expected \[2\]"),
        (0, _X, {}, r"labels are \[\], expected \[2\]"),
        ([0, 1], _X, {"label_smoothing": 1.1}, f"label_smoothing is 1.1, {_NUMBER_IN}"),
        ([0, 1], _X, {"label_smoothing": -0.1}, f"label_smoothing is -0.1, {_NUMBER_IN}"),
        ([0, 1], _X, {"label_smoothing": _NAN}, f"label_smoothing is nan, {_NUMBER_IN}"),
        ([0, 1], _X, {"label_smoothing": "0.1"}, f"label_smoothing is '0.1', {_NUMBER_IN}"),
        ([0, 1], _X, {"label_smoothing": True}, f"label_smoothing is True, {_NUMBER_IN}"),
        ([0, 1], _X, {"z_loss": -1e-4}, f"z_loss is -0.0001, {_NOT_NEGATIVE}"),
        ([0, 1], _X, {"z_loss": _INF}, f"z_loss is inf, {_NOT_NEGATIVE}"),
        ([0, 1], _X, {"z_loss": 1e39}, r"z_loss is 1e\+39, expected a finite number"),
        ([0, 1], _X, {"z_loss": None}, f"z_loss is None, {_NOT_NEGATIVE}"),
        ([0, 1], _X, {"ignore_index": 0.0}, "ignore_index is 0.0, expected a 64-bit int or None"),
        ([0, 1], _X, {"ignore_index": True}, "ignore_index is True, expected a 64-bit int or None"),
        ([0, 1], _X, {"ignore_index": 2**63}, "ignore_index is 9223372036854775808, expected a 64-bit int or None"),
    )
    def test_sparse(self, labels, logits, options, message):
        functions = [tfo.nn.sparse_softmax_cross_entropy] + [tfo.nn.label_log_prob] * (not options)
        for function in functions:
            for call in (function, lambda *args, f=function, **kwargs: tf.function(f)(*args, **kwargs)):
                with self.assertRaisesRegex(ValueError, message):
                    call(labels, logits, **options)

    @parameterized.parameters(
        (_X, np.zeros([2, 3], np.int32), {}, "logits are int32, expected float16"),
        (np.zeros([2, 4]), _X, {}, r"labels are \[2,4\], expected \[2,3\]: logits' shape"),
        ([0, 1], _X, {}, r"labels are \[2\], expected \[2,3\]: logits' shape"),
        (np.zeros([4]), _X, {"axis": -2}, r"labels are \[4\], expected \[2,3\]: logits' shape"),
        (_X, _X, {"axis": 2}, r"axis is 2, expected \[-2, 2\): logits are \[2,3\]"),
        (_X, _X, {"label_smoothing": 2}, f"label_smoothing is 2, {_NUMBER_IN}"),
        (np.zeros([0, 3]), np.zeros([0, 3]), {"axis": 0}, r"logits are \[0,3\], expected at least one class on axis 0"),
    )
    def test_dense(self, labels, logits, options, message):
        with self.assertRaisesRegex(ValueError, message):
            tfo.nn.softmax_cross_entropy(labels, logits, **options)

    @parameterized.parameters((np.int32, 300), (np.int64, 3))
    def test_labels_out_of_range(self, labels_dtype, classes):
        x = tf.zeros([2, 4, classes])
        for bad in (classes, -1, np.iinfo(labels_dtype).min, np.iinfo(labels_dtype).max):
            labels = np.zeros([2, 4], labels_dtype)
            labels[1, 1] = labels[1, 3] = bad  # the message names the first one
            message = rf"labels\[5\] is {bad}, expected \[0, {classes}\)"
            for function in (tfo.nn.sparse_softmax_cross_entropy, tfo.nn.label_log_prob):
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                    function(labels, x)
            if bad != -1:
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message + " or ignore_index -1"):
                    tfo.nn.sparse_softmax_cross_entropy(labels, x, ignore_index=-1)

    def test_at_run_time(self):
        loss = tf.function(
            tfo.nn.sparse_softmax_cross_entropy,
            input_signature=[tf.TensorSpec(None, tf.int32), tf.TensorSpec(None, tf.float32)],
        )
        dense = tf.function(tfo.nn.softmax_cross_entropy, input_signature=[tf.TensorSpec(None, tf.float32)] * 2)
        for function, labels, logits, message in (
            (loss, [0, 1, 2], _X, r"labels must have logits' shape without the classes"),
            (loss, [[0], [1]], _X, r"labels must have logits' shape without the classes"),
            (loss, [0, 1], np.zeros([2, 0], np.float32), r"logits must have at least one class, got \[2,0\]"),
            (loss, 0, np.float32(1), r"logits must be \[\.\.\., classes\]"),
            (dense, np.zeros([2, 4], np.float32), _X, r"labels and logits must have the same shape"),
            (dense, _X, np.zeros([2, 0], np.float32), r"logits must have at least one class, got \[2,0\]"),
        ):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                function(labels, logits)


if __name__ == "__main__":
    tf.test.main()
