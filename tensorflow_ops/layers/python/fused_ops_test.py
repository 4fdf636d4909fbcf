"""Tests of tfo.layers.use_fused_ops: which functions it replaces, and when."""

import os
import threading
import types
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)


def _normal(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


_QUERY, _KEY, _VALUE = _normal(2, 5, 4, 3), _normal(2, 7, 4, 3), _normal(2, 7, 4, 3)
_LOGITS = _normal(4, 9, 5)
_LABELS = np.array([[1, 2, 2, 0], [3, 0, 0, 0], [4, 1, 2, 3], [0, 0, 0, 0]])
_LENGTHS = np.array([3, 1, 4, 0]), np.array([9, 8, 7, 3])


class SwitchTest(tf.test.TestCase):
    def test_a_model_trains_and_is_saved_without_us(self):
        x = _normal(4, 9, 8)

        def trained():
            keras.utils.set_random_seed(0)
            inputs = keras.Input([9, 8])
            attended = keras.layers.MultiHeadAttention(2, 4)(inputs, inputs, use_causal_mask=True)
            heads = keras.ops.reshape(attended, [-1, 9, 2, 4])
            heads = keras.ops.dot_product_attention(heads, heads, heads)
            model = keras.Model(inputs, keras.layers.Dense(5)(keras.ops.reshape(heads, [-1, 9, 8])))
            model.compile(keras.optimizers.SGD(0.1), keras.losses.CTC())
            model.fit(x, _LABELS, epochs=3, verbose=0)
            return model

        expected = trained()
        with tfo.layers.use_fused_ops():
            model = trained()
            for name in ("ctc_loss", "dot_product_attention"):
                calls = tfo.layers.fused_ops()[name]
                self.assertTrue(calls["fused"] and not calls["original"], name)
            path = os.path.join(self.get_temp_dir(), "model.keras")
            model.save(path)
        for one, other in zip(model.weights, expected.weights, strict=True):
            self.assertAllClose(one, other, 1e-4, 1e-4)
        self.assertNotIn("tensorflow_ops", model.to_json())
        loaded = keras.saving.load_model(path)
        self.assertAllClose(loaded.predict(x, verbose=0), expected(x), 1e-4, 1e-4)
        self.assertAllClose(loaded.evaluate(x, _LABELS, verbose=0), expected.evaluate(x, _LABELS, verbose=0), 1e-4)

    def test_is_on_while_any_switch_is_open(self):
        original = backend.nn.ctc_loss, backend.nn.dot_product_attention
        first, second = tfo.layers.use_fused_ops(), tfo.layers.use_fused_ops(["ctc_loss"])
        first.close()
        self.assertIsNot(backend.nn.ctc_loss, original[0])
        self.assertIs(backend.nn.dot_product_attention, original[1])
        second.close()
        second.close()
        with self.assertRaisesRegex(KeyError, "mine"), tfo.layers.use_fused_ops():
            raise KeyError("mine")
        self.assertEqual((backend.nn.ctc_loss, backend.nn.dot_product_attention), original)

        failures, start = [], threading.Barrier(8)

        def switch_often():
            start.wait()
            for _ in range(200):
                with tfo.layers.use_fused_ops():
                    failures.extend([1] * (backend.nn.ctc_loss is original[0]))

        threads = [threading.Thread(target=switch_often) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEmpty(failures)
        self.assertEqual((backend.nn.ctc_loss, backend.nn.dot_product_attention), original)

    def test_only(self):
        for only in (["ctc_loss", "rnn"], "ctc_loss"):
            with self.assertRaisesRegex(
                ValueError,
                "among batch_normalization, bias_activation, .*, slice_update, sparse_.*$",
            ):
                tfo.layers.use_fused_ops(only)
        with self.assertRaisesRegex(ValueError, "'roi_align' of keras_hub, which is not imported: import keras_hub"):
            tfo.layers.use_fused_ops(["ctc_loss", "roi_align"])
        original = backend.nn.ctc_loss
        with tfo.layers.use_fused_ops(only=("dot_product_attention",)):
            self.assertIs(backend.nn.ctc_loss, original)
            self.assertEqual(tfo.layers.fused_ops(), {})
            keras.ops.dot_product_attention(_QUERY, _KEY, _VALUE)
            self.assertEqual(list(tfo.layers.fused_ops()), ["dot_product_attention"])

    def test_functions_of_later_backends(self):
        nn = types.SimpleNamespace(ctc_loss=lambda *args: "original", dot_product_attention=lambda *args: "original")
        with mock.patch.object(backend, "ops", types.SimpleNamespace(nn=nn), create=True):
            with tfo.layers.use_fused_ops():
                self.assertEqual(nn.ctc_loss(_LABELS, _LOGITS, *_LENGTHS).shape, [4])
                self.assertEqual(nn.ctc_loss(_LABELS, _LOGITS, *_LENGTHS, -9), "original")
            self.assertEqual(nn.ctc_loss(_LABELS, _LOGITS, *_LENGTHS), "original")

    def test_unknown_keras(self):
        with mock.patch.object(keras, "__version__", "3.99.1"):
            for call in (
                tfo.layers.use_fused_ops,
                lambda: tfo.layers.MultiHeadAttention(2, 3),
                lambda: tfo.layers.GroupQueryAttention(3, 4, 2),
                tfo.optimizers.LazyAdam,
            ):
                message = r'Keras 3.7 to 3.15, and Keras 3.99.1 is installed.*"keras>=3.7,<3.16", or .* Keras 3.99'
                with self.assertRaisesRegex(ImportError, message):
                    call()
        with (
            mock.patch.object(keras.backend, "backend", lambda: "jax"),
            self.assertRaisesRegex(ValueError, "backend is 'jax', expected 'tensorflow'"),
        ):
            tfo.layers.use_fused_ops()


if __name__ == "__main__":
    tf.test.main()
