"""Tests of the gradients of box_iou and box_iou_loss."""

import box_iou_reference_testing as reference
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_FORMATS = ("xyxy", "yxyx")


def _boxes(*shape, seed=0):
    generator = np.random.default_rng(seed)
    low = generator.uniform(0, 10, (*shape, 2))
    return np.concatenate([low, low + generator.uniform(0.2, 6, (*shape, 2))], -1)


def _gradients(fn, upstream, *boxes):
    boxes = [tf.constant(b) for b in boxes]
    with tf.GradientTape() as tape:
        tape.watch(boxes)
        result = fn(*boxes)
    return tape.gradient(result, boxes, tf.constant(upstream, result.dtype))


class BoxIouGradientTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(mode=reference.MODES, box_format=_FORMATS)
    def test_loss_equals_differences(self, mode, box_format):
        boxes1, boxes2 = _boxes(2, 21), _boxes(2, 21, seed=1)
        upstream = np.random.default_rng(2).normal(size=[2, 21])
        expected = reference.gradients(boxes1, boxes2, mode, box_format)

        def loss(a, b):
            return tfo.detection.box_iou_loss(a, b, mode=mode, box_format=box_format)

        for dtype, tolerance in ((np.float64, 1e-8), (np.float32, 1e-5)):
            actual = _gradients(loss, upstream, boxes1.astype(dtype), boxes2.astype(dtype))
            for d, e in zip(actual, expected, strict=True):
                self.assertAllClose(d, -upstream[..., np.newaxis] * e, rtol=tolerance, atol=tolerance)

    @parameterized.product(mode=reference.MODES, box_format=_FORMATS)
    def test_pairs_equal_differences(self, mode, box_format):
        boxes1, boxes2 = _boxes(2, 5), _boxes(2, 70, seed=1)
        upstream = np.random.default_rng(2).normal(size=[2, 5, 70])
        upstream[:, 1] = 0
        pairs = np.broadcast_arrays(boxes1[:, :, np.newaxis], boxes2[:, np.newaxis])
        expected = [upstream[..., np.newaxis] * d for d in reference.gradients(*pairs, mode, box_format)]

        def iou(a, b):
            return tfo.detection.box_iou(a, b, mode=mode, box_format=box_format)

        for dtype, tolerance in ((np.float64, 1e-7), (np.float32, 1e-5)):
            actual = _gradients(iou, upstream, boxes1.astype(dtype), boxes2.astype(dtype))
            self.assertAllClose(actual[0], expected[0].sum(2), rtol=tolerance, atol=tolerance)
            self.assertAllClose(actual[1], expected[1].sum(1), rtol=tolerance, atol=tolerance)

    @parameterized.parameters(*reference.MODES)
    def test_equal_corners_share_half_and_half(self, mode):
        # Corners on few whole numbers: most pairs have equal ones, as numeric differences of both sides see them.
        generator = np.random.default_rng(0)
        low = generator.integers(0, 3, [2, 100, 2]).astype(np.float64)
        boxes = np.concatenate([low, low + generator.integers(1, 3, [2, 100, 2])], -1)
        expected = reference.gradients(*boxes, mode)

        def loss(a, b):
            return tfo.detection.box_iou_loss(a, b, mode=mode)

        for d, e in zip(_gradients(loss, np.ones(100), *boxes), expected, strict=True):
            self.assertAllClose(d, -e, rtol=0, atol=2e-6)

    def test_half_and_half_by_hand(self):
        # Both boxes end at x = 2. Moving x2 of either up grows union and hull: the loss 1 - 1 / (2 + e) by e / 4.
        # Moving it down shrinks the intersection only: by e / 2.
        gradients = _gradients(tfo.detection.box_iou_loss, 1.0, np.float64([0, 0, 2, 1]), np.float64([1, 0, 2, 1]))
        for d in gradients:
            self.assertAllClose(d[2], (0.25 - 0.5) / 2, rtol=0, atol=1e-12)

    @parameterized.parameters(*reference.MODES)
    def test_boxes_that_are_not_finite_have_no_gradient(self, mode):
        boxes1 = _boxes(9).astype(np.float32)
        boxes2 = boxes1 + np.float32([0.5, 0.25, 0.75, 0.125])  # pairs overlap
        boxes1[2, 1], boxes1[3, 0], boxes2[5, 3], boxes2[7] = np.nan, -np.inf, np.inf, np.nan
        bad = [2, 3, 5, 7]

        def loss(a, b):
            return tfo.detection.box_iou_loss(a, b, mode=mode)

        def iou(a, b):
            return tfo.detection.box_iou(a, b, mode=mode)

        for d in _gradients(loss, np.ones(9), boxes1, boxes2):
            self.assertAllEqual(d.numpy()[bad], np.zeros([4, 4]))
            self.assertTrue(np.isfinite(d).all())
            self.assertTrue((np.abs(np.delete(d, bad, 0)).max(1) > 0).any())
        d1, d2 = _gradients(iou, np.ones([9, 9]), boxes1, boxes2)
        good1, good2 = np.delete(boxes1, [2, 3], 0), np.delete(boxes2, [5, 7], 0)
        expected = _gradients(iou, np.ones([7, 7]), good1, good2)
        self.assertAllClose(np.delete(d1, [2, 3], 0), expected[0], rtol=1e-5, atol=1e-6)
        self.assertAllClose(np.delete(d2, [5, 7], 0), expected[1], rtol=1e-5, atol=1e-6)
        self.assertAllEqual(d1.numpy()[[2, 3]], np.zeros([2, 4]))
        self.assertAllEqual(d2.numpy()[[5, 7]], np.zeros([2, 4]))

    def test_upstream_zero_hides_nan(self):
        boxes = np.float32([[0, 0, 1, 1], [np.nan, 0, 1, 1]])
        loss = tfo.detection.box_iou_loss
        for d in _gradients(lambda a, b: tf.where([True, False], loss(a, b), 0.0), [1.0, 1.0], boxes, boxes):
            self.assertAllEqual(d, np.zeros([2, 4]))

    @parameterized.parameters(tfo.detection.box_iou, tfo.detection.box_iou_loss)
    def test_second_derivatives_are_refused(self, fn):
        boxes1, boxes2 = tf.constant(_boxes(3)), tf.constant(_boxes(3, seed=1))
        with tf.GradientTape() as outer:
            outer.watch(boxes1)
            with tf.GradientTape() as inner:
                inner.watch(boxes1)
                result = fn(boxes1, boxes2)
            d = inner.gradient(result, boxes1)
        with self.assertRaisesRegex(LookupError, f"{fn.__name__} has no second derivatives"):
            outer.gradient(d, boxes1)

    def test_training_moves_a_box_onto_another(self):
        target, box = tf.constant([[2.0, 3.0, 5.0, 7.0]]), tf.Variable([[10.0, 9.0, 11.0, 10.0]])
        optimizer = tf.keras.optimizers.Adam(0.1)
        for _ in range(400):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tfo.detection.box_iou_loss(box, target, mode="ciou"))
            optimizer.apply_gradients([(tape.gradient(loss, box), box)])
        self.assertLess(loss, 0.15)


if __name__ == "__main__":
    tf.test.main()
