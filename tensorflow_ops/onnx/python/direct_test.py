"""Tests of the ops that become operators of ONNX, in ONNX Runtime."""

import numpy as np
import onnx_testing
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo

_DTYPES = ("float16", "float32", "float64")


def _boxes(rng, count, size, least=-5.0):
    corners = rng.uniform(least, size, [count, 2])
    return np.concatenate([corners, corners + rng.uniform(1, size / 2, [count, 2])], -1).astype(np.float32)


def _malformed():
    """Boxes that are inverted, empty or not finite, xyxy."""
    inf, nan = np.inf, np.nan
    corners = [
        [9, 2, 5, 8],
        [3, 8, 9, 2],
        [4, 4, 4, 4],
        [1, 1, nan, 5],
        [1, 1, inf, 5],
        [-inf, 1, 4, 5],
        [inf, 1, inf, 2],
    ]
    return np.float32(corners)


def _formatted(boxes, box_format):
    return np.ascontiguousarray(boxes[..., [1, 0, 3, 2]]) if box_format == "yxyx" else boxes


class SoftmaxTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(
        function=(tfo.nn.softmax, tfo.nn.log_prob_from_logits), axis=(-1, 1, 0), dtype=_DTYPES[:2], opset=(13, 18)
    )
    def test_also_of_masked_rows(self, function, axis, dtype, opset):
        logits = np.random.default_rng(0).normal(0, 3, [4, 3, 5]).astype(dtype)
        logits[0], logits[1, 1], logits[2, :2, 3] = -np.inf, -np.inf, -np.inf
        logits[3, 0, 0], logits[3, 2, 1] = np.nan, np.inf
        empty = logits.take([], 0 if axis else 1)
        used = onnx_testing.check(self, lambda x: function(x, axis=axis), logits, opset=opset, also=[[empty]])
        self.assertContainsSubset({"Softmax" if function is tfo.nn.softmax else "LogSoftmax"}, used)


class RegionsTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(1)
        self.features = rng.normal(size=[2, 25, 38, 3])
        self.boxes = np.concatenate([_boxes(rng, 12, 300), _malformed() * 20])
        self.indices = rng.integers(0, 2, len(self.boxes)).astype(np.int32)

    def _check(self, function, features, box_format, dynamic, **options):
        box_dtype = np.float64 if features[0].dtype == np.float64 else np.float32
        boxes = _formatted(self.boxes, box_format).astype(box_dtype)
        none = [[*features, boxes[:0], self.indices[:0]]] if dynamic else []
        return onnx_testing.check(self, function, *features, boxes, self.indices, dynamic=dynamic, also=none, **options)

    @pairwise(
        aligned=(True, False),
        sampling_ratio=(0, 2),
        output_size=(7, (3, 5)),
        data_format=("NHWC", "NCHW"),
        box_format=("xyxy", "yxyx"),
        dtype=_DTYPES,
        dynamic=(True, False),
        opset=(16, 18),
    )
    def test_roi_align(self, output_size, data_format, box_format, dtype, dynamic, opset, **options):
        features = self.features.astype(dtype)
        if data_format == "NCHW":
            features = features.transpose(0, 3, 1, 2).copy()
        options |= {"spatial_scale": 0.1, "data_format": data_format, "box_format": box_format}

        def pool(*args):
            return tfo.detection.roi_align(*args, output_size, **options)

        used = self._check(pool, [features], box_format, dynamic, opset=opset)
        self.assertContainsSubset({"RoiAlign"}, used)

    @pairwise(sampling_ratio=(1, 3), data_format=("NHWC", "NCHW"), dtype=_DTYPES, dynamic=(True, False), opset=(16, 18))
    def test_maximum_of_roi_align(self, sampling_ratio, data_format, dtype, dynamic, opset):
        features = self.features.astype(dtype)
        if data_format == "NCHW":
            features = features.transpose(0, 3, 1, 2).copy()
        options = {"spatial_scale": 0.1, "sampling_ratio": sampling_ratio, "mode": "max", "data_format": data_format}

        def pool(*args):
            return tfo.detection.roi_align(*args, (3, 5), **options)

        used = self._check(pool, [features], "xyxy", dynamic, opset=opset)
        self.assertContainsSubset({"RoiAlign", "ReduceMax"}, used)

    @pairwise(
        aligned=(True, False),
        sampling_ratio=(0, 2),
        levels=(1, 3),
        box_format=("xyxy", "yxyx"),
        dtype=_DTYPES,
        dynamic=(True, False),
        opset=(16, 18),
    )
    def test_multiscale_roi_align(self, levels, box_format, dtype, dynamic, opset, **options):
        features = [self.features[:, :: 2**i, :: 2**i].astype(dtype) for i in range(levels)]
        options |= {"strides": [8 * 2**i for i in range(levels)], "canonical_box_size": 100.0, "box_format": box_format}

        def pool(*args):
            return tfo.detection.multiscale_roi_align(args[:-2], *args[-2:], 5, **options)

        self.assertContainsSubset({"RoiAlign"}, self._check(pool, features, box_format, dynamic, opset=opset))

    def test_multiscale_roi_align_takes_the_level_of_a_box_on_the_limit(self):
        maps = [np.full([1, 32 // n, 32 // n, 1], n, np.float32) for n in (1, 2, 4)]
        boxes = np.float32([[0, 0, 56, 56], [0, 0, 55.9, 56], [0, 0, 112, 112], [1, 2, 113, 114], [0, 0, 112, 111.9]])

        def pool(*args):
            return tfo.detection.multiscale_roi_align(args[:3], *args[3:], 1, strides=(4, 8, 16))[:, 0, 0, 0]

        onnx_testing.check(self, pool, *maps, boxes, np.zeros(5, np.int32))

    @pairwise(
        box_format=("xyxy", "yxyx"), dtype=_DTYPES[:2], dynamic=(True, False), output_size=(7, (2, 3)), opset=(13, 18)
    )
    def test_roi_pool(self, box_format, dtype, dynamic, output_size, opset):
        features = self.features.astype(dtype)

        def pool(*args):
            return tfo.detection.roi_pool(*args, output_size, spatial_scale=0.1, box_format=box_format)

        self.assertContainsSubset({"MaxRoiPool"}, self._check(pool, [features], box_format, dynamic, opset=opset))


class SuppressionTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(
        box_format=("xyxy", "yxyx"),
        score_threshold=(None, 0.3, -np.inf),
        max_outputs=(None, 0, 9),
        iou_threshold=(0.0, 0.4, 1.0),
        opset=(13, 18),
    )
    def test_nms(self, box_format, iou_threshold, opset, **options):
        rng = np.random.default_rng(2)
        boxes = np.concatenate([_malformed(), _boxes(rng, 60, 40), _malformed()])
        scores = (rng.integers(0, 20, len(boxes)) / 20).astype(np.float32)  # Some are equal.
        scores[[3, 20, 40]], scores[[5, 30]], scores[[8, 50]] = -np.inf, np.nan, np.inf
        boxes = _formatted(boxes, box_format)
        used = onnx_testing.check(
            self,
            lambda b, s: tfo.detection.nms(b, s, iou_threshold, box_format=box_format, **options),
            boxes,
            scores,
            opset=opset,
            also=[[boxes[:0], scores[:0]]],
        )
        self.assertContainsSubset({"NonMaxSuppression"}, used)

    @pairwise(
        box_format=("xyxy", "yxyx"),
        score_threshold=(None, 0.3),
        max_outputs=(0, 10, 1000),
        max_outputs_per_class=(None, 2),
        opset=(14, 18),
    )
    def test_multiclass_nms(self, opset, **options):
        rng = np.random.default_rng(3)
        boxes = np.stack([np.concatenate([_boxes(rng, 30, 40), _malformed()]) for _ in range(3)])
        boxes = _formatted(boxes, options["box_format"])
        scores = (rng.integers(0, 20, [3, boxes.shape[1], 4]) / 20).astype(np.float32)
        scores[:, 3, 1], scores[:, 5, 2], scores[:, 8, 3] = -np.inf, np.nan, np.inf
        used = onnx_testing.check(
            self,
            lambda b, s: tfo.detection.multiclass_nms(b, s, **options),
            boxes,
            scores,
            opset=opset,
            also=[[boxes[:0], scores[:0]], [boxes[:, :0], scores[:, :0]]],
        )
        self.assertContainsSubset({"NonMaxSuppression", "TopK"}, used)


class GridSampleTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(
        mode=("bilinear", "nearest", "bicubic"),
        padding_mode=("zeros", "border", "reflection"),
        align_corners=(True, False),
        normalized=(True, False),
        grid_shape=((6, 7), (9,), (2, 3, 4), (0, 3), (0,)),
        dtype=_DTYPES[:2],
        data_format=("NHWC", "NCHW"),
        opset=(16, 18),
    )
    def test_options(self, grid_shape, dtype, normalized, data_format, opset, **options):
        if not normalized and (options["mode"], options["padding_mode"]) == ("nearest", "reflection"):
            self.skipTest("has no operator of ONNX")
        rng = np.random.default_rng(4)
        features = rng.normal(size=[2, 8, 11, 3]).astype(dtype)
        grid = rng.uniform(-1.5, 1.5, [2, *grid_shape, 2]).astype(np.float32)
        if not normalized:  # Whole and half pixels, too.
            grid = np.round((grid + 1) * 24) / 4
        if data_format == "NCHW":
            features = features.transpose(0, 3, 1, 2).copy()
        used = onnx_testing.check(
            self,
            lambda f, g: tfo.image.grid_sample(f, g, normalized=normalized, data_format=data_format, **options),
            features,
            grid,
            opset=opset,
        )
        self.assertContainsSubset({"GridSample"}, used)

    @pairwise(
        mode=("bilinear", "nearest", "bicubic"),
        padding_mode=("zeros", "border"),
        align_corners=(True, False),
        normalized=(True, False),
    )
    def test_far_outside(self, **options):
        features = np.random.default_rng(5).normal(size=[1, 8, 11, 3]).astype(np.float32)
        grid = np.float32([[[1e9, 0], [-1e20, 1e20], [np.inf, -np.inf], [0.3, -0.2]]])
        used = onnx_testing.check(self, lambda f, g: tfo.image.grid_sample(f, g, **options), features, grid)
        self.assertContainsSubset({"GridSample"}, used)

    @parameterized.parameters((6, 8), (1, 8), (6, 1))
    def test_one_pixel_on_an_axis(self, height, width):
        features = np.random.default_rng(5).normal(size=[1, height, width, 2]).astype(np.float32)
        grid = np.float32([[[-3, -3], [0, 0], [0.5, 0], [0, 0.25], [20, 2]]])
        for padding_mode in ("zeros", "border", "reflection"):
            onnx_testing.check(
                self,
                lambda f, g, padding_mode=padding_mode: tfo.image.grid_sample(
                    f, g, normalized=False, padding_mode=padding_mode, align_corners=True
                ),
                features,
                grid,
            )

    @parameterized.parameters(*_DTYPES[:2])
    def test_dense_image_warp(self, dtype):
        rng = np.random.default_rng(6)
        images, flow = rng.normal(size=[2, 8, 11, 3]).astype(dtype), rng.normal(0, 3, [2, 8, 11, 2]).astype(np.float32)
        used = onnx_testing.check(self, tfo.image.dense_image_warp, images, flow, also=[[images[:0], flow[:0]]])
        self.assertContainsSubset({"GridSample"}, used)


def _paired(padding, strides, dilations):
    """Returns strides, dilations and the sum of padding on each axis; None for SAME."""
    totals = {"VALID": (0, 0), "SAME": (None, None)}.get(padding) if isinstance(padding, str) else map(sum, padding)
    return *(n if isinstance(n, tuple) else (n, n) for n in (strides, dilations)), totals


def _output_size(size, filter_size, stride, dilation, padding):
    if padding is None:
        return -(-size // stride)
    return (size + padding - (filter_size - 1) * dilation - 1) // stride + 1


class DeformConvTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(
        padding=("VALID", "SAME", ((1, 0), (2, 3))),
        strides=(1, (2, 3)),
        dilations=(1, (2, 1)),
        groups=(1, 2),
        offset_groups=(1, 4),
        has_mask=(False, True),
        has_bias=(False, True),
        dtype=_DTYPES,
        data_format=("NHWC", "NCHW"),
    )
    def test_options(self, groups, offset_groups, has_mask, has_bias, dtype, data_format, **options):
        rng = np.random.default_rng(7)
        features = rng.normal(size=[2, 9, 10, 8]).astype(dtype)
        filters = rng.normal(0, 0.2, [3, 2, 8 // groups, 6]).astype(dtype)
        shape = [2, *map(_output_size, [9, 10], [3, 2], *_paired(**options))]
        offsets = rng.normal(0, 2, [*shape, offset_groups * 12]).astype("float64" if dtype == "float64" else "float32")
        mask = rng.uniform(size=[*shape, offset_groups * 6]).astype(dtype)
        bias = rng.normal(size=6).astype(dtype) if has_bias else None
        tensors = [features, offsets, *[mask] * has_mask]
        if data_format == "NCHW":
            tensors = [x.transpose(0, 3, 1, 2).copy() for x in tensors]

        def convolve(features, offsets, mask=None):
            return tfo.nn.deform_conv2d(
                features, offsets, filters, mask=mask, bias=bias, data_format=data_format, **options
            )

        self.assertContainsSubset({"DeformConv"}, onnx_testing.check(self, convolve, *tensors, opset=19, dynamic=False))


if __name__ == "__main__":
    tf.test.main()
