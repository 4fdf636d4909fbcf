"""The Keras losses against Keras's own, where definitions agree."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo


def _problem(shape=(6, 5)):
    generator = np.random.default_rng(0)
    logits = generator.normal(size=shape).astype(np.float32)
    return logits, generator.integers(0, shape[-1], shape[:-1])


class SparseTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(reduction=["sum_over_batch_size", "sum", "none"], ignored=[None, 2], weighted=[False, True])
    def test_equals_keras(self, reduction, ignored, weighted):
        logits, labels = _problem()
        labels[1] = 2
        weights = np.arange(1.0, 7.0, dtype=np.float32) if weighted else None
        ours = tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=ignored, reduction=reduction)
        theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignored, reduction=reduction)
        self.assertAllClose(ours(labels, logits, weights), theirs(labels, logits, weights), rtol=1e-6)

    def test_labels_as_keras_users_have_them(self):
        logits, labels = _problem()
        loss = tfo.losses.SparseSoftmaxCrossEntropy()
        expected = loss(labels, logits)
        for form in (labels[:, np.newaxis], labels.astype(np.float32), labels.astype(np.uint8)):
            self.assertAllClose(loss(form, logits), expected)

    def test_bad_options(self):
        with self.assertRaisesRegex(ValueError, "label_smoothing is 2"):
            tfo.losses.SparseSoftmaxCrossEntropy(label_smoothing=2)


class DenseTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(0.0, 0.2)
    def test_equals_keras(self, smoothing):
        logits, labels = _problem()
        targets = keras.utils.to_categorical(labels, 5)
        ours = tfo.losses.SoftmaxCrossEntropy(label_smoothing=smoothing)
        theirs = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)
        self.assertAllClose(ours(targets, logits), theirs(targets, logits), rtol=1e-6)


class TrainingTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("sparse", "dense")
    def test_fit_save_load(self, kind):
        generator = np.random.default_rng(0)
        x = generator.normal(size=(64, 4)).astype(np.float32)
        labels = x.argmax(-1)
        sparse = kind == "sparse"
        loss = tfo.losses.SparseSoftmaxCrossEntropy(z_loss=1e-4) if sparse else tfo.losses.SoftmaxCrossEntropy()
        y = labels if sparse else keras.utils.to_categorical(labels, 4)
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(4)])
        model.compile(keras.optimizers.Adam(0.1), loss)
        history = model.fit(x, y, batch_size=16, epochs=8, verbose=0, sample_weight=np.ones(64)).history["loss"]
        self.assertLess(history[-1], 0.5 * history[0])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.keras")
            model.save(path)
            loaded = keras.models.load_model(path)
        self.assertIsInstance(loaded.loss, type(loss))
        self.assertEqual(loaded.loss.get_config(), loss.get_config())
        self.assertAllClose(loaded.evaluate(x, y, verbose=0), model.evaluate(x, y, verbose=0))


if __name__ == "__main__":
    tf.test.main()
