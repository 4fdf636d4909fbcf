"""Tests of tfo.nn.gru against loops of the definition in float64, and against Keras's layer."""

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from recurrent_testing import ACTIVATIONS, LENGTHS, MASK, gradients

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)


def _definition(x, kernel, recurrent_kernel, bias, h, mask, activation, recurrent_activation, reset_after):
    """Returns outputs and h of an example."""
    act, open_gate = ACTIVATIONS[activation], ACTIVATIONS[recurrent_activation]
    of_inputs, of_states = bias if reset_after else (bias, np.zeros_like(bias))
    u_z, u_r, u_g = np.split(recurrent_kernel, 3, axis=1)
    b_z, b_r, b_g = np.split(of_states, 3)
    output, outputs = np.zeros_like(h), []
    for t, row in enumerate(x):
        if mask[t]:
            x_z, x_r, x_g = np.split(row @ kernel + of_inputs, 3)
            z, r = open_gate(x_z + h @ u_z + b_z), open_gate(x_r + h @ u_r + b_r)
            g = act(x_g + (r * (h @ u_g + b_g) if reset_after else (r * h) @ u_g))
            output = h = z * h + (1 - z) * g
        outputs.append(output)
    return np.array(outputs), h


def _weights(reset_after=True, features=3, units=4, batch=4, steps=5):
    shapes = (batch, steps, features), (features, 3 * units), (units, 3 * units)
    biases = (2, 3 * units) if reset_after else (3 * units,)
    return [_RNG.normal(scale=0.5, size=shape) for shape in (*shapes, biases, (batch, units))]


class ValuesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(activation=[*ACTIVATIONS], recurrent_activation=[*ACTIVATIONS], reset_after=(True, False))
    def test_equals_the_definition(self, reset_after, **options):
        x, *weights, h = _weights(reset_after)
        options |= {"reset_after": reset_after}
        result = tfo.nn.gru(x, *weights, initial_state=h, mask=MASK, **options)
        for b in range(4):
            expected = _definition(x[b], *weights, h[b], MASK[b], **options)
            for actual, value in zip(result, expected, strict=True):
                self.assertAllClose(actual[b], value, 1e-11, 1e-11)

    @parameterized.product(reset_after=(True, False), mask=(None, MASK), reverse=(True, False))
    def test_gradients(self, reset_after, mask, reverse):
        x, *weights, h = _weights(reset_after)

        def call(x, kernel, recurrent_kernel, bias, h):
            options = {"initial_state": h, "mask": mask, "reverse": reverse, "reset_after": reset_after}
            return tfo.nn.gru(x, kernel, recurrent_kernel, bias, **options)

        tfo.testing.assert_gradients(call, [x, *weights, h])

    @parameterized.product(reverse=(False, True), reset_after=(True, False))
    def test_ragged_rows_are_calls_of_their_own(self, reverse, reset_after):
        x, *weights, h = _weights(reset_after)
        options = {"reverse": reverse, "reset_after": reset_after}
        inputs = tf.RaggedTensor.from_tensor(x, LENGTHS)
        result = tfo.nn.gru(inputs, *weights, initial_state=h, **options)
        self.assertIsInstance(result.outputs, tf.RaggedTensor)
        for b, length in enumerate(LENGTHS):
            one = tfo.nn.gru(x[b : b + 1, :length], *weights, initial_state=h[b : b + 1], **options)
            self.assertAllClose(result.outputs[b], one.outputs[0])
            self.assertAllClose(result.h[b], one.h[0])

    @parameterized.parameters("float16", "bfloat16")
    def test_16_bits_are_computed_in_float32(self, dtype):
        x, *weights, h = (tf.cast(w, dtype) for w in _weights())
        wide = [tf.cast(w, tf.float32) for w in weights]
        actual = tfo.nn.gru(x, *weights, initial_state=h)
        expected = tfo.nn.gru(tf.cast(x, tf.float32), *wide, initial_state=tf.cast(h, tf.float32))
        self.assertAllEqual(actual.outputs, tf.cast(expected.outputs, dtype))
        self.assertAllEqual(actual.h, expected.h)

    @parameterized.parameters(True, False)
    def test_padding_may_be_nan(self, reset_after):
        x, *weights, _ = map(tf.constant, _weights(reset_after))
        bad = tf.where(MASK[..., np.newaxis], x, np.nan)

        def call(x, *weights):
            return tfo.nn.gru(x, *weights, mask=MASK, reset_after=reset_after)

        expected, actual = (gradients(call, [inputs, *weights]) for inputs in (x, bad))
        for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
            self.assertAllEqual(one, other)

    def test_nan_stays_in_its_example(self):
        x, *weights, _ = _weights()
        bad = x.copy()
        bad[1, 2] = np.nan
        expected, actual = (tfo.nn.gru(inputs, *weights).outputs for inputs in (x, bad))
        self.assertTrue(np.all(np.isnan(actual[1, 2:])))
        self.assertAllEqual(actual[1, :2], expected[1, :2])
        for b in (0, 2, 3):
            self.assertAllEqual(actual[b], expected[b])

    def test_wrong_arguments(self):
        x, *weights, h = _weights()
        with self.assertRaisesRegex(ValueError, "mask is given, expected None: inputs are a RaggedTensor"):
            tfo.nn.gru(tf.RaggedTensor.from_tensor(x, LENGTHS), *weights, mask=MASK)
        with self.assertRaisesRegex(ValueError, r"initial_state .*\[1,4,4\], expected \[4,4\]: \[B, units\]"):
            tfo.nn.gru(x, *weights, initial_state=(h,))


class KerasTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        mask=(None, MASK), go_backwards=(False, True), use_bias=(False, True), reset_after=(True, False)
    )
    def test_is_the_layer_with_gradients(self, mask, go_backwards, use_bias, reset_after):
        x, *_, h = (tf.constant(w, tf.float32) for w in _weights())
        layer = keras.layers.GRU(
            4, return_sequences=True, return_state=True, go_backwards=go_backwards, use_bias=use_bias,
            reset_after=reset_after, bias_initializer="random_normal",
        )  # fmt: skip
        layer.build(x.shape)
        weights = [tf.constant(w) for w in layer.trainable_variables]

        def original(x, h, *weights):
            return layer.stateless_call(weights, layer.non_trainable_variables, x, initial_state=h, mask=mask)[0]

        def ours(x, h, *weights):
            options = {"reverse": go_backwards, "reset_after": reset_after}
            return tfo.nn.gru(x, *weights, initial_state=h, mask=mask, **options)

        expected = gradients(original, [x, h, *weights])
        for function in (ours, tf.function(ours), tf.function(ours, jit_compile=True)):
            for actual, values in zip(gradients(function, [x, h, *weights]), expected, strict=True):
                for one, other in zip(actual, values, strict=True):
                    self.assertAllClose(one, other, 1e-5, 1e-5)

    @parameterized.parameters(True, False)
    def test_unknown_sizes(self, reset_after):
        specs = [tf.TensorSpec([None] * rank) for rank in (3, 2, 2, 2 if reset_after else 1)]

        def ours(*args):
            return tfo.nn.gru(*args, reset_after=reset_after)

        call = tf.function(ours, input_signature=specs)
        for sizes in ((3, 4), (5, 2), (0, 3)):
            x, *weights, _ = (tf.constant(w, tf.float32) for w in _weights(reset_after, *sizes))
            for one, other in zip(call(x, *weights), ours(x, *weights), strict=True):
                self.assertAllClose(one, other)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"shape of kernel.*expected \[\?,\?\]: \[features"):
            call(x, tf.zeros([2, 9]), *weights[1:])

    def test_is_an_operation_of_functional_models(self):
        inputs, state = keras.Input([5, 3]), keras.Input([4])
        x, *weights, h = (tf.constant(w, tf.float32) for w in _weights())
        model = keras.Model([inputs, state], tfo.nn.gru(inputs, *weights, initial_state=state).h)
        self.assertAllClose(model([x, h]), tfo.nn.gru(x, *weights, initial_state=h).h)


if __name__ == "__main__":
    tf.test.main()
