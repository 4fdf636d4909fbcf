"""Tests of the Keras losses: against Keras's own where definitions agree, and in models."""

import os
import tempfile

import keras
import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_REDUCTIONS = ["sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", None]


def _problem(shape=(6, 5)):
    generator = np.random.default_rng(0)
    logits = generator.normal(size=shape).astype(np.float32)
    return logits, generator.integers(0, shape[-1], shape[:-1])


class SparseTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(reduction=_REDUCTIONS, ignored=[None, 2], weighted=[False, True], rank=[2, 3])
    def test_equals_keras(self, reduction, ignored, weighted, rank):
        logits, labels = _problem((6, 5) if rank == 2 else (3, 4, 5))
        labels[1] = 2
        weights = np.arange(1.0, 1.0 + labels.size, dtype=np.float32).reshape(labels.shape) if weighted else None
        ours = tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=ignored, reduction=reduction)
        theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignored, reduction=reduction)
        result = ours(labels, logits, weights)
        expected = theirs(labels, logits, weights)
        self.assertEqual(result.shape, expected.shape)
        self.assertAllClose(result, expected, rtol=1e-6)

    @parameterized.product(reduction=_REDUCTIONS, weighted=[False, True])
    def test_equals_keras_with_masked_steps(self, reduction, weighted):
        logits, labels = _problem((3, 4, 5))
        mask = np.arange(12).reshape(3, 4) % 3 != 1
        weights = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4) if weighted else None
        results = []
        for loss in (
            tfo.losses.SparseSoftmaxCrossEntropy(reduction=reduction),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction),
        ):
            y_pred = tf.constant(logits)
            y_pred._keras_mask = tf.constant(mask)
            results.append(loss(labels, y_pred, weights))
        self.assertAllClose(*results, rtol=1e-6)
        self.assertNotAllClose(results[0], loss(labels, logits, weights))

    def test_mask_and_ignored_rows_together(self):
        logits, labels = _problem()
        labels[:] = [2, 0, 1, 2, 3, 4]
        y_pred = tf.constant(logits)
        y_pred._keras_mask = tf.constant([True, True, False, False, True, True])
        loss = tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=2)
        rows = tfo.nn.sparse_softmax_cross_entropy(labels, logits)
        self.assertAllClose(loss(labels, y_pred), np.mean(rows.numpy()[[1, 4, 5]]), rtol=1e-6)

    @parameterized.parameters(*_REDUCTIONS)
    def test_all_rows_ignored(self, reduction):
        logits, labels = _problem()
        labels[:] = -1
        x = tf.constant(logits)
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=-1, reduction=reduction)(labels, x)
        self.assertAllEqual(value, np.zeros(value.shape))
        self.assertAllEqual(tape.gradient(value, x), np.zeros(logits.shape))

    @parameterized.parameters((tf.float16, None), (tf.bfloat16, "float64"), (tf.float64, "float32"))
    def test_dtypes(self, dtype, loss_dtype):
        logits, labels = _problem()
        logits = tf.cast(logits, dtype)
        expected = np.mean(tfo.nn.sparse_softmax_cross_entropy(labels, tf.cast(logits, tf.float64)))
        value = tfo.losses.SparseSoftmaxCrossEntropy(dtype=loss_dtype)(labels, logits)
        self.assertEqual(value.dtype, loss_dtype or "float32")
        # 16-bit logits are read directly, without rounding before the loss.
        self.assertAllClose(value, expected, rtol=1e-6 if loss_dtype != "float64" else 1e-14)

    def test_options_reach_the_function(self):
        logits, labels = _problem()
        labels[1] = -1
        weights = np.linspace(0.5, 2, logits.shape[-1])
        for options in (
            {"ignore_index": -1, "label_smoothing": 0.1, "z_loss": 0.01},
            {"ignore_index": -1, "class_weights": weights},
            {"ignore_index": -1, "softcap": 2.0},
        ):
            rows = tfo.losses.SparseSoftmaxCrossEntropy(**options, reduction=None)(labels, logits)
            self.assertAllEqual(rows, tfo.nn.sparse_softmax_cross_entropy(labels, logits, **options))
            on_axis_0 = tfo.losses.SparseSoftmaxCrossEntropy(**options, reduction=None, axis=0)
            self.assertAllEqual(on_axis_0(labels, logits.T), rows)
            self.assertAllEqual(on_axis_0(labels[np.newaxis], logits.T), rows)
        dense = np.eye(logits.shape[-1], dtype=np.float32)[labels]
        options = {"class_weights": weights, "softcap": 2.0, "label_smoothing": 0.1}
        rows = tfo.losses.SoftmaxCrossEntropy(**options, reduction=None)(dense, logits)
        self.assertAllEqual(rows, tfo.nn.softmax_cross_entropy(dense, logits, **options))

    def test_labels_beyond_float(self):
        """Keras casts labels to float32, which cannot represent 2^24 + 1."""
        label = 2**24 + 1
        loss = tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=label)
        self.assertAllEqual(loss(np.array([label]), np.zeros([1, 3], np.float32)), 0)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, rf"labels\[0\] is {label}"):
            tfo.losses.SparseSoftmaxCrossEntropy()(np.array([label]), np.zeros([1, 3], np.float32))

    def test_labels_in_the_forms_that_keras_accepts(self):
        logits, labels = _problem()
        loss = tfo.losses.SparseSoftmaxCrossEntropy()
        expected = loss(labels, logits)
        for form in (labels[:, np.newaxis], labels.astype(np.float32), labels.astype(np.uint8)):
            self.assertAllClose(loss(form, logits), expected)

    def test_bad_options_and_shapes(self):
        for options, message in (
            ({"label_smoothing": 2}, "label_smoothing is 2"),
            ({"z_loss": -1.0}, "z_loss is -1.0"),
            ({"ignore_index": 0.5}, "ignore_index is 0.5"),
            ({"reduction": "median"}, "(?i)reduction"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                tfo.losses.SparseSoftmaxCrossEntropy(**options)
        with self.assertRaisesRegex(ValueError, r"labels are \[5\], expected \[6\]"):
            tfo.losses.SparseSoftmaxCrossEntropy()(np.zeros(5, np.int32), np.zeros([6, 5], np.float32))


class DenseTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(smoothing=[0.0, 0.2], reduction=_REDUCTIONS, weighted=[False, True], axis=[-1, 1])
    def test_equals_keras(self, smoothing, reduction, weighted, axis):
        logits, labels = _problem((3, 4, 5))
        targets = keras.utils.to_categorical(labels, 5)
        if axis == 1:
            logits, targets = (np.moveaxis(a, -1, 1) for a in (logits, targets))
        weights = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4) if weighted else None
        options = {"label_smoothing": smoothing, "reduction": reduction, "axis": axis}
        ours = tfo.losses.SoftmaxCrossEntropy(**options)(targets, logits, weights)
        # Keras always takes the number of classes from the last axis.
        theirs = keras.losses.CategoricalCrossentropy(from_logits=True, **{**options, "axis": -1})
        theirs = theirs(*(np.moveaxis(a, axis, -1) for a in (targets, logits)), weights)
        self.assertAllClose(ours, theirs, rtol=1e-6)

    def test_mask(self):
        logits, labels = _problem((3, 4, 5))
        targets = keras.utils.to_categorical(labels, 5)
        y_pred = tf.constant(logits)
        y_pred._keras_mask = tf.constant(np.arange(12).reshape(3, 4) % 3 != 1)
        ours, theirs = tfo.losses.SoftmaxCrossEntropy(), keras.losses.CategoricalCrossentropy(from_logits=True)
        self.assertAllClose(ours(targets, y_pred), theirs(targets, y_pred), rtol=1e-6)

    def test_masked_classes(self):
        """Keras's loss is NaN here."""
        logits = np.array([[0.0, 0.0, -np.inf]], np.float32)
        self.assertAllClose(tfo.losses.SoftmaxCrossEntropy()([[1.0, 0.0, 0.0]], logits), np.log(2))

    def test_bad_options_and_shapes(self):
        with self.assertRaisesRegex(ValueError, "label_smoothing is -1"):
            tfo.losses.SoftmaxCrossEntropy(label_smoothing=-1)
        with self.assertRaisesRegex(ValueError, r"labels are \[6,4\]"):
            tfo.losses.SoftmaxCrossEntropy()(np.zeros([6, 4], np.float32), np.zeros([6, 5], np.float32))


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

    @parameterized.parameters("sparse", "dense")
    def test_steps_compiled_by_xla_train_alike(self, kind):
        if library.xla_error:
            self.skipTest(library.xla_error)
        logits, labels = _problem((20, 5))  # batches of 8, 8 and 4
        results = []
        for jit_compile in (False, True):
            loss = tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=1, label_smoothing=0.1)
            if kind == "dense":
                loss = tfo.losses.SoftmaxCrossEntropy(label_smoothing=0.1)
            y = labels if kind == "sparse" else keras.utils.to_categorical(labels, 5)
            model = keras.Sequential([keras.Input([5]), keras.layers.Dense(5, kernel_initializer="identity")])
            model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=jit_compile)
            self.assertEqual(model.jit_compile, jit_compile)
            history = model.fit(logits, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
            results.append([history, model.evaluate(logits, y, verbose=0), *model.get_weights()])
        for plain, compiled in zip(*results, strict=True):
            self.assertAllClose(plain, compiled, rtol=1e-5, atol=1e-6)

    def test_class_weights_and_metrics_as_keras(self):
        logits, labels = _problem((8, 5))
        expected = None
        for loss in (
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            tfo.losses.SparseSoftmaxCrossEntropy(),
        ):
            model = keras.Sequential([keras.Input([5]), keras.layers.Dense(5, kernel_initializer="identity")])
            model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"], weighted_metrics=["accuracy"])
            history = model.fit(
                logits,
                labels,
                batch_size=4,
                epochs=2,
                shuffle=False,
                verbose=0,
                class_weight={0: 3, 1: 1, 2: 0, 3: 2, 4: 1},
            ).history
            result = [history[key] for key in history], model.get_weights()
            expected = expected or result
        for mine, theirs in zip(tf.nest.flatten(result), tf.nest.flatten(expected), strict=True):
            self.assertAllClose(mine, theirs, rtol=1e-5, atol=1e-6)

    def test_mixed_precision(self):
        x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(4, dtype="mixed_float16")])
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1))
        loss = tfo.losses.SparseSoftmaxCrossEntropy()
        self.assertEqual(model(x[:2]).dtype, tf.float16)
        self.assertEqual(loss([0, 1], model(x[:2])).dtype, tf.float32)
        model.compile(optimizer, loss)
        history = model.fit(x, x.argmax(-1), batch_size=16, epochs=8, verbose=0).history["loss"]
        self.assertLess(history[-1], 0.5 * history[0])

    def test_embedding_mask_reaches_the_loss(self):
        tokens = np.array([[3, 1, 0, 0], [2, 0, 0, 0]])
        model = keras.Sequential([keras.layers.Embedding(5, 3, mask_zero=True), keras.layers.Dense(5)])
        logits = model(tokens)
        labels = np.array([[1, 2, 3, 4], [0, 1, 2, 3]])
        rows = tfo.nn.sparse_softmax_cross_entropy(labels, logits)
        # Keras's mean is over unmasked steps only.
        value = tfo.losses.SparseSoftmaxCrossEntropy()(labels, logits)
        self.assertAllClose(value, np.mean(rows.numpy()[tokens != 0]), rtol=1e-6)

    def test_config(self):
        for loss in (
            tfo.losses.SparseSoftmaxCrossEntropy(
                ignore_index=-100,
                label_smoothing=0.1,
                z_loss=0.01,
                reduction="sum",
                name="a",
                dtype="float64",
                class_weights=np.array([1, 2]),
                softcap=30,
                axis=1,
            ),
            tfo.losses.SoftmaxCrossEntropy(
                axis=1, label_smoothing=0.1, reduction=None, name="b", dtype="float64", class_weights=[0.5], softcap=5.0
            ),
        ):
            again = keras.losses.deserialize(keras.losses.serialize(loss))
            self.assertIs(type(again), type(loss))
            self.assertEqual(again.get_config(), loss.get_config())
            self.assertLen(loss.get_config(), 9 if isinstance(loss, tfo.losses.SparseSoftmaxCrossEntropy) else 7)
            for name, value in loss.get_config().items():
                self.assertEqual(getattr(again, name), value)

    def test_loaded_in_a_new_process(self):
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(4)])
        model.compile("sgd", tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=2, z_loss=0.5))
        x, y = np.arange(12, dtype=np.float32).reshape(3, 4) / 12, np.array([0, 2, 3])
        script = """
            import keras, numpy as np
            import tensorflow_ops
            model = keras.models.load_model("model.keras")
            x, y = np.arange(12, dtype=np.float32).reshape(3, 4) / 12, np.array([0, 2, 3])
            print("loss", model.evaluate(x, y, verbose=0))
            """
        with tempfile.TemporaryDirectory() as folder:
            model.save(os.path.join(folder, "model.keras"))
            printed = process_testing.output(folder, script)
        self.assertAllClose(float(printed.split("loss")[1]), model.evaluate(x, y, verbose=0), rtol=1e-6)


if __name__ == "__main__":
    tf.test.main()
