"""Tests of shapes, graphs and bad input of region pooling. The samples have more bad input."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python.library import ops


def _multiscale(features, *arguments, **options):
    """Calls multiscale_roi_align on a pyramid of one map."""
    return tfo.detection.multiscale_roi_align([features], *arguments, strides=(1,), **options)


_FUNCTIONS = {
    "roi_pool": tfo.detection.roi_pool,
    "roi_align": tfo.detection.roi_align,
    "ps_roi_pool": tfo.detection.ps_roi_pool,
    "ps_roi_align": tfo.detection.ps_roi_align,
    "multiscale": _multiscale,
}
_NAMES = tuple(_FUNCTIONS)
_POSITION_SENSITIVE = ("ps_roi_pool", "ps_roi_align")


class GraphTest(parameterized.TestCase, tf.test.TestCase):
    def test_static_shape_from_all_levels(self):
        """Dims that are unknown in one level's shape come from another's."""
        with tf.Graph().as_default():
            placeholder = tf.compat.v1.placeholder
            maps = [placeholder(tf.float32, shape) for shape in (None, [None, 8, None, None], [2, None, None, 7])]
            boxes, indices = placeholder(tf.float32), placeholder(tf.int32, [3])
            output = tfo.detection.multiscale_roi_align(maps, boxes, indices, 2, strides=(1, 2, 4))
            self.assertEqual(output.shape.as_list(), [3, 2, 2, 7])

    @parameterized.product(name=_NAMES)
    def test_partly_known_output_size_gives_known_dims(self, name):
        @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
        def pool(height):
            return _FUNCTIONS[name](tf.zeros([1, 4, 4, 20]), tf.zeros([3, 4]), tf.zeros([3], tf.int32), (height, 5))

        c = 2 if name in _POSITION_SENSITIVE else 20
        static = pool.get_concrete_function().output_shapes.as_list()
        self.assertEqual(static, [3, None, 5, None if name in _POSITION_SENSITIVE else 20])
        self.assertEqual(pool(2).shape, [3, 2, 5, c])

    @parameterized.parameters(
        ("roi_pool", "NHWC"), ("roi_align", "NHWC"), ("ps_roi_pool", "NCHW"), ("ps_roi_align", "NHWC"),
        ("multiscale", "NCHW"),
    )  # fmt: skip
    def test_gradients_keep_static_shapes(self, name, data_format):
        shape = [2, 12, 5, 6] if data_format == "NCHW" else [2, 5, 6, 12]
        for features, boxes in ((shape, [3, 4]), ([None] * 4, [None, 4]), (None, None)):

            @tf.function(input_signature=[tf.TensorSpec(features, tf.float32), tf.TensorSpec(boxes, tf.float32)])
            def gradients(x, boxes):
                with tf.GradientTape() as tape:
                    tape.watch([x, boxes])
                    y = _FUNCTIONS[name](x, boxes, [0, 1, 0], (2, 3), data_format=data_format)
                result = tape.gradient(y, [x, boxes])
                return result[:1] if name.endswith("roi_pool") else result

            shapes = [s.as_list() for s in gradients.get_concrete_function().output_shapes]
            expected = [features or [None] * 4, [3, 4]]
            self.assertEqual(shapes, expected[: len(shapes)])

    @parameterized.parameters(*_NAMES)
    def test_name_becomes_the_ops_name(self, name):
        with tf.Graph().as_default():
            output = _FUNCTIONS[name](tf.zeros([1, 4, 4, 1]), [[0.0, 0, 1, 1]], [0], 1, name="pooled")
            self.assertEqual(output.op.name, "pooled")

    def test_argmax_is_a_named_result(self):
        result = tfo.detection.roi_pool_with_argmax(tf.zeros([1, 4, 4, 1]), [[0.0, 0, 1, 1]], [0], 1)
        self.assertEqual(result._fields, ("output", "argmax"))
        self.assertIsInstance(result, tfo.detection.RoIPoolWithArgmax)

    @parameterized.parameters(*_NAMES)
    def test_output_size_may_be_an_int_a_pair_or_a_tensor(self, name):
        features, box = np.float32(np.random.default_rng(1).normal(size=[1, 6, 6, 12])), [[0.0, 0, 5, 4]]
        for size, same in (
            (2, (2, 2)),
            ([2, 3], (2, 3)),
            (np.array(2), (2, 2)),
            (tf.constant(2), (2, 2)),
            (tf.constant([2, 3], tf.int64), (2, 3)),
            ((tf.constant(2), 3), (2, 3)),
        ):
            output = _FUNCTIONS[name](features, box, [0], size)
            self.assertAllEqual(output, _FUNCTIONS[name](features, box, [0], same))

    @parameterized.parameters(*_NAMES)
    def test_boxes_are_cast_to_the_coordinate_dtype(self, name):
        for features_dtype in (tf.float32, tf.float64, tf.float16):
            features = tf.reshape(tf.range(16, dtype=features_dtype), [1, 4, 4, 1])
            for boxes_dtype in (tf.float32, tf.float64, tf.float16, tf.int32):
                output = _FUNCTIONS[name](features, tf.constant([[1, 1, 2, 2]], boxes_dtype), [0], 1)
                self.assertAllEqual(output, [[[[10 if name == "roi_pool" else 5]]]])


class BadInputTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_NAMES)
    def test_output_size_of_unknown_rank(self, name):
        features, boxes, indices = tf.zeros([2, 4, 5, 12]), tf.zeros([3, 4]), tf.zeros([3], tf.int32)
        pool = tf.function(
            lambda size: _FUNCTIONS[name](features, boxes, indices, size),
            input_signature=[tf.TensorSpec(None, tf.int32)],
        )
        too_many = "features must have a multiple of" if name in _POSITION_SENSITIVE else r"in \[1, 2\^20\]"
        for size, message in (
            ([0, 2], r"output_size is \(0, 2\)"),
            ([2, 2, 2], r"output_size must be \(height, width\).*\[3\]"),
            ([2**20 + 1, 1], too_many),
        ):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                pool(tf.constant(size))

    @parameterized.parameters("roi_pool", "roi_align", "multiscale")
    def test_result_size_that_overflows_64_bits(self, name):
        features, boxes, size = tf.zeros([2, 1, 1, 2**24]), tf.zeros([3, 4]), tf.constant([2**19] * 2)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "overflow"):
            _FUNCTIONS[name](features, boxes, [0, 0, 0], size)

    def test_too_many_samples_raise(self):
        """Huge sampling_ratio, output_size or d_output for a small map."""
        features, box, index = np.ones([1, 3, 4, 1], np.float32), np.float32([[0, 0, 3, 2]]), [0]

        def align(size, **options):
            return tfo.detection.roi_align(features, box, index, size, **options)

        self.assertAllClose(align((2**20, 1)), np.ones([1, 2**20, 1, 1]))
        self.assertAllClose(align((1024, 1), sampling_ratio=1024), np.ones([1, 1024, 1, 1]))
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "sampling_ratio 1024 takes 1049600 x 1024 samples"):
            align((1025, 1), sampling_ratio=1024)
        self.assertAllClose(align((4, 1), sampling_ratio=1024, mode="max"), np.ones([1, 4, 1, 1]))
        for size, ratio in ((1025, 1024), (2**30 + 1, 4), (0, 4), (-(2**30) + 1, 4)):  # 4 * (2^30 + 1) is 4 in 32 bits
            for call in (align, tf.function(align)):
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"output_size is .* in \[1, 2\^20\]"):
                    call(tf.constant([size, 1]), sampling_ratio=ratio, mode="max")
        for height, ratio, message in (
            (2**20 + 1, 0, r"d_output is \[1,1048577,1,1\], expected .* at most 2\^20"),
            (2**20, 2, "sampling_ratio 2 takes 2097152 x 2 samples"),
        ):
            pooled = {"d_output": tf.zeros([1, height, 1, 1]), "boxes": box, "box_indices": index}
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                ops.tensorflow_ops_roi_align_grad(**pooled, features_shape=[1, 3, 4, 1], sampling_ratio=ratio)
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                ops.tensorflow_ops_roi_align_boxes_grad(**pooled, features=features, sampling_ratio=ratio)
            if ratio == 0:
                argmax = tf.zeros(pooled["d_output"].shape, tf.int32)
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                    ops.tensorflow_ops_roi_pool_grad(**pooled, features_shape=[1, 3, 4, 1], argmax=argmax)

    def test_raw_ops_check_attrs(self):
        arguments = [tf.zeros([2, 4, 5, 12]), tf.zeros([3, 4]), tf.zeros([3], tf.int32), tf.constant([2, 2])]
        for op, extra, message in (
            (ops.tensorflow_ops_roi_align, {"spatial_scale": np.nan}, "spatial_scale is .*, expected a positive"),
            (ops.tensorflow_ops_ps_roi_pool, {"spatial_scale": 0.0}, "spatial_scale is 0, expected a positive"),
            (ops.tensorflow_ops_roi_pool, {"spatial_scale": -0.5}, "spatial_scale is -0.5, expected a positive"),
            (
                ops.tensorflow_ops_roi_align,
                {"sampling_ratio": 1025},
                r"sampling_ratio is 1025, expected 0 .* most 1024",
            ),
        ):
            for call in (op, tf.function(op)):
                with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), message):
                    call(*arguments, **extra)
        for options, message in (
            ({"strides": [4.0, 8.0]}, "strides has 2 entries for 1 feature map"),
            ({"strides": [-4.0]}, r"strides\[0\] is -4, expected positive numbers in increasing order"),
            ({"strides": [4.0], "canonical_stride": 0.0}, "canonical_stride .* expected positive numbers"),
        ):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                ops.tensorflow_ops_multiscale_roi_align(arguments[:1], *arguments[1:], **options)

    @parameterized.product(dtype=((tf.float32, tf.float64), (tf.bfloat16, tf.float64), (tf.float64, tf.float32)))
    def test_raw_ops_require_boxes_of_the_features_dtype(self, dtype):
        features, boxes = tf.zeros([1, 4, 4, 1], dtype[0]), tf.zeros([1, 4], dtype[1])
        for name in ("roi_pool", *_POSITION_SENSITIVE, "roi_align"):
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, "boxes are .*, expected .* with these features"
            ):
                getattr(ops, f"tensorflow_ops_{name}")(features, boxes, [0], [1, 1])


class GradientOpsTest(parameterized.TestCase, tf.test.TestCase):
    """The gradient ops reject inputs that no forward op produces."""

    _SHAPE = (2, 4, 5, 12)

    @parameterized.parameters(
        ({"d_output": tf.zeros([1, 2, 2, 4])}, "d_output"),
        ({"d_output": tf.zeros([2, 2, 2, 12])}, "d_output"),
        ({"d_output": tf.zeros([2, 2, 12])}, "d_output"),
        ({"boxes": tf.zeros([1, 5])}, r"boxes must be \[K, 4\].*\[1,5\]"),
        ({"box_indices": tf.constant([2])}, r"box_indices\[0\] is 2, expected \[0, 2\)"),
        ({"features_shape": tf.constant([2, 4, 5])}, "features_shape must have 4 sizes"),
        ({"features_shape": tf.constant([2, -4, 5, 12])}, "-4"),
    )
    def test_mismatched_inputs_raise(self, bad, message):
        arguments = {
            **{"d_output": tf.zeros([1, 2, 2, 12]), "boxes": tf.zeros([1, 4]), "box_indices": tf.constant([0])},
            **{"features_shape": tf.constant(self._SHAPE), **bad},
        }
        features = tf.zeros(self._SHAPE)
        by_position = (arguments["d_output"], features, arguments["boxes"], arguments["box_indices"])
        argmax = tf.zeros(arguments["d_output"].shape, tf.int32)
        calls = [
            lambda: ops.tensorflow_ops_roi_align_grad(**arguments),
            lambda: ops.tensorflow_ops_roi_pool_grad(**arguments, argmax=argmax),
        ]
        if "features_shape" not in bad:
            calls.append(lambda: ops.tensorflow_ops_roi_align_boxes_grad(*by_position))
        for call in calls:
            with self.assertRaisesRegex((ValueError, tf.errors.InvalidArgumentError), message):
                call()

    def test_argmax_of_another_shape_raises(self):
        d_output, argmax, shape = tf.zeros([1, 2, 2, 3]), tf.zeros([1, 2, 3, 3], tf.int32), tf.constant([2, 4, 5, 3])
        with self.assertRaisesRegex(ValueError, r"argmax must have d_output's shape.*\[1,2,3,3\]"):
            ops.tensorflow_ops_roi_pool_grad(d_output, argmax, [[0.0] * 4], [0], shape)

    def test_overflowing_features_shape_is_an_error_in_a_graph(self):
        # TensorFlow's tape, and XLA, would end the process for such shapes.
        for sizes in ([2**31 - 1] * 4, [100, -1, 2**31 - 1, 2**31 - 1]):
            with tf.Graph().as_default(), self.assertRaisesRegex(ValueError, "features_shape must have 4 .*overflow"):
                ops.tensorflow_ops_roi_align_grad(tf.zeros([1, 2, 2, 1]), [[0.0] * 4], [0], features_shape=sizes)

    def test_position_sensitive_channels(self):
        boxes, indices, shape = tf.zeros([1, 4]), tf.constant([0]), tf.constant(self._SHAPE)
        for bins, channels in ((2, 12), (2, 4), (3, 1), (5, 1)):
            d_output = tf.zeros([1, bins, bins, channels])
            for op in (ops.tensorflow_ops_ps_roi_pool_grad, ops.tensorflow_ops_ps_roi_align_grad):
                with self.assertRaisesRegex(ValueError, "d_output must have the channels of the forward op"):
                    op(d_output, boxes, indices, shape)
            with self.assertRaisesRegex(ValueError, "d_output must have the channels of the forward op"):
                ops.tensorflow_ops_ps_roi_align_boxes_grad(d_output, tf.zeros(self._SHAPE), boxes, indices)

    def test_empty_gradient_of_any_shape_gives_zeros(self):
        # An empty tensor may have a huge dim, over which no loop should run.
        boxes, indices, features = tf.constant([[0.0, 0.0, 3.0, 3.0]]), tf.constant([0]), tf.ones([1, 4, 4, 2])
        shape = tf.constant([1, 4, 4, 2])
        for dims in itertools.permutations((2**20, 0)):
            d_output = tf.zeros([1, *dims, 2])
            d_features = ops.tensorflow_ops_roi_align_grad(d_output, boxes, indices, shape)
            self.assertAllEqual(d_features, tf.zeros([1, 4, 4, 2]))
            argmax = tf.zeros(d_output.shape, tf.int32)
            d_features = ops.tensorflow_ops_roi_pool_grad(d_output, argmax, boxes, indices, shape)
            self.assertAllEqual(d_features, tf.zeros([1, 4, 4, 2]))
            d_boxes = ops.tensorflow_ops_roi_align_boxes_grad(d_output, features, boxes, indices)
            self.assertAllEqual(d_boxes, tf.zeros([1, 4]))


if __name__ == "__main__":
    tf.test.main()
