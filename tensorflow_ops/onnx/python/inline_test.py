"""Tests of the ops that become what TensorFlow's own ops compute them with, in ONNX Runtime."""

import numpy as np
import onnx_testing
import tensorflow as tf
from absl.testing import parameterized
from op_samples_testing import SAMPLES
from pairwise_testing import pairwise

import tensorflow_ops as tfo

# Layers and losses call the functions, whose samples are here.
_SAMPLES = {name: sample for name, sample in SAMPLES.items() if not name.startswith(("layers.", "losses."))}
# A loop whose number of iterations depends on the number of rows.
_NEEDS_STATIC_DIMS = ("nn.linear_cross_entropy", "nn.linear_cross_entropy (16 bits, no bias)")
# Constants outside of the function become inputs of the model.
_HAS_CAPTURES = ("seq2seq.ctc_beam_search_decode (language model)",)


def _is_tensors(value):
    leaves = tf.nest.flatten(value)
    return bool(leaves) and all(map(tf.is_tensor, leaves))


def _function(sample):
    """Returns a sample's function, of its tensors as a flat list, and these."""
    tensors = [value for value in sample.args if _is_tensors(value)]

    def function(*flat):
        packed = iter(tf.nest.pack_sequence_as(tensors, flat))
        args = [next(packed) if _is_tensors(value) else value for value in sample.args]
        return sample.fn(*args, **(sample.kwargs or {}))

    return function, [x.numpy() for x in tf.nest.flatten(tensors)]


class SamplesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*(name for name in _SAMPLES if name not in _HAS_CAPTURES))
    def test_same_in_onnx_runtime(self, name):
        function, tensors = _function(_SAMPLES[name])
        onnx_testing.check(self, function, *tensors, dynamic=name not in _NEEDS_STATIC_DIMS, optimize=False)


class OptionsTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(mode=("iou", "giou", "diou", "ciou"), box_format=("xyxy", "yxyx"), dtype=("float32", "float64"))
    def test_box_iou(self, dtype, **options):
        if (options["mode"], dtype) == ("ciou", "float64"):
            self.skipTest("ONNX Runtime has no Atan of float64")
        rng = np.random.default_rng(0)
        corners = rng.uniform(0, 9, [6, 2])
        boxes = np.concatenate([corners, corners + rng.uniform(1, 6, [6, 2])], 1)
        boxes[:3] = [np.nan, 0, 1, 1], [2, 2, 1, 3], [0, 0, np.inf, 3]
        self._check_iou(boxes.astype(dtype), options)

    @parameterized.parameters("float32", "float64")
    def test_box_iou_of_rotated_boxes(self, dtype):
        boxes = np.random.default_rng(1).uniform([0, 0, 2, 2, -90], [9, 9, 6, 6, 90], [8, 5])
        boxes[0, 4], boxes[1, 2] = np.nan, -1
        self._check_iou(boxes.astype(dtype), {"box_format": "cxcywhr"})

    def _check_iou(self, boxes, options):
        onnx_testing.check(
            self,
            lambda a, b: tfo.detection.box_iou(a, b, **options),
            boxes,
            boxes[::-2].copy(),
            also=[[boxes[:0], boxes], [boxes, boxes[:0]]],
            optimize=False,
        )

    @pairwise(
        label_smoothing=(0.0, 0.1), z_loss=(0.0, 1e-4), ignore_index=(None, 2), dtype=("float16", "float32", "float64")
    )
    def test_sparse_softmax_cross_entropy(self, dtype, **options):
        logits = np.random.default_rng(2).normal(size=[5, 4]).astype(dtype)
        logits[0, 1], logits[1], logits[2, 2], logits[3, 0] = -np.inf, -np.inf, np.nan, np.inf
        labels = np.int32([0, 2, 3, 1, 3])
        onnx_testing.check(
            self,
            lambda x, y: tfo.nn.sparse_softmax_cross_entropy(x, y, **options),
            labels,
            logits,
            also=[[labels[:0], logits[:0]]],
            optimize=False,
        )

    @pairwise(merge_repeated=(True, False), blank_index=(0, -1), dtype=("float16", "float32", "float64"))
    def test_ctc_greedy_decode(self, dtype, **options):
        logits = np.random.default_rng(3).normal(size=[3, 6, 4]).astype(dtype)
        logits[0, 0, 1], logits[0, 1] = np.nan, -np.inf
        lengths = np.int32([6, 0, 3])
        onnx_testing.check(
            self,
            lambda x, n: tuple(tfo.seq2seq.ctc_greedy_decode(x, n, **options)),
            logits,
            lengths,
            also=[[logits[:0], lengths[:0]]],
            optimize=False,
        )


class WithoutOperatorsTest(tf.test.TestCase, parameterized.TestCase):
    """Options, dtypes and opsets for which ONNX has no operators."""

    @pairwise(
        mode=("bilinear", "nearest", "bicubic"),
        padding_mode=("zeros", "border", "reflection"),
        align_corners=(True, False),
        normalized=(True, False),
        dtype=("float16", "float32", "float64"),
    )
    def test_grid_sample(self, dtype, normalized, **options):
        rng = np.random.default_rng(0)
        features = rng.normal(size=[2, 5, 6, 3]).astype(dtype)
        grid = rng.uniform(-1.5, 1.5, [2, 4, 7, 2]) if normalized else rng.integers(-4, 14, [2, 4, 7, 2]) / 2
        used = onnx_testing.check(
            self,
            lambda f, g: tfo.image.grid_sample(f, g, normalized=normalized, **options),
            features,
            grid.astype("float64" if dtype == "float64" else "float32"),
            opset=15,
            optimize=False,
        )
        self.assertNotIn("GridSample", used)

    @pairwise(
        aligned=(True, False), options=((0, "avg"), (2, "avg"), (2, "max")), dtype=("float16", "float32", "float64")
    )
    def test_roi_align(self, aligned, options, dtype):
        rng = np.random.default_rng(1)
        corners = rng.uniform(-2, 9, [8, 2])
        boxes = np.concatenate([corners, corners + rng.uniform(-1, 6, [8, 2])], 1)
        used = onnx_testing.check(
            self,
            lambda *args: tfo.detection.roi_align(
                *args, (2, 3), spatial_scale=0.5, sampling_ratio=options[0], aligned=aligned, mode=options[1]
            ),
            rng.normal(size=[2, 5, 6, 3]).astype(dtype),
            boxes.astype("float64" if dtype == "float64" else "float32"),
            rng.integers(0, 2, 8).astype(np.int32),
            opset=15,
            optimize=False,
        )
        self.assertNotIn("RoiAlign", used)

    @parameterized.parameters("float32", "float64")
    def test_nms_of_rotated_boxes_and_of_float64(self, dtype):
        rng = np.random.default_rng(2)
        boxes = rng.uniform([0, 0, 2, 2, -90], [9, 9, 6, 6, 90], [20, 5]).astype(dtype)
        scores = rng.uniform(size=20).astype(dtype)
        rotated = lambda b, s: tfo.detection.nms(b, s, 0.3, box_format="cxcywhr")  # noqa: E731
        onnx_testing.check(self, rotated, boxes, scores, optimize=False)
        boxes = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:4]], 1)
        onnx_testing.check(self, lambda b, s: tfo.detection.nms(b, s, 0.3), boxes, scores, optimize=False)

    def test_multiclass_nms_with_boxes_of_each_class(self):
        rng = np.random.default_rng(3)
        corners = rng.uniform(0, 9, [2, 12, 3, 2])
        boxes = np.concatenate([corners, corners + rng.uniform(2, 6, [2, 12, 3, 2])], -1).astype(np.float32)
        scores = rng.uniform(size=[2, 12, 3]).astype(np.float32)
        onnx_testing.check(
            self, lambda b, s: tfo.detection.multiclass_nms(b, s, max_outputs=9), boxes, scores, optimize=False
        )

    def test_output_size_is_an_input(self):
        features = np.arange(30, dtype=np.float32).reshape(1, 5, 6, 1)
        boxes, indices = np.float32([[0, 0, 4, 3], [1, 1, 6, 5]]), np.zeros(2, np.int32)
        for pool in (tfo.detection.roi_align, tfo.detection.roi_pool):
            onnx_testing.check(self, pool, features, boxes, indices, np.int32([2, 3]), optimize=False)


class GraphsTest(tf.test.TestCase):
    def test_in_bodies_of_loops_and_branches(self):
        """Ops of both kinds, twice: ONNX needs different names in all bodies."""

        def function(logits, labels):
            def body(i, total):
                loss = tfo.nn.sparse_softmax_cross_entropy(labels, tfo.nn.softmax(logits) * tf.cast(i, tf.float32))
                return i + 1, total + tf.reduce_sum(loss)

            total = tf.constant(0.0)
            for _ in range(2):
                _, total = tf.while_loop(lambda i, _: i < 4, body, (tf.constant(0), total))
            frames = tf.stack([logits, -logits])
            one, two = tf.ones([2], tf.int32), tf.fill([2], 2)
            ctc = [tfo.nn.ctc_loss(labels[:, tf.newaxis], frames * scale, one, two) for scale in (1.0, 2.0)]
            branch = tf.cond(total > 0, lambda: tfo.nn.softmax_entropy(logits), lambda: logits[:, 0])
            return total, branch, *ctc

        logits = np.random.default_rng(4).normal(size=[2, 5]).astype(np.float32)
        onnx_testing.check(self, function, logits, np.int32([1, 3]))


if __name__ == "__main__":
    tf.test.main()
