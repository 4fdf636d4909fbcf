"""Tests of the values of box_iou and box_iou_loss, and of their errors."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library


def _boxes(*shape, seed=0):
    generator = np.random.default_rng(seed)
    low = generator.uniform(0, 10, (*shape, 2))
    return np.concatenate([low, low + generator.uniform(0.2, 6, (*shape, 2))], -1)


class BoxIouTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ((2, 1, 4), (1, 1, 4)), ((4,), (3, 2, 4)), ((3, 1, 4), (5, 4)), ((1, 4), (0, 4)), ((2, 3, 4), (2, 3, 4))
    )  # fmt: skip
    def test_loss_broadcasts(self, shape1, shape2):
        boxes1, boxes2 = tf.constant(_boxes(*shape1[:-1])), tf.constant(_boxes(*shape2[:-1], seed=1))
        wide = np.broadcast_arrays(boxes1, boxes2)

        def loss_and_gradients(boxes1, boxes2):
            with tf.GradientTape() as tape:
                tape.watch([boxes1, boxes2])
                loss = tfo.detection.box_iou_loss(boxes1, boxes2)
            return loss, *tape.gradient(loss, [boxes1, boxes2])

        loss, *of_wide = loss_and_gradients(*map(tf.constant, wide))
        expected = [loss]
        for gradient, shape in zip(of_wide, (shape1, shape2), strict=True):
            extra = tuple(range(gradient.shape.rank - len(shape)))
            gradient = np.sum(gradient, extra)
            ones = tuple(i for i, n in enumerate(shape) if n == 1)
            expected.append(gradient.sum(ones, keepdims=True))
        specs = [tf.TensorSpec(None, tf.float64)] * 2
        ranked = [tf.TensorSpec([None] * len(s), tf.float64) for s in (shape1, shape2)]
        for call in (
            loss_and_gradients,
            tf.function(loss_and_gradients),
            tf.function(loss_and_gradients, input_signature=specs),
            tf.function(loss_and_gradients, input_signature=ranked),
            *([] if library.xla_error else [tf.function(loss_and_gradients, jit_compile=True)]),
        ):
            for actual, value in zip(call(boxes1, boxes2), expected, strict=True):
                self.assertAllClose(actual, value)

    def test_loss_of_shapes_that_do_not_broadcast(self):
        spec = tf.TensorSpec(None)
        traced = tf.function(tfo.detection.box_iou_loss, input_signature=[spec, spec])
        for shape1, shape2 in (
            ([3, 4], [2, 4]),
            ([2, 3, 4], [2, 4]),
            ([4], [1]),
            ([3, 4], [3, 1]),
            ([], [4]),
            ([], [2, 3, 4]),
        ):
            boxes = tf.zeros(shape1), tf.zeros(shape2)
            with self.assertRaisesRegex(ValueError, "boxes. must"):
                tfo.detection.box_iou_loss(*boxes)
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "boxes. must"):
                traced(*boxes)

    @parameterized.parameters(np.float32, np.float64)
    def test_by_hand(self, dtype):
        """Sides 4 x 2 and 2 x 4, 2 of 14 shared, in a hull of 4 x 5; the centers are 1 and 2 apart."""
        boxes1, boxes2 = dtype([[0, 0, 4, 2]]), dtype([[2, 1, 4, 5], [0, 0, 4, 2]])
        v = 4 / np.pi**2 * (np.arctan(2) - np.arctan(0.5)) ** 2
        expected = {"iou": 1 / 7, "giou": 1 / 7 - 6 / 20, "diou": 1 / 7 - 5 / 41}
        expected["ciou"] = expected["diou"] - v / (1 - 1 / 7 + v) * v
        for mode, value in expected.items():
            for options in ({}, {"box_format": "yxyx"}):
                order = [1, 0, 3, 2] if options else [0, 1, 2, 3]
                pair = boxes1[:, order], boxes2[:, order]
                iou = tfo.detection.box_iou(*pair, mode=mode, **options)
                loss = tfo.detection.box_iou_loss(*pair, mode=mode, **options)
                self.assertEqual((iou.dtype, loss.dtype), (dtype, dtype))
                self.assertAllClose(iou, [[value, 1]], rtol=1e-6)
                self.assertAllClose(loss, [1 - value, 0], rtol=1e-6)
        self.assertAllClose(tfo.detection.box_iou(boxes1, boxes2)[0, 0], expected["iou"])
        self.assertAllClose(tfo.detection.box_iou_loss(boxes1, boxes2)[0], 1 - expected["giou"])

    def test_ciou_of_a_point(self):
        point, box = [2.0, 1.0, 2.0, 1.0], [0.0, 0.0, 4.0, 3.0]
        v = 4 / np.pi**2 * np.arctan2(4, 3) ** 2
        expected = -(0.5**2) / 25 - v / (1 + v) * v
        self.assertAllClose(tfo.detection.box_iou([point], [box], mode="ciou"), [[expected]], rtol=1e-6)
        self.assertAllClose(tfo.detection.box_iou_loss(point, box, mode="ciou"), 1 - expected, rtol=1e-6)
        self.assertAllEqual(tfo.detection.box_iou_loss(point, point, mode="ciou"), 1.0)

    def test_float64_wins(self):
        boxes = _boxes(4)
        for pair in ((boxes, boxes.astype(np.float32)), (boxes.astype(np.float32), boxes)):
            self.assertEqual(tfo.detection.box_iou(*pair).dtype, tf.float64)
            self.assertEqual(tfo.detection.box_iou_loss(*pair).dtype, tf.float64)

    def test_lists_and_integers(self):
        self.assertAllEqual(tfo.detection.box_iou([[0, 0, 2, 2]], np.array([[0, 0, 1, 2]])), [[0.5]])
        self.assertEqual(tfo.detection.box_iou_loss([0, 0, 2, 2], [0, 0, 1, 2]).dtype, tf.float32)

    def test_ragged_loss(self):
        boxes = tf.RaggedTensor.from_row_lengths(tf.constant([[0.0, 0, 2, 2], [1, 0, 3, 2], [0, 0, 1, 1]]), [2, 0, 1])
        others = boxes + 0.25
        loss = tfo.detection.box_iou_loss(boxes, others)
        self.assertAllEqual(loss.row_lengths(), [2, 0, 1])
        self.assertAllEqual(loss.values, tfo.detection.box_iou_loss(boxes.values, others.values))
        with self.assertRaisesRegex(ValueError, r"boxes1 is a RaggedTensor, .* pass boxes1.to_tensor"):
            tfo.detection.box_iou(boxes, others)


class RotatedTest(tf.test.TestCase, parameterized.TestCase):
    def _rotated(self, count, seed=0):
        generator = np.random.default_rng(seed)
        parts = [generator.uniform(0, 8, (count, 2)), generator.uniform(0.3, 6, (count, 2))]
        return np.concatenate([*parts, generator.uniform(-400, 400, (count, 1))], -1)

    def test_without_rotation_is_iou(self):
        corners = _boxes(9)
        sizes = corners[:, 2:] - corners[:, :2]
        boxes = np.concatenate([corners[:, :2] + sizes / 2, sizes, np.zeros([9, 1])], -1)
        result = tfo.detection.box_iou(boxes, boxes, box_format="cxcywhr")
        self.assertAllClose(result, tfo.detection.box_iou(corners, corners), rtol=0, atol=1e-12)

    def test_gradient_is_refused(self):
        boxes = tf.constant(self._rotated(3))
        with tf.GradientTape() as tape:
            tape.watch(boxes)
            result = tfo.detection.box_iou(boxes, boxes, box_format="cxcywhr")
        with self.assertRaisesRegex(LookupError, "rotated boxes .* has no gradient"):
            tape.gradient(result, boxes)


if __name__ == "__main__":
    tf.test.main()
