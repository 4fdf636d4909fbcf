"""Tests of nms and batched_nms."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

nms, batched_nms = tfo.detection.nms, tfo.detection.batched_nms
_BOXES = np.float32([[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [0, 0, 10, 9]])
_SCORES = np.float32([0.6, 0.9, 0.8, 0.7])


def _random_boxes(rng, n):
    """Returns boxes in a square of 100, on both sides of zero."""
    centers, sides = rng.uniform(-50, 50, [n, 2]), rng.uniform(10, 30, [n, 2])
    return np.concatenate([centers - sides / 2, centers + sides / 2], -1).astype(np.float32)


class ValuesTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        ("float32", 3e38), ("float32", 1e25), ("float32", 1e-30), ("float32", 3e-37), ("bfloat16", 3e38),
        ("bfloat16", 1e-30), ("float64", 1e308), ("float64", 1e-300), ("float16", 6e4), ("float16", 1e-4),
    )  # fmt: skip
    def test_boxes_of_any_size_overlap_as_box_iou_measures(self, dtype, size):
        boxes = tf.cast(size * np.array([[0, 0, 1, 1], [0, 0, 1, 1], [-1, 0, 1, 1], [0.5, 0, 1, 1]]), dtype)
        scores = tf.cast([0.5, 0.4, 0.3, 0.2], dtype)
        iou = tfo.detection.box_iou(boxes[:1], boxes)
        self.assertAllEqual(iou[0, :2], [1, 1])
        self.assertAllClose(iou[0, 2:], [0.5, 0.5], rtol=1e-2 if boxes.dtype.size == 2 else 1e-6)
        for mode in ("iou", "giou", "diou", "ciou"):
            self.assertAllEqual(tfo.detection.box_iou_loss(boxes, boxes, mode=mode), [0, 0, 0, 0])
        self.assertAllEqual(nms(boxes, scores, 0.55), [0, 2, 3])
        self.assertAllEqual(nms(boxes, scores, 0.45), [0])
        self.assertAllEqual(batched_nms(boxes, scores, [0, 0, 1, 0], 0.45), [0, 2])
        by_class = boxes[tf.newaxis], scores[tf.newaxis, :, tf.newaxis]
        found = tfo.detection.multiclass_nms(*by_class, iou_threshold=0.55, max_outputs=4)
        self.assertAllEqual(found.indices, [[0, 2, 3, -1]])
        soft = tfo.detection.soft_nms(boxes[:2], [0.5, 0.4], score_threshold=0)
        self.assertAllClose(soft.scores, [0.5, 0.4 * np.exp(-1 / 0.5)])

    @parameterized.parameters("float16", "float32", "float64")
    def test_no_score_threshold(self, dtype):
        boxes = tf.cast(_BOXES, dtype)[tf.newaxis]
        scores = tf.constant([-5.0, -np.inf, -1e4, np.nan], dtype)
        ids = np.arange(4)
        for threshold, kept in ((None, [0, 2, 1]), (-np.inf, [0, 2]), (np.float32(-np.inf), [0, 2]), (-1e3, [0])):
            options = {"score_threshold": threshold}
            self.assertAllEqual(batched_nms(boxes[0], scores, ids, 0.5, **options), kept)
            self.assertAllEqual(nms(boxes[0], scores, 1, **options), kept)
            found = tfo.detection.multiclass_nms(
                boxes, scores[tf.newaxis, :, tf.newaxis], iou_threshold=1, max_outputs=4, **options
            )
            self.assertAllEqual(found.indices[0], [*kept, *[-1] * (4 - len(kept))])
            # A score of -infinity cannot be told from one that has decayed.
            soft = tfo.detection.soft_nms(boxes[0], scores, iou_threshold=1, method="linear", **options)
            self.assertAllEqual(soft.indices, [0, 2][: len(kept)])

    def test_a_score_threshold_known_late(self):
        @tf.function(input_signature=[tf.TensorSpec([])])
        def call(threshold):
            return nms(_BOXES, _SCORES, 0.5, score_threshold=threshold)

        self.assertAllEqual(call(-np.inf), [1, 2])
        self.assertAllEqual(call(0.85), [1])
        for bad in (np.nan, np.inf):
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, "score_threshold is .*, expected None or a number"
            ):
                call(bad)

    def test_ties_and_the_threshold_itself(self):
        boxes = [[0.0, 0, 2, 1], [0, 0, 1, 1]]  # IoU 1/2
        self.assertAllEqual(nms(boxes, [2.0, 1.0], 0.5), [0, 1])
        self.assertAllEqual(nms(boxes, [-0.0, 0.0], 0.5), [0, 1])

    def test_rotated_boxes(self):
        boxes = [[0.0, 0, 10, 2, 0], [0, 0, 10, 2, 90], [0, 0, 10, 2, 180], [0, 0, -1, 2, 0], [0, 0, 10, 2, np.nan]]
        scores = [5.0, 4, 3, 2, 1]
        # A cross has an IoU of 4 / 36.
        self.assertEqual(nms(boxes, scores, 0.1, box_format="cxcywhr").numpy().tolist(), [0, 3, 4])
        self.assertEqual(nms(boxes, scores, 0.12, box_format="cxcywhr").numpy().tolist(), [0, 1, 3, 4])


class ImagesTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(
        score_threshold=(None, 0.5),
        max_outputs=(None, 0, 3, tf.constant(50)),
        dtype=("float32", "float64", "bfloat16"),
        in_graph=(False, True),
    )
    def test_is_nms_of_each_image(self, score_threshold, max_outputs, dtype, in_graph):
        rng = np.random.default_rng(0)
        boxes = tf.cast(np.stack([_random_boxes(rng, 40) for _ in range(3)]), dtype)
        scores = tf.cast(rng.uniform(size=[3, 40]), dtype)
        options = {"score_threshold": score_threshold, "max_outputs": max_outputs}

        def suppress(boxes, scores):
            return nms(boxes, scores, 0.1, **options)

        if in_graph:
            specs = [tf.TensorSpec([None, None, 4], dtype), tf.TensorSpec([None, None], dtype)]
            suppress = tf.function(suppress, input_signature=specs)
        kept = suppress(boxes, scores)
        expected = [nms(b, s, 0.1, **options).numpy().tolist() for b, s in zip(boxes, scores, strict=True)]
        self.assertEqual(kept.to_list(), expected)
        self.assertEqual(kept.dtype, tf.int32)

    def test_ragged(self):
        rng = np.random.default_rng(0)
        boxes = tf.RaggedTensor.from_row_lengths(_random_boxes(rng, 50), [20, 0, 30])
        scores = boxes.with_values(tf.constant(rng.uniform(-1, 0, size=[50]), tf.float32))
        kept = nms(boxes, scores, 0.1)
        expected = [nms(b, s, 0.1).numpy().tolist() for b, s in zip(boxes, scores, strict=True)]
        self.assertEqual(kept.to_list(), expected)
        by_class = boxes.with_values(tf.stack([scores.values, -1 - scores.values], -1))
        found = tfo.detection.multiclass_nms(boxes, by_class, score_threshold=None, max_outputs=60)
        for i in range(3):
            one = tfo.detection.multiclass_nms(
                boxes[i][tf.newaxis], by_class[i][tf.newaxis], score_threshold=None, max_outputs=60
            )
            for ours, expected in zip(found, one, strict=True):
                self.assertAllEqual(ours[i], expected[0])

    def test_ragged_scores(self):
        boxes = tf.RaggedTensor.from_row_lengths(tf.zeros([3, 4]), [1, 2])
        self.assertEqual(nms(boxes, boxes.with_values([1, 2, 3]), 0.5).to_list(), [[0], [1, 0]])
        other = tf.RaggedTensor.from_row_lengths([1.0, 2.0, 3.0], [2, 1])
        for call in (nms, tf.function(nms)):
            message = r"the number of scores\[0\] is 2, expected that of boxes"
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                call(boxes, other, 0.5)
            with self.assertRaisesRegex(ValueError, r"scores's row lengths has shape \[3\], expected \[2\].*boxes' N"):
                call(boxes, tf.RaggedTensor.from_row_lengths([1.0, 2.0, 3.0], [1, 1, 1]), 0.5)

    def test_no_images_and_no_boxes(self):
        self.assertEqual(nms(tf.zeros([0, 3, 4]), tf.zeros([0, 3]), 0.5).to_list(), [])
        self.assertEqual(nms(tf.zeros([2, 0, 4]), tf.zeros([2, 0]), 0.5).to_list(), [[], []])

    def test_functions_of_one_image_refuse_ragged_boxes(self):
        ragged = tf.RaggedTensor.from_tensor(np.zeros([2, 3, 4], np.float32))
        for function in (tfo.detection.soft_nms, lambda b, s: batched_nms(b, s, [0, 1], 0.5)):
            message = r"boxes must be \[K, 4\], got a RaggedTensor: nms and multiclass_nms take"
            with self.assertRaisesRegex(ValueError, message):
                function(ragged, np.zeros([2, 3]))

    @parameterized.parameters("xywh", "center_xywh", "center_yxhw", "rel_xywh", "rel_center_xywh", "rel_yxyx")
    def test_formats(self, box_format):
        boxes = _random_boxes(np.random.default_rng(0), 40)
        scores = np.linspace(0, 1, 40)
        kind = box_format.removeprefix("rel_")
        x1, y1, x2, y2 = boxes.T
        if box_format.startswith("rel_"):
            x1, y1, x2, y2 = x1 / 200, y1 / 300, x2 / 200, y2 / 300
        given = np.stack(
            {
                "yxyx": (y1, x1, y2, x2),
                "xywh": (x1, y1, x2 - x1, y2 - y1),
                "center_xywh": ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1),
                "center_yxhw": ((y1 + y2) / 2, (x1 + x2) / 2, y2 - y1, x2 - x1),
            }[kind],
            -1,
        )
        self.assertAllEqual(nms(given, scores, 0.1, box_format=box_format), nms(boxes, scores, 0.1))
        groups = np.arange(40) % 2
        kept = batched_nms(given, scores, groups, 0.1, box_format=box_format)
        self.assertAllEqual(kept, batched_nms(boxes, scores, groups, 0.1))
        found = tfo.detection.soft_nms(given, scores, box_format=box_format)
        self.assertAllEqual(found.indices, tfo.detection.soft_nms(boxes, scores).indices)
        spec = tf.TensorSpec(None, tf.float32)
        unknown = tf.function(lambda b: nms(b, scores, 0.1, box_format=box_format), input_signature=[spec])
        self.assertAllEqual(unknown(given.astype(np.float32)), nms(boxes, scores, 0.1))
        found = tfo.detection.multiclass_nms(given[None], scores[None, :, None], box_format=box_format, max_outputs=5)
        self.assertAllEqual(found.boxes[0], tf.gather(given, found.indices[0]))
        iou = tfo.detection.box_iou(boxes[:5], boxes)
        self.assertAllClose(tfo.detection.box_iou(given[:5], given, box_format=box_format), iou, 1e-5, 1e-5)
        loss = tfo.detection.box_iou_loss(boxes[:5], boxes[5:10])
        self.assertAllClose(tfo.detection.box_iou_loss(given[:5], given[5:10], box_format=box_format), loss, 1e-5, 1e-5)


class GroupsTest(parameterized.TestCase, tf.test.TestCase):
    def test_groups_keep_apart_where_offsets_would_not(self):
        # torchvision moves each group by the largest coordinate plus 1: these two boxes would coincide.
        boxes = [[0.0, 0, 10, 10], [-11, -11, -1, -1]]
        self.assertEqual(batched_nms(boxes, [2.0, 1.0], [0, 1], 0.5).numpy().tolist(), [0, 1])
        # And coordinates of group 20000 would lose their fractions.
        boxes = np.float32([[0, 0, 100.3, 100], [33.9, 0, 134.3, 100]])  # IoU 0.4925
        for group in (0, 20000, 2**31 - 1):
            self.assertEqual(batched_nms(boxes, [2.0, 1.0], [group] * 2, 0.48).numpy().tolist(), [0])


class ArgumentsTest(parameterized.TestCase, tf.test.TestCase):
    def test_tensors_are_checked_when_they_run(self):
        @tf.function(input_signature=[tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.int32)])
        def call(iou_threshold, max_outputs):
            return nms(_BOXES, _SCORES, iou_threshold, max_outputs=max_outputs)

        self.assertAllEqual(call(0.5, 4), [1, 2])
        self.assertAllEqual(call(0.5, 1), [1])
        self.assertAllEqual(call(0.9, 0), [])
        with self.assertRaisesRegex(
            tf.errors.InvalidArgumentError, r"iou_threshold is 1.5, expected a number in \[0, 1\]"
        ):
            call(1.5, 4)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "max_outputs is -2, expected"):
            call(0.5, -2)

    def test_lists_of_ints_and_sizes_known_late(self):
        self.assertAllEqual(nms(_BOXES.astype(int).tolist(), [6, 9, 8, 7], 0.5), [1, 2])
        call = tf.function(lambda b, s: nms(b, s, 0.5), autograph=False)
        spec = tf.TensorSpec(None, tf.float32)
        traced = call.get_concrete_function(spec, spec)
        self.assertAllEqual(traced(tf.constant(_BOXES), tf.constant(_SCORES)), [1, 2])
        self.assertEqual(traced.structured_outputs.shape.as_list(), [None])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"boxes must be \[K, 4\]"):
            traced(tf.constant(_SCORES), tf.constant(_SCORES))

    @parameterized.parameters(
        ("Nms", lambda: nms(_BOXES, _SCORES, 0.5)),
        ("BatchedNms", lambda: batched_nms(_BOXES, _SCORES, np.zeros(4, np.int32), 0.5)),
        ("SoftNms", lambda: tfo.detection.soft_nms(_BOXES, _SCORES)),
    )
    def test_xla_refuses_by_name(self, op, call):
        if library.xla_error:
            self.skipTest(library.xla_error)
        with self.assertRaisesRegex(tf.errors.UnimplementedError, f"TensorflowOps>{op} cannot be compiled by XLA"):
            tf.function(call, jit_compile=True, autograph=False)()


if __name__ == "__main__":
    tf.test.main()
