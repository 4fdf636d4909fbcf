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
    @parameterized.parameters({}, {"mode": "ciou", "box_format": "yxyx"})
    def test_is_the_mean_of_box_iou_loss(self, **options):
        y_true, y_pred = _boxes(3, 5), _boxes(3, 5, seed=1)
        losses = tfo.detection.box_iou_loss(y_true, y_pred, **{"mode": "giou", **options})
        for reduction, expected in (("sum_over_batch_size", np.mean(losses)), ("sum", np.sum(losses)), (None, losses)):
            self.assertAllClose(tfo.losses.BoxIoU(**options, reduction=reduction)(y_true, y_pred), expected, rtol=1e-6)

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

    def test_wrong_options(self):
        for option, value, message in (
            ("mode", "l1", "mode is 'l1', expected one of 'iou', 'giou', 'diou', 'ciou'"),
            ("box_format", "cxcywhr", "box_format is 'cxcywhr', expected one of 'xyxy', 'yxyx'"),
            ("ignore_value", "-1", "ignore_value is '-1', expected a finite number"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                tfo.losses.BoxIoU(**{option: value})

    def test_config(self):
        options = {"mode": "ciou", "box_format": "yxyx", "ignore_value": -1, "reduction": "sum", "dtype": "float64"}
        copy = keras.losses.deserialize(keras.losses.serialize(tfo.losses.BoxIoU(**options)))
        self.assertEqual({name: getattr(copy, name) for name in options}, options)
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
