"""Tests of tfo.nn.lstm and tfo.nn.gru against loops of the definition in float64, and against Keras's layers."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_MASK = np.array([[1, 1, 0, 1, 1], [0, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
_LENGTHS = [3, 0, 5, 2]
_ACTIVATIONS = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "linear": lambda x: x,
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
}


def _lstm_step(row, states, kernel, recurrent_kernel, bias, act, open_gate):
    h, c = states
    i, f, g, o = np.split(row @ kernel + h @ recurrent_kernel + bias, 4)
    c = open_gate(f) * c + open_gate(i) * act(g)
    return open_gate(o) * act(c), c


def _gru_step(row, states, kernel, recurrent_kernel, bias, act, open_gate):
    (h,) = states
    reset_after = bias.ndim == 2
    of_inputs, of_states = bias if reset_after else (bias, np.zeros_like(bias))
    u_z, u_r, u_g = np.split(recurrent_kernel, 3, axis=1)
    b_z, b_r, b_g = np.split(of_states, 3)
    x_z, x_r, x_g = np.split(row @ kernel + of_inputs, 3)
    z, r = open_gate(x_z + h @ u_z + b_z), open_gate(x_r + h @ u_r + b_r)
    g = act(x_g + (r * (h @ u_g + b_g) if reset_after else (r * h) @ u_g))
    return (z * h + (1 - z) * g,)


class _Op(NamedTuple):
    """A function as `op(inputs, kernel, recurrent_kernel, bias, *states)`; its outputs are its first state."""

    function: Callable[..., Any]
    layer: type[keras.Layer]
    step: Callable[..., Any]  # the definition
    gates: int
    states: int
    biases: tuple[int, ...]
    options: dict[str, bool]

    def __call__(self, x, *weights, **options):
        states = weights[3:] or None
        initial_state = states[0] if states and self.states == 1 else states
        return self.function(x, *weights[:3], initial_state=initial_state, **self.options, **options)

    def arguments(self, features=3, units=4, batch=4, steps=5):
        columns = self.gates * units
        shapes = (batch, steps, features), (features, columns), (units, columns), (*self.biases, columns)
        return [_RNG.normal(scale=0.5, size=shape) for shape in (*shapes, *[(batch, units)] * self.states)]


_OPS = (
    _Op(tfo.nn.lstm, keras.layers.LSTM, _lstm_step, 4, 2, (), {}),
    _Op(tfo.nn.gru, keras.layers.GRU, _gru_step, 3, 1, (2,), {"reset_after": True}),
    _Op(tfo.nn.gru, keras.layers.GRU, _gru_step, 3, 1, (), {"reset_after": False}),
)


def _gradients(function, tensors):
    """Returns results, and gradients of a loss of them."""
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        results = function(*tensors)
        # Each result counts, and differently.
        loss = sum(tf.reduce_sum(tf.cast(y, tf.float64) * tf.cos(tf.cast(y, tf.float64) + i))
                   for i, y in enumerate(results))  # fmt: skip
    return results, tape.gradient(loss, tensors)


class ValuesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(op=_OPS, activation=[*_ACTIVATIONS], recurrent_activation=[*_ACTIVATIONS])
    def test_equals_the_definition(self, op, **options):
        x, *weights = op.arguments()
        actual = op(x, *weights, mask=_MASK, **options)
        functions = [_ACTIVATIONS[name] for name in options.values()]
        for b in range(4):
            states = [state[b] for state in weights[3:]]
            output, outputs = np.zeros_like(states[0]), []
            for row, counts in zip(x[b], _MASK[b], strict=True):
                if counts:
                    output, *_ = states = op.step(row, states, *weights[:3], *functions)
                outputs.append(output)
            for result, expected in zip(actual, (outputs, *states), strict=True):
                self.assertAllClose(result[b], expected, 1e-11, 1e-11)

    @parameterized.product(op=_OPS, reverse=(False, True))
    def test_ragged_rows_are_calls_of_their_own(self, op, reverse):
        x, *weights = op.arguments()
        result = op(tf.RaggedTensor.from_tensor(x, _LENGTHS), *weights, reverse=reverse)
        self.assertIsInstance(result.outputs, tf.RaggedTensor)
        for b, length in enumerate(_LENGTHS):
            states = (state[b : b + 1] for state in weights[3:])
            one = op(x[b : b + 1, :length], *weights[:3], *states, reverse=reverse)
            for actual, expected in zip(result, one, strict=True):
                self.assertAllClose(actual[b], expected[0])

    @parameterized.product(op=_OPS, dtype=("float16", "bfloat16"))
    def test_16_bits_are_computed_in_float32(self, op, dtype):
        tensors = [tf.cast(x, dtype) for x in op.arguments()]
        actual, expected = op(*tensors), op(*(tf.cast(x, tf.float32) for x in tensors))
        self.assertAllEqual(actual.outputs, tf.cast(expected.outputs, dtype))
        for state, wide in zip(actual[1:], expected[1:], strict=True):
            self.assertAllEqual(state, wide)

    @parameterized.product(op=_OPS)
    def test_padding_may_be_nan(self, op):
        x, *weights = map(tf.constant, op.arguments()[:4])
        bad = tf.where(_MASK[..., np.newaxis], x, np.nan)
        call = functools.partial(op, mask=_MASK)
        expected, actual = (_gradients(call, [inputs, *weights]) for inputs in (x, bad))
        for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
            self.assertAllEqual(one, other)

    @parameterized.product(op=_OPS)
    def test_nan_stays_in_its_example(self, op):
        x, *weights = op.arguments()
        bad = x.copy()
        bad[1, 2] = np.nan
        expected, actual = (op(inputs, *weights).outputs for inputs in (x, bad))
        self.assertTrue(np.all(np.isnan(actual[1, 2:])))
        self.assertAllEqual(actual[1, :2], expected[1, :2])
        for b in (0, 2, 3):
            self.assertAllEqual(actual[b], expected[b])

    def test_wrong_arguments(self):
        for op, states, text in (
            (_OPS[0], tf.zeros([2, 4, 4]), r"initial_state is a EagerTensor, expected a pair \(h, c\)"),
            (_OPS[1], (np.zeros([4, 4]),), r"initial_state .*\[1,4,4\], expected \[4,4\]: \[B, units\]"),
        ):
            x, *weights = op.arguments()[:4]
            with self.assertRaisesRegex(ValueError, "mask is given, expected None: inputs are a RaggedTensor"):
                op(tf.RaggedTensor.from_tensor(x, _LENGTHS), *weights, mask=_MASK)
            with self.assertRaisesRegex(ValueError, text):
                op.function(x, *weights, initial_state=states)

    @parameterized.product(op=_OPS)
    def test_unknown_sizes(self, op):
        specs = [tf.TensorSpec([None] * x.ndim) for x in op.arguments()[:4]]
        call = tf.function(lambda *args: op(*args), input_signature=specs)
        for sizes in ((3, 4), (5, 2), (0, 3)):
            x, *weights = (tf.constant(w, tf.float32) for w in op.arguments(*sizes)[:4])
            for one, other in zip(call(x, *weights), op(x, *weights), strict=True):
                self.assertAllClose(one, other)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, r"shape of kernel.*expected \[\?,\?\]: \[features"):
            call(x, tf.zeros([2, 8]), *weights[1:])


class KerasTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(op=_OPS, mask=(None, _MASK), go_backwards=(False, True), use_bias=(False, True))
    def test_is_the_layer_with_gradients(self, op, mask, go_backwards, use_bias):
        x, _, _, _, *states = (tf.constant(w, tf.float32) for w in op.arguments())
        layer = op.layer(
            4, return_sequences=True, return_state=True, go_backwards=go_backwards, use_bias=use_bias,
            bias_initializer="random_normal", **op.options,
        )  # fmt: skip
        layer.build(x.shape)
        weights = [tf.constant(w) for w in layer.trainable_variables]

        def original(x, states, *weights):
            return layer.stateless_call(weights, layer.non_trainable_variables, x, initial_state=states, mask=mask)[0]

        def ours(x, states, *weights):
            bias = () if use_bias else (None,)
            return op(x, *weights, *bias, *states, mask=mask, reverse=go_backwards)

        expected = _gradients(original, [x, states, *weights])
        for function in (ours, tf.function(ours), tf.function(ours, jit_compile=True)):
            for actual, values in zip(_gradients(function, [x, states, *weights]), expected, strict=True):
                for one, other in zip(tf.nest.flatten(actual), tf.nest.flatten(values), strict=True):
                    self.assertAllClose(one, other, 1e-5, 1e-5)


if __name__ == "__main__":
    tf.test.main()
