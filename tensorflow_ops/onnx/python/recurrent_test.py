"""Tests of recurrent layers in ONNX Runtime: weights are constants, as in models."""

import warnings

import keras
import numpy as np
import onnx
import onnx_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_STEPS = 6
_MASK = np.array([[1, 1, 0, 1, 0, 0], [0, 1, 1, 0, 1, 1], [0] * _STEPS, [1] * _STEPS]) > 0


def _normal(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


_INPUTS, _STATES = _normal(4, _STEPS, 5), (_normal(4, 3), _normal(4, 3))
_WEIGHTS = _normal(5, 12), _normal(3, 12), _normal(12)


class RecurrentTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(
        options=(
            {},
            {"reverse": True},
            {"activation": "relu", "recurrent_activation": "hard_sigmoid"},
            {"activation": "hard_sigmoid", "recurrent_activation": "linear"},
            {"activation": "sigmoid", "recurrent_activation": "tanh"},
        ),
        has_mask=(False, True),
    )
    def test_lstm(self, options, has_mask):
        def function(x, h, c, *mask):
            more = {"mask": mask[0]} if mask else {}
            return tfo.nn.lstm(x, *_WEIGHTS, initial_state=(h, c), **more, **options)

        inputs = [_INPUTS, *_STATES, *[_MASK] * has_mask]
        no_steps = [_INPUTS[:, :0], *_STATES, *[_MASK[:, :0]] * has_mask]
        used = onnx_testing.check(self, function, *inputs, also=[no_steps], optimize=False)
        self.assertIn("LSTM", used)
        self.assertNoCommonElements({"Loop", "MatMul"}, used)

    @parameterized.product(
        options=(
            {},
            {"reset_after": False},
            {"reverse": True},
            {"activation": "linear", "recurrent_activation": "hard_sigmoid"},
        ),
        has_mask=(False, True),
    )
    def test_gru(self, options, has_mask):
        bias = _normal(2, 9) if options.get("reset_after", True) else _normal(9)

        def function(x, h, *mask):
            more = {"mask": mask[0]} if mask else {}
            return tfo.nn.gru(x, _WEIGHTS[0][:, :9], _WEIGHTS[1][:, :9], bias, initial_state=h, **more, **options)

        inputs = [_INPUTS, _STATES[0], *[_MASK] * has_mask]
        used = onnx_testing.check(self, function, *inputs, optimize=False)
        self.assertIn("GRU", used)
        self.assertNoCommonElements({"Loop", "MatMul"}, used)

    def test_ragged_lstm_of_16_bits_from_opset_14_on(self):
        def function(x, lengths):
            return tfo.nn.lstm(tf.RaggedTensor.from_tensor(x, lengths), *_WEIGHTS).outputs.to_tensor()

        inputs = _INPUTS.astype(np.float16), np.int64([3, 0, 1, _STEPS])
        self.assertIn("LSTM", onnx_testing.check(self, function, *inputs, opset=14, optimize=False))
        with self.assertWarnsRegex(UserWarning, r"TensorflowOps>Lstm becomes many nodes.* from opset 14 on"):
            specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
            used = onnx_testing.operators(onnx_testing.convert(function, specs, 13, optimize=False))
        self.assertNotIn("LSTM", used)

    def test_inputs_without_a_product(self):
        """Of constant inputs: TensorFlow multiplies them before the export."""

        def function(h, c):
            return tfo.nn.lstm(_INPUTS, *_WEIGHTS, initial_state=(h, c))

        self.assertIn("LSTM", onnx_testing.check(self, function, *_STATES))

    def test_composition_where_the_operator_does_not_fit(self):
        def of_doubles(x):
            return tfo.nn.lstm(x, *_WEIGHTS)

        def of_any_units(x, recurrent_kernel):
            return tfo.nn.lstm(x, _WEIGHTS[0], recurrent_kernel)

        for function, inputs in (
            (of_doubles, [_INPUTS.astype(np.float64)]),
            (of_any_units, [_INPUTS, _WEIGHTS[1]]),
        ):
            self.assertNotIn("LSTM", onnx_testing.check(self, function, *inputs, optimize=False))

    def test_model_of_keras_with_masks(self):
        keras.utils.set_random_seed(0)
        inputs = keras.Input([None, 5], name="x0")
        x = keras.layers.Masking()(inputs)
        for units in (4, 3):
            x = keras.layers.Bidirectional(keras.layers.LSTM(units, return_sequences=True))(x)
        model = keras.Model(inputs, keras.layers.Dense(2)(x))
        x = np.where(_MASK[..., np.newaxis], _INPUTS, 0)
        expected, path = model(x), f"{self.get_temp_dir()}/model.onnx"
        tfo.onnx.register()
        with tfo.layers.use_fused_ops(["lstm"]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.export(path, format="onnx", opset_version=18, verbose=False)
        exported = onnx.load(path)
        self.assertEqual([node.op_type for node in exported.graph.node].count("LSTM"), 4)
        self.assertNotIn("Loop", onnx_testing.operators(exported))
        (found,) = onnx_testing.run(exported, [x])
        self.assertAllClose(found, expected, 1e-5, 1e-5)


if __name__ == "__main__":
    tf.test.main()
