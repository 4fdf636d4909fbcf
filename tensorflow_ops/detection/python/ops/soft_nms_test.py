"""Tests of soft_nms."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

soft_nms = tfo.detection.soft_nms


def _random_boxes(rng, n):
    """Returns boxes in a square of 100, on both sides of zero."""
    centers, sides = rng.uniform(-50, 50, [n, 2]), rng.uniform(10, 30, [n, 2])
    return np.concatenate([centers - sides / 2, centers + sides / 2], -1).astype(np.float32)


class ValuesTest(parameterized.TestCase, tf.test.TestCase):
    def test_tf_image_has_half_of_sigma(self):
        rng = np.random.default_rng(5)
        boxes = _random_boxes(rng, 60)
        scores = rng.uniform(size=60).astype(np.float32)
        found = soft_nms(boxes, scores, sigma=0.6, score_threshold=0.01)
        theirs = tf.image.non_max_suppression_with_scores(
            boxes, scores, 60, iou_threshold=1.0, score_threshold=0.01, soft_nms_sigma=0.3
        )
        self.assertAllEqual(found.indices, theirs[0])
        self.assertAllClose(found.scores, theirs[1])

    def test_tiny_sigma(self):
        boxes = tf.constant([[0.0, 0, 10, 10], [0, 0, 10, 9], [20, 0, 30, 10]])
        self.assertAllEqual(soft_nms(boxes, [0.9, 0.8, 0.7], sigma=1.2e-38, score_threshold=0).indices, [0, 2])
        wide = soft_nms(tf.cast(boxes, tf.float64), [0.9, 0.8, 0.7], sigma=1e-300, score_threshold=0)
        self.assertAllEqual(wide.indices, [0, 2])


class ArgumentsTest(parameterized.TestCase, tf.test.TestCase):
    def test_tensors_are_checked_when_they_run(self):
        call = tf.function(lambda sigma: soft_nms(tf.zeros([3, 4]), tf.ones([3]), sigma=sigma), autograph=False)
        self.assertAllEqual(call(tf.constant(0.5)).indices, [0, 1, 2])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "sigma is -1, expected a finite number, at least"):
            call(tf.constant(-1.0))


if __name__ == "__main__":
    tf.test.main()
