"""Tests of roi_pool and roi_pool_with_argmax: values by hand, bad input. roi_grad_test.py tests gradients."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python.library import ops

_NAN, _INF = math.nan, math.inf


class ForwardTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(tf.float32, tf.float64)
    def test_enormous_boxes(self, dtype):
        features = tf.reshape(tf.range(16, dtype=dtype), [1, 4, 4, 1])
        boxes = [[-1e30, -1e30, 1e30, 1e30], [0, 0, 1e30, 1e30], [-3e38, -3e38, 0, 0], [-1e30, 1, 1e30, 2]]
        output = tfo.detection.roi_pool(features, boxes, [0] * 4, 3)[..., 0]
        self.assertAllEqual(output[0], [[0, 0, 0], [0, 15, 0], [0, 0, 0]])
        self.assertAllEqual(output[1], [[15, 0, 0], [0, 0, 0], [0, 0, 0]])
        self.assertAllEqual(output[2], np.zeros([3, 3]))  # pixel 0 only, whose value is 0
        self.assertAllEqual(output[3], [[0, 7, 0], [0, 11, 0], [0, 11, 0]])
        # The scaled coordinates overflow, but finite boxes remain valid.
        output = tfo.detection.roi_pool(features, boxes[:1], [0], 3, spatial_scale=1e20)
        self.assertAllEqual(output[0, :, :, 0], [[0, 0, 0], [0, 15, 0], [0, 0, 0]])

    def test_coordinates_of_half_precision_features_are_float32(self):
        # Neighbouring pixels that coincide when rounded to float16 or bfloat16.
        features = tf.reshape(tf.range(4096) % 32, [1, 1, 4096, 1])
        boxes = [[2049, 0, 2049, 0], [2050, 0, 2050, 0], [2051, 0, 2051, 0]]
        for dtype in (tf.float16, tf.bfloat16):
            output = tfo.detection.roi_pool(tf.cast(features, dtype), boxes, [0] * 3, 1)
            self.assertAllEqual(tf.reshape(tf.cast(output, tf.int32), [-1]), [1, 2, 3])

    def test_result_fields_and_op_name(self):
        with tf.Graph().as_default():
            arguments = (tf.zeros([1, 4, 4, 1]), [[0.0, 0, 1, 1]], [0], 1)
            result = tfo.detection.roi_pool_with_argmax(*arguments, name="pooled")
            self.assertEqual(result._fields, ("output", "argmax"))
            self.assertIsInstance(result, tfo.detection.RoIPoolWithArgmax)
            self.assertEqual(result.output.op.name, "pooled")
            self.assertEqual(tfo.detection.roi_pool(*arguments, name="again").op.name, "again")


class BadInputTest(parameterized.TestCase, tf.test.TestCase):
    """Errors found in Python or in known shapes are ValueErrors, those found at run time InvalidArgumentErrors."""

    _GOOD = {  # noqa: RUF012
        "features": np.zeros([2, 4, 5, 3], np.float32),
        "boxes": np.zeros([3, 4], np.float32),
        "box_indices": np.zeros([3], np.int32),
        "output_size": np.array([2, 2], np.int32),
    }

    @parameterized.parameters(
        ({"box_indices": np.array([2**31 - 1, 0, 0], np.int32)}, r"box_indices\[0\] is 2147483647"),
        ({"features": np.zeros([0, 4, 5, 3], np.float32)}, r"box_indices\[0\] is 0, expected \[0, 0\)"),
        ({"output_size": np.array([0, 2], np.int32)}, r"output_size is \(0, 2\)"),
        ({"output_size": np.array([2, -1], np.int32)}, r"output_size is \(2, -1\)"),
        ({"output_size": np.array([2**20 + 1, 1], np.int32)}, r"output_size is \(1048577, 1\), .* in \[1, 2\^20\]"),
        ({"output_size": np.array([2**32 + 2, 2], np.int64)}, r"output_size is \(2147483647, 2\)"),
        ({"output_size": np.array([2, 2, 2], np.int32)}, r"output_size must be \(height, width\).*\[3\]"),
        # The number of elements overflows 64 bits.
        (
            {"output_size": np.array([2**20] * 2, np.int32), "features": np.zeros([2, 1, 1, 2**22], np.float32)},
            "overflow",
        ),
    )
    def test_at_run_time(self, bad, message):
        arguments = {**self._GOOD, **bad}
        of_a_shape = " must be " in message
        with self.assertRaisesRegex(ValueError if of_a_shape else tf.errors.InvalidArgumentError, message):
            tfo.detection.roi_pool(**{name: tf.constant(value) for name, value in arguments.items()})
        unknown = [tf.TensorSpec(None, value.dtype) for value in arguments.values()]
        graph = tf.function(tfo.detection.roi_pool, input_signature=unknown)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            graph(*arguments.values())

    @parameterized.parameters(0.0, -0.5, _NAN, _INF, -_INF)
    def test_spatial_scale_is_positive_and_finite(self, scale):
        message = "spatial_scale is .*expected a positive, finite number"
        arguments = [tf.constant(value) for value in self._GOOD.values()]
        for function in (tfo.detection.roi_pool, tf.function(tfo.detection.roi_pool)):
            with self.assertRaisesRegex(ValueError, message):
                function(*arguments, spatial_scale=scale)
        for op in (ops.tensorflow_ops_roi_pool, tf.function(ops.tensorflow_ops_roi_pool)):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                op(*arguments, spatial_scale=scale)

    def test_raw_op_requires_boxes_of_the_features_dtype(self):
        for features, boxes, message in (
            (tf.float32, tf.float64, "boxes are double, expected float with these features"),
            (tf.bfloat16, tf.float64, "boxes are double, expected float with these features"),
            (tf.float64, tf.float32, "boxes are float, expected double with these features"),
        ):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                ops.tensorflow_ops_roi_pool(tf.zeros([1, 4, 4, 1], features), tf.zeros([1, 4], boxes), [0], [1, 1])


class GradientOpTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        ({"argmax": tf.zeros([1, 2, 3, 3], tf.int32)}, r"argmax must have d_output's shape.*\[1,2,3,3\]"),
        ({"d_output": tf.zeros([1, 2, 2, 4])}, r"d_output.*\[1,2,2,4\]"),
        ({"d_output": tf.zeros([2, 2, 2, 3])}, r"d_output.*\[2,2,2,3\]"),
        ({"boxes": tf.zeros([1, 5])}, r"boxes must be \[K, 4\].*\[1,5\]"),
        ({"box_indices": tf.constant([2])}, r"box_indices\[0\] is 2, expected \[0, 2\)"),
        ({"features_shape": tf.constant([2, 4, 5], tf.int64)}, "features_shape must have 4 sizes"),
        ({"features_shape": tf.constant([2, -4, 5, 3], tf.int64)}, r"-4"),
    )
    def test_gradient_op_rejects_mismatched_inputs(self, bad, message):
        good = {
            "d_output": tf.zeros([1, 2, 2, 3]),
            "argmax": tf.zeros([1, 2, 2, 3], tf.int32),
            "boxes": tf.zeros([1, 4]),
            "box_indices": tf.constant([0]),
            "features_shape": tf.constant([2, 4, 5, 3], tf.int64),
        }
        with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), message):
            ops.tensorflow_ops_roi_pool_grad(**{**good, **bad})

    def test_empty_gradient_of_any_shape_gives_zeros(self):
        # An empty tensor may have a huge dim, over which no loop should run.
        for shape in ([1, 2**20, 0, 2], [1, 0, 2**20, 2]):
            gradient = ops.tensorflow_ops_roi_pool_grad(
                d_output=tf.zeros(shape),
                argmax=tf.zeros(shape, tf.int32),
                boxes=[[0.0, 0.0, 3.0, 3.0]],
                box_indices=[0],
                features_shape=tf.constant([1, 4, 4, 2], tf.int64),
            )
            self.assertAllEqual(gradient, tf.zeros([1, 4, 4, 2]))
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"d_output is .*expected .*at most 2\^20"):
            ops.tensorflow_ops_roi_pool_grad(
                d_output=tf.zeros([1, 2**40, 0, 2]),
                argmax=tf.zeros([1, 2**40, 0, 2], tf.int32),
                boxes=[[0.0, 0.0, 3.0, 3.0]],
                box_indices=[0],
                features_shape=tf.constant([1, 4, 4, 2], tf.int64),
            )


if __name__ == "__main__":
    tf.test.main()
