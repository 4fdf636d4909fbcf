"""Tests of recurrent layers by tfo.layers.use_fused_ops."""

import contextlib
import os

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)


def _normal(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


class RecurrentTest(tf.test.TestCase, parameterized.TestCase):
    def _results(self, layer, x, mask, **options):
        """Returns results of the layer and gradients to inputs and weights."""
        with tf.GradientTape() as tape:
            tape.watch(x)
            results = tf.nest.flatten(layer(x, mask=mask, **options))
            loss = sum(tf.reduce_sum(tf.sin(tf.cast(y, tf.float32) + i)) for i, y in enumerate(results))
        return results, tape.gradient(loss, [x, *(v.value for v in layer.trainable_variables)])

    @parameterized.product(
        kind_and_options=(
            *(
                (kind, options)
                for kind in ("LSTM", "GRU")
                for options in (
                    {},
                    {"return_sequences": True},
                    {"return_sequences": True, "return_state": True, "go_backwards": True},
                    {"stateful": True, "return_state": True, "use_bias": False},
                    {"activation": "relu", "recurrent_activation": "hard_sigmoid"},
                    {"activation": "linear", "dtype": "mixed_bfloat16"},
                )
            ),
            ("GRU", {"reset_after": False, "return_sequences": True}),
        ),
        has_mask=(False, True),
        is_bidirectional=(False, True),
    )
    def test_is_keras_layer(self, kind_and_options, has_mask, is_bidirectional):
        kind, options = kind_and_options
        x = tf.constant(_normal(4, 6, 3))
        steps = [1, 1, 0, 1, 1, 0], [0, 0, 1, 1, 0, 0], [0] * 6, [1] * 6
        mask = tf.constant(steps) > 0 if has_mask else None
        layer = getattr(keras.layers, kind)(5, bias_initializer="random_normal", **options)
        if is_bidirectional:
            if layer.go_backwards or layer.stateful:
                self.skipTest("Keras refuses a layer that goes backward, and needs a batch size for states")
            layer = keras.layers.Bidirectional(layer)
        layer.build(x.shape)
        is_narrow = "dtype" in options
        op = kind.lower()
        calls = []
        for switch in (contextlib.nullcontext, lambda: tfo.layers.use_fused_ops([op])):
            with switch():
                if not is_bidirectional and layer.stateful:
                    layer.reset_states()
                # Twice: a stateful layer goes on.
                calls.append([self._results(layer, x, mask), self._results(layer, x, mask)])
        self.assertEqual(tfo.layers.fused_ops(), {op: {"fused": 4 if is_bidirectional else 2, "original": 0}})
        for expected, actual in zip(*(tf.nest.flatten(c) for c in calls), strict=True):
            self.assertEqual((actual.dtype, actual.shape), (expected.dtype, expected.shape))
            self.assertAllClose(actual, expected, *([0.1, 0.1] if is_narrow else [1e-4, 1e-5]))

    @parameterized.product(kind=("LSTM", "GRU"), in_graph=(False, True))
    def test_masks_and_states_of_one_row(self, kind, in_graph):
        x, mask = tf.constant(_normal(3, 6, 2)), tf.constant([[True, False, True, True, False, True]])
        layer = getattr(keras.layers, kind)(4, return_sequences=True, return_state=True)
        states = [tf.constant(_normal(1, 4)) for _ in range(2 if kind == "LSTM" else 1)]
        all_states = [tf.repeat(state, 3, axis=0) for state in states]
        expected = self._results(layer, x, tf.repeat(mask, 3, axis=0), initial_state=all_states)

        def call(x, mask, states):
            return self._results(layer, x, mask, initial_state=states)

        if in_graph:
            specs = tf.TensorSpec([None, None, 2]), tf.TensorSpec([None, None], tf.bool)
            call = tf.function(call, [*specs, [tf.TensorSpec([None, 4])] * len(states)])
        op = kind.lower()
        with tfo.layers.use_fused_ops([op]):
            for masks, of_states in ((mask, states), (tf.repeat(mask, 3, 0), states), (mask, all_states)):
                actual = call(x, masks, of_states)
                for one, other in zip(*map(tf.nest.flatten, (actual, expected)), strict=True):
                    self.assertAllClose(one, other, 1e-5, 1e-5)
            self.assertEqual(tfo.layers.fused_ops(), {op: {"fused": 1 if in_graph else 3, "original": 0}})

    @parameterized.parameters("LSTM", "GRU")
    def test_more_states_than_inputs_are_those_of_keras(self, kind):
        layer = getattr(keras.layers, kind)(4)
        states = [tf.constant(_normal(3, 4)) for _ in range(2 if kind == "LSTM" else 1)]
        x = _normal(1, 6, 2)
        expected = layer(x, initial_state=states)
        with tfo.layers.use_fused_ops([kind.lower()]):
            self.assertAllClose(layer(x, initial_state=states), expected)
            with self.assertRaises(tf.errors.InvalidArgumentError):
                layer(_normal(2, 6, 2), initial_state=states)

    @parameterized.parameters("LSTM", "GRU")
    def test_falls_back_to_keras(self, kind):
        x, create = _normal(2, 4, 3), getattr(keras.layers, kind)
        options = (
            {"activation": "gelu"},
            {"recurrent_activation": tf.tanh},
            {"unroll": True},
            {"recurrent_dropout": 0.5},
        )
        calls = [(create(5, **more), x) for more in options]
        calls.append((create(5), np.arange(24).reshape(2, 4, 3)))
        expected = [layer(inputs) for layer, inputs in calls]
        op = kind.lower()
        with tfo.layers.use_fused_ops([op]):
            actual = [layer(inputs) for layer, inputs in calls]
            # A mask of dropout for each gate.
            create(5, dropout=0.5, implementation=1, use_cudnn=False)(x, training=True)
            calls = tfo.layers.fused_ops()[op]
            self.assertEqual((calls["fused"], calls["original"]), (0, 6))
            self.assertEqual(calls["reasons"]["recurrent_dropout"], 1)
        for one, other in zip(actual, expected, strict=True):
            self.assertAllClose(one, other)

    def test_a_model_trains_and_is_saved_without_us(self):
        x, y = _normal(8, 6, 3), _normal(8, 2)

        def trained():
            keras.utils.clear_session()
            keras.utils.set_random_seed(1)
            inputs = keras.Input([None, 3])
            masked = keras.layers.Masking()(inputs)
            states = keras.layers.Bidirectional(keras.layers.LSTM(4, return_sequences=True, dropout=0.3))(masked)
            states = keras.layers.GRU(3, return_sequences=True, dropout=0.3)(states)
            model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.LSTM(5)(states)))
            model.compile("sgd", "mse")
            model.fit(x, y, epochs=2, verbose=0, shuffle=False)
            return model

        expected = trained()
        with tfo.layers.use_fused_ops():
            model = trained()
            for op in ("lstm", "gru"):
                self.assertGreater(tfo.layers.fused_ops()[op]["fused"], 0)
            path = os.path.join(self.get_temp_dir(), "recurrent.keras")
            model.save(path)
        for one, other in zip(model.trainable_variables, expected.trainable_variables, strict=True):
            self.assertAllClose(one, other, 1e-4, 1e-5)
        self.assertEqual(model.to_json(), expected.to_json())
        self.assertAllClose(keras.saving.load_model(path)(x), expected(x), 1e-4, 1e-5)

    def test_stack_of_both_directions_with_masks(self):
        x = _normal(4, 6, 3)
        x[0, 4:] = x[1, ::2] = x[2] = 0
        inputs = keras.Input([None, 3])
        outputs = keras.layers.Masking()(inputs)
        for units in (4, 5):
            outputs = keras.layers.Bidirectional(keras.layers.LSTM(units, return_sequences=True))(outputs)
        model = keras.Model(inputs, outputs)
        expected = self._results(model, tf.constant(x), None)
        with tfo.layers.use_fused_ops(["lstm"]):
            actual = self._results(model, tf.constant(x), None)
            self.assertEqual(tfo.layers.fused_ops(), {"lstm": {"fused": 4, "original": 0}})
        for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
            self.assertAllClose(one, other, 1e-4, 1e-5)


if __name__ == "__main__":
    tf.test.main()
