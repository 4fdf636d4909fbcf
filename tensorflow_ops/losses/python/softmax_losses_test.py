"""Tests of the Keras losses: against Keras's own where definitions agree, and in models."""

import keras
import numpy as np
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


def _masked(logits, mask):
    """Returns logits with a Keras mask."""
    logits = tf.constant(logits)
    if mask is not None:
        logits._keras_mask = tf.constant(mask)
    return logits


class SparseTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(reduction=_REDUCTIONS, ignored=[None, 2], weighted=[False, True], masked=[False, True], rank=[2, 3])
    def test_equals_keras(self, reduction, ignored, weighted, masked, rank):
        logits, labels = _problem((6, 5) if rank == 2 else (3, 4, 5))
        labels[1] = 2
        weights = np.arange(1.0, 1.0 + labels.size, dtype=np.float32).reshape(labels.shape) if weighted else None
        mask = np.arange(labels.size).reshape(labels.shape) % 3 != 1 if masked else None
        results = []
        for loss in (
            tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=ignored, reduction=reduction),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignored, reduction=reduction),
        ):
            results.append(loss(labels, _masked(logits, mask), weights))
        self.assertEqual(*(result.shape for result in results))
        self.assertAllClose(*results, rtol=1e-6)

    def test_mask_and_ignored_rows_together(self):
        logits, labels = _problem()
        labels[:] = [2, 0, 1, 2, 3, 4]
        y_pred = _masked(logits, [True, True, False, False, True, True])
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

    def test_labels_are_whole(self):
        for loss in (tfo.losses.SparseSoftmaxCrossEntropy(), tf.function(tfo.losses.SparseSoftmaxCrossEntropy())):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"y_true\[1\] is 1.5, expected a whole number"):
                loss(tf.constant([1.0, 1.5]), tf.zeros([2, 4]))

    def test_labels_in_the_forms_that_keras_accepts(self):
        logits, labels = _problem()
        loss = tfo.losses.SparseSoftmaxCrossEntropy()
        expected = loss(labels, logits)
        for form in (labels[:, np.newaxis], labels.astype(np.float32), labels.astype(np.uint8)):
            self.assertAllClose(loss(form, logits), expected)


class DenseTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(smoothing=[0.0, 0.2], reduction=_REDUCTIONS, weighted=[False, True], masked=[False, True], axis=[-1, 1])
    def test_equals_keras(self, smoothing, reduction, weighted, masked, axis):
        logits, labels = _problem((3, 4, 5))
        targets = keras.utils.to_categorical(labels, 5)
        if axis == 1:
            logits, targets = (np.moveaxis(a, -1, 1) for a in (logits, targets))
        weights = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4) if weighted else None
        mask = np.arange(12).reshape(3, 4) % 3 != 1 if masked else None
        options = {"label_smoothing": smoothing, "reduction": reduction}
        ours = tfo.losses.SoftmaxCrossEntropy(axis=axis, **options)(targets, _masked(logits, mask), weights)
        # Keras always takes the number of classes from the last axis.
        theirs = keras.losses.CategoricalCrossentropy(from_logits=True, **options)
        targets, logits = (np.moveaxis(a, axis, -1) for a in (targets, logits))
        self.assertAllClose(ours, theirs(targets, _masked(logits, mask), weights), rtol=1e-6)

    def test_masked_classes(self):
        """Keras's loss is NaN here."""
        logits = np.array([[0.0, 0.0, -np.inf]], np.float32)
        self.assertAllClose(tfo.losses.SoftmaxCrossEntropy()([[1.0, 0.0, 0.0]], logits), np.log(2))

    @parameterized.parameters(
        ("SparseSoftmaxCrossEntropy", {"label_smoothing": 2}, "label_smoothing is 2"),
        ("SparseSoftmaxCrossEntropy", {"z_loss": -1.0}, "z_loss is -1.0"),
        ("SparseSoftmaxCrossEntropy", {"ignore_index": 0.5}, "ignore_index is 0.5"),
        ("SparseSoftmaxCrossEntropy", {"reduction": "median"}, "(?i)reduction"),
        ("SoftmaxCrossEntropy", {"label_smoothing": -1}, "label_smoothing is -1"),
    )
    def test_bad_options(self, name, options, message):
        with self.assertRaisesRegex(ValueError, message):
            getattr(tfo.losses, name)(**options)

    @parameterized.parameters(
        (-1, 1.0, 1.0, "logits are a scalar, expected at least one dim"),
        (3, [[1.0]], [[1.0, 2.0]], "axis is 3, expected"),
    )
    def test_bad_shapes(self, axis, y_true, y_pred, message):
        with self.assertRaisesRegex(ValueError, message):
            tfo.losses.SparseSoftmaxCrossEntropy(axis=axis)(y_true, y_pred)

    def test_is_symbolic_of_keras_inputs(self):
        loss = tfo.losses.SoftmaxCrossEntropy()(keras.Input([3]), np.ones([2, 3], np.float32))
        self.assertEqual(loss.shape, ())


class TrainingTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("sparse", "dense")
    def test_steps_compiled_by_xla_train_alike_and_are_saved(self, kind):
        logits, labels = _problem((20, 5))  # batches of 8, 8 and 4
        loss = tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=1, label_smoothing=0.1)
        if kind == "dense":
            loss = tfo.losses.SoftmaxCrossEntropy(label_smoothing=0.1)
        y = labels if kind == "sparse" else keras.utils.to_categorical(labels, 5)
        results = []
        for jit_compile in (False, library.xla_error is None):
            model = keras.Sequential([keras.Input([5]), keras.layers.Dense(5, kernel_initializer="identity")])
            model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=jit_compile)
            history = model.fit(logits, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
            results.append([history, model.evaluate(logits, y, verbose=0), *model.get_weights()])
        for plain, compiled in zip(*results, strict=True):
            self.assertAllClose(plain, compiled, rtol=1e-5, atol=1e-6)
        path = f"{self.get_temp_dir()}/{kind}.keras"
        model.save(path)
        loaded = keras.models.load_model(path)
        self.assertIsInstance(loaded.loss, type(loss))
        self.assertEqual(loaded.loss.get_config(), loss.get_config())
        self.assertAllClose(loaded.evaluate(logits, y, verbose=0), results[-1][1])

    def test_class_weights_and_metrics_as_keras(self):
        logits, labels = _problem((8, 5))
        expected = None
        for loss in (
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            tfo.losses.SparseSoftmaxCrossEntropy(),
        ):
            model = keras.Sequential([keras.Input([5]), keras.layers.Dense(5, kernel_initializer="identity")])
            model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"], weighted_metrics=["accuracy"])
            options = {"batch_size": 4, "epochs": 2, "shuffle": False, "verbose": 0}
            history = model.fit(logits, labels, class_weight={0: 3, 1: 1, 2: 0, 3: 2, 4: 1}, **options).history
            result = [history[key] for key in history], model.get_weights()
            expected = expected or result
        for mine, theirs in zip(tf.nest.flatten(result), tf.nest.flatten(expected), strict=True):
            self.assertAllClose(mine, theirs, rtol=1e-5, atol=1e-6)

    def test_config(self):
        options = {
            "label_smoothing": 0.1,
            "name": "a",
            "dtype": "float64",
            "class_weights": [1.0, 2.0],
            "softcap": 30.0,
        }
        for kind, more in (
            (tfo.losses.SparseSoftmaxCrossEntropy, {"ignore_index": -100, "z_loss": 0.01, "reduction": "sum"}),
            (tfo.losses.SoftmaxCrossEntropy, {"reduction": None}),
        ):
            expected = {**options, **more, "axis": 1}
            loss = kind(**{**expected, "class_weights": np.array([1, 2])})
            again = keras.losses.deserialize(keras.losses.serialize(loss))
            self.assertIs(type(again), kind)
            for name, value in expected.items():
                self.assertEqual(getattr(again, name), value)
            self.assertEqual(again.get_config(), expected)


if __name__ == "__main__":
    tf.test.main()
