"""Tests of roi_pool and roi_pool_with_argmax: values, shapes, bad input.

roi_pool_grad_test.py tests gradients.
"""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo
from tensorflow_ops.core.python.library import ops

_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_DATA_FORMATS = ("NHWC", "NCHW")
_NAN, _INF = math.nan, math.inf

# For a map of 9 x 12 pixels at spatial scale 1/2, that is an image of 18 x 24.
_BOXES = [
    [0, 0, 22, 16],
    [3, 2, 9.4, 11],
    [-5, -7, 6, 4],  # overlaps the upper left corner
    [15, 9, 60, 40],  # overlaps the lower right corner
    [-40, -40, -20, -9],  # outside
    [100, 100, 140, 130],
    [7, 5, 7, 5],  # a point
    [5, 7, 17, 9],  # halves after scaling: they round away from zero
    [-1, -3, 8, 6],
    [9, 4, 3, 8],  # inverted
    [3, 8, 9, 4],
    [_NAN, 0, 5, 5],
    [0, 0, 5, _NAN],
    [0, 0, _INF, 5],
    [0, -_INF, 5, 5],
    [-1e30, -1e30, 1e30, 1e30],
    [4, 1, 5, 16],  # narrower than its bins
    [0, 0, 23, 17],
]


def _round(value):
    """Rounds to the nearest integer and halves away from zero, like C's round."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def _bin(low, high, p, bins, limit):
    """Returns the pixels of bin p of a box over pixels [low, high]."""
    size = high - low + 1
    begin, end = low + p * size // bins, low + -(-(p + 1) * size // bins)
    return range(max(begin, 0), min(end, limit))


def _reference(features, boxes, box_indices, output_size, spatial_scale=1.0):
    """Returns (output, argmax) in float64 for features [N,H,W,C] and xyxy boxes."""
    _, height, width, channels = features.shape
    shape = (len(boxes), *output_size, channels)
    output, argmax = np.zeros(shape), np.full(shape, -1)
    for k, p, q in np.ndindex(*shape[:3]):
        box = [float(v) for v in boxes[k]]
        if not all(map(math.isfinite, box)) or box[2] < box[0] or box[3] < box[1]:
            continue
        x1, y1, x2, y2 = (_round(v * spatial_scale) for v in box)
        for y in _bin(y1, y2, p, output_size[0], height):
            for x in _bin(x1, x2, q, output_size[1], width):
                value = features[box_indices[k], y, x].astype(np.float64)
                best, at = output[k, p, q], argmax[k, p, q]
                # Ties go to the first pixel; a NaN wins over any number, the first NaN over later ones.
                takes = (at < 0) | (value > best) | (np.isnan(value) & ~np.isnan(best))
                best[takes], at[takes] = value[takes], y * width + x
    return output, argmax


def _random_features(shape, dtype=tf.float32, bad_values=False, seed=1):
    """Returns NHWC values with ties and, with `bad_values`, NaN and infinities."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=shape)
    features[rng.random(shape) < 0.2] = 0.25
    if bad_values:
        features[rng.random(shape) < 0.1] = -_INF
        features[rng.random(shape) < 0.02] = _INF
        features[rng.random(shape) < 0.02] = _NAN
    return features.astype(dtype.as_numpy_dtype)


def _to_format(nhwc, data_format):
    return np.transpose(nhwc, [0, 3, 1, 2]) if data_format == "NCHW" else nhwc


def _to_nhwc(tensor, data_format):
    return np.transpose(tensor, [0, 2, 3, 1]) if data_format == "NCHW" else np.asarray(tensor)


class ForwardTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(dtype=_DTYPES, data_format=_DATA_FORMATS, box_format=("xyxy", "yxyx"), bad_values=(False, True))
    def test_equals_the_definition(self, dtype, data_format, box_format, bad_values):
        # 37 channels: whole vectors of every width and a remainder.
        features = _random_features([2, 9, 12, 37], dtype, bad_values)
        box_indices = [k % 2 for k in range(len(_BOXES))]
        expected, expected_argmax = _reference(features, _BOXES, box_indices, (3, 5), 0.5)
        boxes = np.array(_BOXES, np.float64 if dtype == tf.float64 else np.float32)
        if box_format == "yxyx":
            boxes = boxes[:, [1, 0, 3, 2]]
        arguments = (_to_format(features, data_format), boxes, box_indices, (3, 5))
        options = {"spatial_scale": 0.5, "data_format": data_format, "box_format": box_format}

        output, argmax = tfo.detection.roi_pool_with_argmax(*arguments, **options)
        self.assertEqual(output.dtype, dtype)
        self.assertEqual(argmax.dtype, tf.int32)
        self.assertAllEqual(_to_nhwc(tf.cast(output, tf.float64), data_format), expected)
        self.assertAllEqual(_to_nhwc(argmax, data_format), expected_argmax)
        # Nothing in the graph reads argmax, so the kernel skips it.
        for function in (tfo.detection.roi_pool, tf.function(tfo.detection.roi_pool)):
            alone = function(*map(tf.constant, arguments), **options)
            self.assertEqual(alone.numpy().tobytes(), output.numpy().tobytes())

    @parameterized.parameters(
        # Pixel (y, x) of the 5 x 5 image is 5 y + x. The box covers rows and columns 1 to 3.
        ([1, 1, 3, 3], 1, [[18]]),
        ([1, 1, 3, 3], 3, [[6, 7, 8], [11, 12, 13], [16, 17, 18]]),
        # Two bins of three pixels overlap: 1-2 and 2-3.
        ([1, 1, 3, 3], 2, [[12, 13], [17, 18]]),
        ([1, 1, 3, 3], (1, 2), [[17, 18]]),
        # Four bins of three pixels: 1, 1-2, 2-3, 3.
        ([1, 1, 3, 3], (1, 4), [[16, 17, 18, 18]]),
        # Corners round, halves away from zero: columns 1 to 3 again.
        ([0.5, 1.49, 2.5, 2.51], 1, [[18]]),
        ([1.5, 0.5, 1.5, 0.5], 1, [[7]]),
        # -0.5 rounds to pixel -1, which is a bin of its own, outside the image.
        ([-0.5, 0, 0.4, 0], (1, 2), [[0, 0]]),
        ([-0.49, 0, 0.5, 0], (1, 2), [[0, 1]]),
        ([3, 3, 9, 9], 1, [[24]]),  # clipped to the image
        ([3, 3, 6, 6], 2, [[24, 0], [0, 0]]),
        ([5, 0, 9, 4], 1, [[0]]),
        ([2, 2, 2, 2], 2, [[12, 12], [12, 12]]),
    )
    def test_examples_by_hand(self, box, output_size, expected):
        features = tf.reshape(tf.range(25.0), [1, 5, 5, 1])
        output = tfo.detection.roi_pool(features, [box], [0], output_size)
        self.assertAllEqual(output[0, :, :, 0], expected)

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
        ({"features": np.zeros([4, 5, 3], np.float32)}, r"features must be 4-D.*\[4,5,3\]"),
        ({"features": np.zeros([1, 2, 4, 5, 3], np.float32)}, r"features must be 4-D.*\[1,2,4,5,3\]"),
        ({"boxes": np.zeros([3, 5], np.float32)}, r"boxes must be \[K, 4\].*\[3,5\]"),
        ({"boxes": np.zeros([4], np.float32)}, r"boxes must be \[K, 4\].*\[4\]"),
        ({"boxes": np.zeros([1, 3, 4], np.float32)}, r"boxes must be \[K, 4\].*\[1,3,4\]"),
        ({"box_indices": np.zeros([2], np.int32)}, r"box_indices must be \[K\] with boxes' K.*\[2\]"),
        ({"box_indices": np.zeros([3, 1], np.int32)}, r"box_indices must be \[K\] with boxes' K.*\[3,1\]"),
        ({"box_indices": np.array([0, 1, 2], np.int32)}, r"box_indices\[2\] is 2, expected \[0, 2\)"),
        ({"box_indices": np.array([0, -1, 1], np.int32)}, r"box_indices\[1\] is -1, expected \[0, 2\)"),
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

    def test_boxes_by_image_lead_to_the_layers(self):
        with self.assertRaisesRegex(
            ValueError, r"got \[1,3,4\]: for \[N, R, 4\] call a layer, such as tfo.layers.RoIAlign"
        ):
            tfo.detection.roi_pool(**{**self._GOOD, "boxes": np.zeros([1, 3, 4])})

    @parameterized.parameters(
        ({"features": np.zeros([4, 5, 3], np.float32)}, "features must be 4-D: .*rank 4 but is rank 3"),
        ({"boxes": np.zeros([3, 5], np.float32)}, r"boxes must be \[K, 4\]: .*must be 4 but is 5"),
        ({"boxes": np.zeros([4], np.float32)}, r"boxes must be \[K, 4\]: .*rank 2 but is rank 1"),
        ({"box_indices": np.zeros([2], np.int32)}, "box_indices must be .*must be equal, but are 3 and 2"),
        ({"box_indices": np.zeros([3, 1], np.int32)}, "box_indices must be .*rank 1 but is rank 2"),
    )
    def test_mismatched_static_shapes(self, bad, message):
        arguments = {name: tf.constant(value) for name, value in {**self._GOOD, **bad}.items()}
        with self.assertRaisesRegex(ValueError, message):
            tf.function(lambda: tfo.detection.roi_pool(**arguments))()

    @parameterized.parameters(
        ({"features": np.zeros([2, 4, 5, 3], np.int32)}, "features are int32, expected float16"),
        ({"box_indices": tf.zeros([3], tf.int64)}, "box_indices are int64, expected int32"),
        ({"box_indices": tf.zeros([3])}, "box_indices are float32, expected int32"),
        ({"output_size": 0}, "output_size is 0, expected an int"),
        ({"output_size": -3}, "output_size is -3, expected an int"),
        ({"output_size": (2, 0)}, r"output_size is \(2, 0\), expected an int"),
        ({"output_size": (2, 2, 2)}, r"output_size is \(2, 2, 2\), expected an int"),
        ({"output_size": (2,)}, r"output_size is \(2,\), expected an int"),
        ({"output_size": 2.5}, "output_size is 2.5, expected an int"),
        ({"output_size": True}, "output_size is True, expected an int"),
        ({"output_size": np.array(0)}, "output_size is 0, expected an int"),
        ({"spatial_scale": "1"}, "spatial_scale is '1', expected a positive"),
        ({"spatial_scale": True}, "spatial_scale is True, expected a positive"),
        ({"spatial_scale": 1e-60}, "spatial_scale is 1e-60, expected a positive"),
        ({"spatial_scale": 1e60}, r"spatial_scale is 1e\+60, expected a positive"),
        ({"output_size": (2, 2.5)}, r"output_size is \(2, 2.5\), expected an int"),
        ({"output_size": 2**32 + 2}, "output_size is 4294967298, expected an int"),
        ({"output_size": tf.constant([2.0, 2.0])}, "output_size is float32, expected integers"),
        ({"data_format": "NHCW"}, "data_format is 'NHCW', expected one of 'NHWC', 'NCHW'"),
        ({"data_format": None}, "data_format is None"),
        ({"box_format": "xywh"}, "box_format is 'xywh', expected one of 'xyxy', 'yxyx'"),
    )
    def test_errors_found_in_python(self, bad, message):
        arguments = {**self._GOOD, **bad}
        for function in (tfo.detection.roi_pool, tfo.detection.roi_pool_with_argmax):
            with self.assertRaisesRegex(ValueError, message):
                function(**arguments)
            with self.assertRaisesRegex(ValueError, message):
                tf.function(lambda function=function: function(**arguments))()

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


if __name__ == "__main__":
    tf.test.main()
