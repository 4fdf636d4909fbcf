"""Tests of the gradients of box_iou and box_iou_loss."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo


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
    @parameterized.product(fn=(tfo.detection.box_iou, tfo.detection.box_iou_loss), mode=("iou", "giou", "diou"))
    def test_options_reach_the_gradients(self, fn, mode):
        boxes = tf.constant(_boxes(2, 3)), tf.constant(_boxes(2, 3, seed=1))
        tfo.testing.assert_gradients(lambda a, b: fn(a, b, mode=mode, box_format="yxyx"), boxes)

    def test_half_and_half_by_hand(self):
        # Both boxes end at x = 2. Moving x2 of either up grows union and hull: the loss 1 - 1 / (2 + e) by e / 4.
        # Moving it down shrinks the intersection only: by e / 2.
        gradients = _gradients(tfo.detection.box_iou_loss, 1.0, np.float64([0, 0, 2, 1]), np.float64([1, 0, 2, 1]))
        for d in gradients:
            self.assertAllClose(d[2], (0.25 - 0.5) / 2, rtol=0, atol=1e-12)

    def test_upstream_zero_hides_nan(self):
        boxes = np.float32([[0, 0, 1, 1], [np.nan, 0, 1, 1]])
        loss = tfo.detection.box_iou_loss
        for d in _gradients(lambda a, b: tf.where([True, False], loss(a, b), 0.0), [1.0, 1.0], boxes, boxes):
            self.assertAllEqual(d, np.zeros([2, 4]))

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
