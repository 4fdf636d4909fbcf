"""Tests of tfo.layers.CRF and tfo.losses.CRF."""

import os

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library


def _scores(seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=[3, 5, 4]).astype(np.float32)


def _layer(**options):
    layer = tfo.layers.CRF(4, transitions_initializer=keras.initializers.RandomNormal(seed=1), **options)
    layer.build([None, None, 4])
    return layer


_LABELS = np.array([[1, 2, 0, 3, 1], [2, 2, 3, -1, -1], [0, -1, -1, -1, -1]])
_LENGTHS = np.array([5, 3, 1])


class CrfLayerTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(False, True)
    def test_loss_decode_and_marginals_equal_the_functions(self, use_boundaries):
        layer, logits = _layer(use_boundaries=use_boundaries), _scores()
        expected = logits.copy()
        if use_boundaries:
            for i, length in enumerate(_LENGTHS):
                expected[i, 0] += layer.boundaries.numpy()[0]
                expected[i, length - 1] += layer.boundaries.numpy()[1]
        scores = expected, layer.transitions.numpy()
        likelihood = tfo.nn.crf_log_likelihood(_LABELS, *scores, lengths=_LENGTHS)
        output = layer(logits)
        self.assertAllClose(layer.log_likelihood(_LABELS, output), likelihood)
        self.assertAllClose(layer.log_likelihood(np.maximum(_LABELS, 0), output, _LENGTHS), likelihood)
        for labels in (_LABELS, _LABELS.astype(np.float32)):
            self.assertAllClose(tfo.losses.CRF(reduction=None)(labels, output), -likelihood)
        weights = np.array([1.0, 0.0, 2.0])
        weighted = tfo.losses.CRF(reduction="sum")(_LABELS, output, weights)
        self.assertAllClose(weighted, -np.sum(weights * likelihood), 1e-6)
        best, expected_best = layer.decode(output, _LENGTHS), tfo.nn.crf_decode(*scores, lengths=_LENGTHS)
        self.assertAllEqual(best.labels, expected_best.labels)
        self.assertAllClose(best.scores, expected_best.scores)
        marginals = tfo.nn.crf_marginals(*scores, lengths=_LENGTHS)
        self.assertAllClose(layer.marginals(output, _LENGTHS), marginals)

    def test_boundaries_forbid_tags(self):
        layer, logits = _layer(), _scores()
        layer.boundaries.assign([[0, -np.inf, 0, 0], [0, 0, 0, 0]])
        self.assertAllEqual(np.isinf(layer.log_likelihood(_LABELS, logits)), [True, False, False])
        self.assertAllEqual(layer.marginals(logits, _LENGTHS)[:, 0, 1], np.zeros(3))
        self.assertNotIn(1, layer.decode(logits, _LENGTHS).labels[:, 0])

    @parameterized.parameters("nested", "compiled by XLA", "strategy", "mixed_bfloat16")
    def test_a_model_trains_and_is_saved(self, kind):
        if kind == "compiled by XLA" and library.xla_error is not None:
            self.skipTest(library.xla_error)
        strategy = tf.distribute.MirroredStrategy(["CPU:0"]) if kind == "strategy" else tf.distribute.get_strategy()
        with strategy.scope():
            layer = tfo.layers.CRF(4, dtype="mixed_bfloat16" if kind == "mixed_bfloat16" else None)
            model = keras.Sequential([keras.Input([None, 4]), keras.layers.Dense(4), layer])
            if kind == "nested":
                inputs = keras.Input([None, 4])
                model = keras.Model(inputs, model(inputs))
            model.compile("sgd", tfo.losses.CRF(name="tags"), jit_compile=kind == "compiled by XLA")
        model.fit(_scores(), _LABELS, verbose=0)
        self.assertAllGreater(tf.reduce_max(tf.abs(layer.transitions.numpy())), 0)
        loss = model.evaluate(_scores(), _LABELS, verbose=0)
        expected = -tf.reduce_mean(layer.log_likelihood(_LABELS, model.predict(_scores(), verbose=0)))
        self.assertAllClose(loss, expected, 1e-5)
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        copy = keras.saving.load_model(path)
        self.assertIsInstance(copy.loss, tfo.losses.CRF)
        self.assertEqual(copy.loss.get_config(), model.loss.get_config())
        self.assertAllClose(copy.evaluate(_scores(), _LABELS, verbose=0), loss, 1e-6)

    def test_one_tag(self):
        model = keras.Sequential([keras.Input([5, 1]), tfo.layers.CRF(1)])
        model.compile("sgd", tfo.losses.CRF())
        self.assertEqual(model.evaluate(np.ones([2, 5, 1]), np.zeros([2, 5]), verbose=0), 0)

    def test_config_and_weights_round_trip(self):
        layer = _layer(use_boundaries=False, transitions_regularizer=keras.regularizers.L2(0.1))
        copy = tfo.layers.CRF.from_config(layer.get_config())
        copy.build([None, None, 4])
        copy.set_weights(layer.get_weights())
        self.assertAllEqual(copy.decode(_scores()).labels, layer.decode(_scores()).labels)
        self.assertLen(copy.losses, 1)

    def test_mixed_precision_keeps_scores_in_float32(self):
        layer = _layer(dtype="mixed_bfloat16")
        self.assertEqual(layer.log_likelihood(_LABELS, layer(_scores())).dtype, tf.float32)
        self.assertEqual(layer.transitions.dtype, "float32")

    def test_a_mask_is_not_passed_on(self):
        inputs = keras.Input([None, 4])
        model = keras.Model(inputs, _layer()(keras.layers.Masking()(inputs)))
        model.compile("sgd", tfo.losses.CRF())
        logits = _scores()
        logits[1, 3:] = 0
        self.assertTrue(np.isfinite(model.evaluate(logits, _LABELS, verbose=0)))

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "num_tags is 0"):
            tfo.layers.CRF(0)
        with self.assertRaisesRegex(ValueError, "axis -1|expected axis"):
            tfo.layers.CRF(3)(_scores())

    def test_errors_of_the_loss(self):
        loss, layer = tfo.losses.CRF(), _layer()
        scores = layer(_scores())
        for other in (_scores(), 2 * scores, tf.function(layer)(_scores())):
            with self.assertRaisesRegex(
                ValueError, r"y_pred is not an output of tfo.layers.CRF, .* pass layer\(y_pred\)"
            ):
                loss(_LABELS, other)
            self.assertEqual(loss(_LABELS, layer(other)).shape, [])
        with self.assertRaisesRegex(ValueError, r"y_true has shape \[3,5,4\], expected \[\?,\?\]: .* not one-hot"):
            loss(np.eye(4)[_LABELS], scores)
        with self.assertRaisesRegex(ValueError, r"sample_weight has shape \[3,5\], expected \[batch\]"):
            loss(_LABELS, scores, np.ones([3, 5]))
        text = r"labels\[1, 0\] is -1, expected \[0, 4\), and padding only at the end: pad_sequences\(padding='post'\)"
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, text):
            loss(keras.utils.pad_sequences([[1, 2, 0, 3, 1], [2, 3]], value=-1), layer(scores[:2]))


if __name__ == "__main__":
    tf.test.main()
