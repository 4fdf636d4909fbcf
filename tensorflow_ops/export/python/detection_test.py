"""Compositions of overlap and suppression, compared with the ops."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise
from rewrite_testing import assert_same

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_MALFORMED = [[np.nan, 0, 1, 1], [2, 2, 1, 3], [0, 0, np.inf, 3], [1, 1, 1, 1], [2.5, 2.5, 2.5, 7.5]]


def _boxes(count):
    corners = _RNG.uniform(-3, 6, [count, 2])
    return np.concatenate([corners, corners + _RNG.uniform(0, 7, [count, 2])], 1)


def _rotated_boxes(count):
    degrees = _RNG.uniform(-400, 400, [count, 1])
    return np.concatenate([_RNG.uniform(0, 5, [count, 2]), _RNG.uniform(0.1, 5, [count, 2]), degrees], 1)


class OverlapTest(parameterized.TestCase):
    @pairwise(mode=("iou", "giou", "diou", "ciou"), box_format=("xyxy", "yxyx"), dtype=(tf.float32, tf.float64))
    def test_upright(self, dtype, **options):
        boxes = _boxes(6)
        of_sizes = [boxes, 1e-30 * boxes, 1e30 * boxes, [1e-20, 1e20, 1e-20, 1e20] * boxes, [3, 1, 1, 1] * boxes]
        boxes = tf.constant(np.concatenate([*of_sizes, _MALFORMED]), dtype)
        assert_same(lambda a, b: tfo.detection.box_iou(a, b, **options), boxes, boxes[::2])
        assert_same(lambda a, b: tfo.detection.box_iou_loss(a, b, **options), boxes, boxes[::-1])

    @parameterized.parameters(((0, 4), (0, 4)), ((2, 0, 4), (2, 3, 4)), ((2, 3, 1, 4), (2, 3, 2, 4)))
    def test_shape(self, shape1, shape2):
        assert_same(tfo.detection.box_iou, tf.ones(shape1), tf.ones(shape2))
        assert_same(tfo.detection.box_iou_loss, tf.ones(shape1), tf.ones(shape1))

    @parameterized.parameters(tf.float32, tf.float64)
    def test_rotated(self, dtype):
        boxes = _rotated_boxes(30)
        boxes[:8, 4] = 0, 90, 180, 270, -90, 360, 45, 30
        boxes[8:16] = boxes[:8] + np.array([0, 0, 0, 0, 90])
        boxes[20, 2], boxes[21, 3], boxes[22, 0], boxes[23, 4], boxes[26, 2] = 0, -1, np.nan, np.inf, 0.001
        boxes[24, :4] *= 1e25
        boxes[25, :4] *= 1e-25
        boxes = tf.constant(boxes, dtype)
        assert_same(lambda a, b: tfo.detection.box_iou(a, b, box_format="cxcywhr"), boxes, boxes)


class SuppressionTest(parameterized.TestCase):
    @pairwise(
        box_format=("xyxy", "yxyx", "cxcywhr"),
        iou_threshold=(0.0, 0.3, 1.0),
        score_threshold=(None, 0.3, -np.inf),
        max_outputs=(None, 0, 5),
        dtype=(tf.float32, tf.float64),
    )
    def test_option(self, box_format, iou_threshold, score_threshold, max_outputs, dtype):
        count = 25
        boxes = _rotated_boxes(count) if box_format == "cxcywhr" else _boxes(count)
        if box_format == "cxcywhr":
            boxes[0, 0], boxes[1, 2] = np.nan, -1
        else:
            boxes[: len(_MALFORMED)] = _MALFORMED
            boxes[8:10] *= 1e30
        scores = np.round(_RNG.uniform(0, 1, [count]), 1)
        scores[9:13] = np.nan, np.inf, -np.inf, -0.5
        of_image = tf.constant(np.round(_RNG.uniform(-0.2, 1, [2, count, 3]), 1), dtype)
        groups = tf.constant(_RNG.integers(-1, 2, count))
        boxes, scores = tf.constant(boxes, dtype), tf.constant(scores, dtype)
        options = {"score_threshold": score_threshold, "max_outputs": max_outputs, "box_format": box_format}
        found = options | {"iou_threshold": iou_threshold, "max_outputs": 90 if max_outputs is None else max_outputs}

        def suppress(boxes, scores, groups, of_image):
            images = tf.stack([boxes, boxes[::-1]])
            soft = [
                tfo.detection.soft_nms(boxes, scores, iou_threshold=iou_threshold, method=method, **options)
                for method in ("gaussian", "linear")
            ]
            return (
                tfo.detection.nms(boxes, scores, iou_threshold, **options),
                tfo.detection.batched_nms(boxes, scores, groups, iou_threshold, **options),
                *soft,
                tfo.detection.multiclass_nms(images, of_image, max_outputs_per_class=max_outputs, **found),
                tfo.detection.multiclass_nms(tf.stack([images, images[:, ::-1], images + 1], 2), of_image, **found),
            )

        assert_same(suppress, boxes, scores, groups, of_image)

    @parameterized.parameters((0, 3, 2), (2, 0, 2), (2, 3, 0))
    def test_empty(self, *shape):
        assert_same(tfo.detection.multiclass_nms, tf.ones([*shape[:2], 4]), tf.ones(shape))
        assert_same(tfo.detection.multiclass_nms, tf.ones([*shape, 4]), tf.ones(shape))

    def test_no_boxes(self):
        assert_same(lambda boxes, scores: tfo.detection.nms(boxes, scores, 0.5), tf.ones([0, 4]), tf.ones([0]))
        assert_same(tfo.detection.soft_nms, tf.ones([0, 4]), tf.ones([0]))


if __name__ == "__main__":
    tf.test.main()
