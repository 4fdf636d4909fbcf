"""Tests of the Keras loss of boxes."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library


def _boxes(*shape, seed=0):
    generator = np.random.default_rng(seed)
    low = generator.uniform(0, 10, (*shape, 2))
    return np.concatenate([low, low + generator.uniform(1, 6, (*shape, 2))], -1).astype(np.float32)


class BoxIoUTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(("giou", "xyxy"), ("ciou", "yxyx"))
    def test_is_the_mean_of_box_iou_loss(self, mode, box_format):
        y_true, y_pred = _boxes(3, 5), _boxes(3, 5, seed=1)
        losses = tfo.detection.box_iou_loss(y_true, y_pred, mode=mode, box_format=box_format)
        for reduction, expected in (("sum_over_batch_size", np.mean(losses)), ("sum", np.sum(losses)), (None, losses)):
            loss = tfo.losses.BoxIoU(mode=mode, box_format=box_format, reduction=reduction)
            self.assertAllClose(loss(y_true, y_pred), expected, rtol=1e-6)

    def test_sample_weights_hide_padding(self):
        y_true, y_pred = _boxes(2, 3), _boxes(2, 3, seed=1)
        y_true[0, 2] = 0
        weights = np.float32([[1, 1, 0], [1, 1, 1]])
        losses = tfo.detection.box_iou_loss(y_true, y_pred).numpy()
        loss = tfo.losses.BoxIoU(reduction="mean_with_sample_weight")
        self.assertAllClose(loss(y_true, y_pred, weights), (losses * weights).sum() / 5, rtol=1e-6)

    @parameterized.parameters("sum_over_batch_size", "sum", "mean_with_sample_weight")
    def test_ignored_boxes(self, reduction):
        y_true, y_pred = _boxes(2, 3), tf.Variable(_boxes(2, 3, seed=1))
        y_true[0, 2], y_true[1] = -1, -1
        loss = tfo.losses.BoxIoU(reduction=reduction, ignore_value=-1)
        expected = tfo.losses.BoxIoU(reduction=reduction)
        for call in (loss, tf.function(loss)):
            self.assertAllClose(call(y_true, y_pred), expected(y_true[0, :2], y_pred[0, :2]), rtol=1e-6)
        with tf.GradientTape() as tape:
            value = loss(y_true, y_pred)
        gradient = tf.convert_to_tensor(tape.gradient(value, y_pred))
        self.assertAllEqual(tf.reduce_any(gradient != 0, -1), [[True, True, False], [False] * 3])
        self.assertEqual(float(loss(np.full([2, 4], -1.0), _boxes(2))), 0)
        copy = keras.losses.deserialize(keras.losses.serialize(loss))
        self.assertEqual(copy.ignore_value, -1)
        with self.assertRaisesRegex(ValueError, "ignore_value is '-1', expected a finite number"):
            tfo.losses.BoxIoU(ignore_value="-1")

    def test_default_is_giou(self):
        y_true, y_pred = _boxes(4), _boxes(4, seed=1)
        expected = np.mean(tfo.detection.box_iou_loss(y_true, y_pred, mode="giou"))
        self.assertAllClose(tfo.losses.BoxIoU()(y_true, y_pred), expected, rtol=1e-6)

    def test_wrong_options(self):
        with self.assertRaisesRegex(ValueError, "mode is 'l1', expected one of 'iou', 'giou', 'diou', 'ciou'"):
            tfo.losses.BoxIoU(mode="l1")
        with self.assertRaisesRegex(ValueError, "box_format is 'cxcywhr', expected one of 'xyxy', 'yxyx'"):
            tfo.losses.BoxIoU(box_format="cxcywhr")
        with self.assertRaisesRegex(ValueError, "boxes2 must be"):
            tfo.losses.BoxIoU()(_boxes(4), _boxes(4)[:, :3])

    def test_config(self):
        loss = tfo.losses.BoxIoU(mode="ciou", box_format="yxyx", reduction="sum", name="boxes", dtype="float64")
        copy = keras.losses.deserialize(keras.losses.serialize(loss))
        self.assertEqual(copy.get_config(), loss.get_config())
        self.assertEqual((copy.mode, copy.box_format, copy.reduction), ("ciou", "yxyx", "sum"))
        self.assertEqual(copy(_boxes(2), _boxes(2)).dtype, tf.float64)

    def test_fit(self):
        x, y = np.eye(6, dtype=np.float32), _boxes(6)

        def first_box(shape, dtype=None):
            del shape
            return tf.constant([0.0, 0.0, 9.0, 9.0], dtype)

        model = keras.Sequential([keras.layers.Dense(4, bias_initializer=first_box)])
        model.compile(keras.optimizers.Adam(0.1), tfo.losses.BoxIoU("ciou"), jit_compile=library.xla_error is None)
        many = np.tile(x, [25, 1]), np.tile(y, [25, 1])  # few epochs, which take longer than steps
        history = model.fit(*many, batch_size=6, shuffle=False, epochs=6, verbose=0).history["loss"]
        self.assertLess(history[-1], 0.3 * history[0])


if __name__ == "__main__":
    tf.test.main()
