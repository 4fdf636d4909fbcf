"""Tests of CTC by tfo.layers.use_fused_ops."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)


def _normal(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


_LOGITS = _normal(4, 9, 5)
_LABELS = np.array([[1, 2, 2, 0], [3, 0, 0, 0], [4, 1, 2, 3], [0, 0, 0, 0]])
_LENGTHS = np.array([3, 1, 4, 0]), np.array([9, 8, 7, 3])


class CTCTest(tf.test.TestCase, parameterized.TestCase):
    """Compares losses and gradients."""

    def _is_keras(self, labels, logits, label_lengths, logit_lengths, mask_index=0, wrap=lambda f: f, rtol=1e-5):
        def run(logits, labels, label_lengths, logit_lengths):
            with tf.GradientTape() as tape:
                tape.watch(logits)
                loss = keras.ops.ctc_loss(labels, logits, label_lengths, logit_lengths, mask_index)
            return loss, tape.gradient(loss, logits)

        args = [tf.constant(np.array(x)) for x in (labels, label_lengths, logit_lengths)]
        expected = run(logits, *args)
        with tfo.layers.use_fused_ops(["ctc_loss"]):
            actual = wrap(run)(logits, *args)
            self.assertEqual(tfo.layers.fused_ops(), {"ctc_loss": {"fused": 1, "original": 0}})
        for one, other in zip(actual, expected, strict=True):
            self.assertEqual(one.dtype, other.dtype)
            self.assertAllClose(one, other, rtol, rtol)
        return expected[0]

    @parameterized.parameters(
        (tf.float32, "float32"), (tf.float64, "float64"), (tf.float16, "float32"), (tf.bfloat16, "float32")
    )
    def test_is_keras_function(self, dtype, expected):
        rtol = 1e-2 if dtype.size == 2 else 1e-5
        loss = self._is_keras(_LABELS, tf.cast(_LOGITS, dtype), *_LENGTHS, rtol=rtol)
        self.assertEqual(loss.dtype, expected)
        self._is_keras(_LABELS + 0.0, tf.cast(_LOGITS, dtype), *_LENGTHS, rtol=rtol)
        self._is_keras(np.maximum(_LABELS - 1, 0), tf.cast(_LOGITS, dtype), *_LENGTHS, -1, rtol=rtol)

    @parameterized.parameters(False, True)
    def test_in_graphs(self, jit_compile):
        def wrap(function):
            shapes = [None, None, 5], [None, None], [None], [None]
            dtypes = tf.float32, tf.int64, tf.int64, tf.int64
            signature = None if jit_compile else [tf.TensorSpec(*spec) for spec in zip(shapes, dtypes, strict=True)]
            return tf.function(function, signature, jit_compile=jit_compile)

        self._is_keras(_LABELS, tf.constant(_LOGITS), *_LENGTHS, wrap=wrap)
        self._is_keras([[1, 0, 2, 9]], tf.constant(_LOGITS[:1]), [4], [9], wrap=wrap)

    def test_labels_that_are_no_classes(self):
        for labels in ([1, -1, 0, 0], [1, 0, 2, 0], [1, 9, 2, 0]):
            self._is_keras([labels], tf.constant(_LOGITS[:1]), [3], [9])
        self._is_keras(_LABELS[:1] * 0, tf.constant(_LOGITS[:1]), [0], [9])

    def test_integers_and_other_blanks(self):
        args = _LABELS, np.arange(4 * 9 * 5).reshape(4, 9, 5) // 7, *_LENGTHS
        expected = [keras.ops.ctc_loss(*args, 0), keras.ops.ctc_loss(*args, -2)]
        with tfo.layers.use_fused_ops():
            self.assertAllClose([keras.ops.ctc_loss(*args, 0), keras.ops.ctc_loss(*args, -2)], expected, 1e-5)
            calls = {"fused": 1, "original": 1, "reasons": {"mask_index=-2": 1}}
            self.assertEqual(tfo.layers.fused_ops()["ctc_loss"], calls)

    def test_labels_of_one_row(self):
        lengths = np.array([2, 1, 2, 2]), np.array([9, 8, 7, 3])
        args = [tf.constant(x) for x in (_LABELS[2:3, :2], _LOGITS, *lengths)]
        expected = keras.ops.ctc_loss(*args)
        specs = [None, None], [None, None, 5], [None], [None]
        specs = [tf.TensorSpec(shape, x.dtype) for shape, x in zip(specs, args, strict=True)]
        with tfo.layers.use_fused_ops(["ctc_loss"]):
            self.assertAllClose(keras.ops.ctc_loss(*args), expected)
            self.assertAllClose(tf.function(keras.ops.ctc_loss, specs)(*args), expected)

    def test_too_few_frames_have_a_finite_loss_and_no_gradient(self):
        logits = tf.constant(_LOGITS)
        with tfo.layers.use_fused_ops(), tf.GradientTape() as tape:
            tape.watch(logits)
            losses = keras.ops.ctc_loss(_LABELS, logits, [3, 1, 4, 0], [3, 8, 3, 3])
        # tf.nn.ctc_loss takes log(1e-307) for log(0), and adds the other steps.
        self.assertAllClose(losses.numpy()[[0, 2]], [706.8936] * 2, 1e-6)
        gradient = tape.gradient(losses, logits).numpy()
        self.assertAllEqual(gradient[[0, 2]], np.zeros([2, 9, 5]))
        self.assertGreater(np.abs(gradient[1]).max(), 0.1)


if __name__ == "__main__":
    tf.test.main()
