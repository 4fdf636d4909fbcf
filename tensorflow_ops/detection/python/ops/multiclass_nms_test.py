"""Tests of multiclass_nms."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

multiclass_nms = tfo.detection.multiclass_nms


class ValuesTest(parameterized.TestCase, tf.test.TestCase):
    def test_rotated_boxes(self):
        boxes = np.float32([[[0, 0, 10, 2, 0], [0, 0, 10, 2, 180], [0, 0, 10, 2, 90]]])
        scores = np.float32([[[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]]])
        found = multiclass_nms(boxes, scores, max_outputs=5, box_format="cxcywhr")
        self.assertAllEqual(found.indices, [[0, 2, 2, 1, -1]])
        self.assertAllEqual(found.class_ids, [[0, 0, 1, 1, 0]])
        self.assertEqual(found.boxes.shape, [1, 5, 5])


class GraphTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(per_class=(False, True), compiled=(False, True))
    def test_gradients_reach_boxes_and_scores(self, per_class, compiled):
        if compiled and library.xla_error:
            self.skipTest(library.xla_error)
        rng = np.random.default_rng(5)
        low = rng.uniform(-50, 50, [3, 60, 4, 2] if per_class else [3, 60, 2])
        boxes = np.float32(np.concatenate([low, low + rng.uniform(10, 30, low.shape)], -1))
        scores = np.float32(rng.uniform(-0.2, 1, [3, 60, 4]))

        def gradients(boxes, scores):
            with tf.GradientTape() as tape:
                tape.watch([boxes, scores])
                found = multiclass_nms(boxes, scores, max_outputs=150)
                weights = tf.range(1.0, 151.0)
                loss = tf.reduce_sum(found.scores * weights) + tf.reduce_sum(found.boxes * weights[:, None])
            return *tape.gradient(loss, [boxes, scores]), found

        call = tf.function(gradients, jit_compile=True, autograph=False) if compiled else gradients
        d_boxes, d_scores, found = call(tf.constant(boxes), tf.constant(scores))
        eager = multiclass_nms(boxes, scores, max_outputs=150)
        for a, b in zip(found, eager, strict=True):
            self.assertAllEqual(a, b)
        expected_boxes, expected_scores = np.zeros_like(boxes), np.zeros_like(scores)
        for n, count in enumerate(found.counts.numpy()):
            for m in range(count):
                k, c = found.indices[n, m].numpy(), found.class_ids[n, m].numpy()
                expected_boxes[(n, k, c) if per_class else (n, k)] += m + 1
                expected_scores[n, k, c] += m + 1
        self.assertAllClose(d_boxes, expected_boxes)
        self.assertAllClose(d_scores, expected_scores)

    def test_static_shapes(self):
        call = tf.function(lambda b, s, m: multiclass_nms(b, s, max_outputs=m), autograph=False)
        spec = tf.TensorSpec([None, 7, 4]), tf.TensorSpec([None, 7, None])
        found = call.get_concrete_function(*spec, 5).structured_outputs
        shapes = [t.shape.as_list() for t in found]
        self.assertEqual(shapes, [[None, 5, 4], [None, 5], [None, 5], [None, 5], [None]])
        found = call.get_concrete_function(*spec, tf.TensorSpec([], tf.int32))
        self.assertEqual(found.structured_outputs.scores.shape.as_list(), [None, None])
        result = found(tf.zeros([2, 7, 4]), tf.ones([2, 7, 3]), tf.constant(2))
        self.assertAllEqual(result.counts, [2, 2])


class ArgumentsTest(parameterized.TestCase, tf.test.TestCase):
    def test_max_outputs_beyond_the_scores_of_an_image(self):
        boxes, scores = tf.zeros([1, 4, 4]), tf.ones([1, 4, 2])
        self.assertAllEqual(multiclass_nms(boxes, scores, max_outputs=2**20).counts, [8])
        message = "max_outputs is 1073741824, expected at most 1048576: the larger of 2.20 and the 8 scores of an image"
        for call in (multiclass_nms, tf.function(multiclass_nms), tf.function(multiclass_nms, jit_compile=True)):
            with self.assertRaisesRegex(ValueError, message):
                call(boxes, scores, max_outputs=2**30)
        unknown = tf.function(
            lambda *args: multiclass_nms(*args, max_outputs=2**30), input_signature=[tf.TensorSpec(None)] * 2
        )
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            unknown(boxes, scores)


if __name__ == "__main__":
    tf.test.main()
