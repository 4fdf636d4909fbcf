"""Tests of Keras losses under jit_compile where XLA cannot compile the ops."""

from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_ROWS = np.array([[0.0, 1.0], [2.0, 0.0]], np.float32)
_LOSSES = (
    ("CTC", tfo.losses.CTC, [[1]], np.zeros([1, 2, 3], np.float32)),
    ("RNNT", tfo.losses.RNNT, [[1]], np.zeros([1, 2, 2, 3], np.float32)),
    ("BoxIoU", tfo.losses.BoxIoU, [[0.0, 0, 1, 1]], np.array([[0, 0, 1, 2]], np.float32)),
    ("SparseSoftmaxCrossEntropy", tfo.losses.SparseSoftmaxCrossEntropy, [0, 1], _ROWS),
    ("SoftmaxCrossEntropy", tfo.losses.SoftmaxCrossEntropy, _ROWS, _ROWS),
)


def _devices(kind=None):
    """Lists a CPU and a GPU."""
    return [tf.config.PhysicalDevice(f"/physical_device:{k}:0", k) for k in ("CPU", "GPU") if kind in (None, k)]


class JitTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(mock.patch.object(library, "supports_xla", return_value=False))

    @parameterized.named_parameters(*_LOSSES)
    def test_a_loss_that_xla_cannot_compile_names_the_option(self, loss, labels, predictions):
        labels = np.array(labels)
        text = rf"XLA cannot compile tfo.losses.{loss.__name__} here: .* Pass jit_compile=False to compile\(\)"
        with self.assertRaisesRegex(tf.errors.UnimplementedError, text):
            tf.function(loss(), jit_compile=True, autograph=False)(labels, predictions)
        expected = loss()(labels, predictions)
        self.assertAllClose(tf.function(loss())(labels, predictions), expected)

    def test_keras_default_with_a_gpu_names_the_option(self):
        x, labels = np.ones([2, 4, 3], np.float32), np.array([[1, 2], [3, -1]])
        with mock.patch.object(tf.config, "list_physical_devices", _devices):
            model = keras.Sequential([keras.Input([4, 3]), keras.layers.Dense(4)])
            model.compile("adam", loss=tfo.losses.CTC())
            self.assertTrue(model.jit_compile)
            with self.assertRaisesRegex(tf.errors.UnimplementedError, r"Pass jit_compile=False to compile\(\)"):
                model.fit(x, labels, verbose=0)
            model.compile("adam", loss=tfo.losses.CTC(), jit_compile=False)
            model.fit(x, labels, verbose=0)


if __name__ == "__main__":
    tf.test.main()
