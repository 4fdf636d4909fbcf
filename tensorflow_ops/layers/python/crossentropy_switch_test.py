"""Tests of cross entropies of classes by tfo.layers.use_fused_ops."""

import keras
import numpy as np
import pairwise_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_SPARSE, _DENSE = "sparse_categorical_crossentropy", "categorical_crossentropy"
_LOGITS = _RNG.normal(size=[3, 4, 5])
_LABELS = _RNG.integers(0, 5, [3, 4])
_SHARES = _RNG.dirichlet(np.ones(5), [3, 4])
_FUSED = {"fused": 1, "original": 0}


def _original(reason):
    return {"fused": 0, "original": 1, "reasons": {reason: 1}}


def _reference(shares, logits):
    """Returns losses, and their gradients to logits and shares, in float64."""
    shares, logits = np.float64(shares), np.float64(logits)
    log_p = logits - logits.max(-1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(-1, keepdims=True))
    return -(shares * log_p).sum(-1), np.exp(log_p) * shares.sum(-1, keepdims=True) - shares, -log_p


class CrossentropyTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise_testing.pairwise(
        name=(_SPARSE, _DENSE),
        dtype=("float32", "float64", "float16", "bfloat16"),
        mode=("eager", "unknown sizes", "XLA"),
        target=("int32", "float32"),
        softmax=(False, True),
    )
    def test_is_the_definition(self, name, dtype, mode, target, softmax):
        if name == _SPARSE:
            labels, shares = tf.cast(_LABELS[..., np.newaxis], target), np.eye(5)[_LABELS]
        else:
            labels = shares = tf.cast(_SHARES, "float64" if target == "int32" else target)
        logits = tf.cast(_LOGITS, dtype)

        def run(labels, logits):
            with tf.GradientTape() as tape:
                tape.watch((labels, logits))
                output = tf.nn.softmax(logits) if softmax else logits
                loss = getattr(keras.ops, name)(labels, output, from_logits=not softmax)
            return loss, *tape.gradient(loss, (logits, labels))

        if mode != "eager":
            specs = [tf.TensorSpec([None, None, x.shape[-1]], x.dtype) for x in (labels, logits)]
            run = tf.function(run, specs, jit_compile=mode == "XLA")
        with tfo.layers.use_fused_ops([_SPARSE, _DENSE]):
            loss, *gradients = run(labels, logits)
        # Outside of graphs, Keras does not see the softmax.
        calls = _original("probabilities that no softmax made") if softmax and mode == "eager" else _FUSED
        self.assertEqual(tfo.layers.fused_ops(), {name: calls})
        self.assertEqual((loss.dtype, gradients[0].dtype), (logits.dtype, logits.dtype))
        rtol = {8: 1e-6, 4: 1e-5, 2: 1e-2}[logits.dtype.size]
        expected, to_logits, to_shares = _reference(shares, logits)
        self.assertAllClose(loss, expected, rtol, rtol)
        self.assertAllClose(gradients[0], to_logits, rtol, rtol)
        if name == _DENSE and calls == _FUSED:
            self.assertEqual(gradients[1].dtype, labels.dtype)
            self.assertAllClose(gradients[1], to_shares, rtol, rtol)

    def test_wide_labels_of_narrow_logits(self):
        logits = tf.constant([[0, -60000]], tf.float16)
        labels = tf.constant([[1 - 2e-7, 2e-7]])  # float16 has 1.8e-7
        with tfo.layers.use_fused_ops():
            loss = keras.ops.categorical_crossentropy(labels, logits, from_logits=True)
        self.assertEqual(loss.dtype, tf.float16)
        self.assertAllClose(loss, [0.012], 1e-3, 0)

    @parameterized.parameters(False, True)
    def test_in_losses(self, jit_compile):
        logits = tf.constant(_LOGITS, tf.float32)
        kinds = keras.losses.SparseCategoricalCrossentropy, keras.losses.CategoricalCrossentropy
        for kind, labels, options in (
            (kinds[0], _LABELS, {}),
            (kinds[0], np.where(_LABELS == 2, -1, _LABELS), {"ignore_class": -1}),
            (kinds[1], _SHARES, {"label_smoothing": 0.1}),
        ):
            loss = kind(from_logits=True, **options)
            run = tf.function(lambda x, loss=loss, labels=labels: loss(labels, x), jit_compile=jit_compile)
            expected = loss(labels, logits)
            with tfo.layers.use_fused_ops():
                self.assertAllClose(run(logits), expected, 1e-6)
            (calls,) = tfo.layers.fused_ops().values()
            self.assertEqual(calls, _FUSED)

    def test_originals(self):
        logits = tf.constant(_LOGITS, tf.float32)
        shares = tf.constant(_SHARES, tf.float32)
        for name, labels, output, reason, options in (
            (_DENSE, shares, logits, "another axis", {"axis": 1, "from_logits": True}),
            (_DENSE, shares, tf.nn.softmax(logits), "probabilities that no softmax made", {}),
            (_SPARSE, _LABELS, tf.nn.softmax(logits), "probabilities that no softmax made", {}),
        ):
            expected = getattr(keras.ops, name)(labels, output, **options)
            with tfo.layers.use_fused_ops():
                self.assertAllClose(getattr(keras.ops, name)(labels, output, **options), expected, 1e-6)
            self.assertEqual(tfo.layers.fused_ops(), {name: _original(reason)})

    def test_errors(self):
        logits = tf.constant(_LOGITS, tf.float32)
        wrong = np.where(np.arange(12).reshape(3, 4) == 7, 9, _LABELS)
        with tfo.layers.use_fused_ops():
            for name, labels, output, options in (
                (_SPARSE, _LABELS[:2], logits, {}),
                (_SPARSE, _LABELS[0], logits, {}),
                (_SPARSE, _LABELS, logits, {"axis": 1}),
                (_DENSE, _SHARES[:2], logits, {}),
                (_DENSE, _SHARES[0], logits, {}),
            ):
                with self.assertRaises(ValueError):
                    getattr(keras.ops, name)(labels, output, from_logits=True, **options)
            # TensorFlow's original refuses them, too.
            for labels in (wrong, wrong - 10):
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"labels\[.*\] is"):
                    keras.ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)

    def test_empty(self):
        for shape in ([0, 5], [2, 0, 5]):
            logits, labels = tf.zeros(shape), tf.zeros(shape[:-1], tf.int32)
            with tfo.layers.use_fused_ops():
                self.assertEqual(keras.ops.sparse_categorical_crossentropy(labels, logits, True).shape, shape[:-1])
                self.assertEqual(keras.ops.categorical_crossentropy(logits, logits, True).shape, shape[:-1])

    def test_a_model_learns_from_logits_before_its_softmax(self):
        x = _RNG.normal(size=[20, 6]).astype(np.float32)

        def trained(loss, labels, **options):
            keras.utils.set_random_seed(0)
            model = keras.Sequential([keras.Input([6]), keras.layers.Dense(5, activation="softmax")])
            model.compile(keras.optimizers.SGD(0.1), loss, weighted_metrics=["accuracy"], **options)
            history = model.fit(x, labels, batch_size=8, epochs=2, sample_weight=np.arange(20.0), verbose=0)
            return history.history["loss"], *model.get_weights()

        sparse = _RNG.integers(0, 5, [20])
        for name, labels, option in (
            (_SPARSE, sparse, "jit_compile"),
            (_DENSE, np.eye(5)[sparse], "run_eagerly"),
            (_DENSE, np.eye(5)[sparse], "auto_scale_loss"),
        ):
            expected = trained(name, labels, **{option: True})
            with tfo.layers.use_fused_ops():
                actual = trained(name, labels, **{option: True})
            calls = tfo.layers.fused_ops()[name]
            self.assertTrue(calls["fused"] and not calls["original"], option)
            for one, other in zip(actual, expected, strict=True):
                self.assertAllClose(one, other, 1e-5, 1e-5)

    def test_confident_masked_and_other_sums(self):
        """Where our ops differ."""
        logits = tf.constant([[20.0, 0, -np.inf], [1, 2, 3]])
        shares = tf.constant([[1.0, 0, 0], [2, 0, 1]])
        with tfo.layers.use_fused_ops(), tf.GradientTape() as tape:
            tape.watch(logits)
            sparse = keras.ops.sparse_categorical_crossentropy([0, 2], logits, from_logits=True)
            dense = keras.ops.categorical_crossentropy(shares, logits, from_logits=True)
        losses, to_logits, _ = _reference(shares[1:], logits[1:])
        self.assertAllClose(sparse, [np.log1p(np.exp(-20)), np.log(1 + np.exp(-1) + np.exp(-2))], 1e-6)
        self.assertAllClose(dense, [np.log1p(np.exp(-20)), losses[0]], 1e-6)
        gradient = tape.gradient(dense, logits)
        self.assertAllClose(gradient[1:], to_logits, 1e-6)
        self.assertAllClose(gradient[0], [0, np.exp(-20), 0], 1e-6, 5e-9)


if __name__ == "__main__":
    tf.test.main()
