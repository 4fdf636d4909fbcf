"""Tests of tfo.nn.lstm against loops of the definition in float64, and against Keras's layer."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from recurrent_testing import ACTIVATIONS, LENGTHS, MASK, gradients

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)


def _definition(x, kernel, recurrent_kernel, bias, h, c, mask, activation, recurrent_activation):
    """Returns outputs, h and c of an example."""
    act, open_gate = ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation]
    output, outputs = np.zeros_like(h), []
    for t, row in enumerate(x):
        if mask[t]:
            i, f, g, o = np.split(row @ kernel + h @ recurrent_kernel + bias, 4)
            c = open_gate(f) * c + open_gate(i) * act(g)
            output = h = open_gate(o) * act(c)
        outputs.append(output)
    return np.array(outputs), h, c


def _weights(features=3, units=4, batch=4, steps=5):
    shapes = (batch, steps, features), (features, 4 * units), (units, 4 * units), (4 * units,)
    return [_RNG.normal(size=shape) for shape in (*shapes, (batch, units), (batch, units))]


class ValuesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(activation=[*ACTIVATIONS], recurrent_activation=[*ACTIVATIONS])
    def test_equals_the_definition(self, activation, recurrent_activation):
        x, kernel, recurrent_kernel, bias, h, c = _weights()
        options = {"activation": activation, "recurrent_activation": recurrent_activation}
        result = tfo.nn.lstm(x, kernel, recurrent_kernel, bias, initial_state=(h, c), mask=MASK, **options)
        for b in range(4):
            expected = _definition(x[b], kernel, recurrent_kernel, bias, h[b], c[b], MASK[b], **options)
            for actual, value in zip(result, expected, strict=True):
                self.assertAllClose(actual[b], value, 1e-11, 1e-11)

    @parameterized.parameters(False, True)
    def test_ragged_rows_are_calls_of_their_own(self, reverse):
        x, kernel, recurrent_kernel, bias, h, c = _weights()
        inputs = tf.RaggedTensor.from_tensor(x, LENGTHS)
        result = tfo.nn.lstm(inputs, kernel, recurrent_kernel, bias, initial_state=(h, c), reverse=reverse)
        self.assertIsInstance(result.outputs, tf.RaggedTensor)
        for b, length in enumerate(LENGTHS):
            state = h[b : b + 1], c[b : b + 1]
            row = x[b : b + 1, :length]
            one = tfo.nn.lstm(row, kernel, recurrent_kernel, bias, initial_state=state, reverse=reverse)
            self.assertAllClose(result.outputs[b], one.outputs[0])
            self.assertAllClose(result.h[b], one.h[0])
            self.assertAllClose(result.c[b], one.c[0])

    @parameterized.parameters("float16", "bfloat16")
    def test_16_bits_are_computed_in_float32(self, dtype):
        x, *weights = (tf.cast(w, dtype) for w in _weights())
        wide = [tf.cast(w, tf.float32) for w in weights]
        actual = tfo.nn.lstm(x, *weights[:3], initial_state=weights[3:])
        expected = tfo.nn.lstm(tf.cast(x, tf.float32), *wide[:3], initial_state=wide[3:])
        self.assertAllEqual(actual.outputs, tf.cast(expected.outputs, dtype))
        self.assertAllEqual(actual.h, expected.h)
        self.assertAllEqual(actual.c, expected.c)

    def test_padding_may_be_nan(self):
        x, *weights = map(tf.constant, _weights()[:4])
        bad = tf.where(MASK[..., np.newaxis], x, np.nan)

        def call(x, *weights):
            return tfo.nn.lstm(x, *weights, mask=MASK)

        expected, actual = (gradients(call, [inputs, *weights]) for inputs in (x, bad))
        for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
            self.assertAllEqual(one, other)

    def test_wrong_arguments(self):
        x, kernel, recurrent_kernel, *_ = _weights()
        inputs = tf.RaggedTensor.from_tensor(x, LENGTHS)
        with self.assertRaisesRegex(ValueError, "mask is given, expected None: inputs are a RaggedTensor"):
            tfo.nn.lstm(inputs, kernel, recurrent_kernel, mask=MASK)
        with self.assertRaisesRegex(ValueError, r"initial_state is a EagerTensor, expected a pair \(h, c\)"):
            tfo.nn.lstm(x, kernel, recurrent_kernel, initial_state=tf.zeros([2, 4, 4]))


class KerasTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(mask=(None, MASK), go_backwards=(False, True), use_bias=(False, True))
    def test_is_the_layer_withgradients(self, mask, go_backwards, use_bias):
        x, *_, h, c = (tf.constant(w, tf.float32) for w in _weights())
        layer = keras.layers.LSTM(
            4, return_sequences=True, return_state=True, go_backwards=go_backwards, use_bias=use_bias,
            bias_initializer="random_normal",
        )  # fmt: skip
        layer.build(x.shape)
        weights = [tf.constant(w) for w in layer.trainable_variables]

        def original(x, h, c, *weights):
            return layer.stateless_call(weights, layer.non_trainable_variables, x, initial_state=[h, c], mask=mask)[0]

        def ours(x, h, c, *weights):
            return tfo.nn.lstm(x, *weights, initial_state=(h, c), mask=mask, reverse=go_backwards)

        expected = gradients(original, [x, h, c, *weights])
        for function in (ours, tf.function(ours), tf.function(ours, jit_compile=True)):
            for actual, values in zip(gradients(function, [x, h, c, *weights]), expected, strict=True):
                for one, other in zip(actual, values, strict=True):
                    self.assertAllClose(one, other, 1e-5, 1e-5)

    def test_unknown_sizes(self):
        specs = [tf.TensorSpec([None] * rank) for rank in (3, 2, 2, 1)]
        call = tf.function(tfo.nn.lstm, input_signature=specs)
        for sizes in ((3, 4), (5, 2), (0, 3)):
            x, *weights, _, _ = (tf.constant(w, tf.float32) for w in _weights(*sizes))
            for one, other in zip(call(x, *weights), tfo.nn.lstm(x, *weights), strict=True):
                self.assertAllClose(one, other)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"shape of kernel.*expected \[\?,\?\]: \[features"):
            call(x, tf.zeros([2, 8]), *weights[1:])

    def test_is_an_operation_of_functional_models(self):
        inputs = keras.Input([5, 3])
        state = keras.Input([4])
        weights = [tf.constant(w, tf.float32) for w in _weights()[1:4]]
        model = keras.Model([inputs, state], tfo.nn.lstm(inputs, *weights, initial_state=(state, state)).h)
        x, *_, h, _ = (w.astype("float32") for w in _weights())
        expected = tfo.nn.lstm(x, *weights, initial_state=(h, h)).h
        self.assertAllClose(model([x, h]), expected)


if __name__ == "__main__":
    tf.test.main()
