"""Tests of tfo.layers.CRF."""

import os

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo


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
        self.assertAllClose(layer.loss(_LABELS, output), -likelihood)
        self.assertAllClose(layer.loss(_LABELS.astype(np.float32), output), -likelihood)
        best, expected_best = layer.decode(output, _LENGTHS), tfo.nn.crf_decode(*scores, lengths=_LENGTHS)
        self.assertAllEqual(best.labels, expected_best.labels)
        self.assertAllClose(best.scores, expected_best.scores)
        marginals = tfo.nn.crf_marginals(*scores, lengths=_LENGTHS)
        self.assertAllClose(layer.marginals(output, _LENGTHS), marginals)

    def test_boundaries_forbid_tags(self):
        layer, logits = _layer(), _scores()
        layer.boundaries.assign([[0, -np.inf, 0, 0], [0, 0, 0, 0]])
        loss = layer.loss(_LABELS, logits)
        self.assertAllEqual(np.isinf(loss), [True, False, False])
        self.assertAllEqual(layer.marginals(logits, _LENGTHS)[:, 0, 1], np.zeros(3))
        self.assertNotIn(1, layer.decode(logits, _LENGTHS).labels[:, 0])

    def test_a_saved_model_is_compiled_again(self):
        inputs = keras.Input([None, 4])
        model = keras.Model(inputs, _layer()(inputs))
        model.compile("sgd", loss=model.layers[-1].loss)
        path = os.path.join(self.get_temp_dir(), "model.keras")
        model.save(path)
        copy = keras.saving.load_model(path, compile=False)
        logits, crf = _scores(), copy.layers[-1]
        self.assertAllEqual(copy.predict(logits, verbose=0), model.predict(logits, verbose=0))
        copy.compile("sgd", loss=crf.loss)
        expected = model.evaluate(logits, _LABELS, verbose=0)
        self.assertAllClose(copy.evaluate(logits, _LABELS, verbose=0), expected)

    def test_one_tag(self):
        inputs = keras.Input([5, 1])
        model = keras.Model(inputs, tfo.layers.CRF(1)(inputs))
        model.compile("sgd", loss=model.layers[-1].loss)
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
        loss = layer.loss(_LABELS, layer(_scores()))
        self.assertEqual(loss.dtype, tf.float32)
        self.assertEqual(layer.transitions.dtype, "float32")

    def test_a_mask_is_not_passed_on(self):
        inputs = keras.Input([None, 4])
        model = keras.Model(inputs, _layer()(keras.layers.Masking()(inputs)))
        model.compile("sgd", loss=model.layers[-1].loss)
        logits = _scores()
        logits[1, 3:] = 0
        self.assertTrue(np.isfinite(model.evaluate(logits, _LABELS, verbose=0)))

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "num_tags is 0"):
            tfo.layers.CRF(0)
        with self.assertRaisesRegex(ValueError, "axis -1|expected axis"):
            tfo.layers.CRF(3)(_scores())


if __name__ == "__main__":
    tf.test.main()
