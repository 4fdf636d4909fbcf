"""Tests of roi_pool's gradients of any order."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python.library import ops

_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
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
_SHAPE = (2, 6, 7, 3)


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
    @parameterized.product(data_format=_DATA_FORMATS, graph=(False, True))
    def test_numeric_gradient(self, data_format, graph):
        pool = _pool(data_format=data_format)
        x = _to_format(_distinct(_SHAPE), data_format)
        weights = _random(pool(x).shape)

        def loss(x):
            return tf.reduce_sum(weights * pool(x))

        theoretical, numeric = tf.test.compute_gradient(tf.function(loss) if graph else loss, [x])
        self.assertAllClose(theoretical[0], numeric[0], atol=1e-9)
        self.assertGreater(np.count_nonzero(theoretical[0]), 20)

    @parameterized.product(box_format=("xyxy", "yxyx"), data_format=_DATA_FORMATS)
    def test_numeric_gradient_with_options(self, box_format, data_format):
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

    def test_torchvisions_case(self):
        x = np.random.default_rng(3).random([1, 8, 5, 5])
        boxes = [[0, 0, 4, 4], [0, 2, 3, 4], [2, 2, 4, 4]]
        pool = _pool(boxes, [0, 0, 0], 2, "NCHW")
        theoretical, numeric = tf.test.compute_gradient(pool, [x], delta=1e-7)
        self.assertAllClose(theoretical[0], numeric[0], atol=1e-6)

    @parameterized.product(dtype=_DTYPES, data_format=_DATA_FORMATS)
    def test_sums_of_many_overlapping_boxes_round_once(self, dtype, data_format):
        """Sums 300 numbers: bfloat16 sums would stop at 256, and float16 sums would lose a tenth of each number."""
        shape, count = (2, 6, 7, 33), 300
        features = _distinct(shape, tf.float32).astype(dtype.as_numpy_dtype)
        features = _to_format(features, data_format)
        boxes, box_indices = (
            [[0, 0, 6, 5], [1, 1, 4, 4], [2, 2, 9, 9]] * (count // 3),
            [k // 3 % 2 for k in range(count)],
        )
        pool = _pool(boxes, box_indices, (2, 2), data_format)
        upstream = np.random.default_rng(4).uniform(0.5, 1.5, pool(features).shape).astype(dtype.as_numpy_dtype)
        result = _gradient(pool, features, tf.constant(upstream))
        self.assertEqual(result.dtype, dtype)

        argmax = tfo.detection.roi_pool_with_argmax(
            features, boxes, box_indices, (2, 2), data_format=data_format
        ).argmax
        to_nhwc = [0, 2, 3, 1] if data_format == "NCHW" else [0, 1, 2, 3]
        expected = _scatter(np.transpose(upstream, to_nhwc), np.transpose(argmax, to_nhwc), box_indices, shape)
        # Half a unit in the last place, for one final rounding; float32 sums add a little.
        tolerance = {tf.float16: 2**-11, tf.bfloat16: 2**-8, tf.float32: 1e-6, tf.float64: 1e-14}[dtype] * 1.01
        result = np.transpose(tf.cast(result, tf.float64), to_nhwc)
        self.assertAllClose(result, expected, rtol=tolerance, atol=0)
        self.assertGreater(expected.max(), 100)

    def test_gradient_of_ties_goes_to_the_first(self):
        x = tf.ones([1, 2, 3, 1])
        result = _gradient(_pool([[0, 0, 2, 1]], [0], 1), x, tf.constant([[[[5.0]]]]))
        self.assertAllEqual(result[0, :, :, 0], [[5, 0, 0], [0, 0, 0]])

    def test_gradient_of_nan_and_infinity_goes_to_their_pixel(self):
        x = tf.constant([[[1.0], [_NAN], [_NAN]], [[-_INF], [-_INF], [-_INF]]])[tf.newaxis]
        result = _gradient(_pool([[0, 0, 2, 0], [0, 1, 2, 1]], [0, 0], 1), x)
        self.assertAllEqual(result[0, :, :, 0], [[0, 1, 0], [1, 0, 0]])

    @parameterized.parameters(*_DATA_FORMATS)
    def test_boxes_without_pixels_have_no_gradient(self, data_format):
        boxes = [
            [9, 9, 12, 12],
            [-9, -9, -3, -3],
            [2, 0, 1, 3],
            [0, 2, 3, 1],
            [_NAN] * 4,
            [0, 0, _NAN, 3],
            [_INF] * 4,
            [0, 0, 3, _INF],
            [-_INF, 0, 3, 3],
            [1e30, 1e30, 2e30, 2e30],
        ]
        x = tf.ones(_to_format(np.empty([1, 4, 4, 3]), data_format).shape)
        result = _gradient(_pool(boxes, [0] * len(boxes), 2, data_format), x)
        self.assertAllEqual(result, np.zeros(x.shape))

    @parameterized.parameters(False, True)
    def test_boxes_have_no_gradient(self, graph):
        x, boxes = tf.constant(_distinct(_SHAPE)), tf.constant(_BOXES, tf.float64)

        def gradients(x, boxes):
            with tf.GradientTape() as tape:
                tape.watch([x, boxes])
                y = tfo.detection.roi_pool(x, boxes, _BOX_INDICES, 2)
            return tape.gradient(y, [x, boxes])

        d_x, d_boxes = (tf.function(gradients) if graph else gradients)(x, boxes)
        self.assertEqual(d_x.shape, _SHAPE)
        self.assertIsNone(d_boxes)

    @parameterized.parameters(
        ([1, 4, 4, 3], 0), ([0, 4, 4, 3], 0), ([1, 4, 4, 0], 2), ([1, 0, 4, 3], 2), ([1, 4, 0, 3], 2)
    )
    def test_empty_input(self, shape, num_boxes):
        for data_format in _DATA_FORMATS:
            x = tf.ones(_to_format(np.empty(shape), data_format).shape)
            pool = _pool(tf.ones([num_boxes, 4]), [0] * num_boxes, 2, data_format)
            self.assertAllEqual(_gradient(pool, x), np.zeros(x.shape))
            self.assertAllEqual(_gradient(lambda x, pool=pool: _gradient(pool, x) * x, x), np.zeros(x.shape))


class HigherOrderTest(parameterized.TestCase, tf.test.TestCase):
    """Derivatives of sum(w pool(x)^3): upstream depends on x, so every order uses the op's gradients."""

    @parameterized.product(order=(2, 3), data_format=_DATA_FORMATS, graph=(False, True))
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

    @parameterized.parameters(*_DTYPES)
    def test_grad_grad_reads_the_maximums_pixel(self, dtype):
        features, dd = (tf.constant(f(_SHAPE, dtype)) for f in (_distinct, _random))
        boxes = tf.constant(_BOXES, tf.float64 if dtype == tf.float64 else tf.float32)
        argmax = tfo.detection.roi_pool_with_argmax(features, boxes, _BOX_INDICES, 2).argmax
        result = ops.tensorflow_ops_roi_pool_grad_grad(dd, argmax, boxes, _BOX_INDICES)
        self.assertEqual(result.dtype, dtype)
        for k, p, q, c in np.ndindex(*argmax.shape):
            y, x = divmod(int(argmax[k, p, q, c]), _SHAPE[2])
            expected = dd[_BOX_INDICES[k], y, x, c] if y >= 0 else 0
            self.assertEqual(result[k, p, q, c], expected)

    @parameterized.product(use_pfor=(True, False), data_format=_DATA_FORMATS)
    def test_jacobian_has_a_one_at_each_maximum(self, use_pfor, data_format):
        boxes, box_indices = [[0, 0, 3, 2], [1, 1, 9, 9], [5, 5, 9, 9]], [0, 1, 0]
        x = tf.constant(_to_format(_distinct([2, 3, 4, 2]), data_format))
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y, argmax = tfo.detection.roi_pool_with_argmax(x, boxes, box_indices, 2, data_format=data_format)
        jacobian = tape.jacobian(y, x, experimental_use_pfor=use_pfor)
        to_nhwc = [0, 2, 3, 1] if data_format == "NCHW" else [0, 1, 2, 3]
        argmax = np.transpose(argmax, to_nhwc)
        expected = np.zeros([*argmax.shape, 2, 3, 4, 2])
        for at in np.ndindex(*argmax.shape):
            if argmax[at] >= 0:
                expected[(*at, box_indices[at[0]], *divmod(argmax[at], 4), at[3])] = 1
        jacobian = np.transpose(jacobian, to_nhwc + [4 + axis for axis in to_nhwc])
        self.assertAllEqual(jacobian, expected)


class GraphTest(parameterized.TestCase, tf.test.TestCase):
    def test_one_trace_serves_every_size_in_every_order(self):
        @tf.function(
            input_signature=[
                tf.TensorSpec(None, tf.float64),
                tf.TensorSpec(None, tf.float64),
                tf.TensorSpec(None, tf.int32),
                tf.TensorSpec(None, tf.int32),
            ]
        )
        def gradients(x, boxes, box_indices, size):
            def first(x):
                return _gradient(lambda x: tfo.detection.roi_pool(x, boxes, box_indices, size) ** 3, x)

            return first(x), _gradient(first, x)

        for shape, count, size in (([2, 4, 5, 3], 2, (2, 2)), ([1, 7, 3, 2], 3, (1, 3)), ([1, 4, 4, 1], 0, (2, 2))):
            x = _distinct(shape)
            boxes = np.random.default_rng(6).uniform(0, 3, [count, 4]) + np.array([0, 0, 3, 3])
            box_indices = np.arange(count, dtype=np.int32) % shape[0]
            output, argmax = tfo.detection.roi_pool_with_argmax(x, boxes, box_indices, size)
            first, second = gradients(x, boxes, box_indices, size)
            self.assertAllClose(first, _scatter(3 * output.numpy() ** 2, argmax.numpy(), box_indices, shape))
            self.assertAllClose(second, _scatter(6 * output.numpy(), argmax.numpy(), box_indices, shape))
        self.assertEqual(gradients.experimental_get_tracing_count(), 1)

    @parameterized.parameters([[None, None, None, 3]], [[2, 6, 7, 3]], [None])
    def test_gradient_keeps_the_static_shape(self, shape):
        @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32)])
        def gradients(x):
            pool = _pool()
            return _gradient(pool, x), _gradient(lambda x: _gradient(lambda x: pool(x) ** 2, x), x)

        for result in gradients.get_concrete_function().output_shapes:
            self.assertEqual(result.as_list(), [None] * 4 if shape is None else shape)

    def test_shape_functions_of_the_gradient_ops(self):
        features, pooled = [2, 6, 7, 3], [5, 2, 2, 3]
        known = (pooled, pooled, [5, 4], [5])
        for mask in range(2**5):
            shapes = [None if mask >> i & 1 else shape for i, shape in enumerate(known)]
            with tf.Graph().as_default():
                d_output, argmax, boxes, box_indices = (
                    tf.compat.v1.placeholder(dtype, shape)
                    for dtype, shape in zip((tf.float32, tf.int32, tf.float32, tf.int32), shapes, strict=True)
                )
                size = tf.constant(features, tf.int64) if not mask >> 4 & 1 else tf.compat.v1.placeholder(tf.int64)
                grad = ops.tensorflow_ops_roi_pool_grad(d_output, argmax, boxes, box_indices, size)
                channel_known = mask & 3 != 3
                expected = [3 if channel_known and n == 3 else None for n in features]
                self.assertEqual(grad.shape.as_list(), list(features) if not mask >> 4 & 1 else expected)

                dd_features = tf.compat.v1.placeholder(tf.float32, features if not mask >> 4 & 1 else None)
                grad_grad = ops.tensorflow_ops_roi_pool_grad_grad(dd_features, argmax, boxes, box_indices)
                if not mask & 2:
                    expected = list(pooled)
                else:
                    boxes_known, channels_known = mask & 12 != 12, not mask >> 4 & 1
                    expected = [5 if boxes_known else None, None, None, 3 if channels_known else None]
                self.assertEqual(grad_grad.shape.as_list(), expected)

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

    def test_out_of_range_argmax_adds_nothing(self):
        """Invalid argmax values never reach memory outside the box's rows."""
        shape, box = [1, 4, 5, 1], [[0.0, 0.0, 4.0, 3.0]]
        for wrong in (20, -1, -7, 2**31 - 1, -(2**31)):
            argmax = tf.constant(wrong, tf.int32, [1, 1, 1, 1])
            grad = ops.tensorflow_ops_roi_pool_grad(
                tf.ones([1, 1, 1, 1]), argmax, box, [0], tf.constant(shape, tf.int64)
            )
            self.assertAllEqual(grad, np.zeros(shape))
            grad_grad = ops.tensorflow_ops_roi_pool_grad_grad(tf.ones(shape), argmax, box, [0])
            self.assertAllEqual(grad_grad, [[[[0.0]]]])

    def test_in_a_while_loop(self):
        x = tf.constant(_distinct([1, 6, 6, 2]))

        @tf.function
        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.zeros([], tf.float64)
                for i in tf.range(3):
                    start = tf.cast(i, tf.float64)
                    total += tf.reduce_sum(tfo.detection.roi_pool(x, [[start, 0.0, start + 2, 5.0]], [0], 2) ** 2)
            return tape.gradient(total, x)

        expected = np.zeros(x.shape)
        for i in range(3):
            output, argmax = tfo.detection.roi_pool_with_argmax(x, [[i, 0, i + 2, 5]], [0], 2)
            expected += _scatter(2 * output.numpy(), argmax.numpy(), [0], x.shape)
        self.assertAllClose(gradient(x), expected)

    def test_vectorized_map_of_the_gradient_equals_a_loop(self):
        x = _distinct([3, 1, 5, 6, 2])
        boxes = np.array([[[k, k, 5, 4]] for k in range(3)], np.float64)
        mapped = tf.vectorized_map(
            lambda a: _gradient(lambda x: tfo.detection.roi_pool(x, a[1], [0], 2) ** 2, a[0]),
            (tf.constant(x), tf.constant(boxes)),
        )
        for k in range(3):
            output, argmax = tfo.detection.roi_pool_with_argmax(x[k], boxes[k], [0], 2)
            self.assertAllClose(mapped[k], _scatter(2 * output.numpy(), argmax.numpy(), [0], x[k].shape))


if __name__ == "__main__":
    tf.test.main()
