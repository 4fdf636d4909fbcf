"""Tests of roi_pool's gradients of any order."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo
from tensorflow_ops.core.python.library import ops

_DATA_FORMATS = ("NHWC", "NCHW")
_NAN, _INF = float("nan"), float("inf")

# For images of 6 x 7 pixels: overlapping bins, overlapping boxes, boxes at the edges, and boxes without gradient.
_BOXES = [
    [0, 0, 6, 5],
    [1, 1, 4, 4],
    [1, 1, 4, 4],
    [-3, -2, 2, 3],
    [4, 3, 9, 9],
    [2, 2, 2, 2],
    [1.5, 0.5, 3.5, 2.5],
    [20, 20, 30, 30],
    [4, 4, 1, 1],
    [0, 0, _NAN, 3],
    [0, 0, _INF, 3],
    [-1e30, -1e30, 1e30, 1e30],
]
_BOX_INDICES = [k % 2 for k in range(len(_BOXES))]


def _distinct(shape, dtype=tf.float64, seed=1):
    """Returns NHWC values that differ by at least 1/8, so that no small step changes a maximum."""
    size = int(np.prod(shape))
    values = np.random.default_rng(seed).permutation(size) - size // 2
    return (values / 8).reshape(shape).astype(dtype.as_numpy_dtype)


def _random(shape, dtype=tf.float64, seed=2):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype.as_numpy_dtype)


def _to_format(nhwc, data_format):
    return np.transpose(nhwc, [0, 3, 1, 2]) if data_format == "NCHW" else nhwc


def _gradient(function, x, upstream=None):
    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x, output_gradients=upstream)


def _pool(boxes=_BOXES, box_indices=_BOX_INDICES, output_size=(2, 3), data_format="NHWC"):
    return lambda x: tfo.detection.roi_pool(x, boxes, box_indices, output_size, data_format=data_format)


def _scatter(upstream, argmax, box_indices, shape):
    """Returns the NHWC gradient to features in float64: adds each upstream to its maximum's pixel."""
    result = np.zeros(shape)
    for k, p, q, c in np.ndindex(*argmax.shape):
        if argmax[k, p, q, c] >= 0:
            y, x = divmod(argmax[k, p, q, c], shape[2])
            result[box_indices[k], y, x, c] += np.float64(upstream[k, p, q, c])
    return result


class FirstOrderTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(("xyxy", "NHWC"), ("yxyx", "NCHW"))
    def test_numeric_gradient(self, box_format, data_format):
        boxes = [[4, 2, 18, 13], [9, 5, 11, 12]]

        def loss(x):
            y = tfo.detection.roi_pool(
                x, boxes, [0, 0], (3, 2), spatial_scale=0.5, data_format=data_format, box_format=box_format
            )
            return tf.reduce_sum(_random(y.shape) * y)

        x = _to_format(_distinct([1, 8, 10, 2]), data_format)
        theoretical, numeric = tf.test.compute_gradient(loss, [x])
        self.assertAllClose(theoretical[0], numeric[0], atol=1e-9)
        self.assertGreater(np.count_nonzero(theoretical[0]), 5)

    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_sums_of_many_overlapping_boxes_round_once(self, dtype):
        """Sums 300 numbers: bfloat16 sums would stop at 256, and float16 sums would lose a tenth of each number."""
        shape, count = (2, 6, 7, 33), 300
        features = _distinct(shape, tf.float32).astype(dtype.as_numpy_dtype)
        boxes, box_indices = (
            [[0, 0, 6, 5], [1, 1, 4, 4], [2, 2, 9, 9]] * (count // 3),
            [k // 3 % 2 for k in range(count)],
        )
        pool = _pool(boxes, box_indices, (2, 2))
        upstream = np.random.default_rng(4).uniform(0.5, 1.5, pool(features).shape).astype(dtype.as_numpy_dtype)
        result = _gradient(pool, features, tf.constant(upstream))
        self.assertEqual(result.dtype, dtype)

        argmax = tfo.detection.roi_pool_with_argmax(features, boxes, box_indices, (2, 2)).argmax
        expected = _scatter(upstream, argmax.numpy(), box_indices, shape)
        # Half a unit in the last place, for one final rounding; float32 sums add a little.
        tolerance = {tf.float16: 2**-11, tf.bfloat16: 2**-8}[dtype] * 1.01
        self.assertAllClose(tf.cast(result, tf.float64), expected, rtol=tolerance, atol=0)
        self.assertGreater(expected.max(), 100)


class HigherOrderTest(parameterized.TestCase, tf.test.TestCase):
    """Derivatives of sum(w pool(x)^3): upstream depends on x, so every order uses the op's gradients."""

    @pairwise(order=(2, 3), data_format=_DATA_FORMATS, graph=(False, True))
    def test_numeric_gradient(self, order, data_format, graph):
        boxes, box_indices = [[0, 0, 3, 2], [1, 1, 2, 2], [1, 1, 9, 9], [0, 0, _NAN, 1]], [0, 1, 1, 0]
        pool = _pool(boxes, box_indices, 2, data_format)
        x = tf.constant(_to_format(_distinct([2, 3, 4, 2]), data_format))
        weights = _random(pool(x).shape)

        def first(x):
            return _gradient(lambda x: weights * pool(x) ** 3, x)

        def second(x):
            return _gradient(lambda x: _random(x.shape, seed=5) * x**2 * first(x), x)

        function = {2: first, 3: second}[order]
        theoretical, numeric = tf.test.compute_gradient(tf.function(function) if graph else function, [x])
        self.assertAllClose(theoretical[0], numeric[0], rtol=1e-4, atol=1e-4)
        self.assertGreater(np.count_nonzero(theoretical[0]), 5)


class GraphTest(parameterized.TestCase, tf.test.TestCase):
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
