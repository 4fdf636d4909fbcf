"""Tests of multiclass_nms."""

import nms_reference_testing as reference
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

multiclass_nms = tfo.detection.multiclass_nms


def _data(seed, images=3, boxes=60, classes=4, per_class=False):
    rng = np.random.default_rng(seed)
    count = images * boxes * (classes if per_class else 1)
    shape = [images, boxes, classes, 4] if per_class else [images, boxes, 4]
    return reference.hostile_boxes(rng, count).reshape(shape), reference.hostile_scores(rng, images, boxes, classes)


class ValuesTest(parameterized.TestCase, tf.test.TestCase):
    def _check(self, boxes, scores, max_outputs, **options):
        found = multiclass_nms(boxes, scores, max_outputs=max_outputs, **options)
        options = {"iou_threshold": 0.5, "score_threshold": 0.0, **options}
        images = len(scores)
        self.assertEqual(found.boxes.shape, [images, max_outputs, 4])
        for n in range(images):
            with np.errstate(all="ignore"):
                expected = reference.multiclass(boxes[n], scores[n], max_outputs=max_outputs, **options)
            count, padding = len(expected), max_outputs - len(expected)
            self.assertEqual(found.counts[n].numpy(), count)
            self.assertEqual(found.indices[n].numpy().tolist(), [k for k, _ in expected] + [-1] * padding)
            self.assertEqual(found.class_ids[n].numpy().tolist(), [c for _, c in expected] + [0] * padding)
            values = [scores[n, k, c] for k, c in expected] + [0] * padding
            np.testing.assert_array_equal(found.scores[n], np.float32(values))
            of = [boxes[n, k, c] if boxes.ndim == 4 else boxes[n, k] for k, c in expected]
            np.testing.assert_array_equal(found.boxes[n], np.float32(of + [[0] * 4] * padding).reshape(-1, 4))

    @parameterized.parameters(False, True)
    def test_equals_the_definition(self, per_class):
        boxes, scores = _data(0, per_class=per_class)
        self._check(boxes, scores, 20)
        self._check(boxes, scores, 300, iou_threshold=0.2)
        self._check(boxes, scores, 30, max_outputs_per_class=3, score_threshold=0.25)
        self._check(boxes, scores, 5, max_outputs_per_class=0)
        self._check(boxes, scores, 0)

    def test_ties_go_to_the_first_box_and_then_class(self):
        boxes = np.tile(np.float32([[0, 0, 1, 1], [5, 5, 6, 6]]), [1, 1, 1])
        scores = np.float32([[[0.5, 0.5, 0.9], [0.5, 0.5, 0.5]]])
        found = multiclass_nms(boxes, scores, max_outputs=5)
        self.assertAllEqual(found.indices, [[0, 0, 0, 1, 1]])
        self.assertAllEqual(found.class_ids, [[2, 0, 1, 0, 1]])

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
        boxes, scores = _data(5, per_class=per_class)
        boxes, scores = np.nan_to_num(boxes, posinf=9, neginf=-9), np.nan_to_num(scores, posinf=2, neginf=-2)

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
    @parameterized.parameters(
        ({"iou_threshold": 2}, r"iou_threshold is 2, expected a number in \[0, 1\]"),
        ({"score_threshold": np.inf}, "score_threshold is inf, expected None or a number below infinity"),
        ({"max_outputs": -1}, r"max_outputs is -1, expected an int in \[0, 2147483647\]"),
        ({"max_outputs": None}, "max_outputs is None"),
        ({"max_outputs_per_class": -3}, "max_outputs_per_class is -3"),
        ({"box_format": "xyx"}, "box_format is 'xyx'"),
        ({"boxes": np.zeros([2, 5, 3], np.float32)}, "boxes must be"),
        ({"boxes": np.zeros([2, 6, 4], np.float32)}, "boxes must be"),
        ({"boxes": np.zeros([2, 5, 2, 4], np.float32)}, "boxes must be"),
        ({"boxes": np.zeros([5, 4], np.float32)}, "boxes must be"),
        ({"scores": np.zeros([2, 5], np.float32)}, r"scores must be \[N, K, C\]"),
    )
    def test_bad_arguments_are_named(self, changed, message):
        arguments = {"boxes": np.zeros([2, 5, 4], np.float32), "scores": np.zeros([2, 5, 3], np.float32), **changed}
        with self.assertRaisesRegex(ValueError, message):
            multiclass_nms(**arguments)

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
