"""Samples of lstm and gru."""

import functools

import tensorflow as tf
from sample_testing import normal, sample, seed

from tensorflow_ops import nn

seed("nn.lstm")
_sample = functools.partial(sample, ragged=True, second_order=False)
_STEPS, _STEP_MASK = normal(3, 4, 5), tf.constant([[1, 1, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0]]) > 0
_GATE_WEIGHTS = normal(5, 8), normal(2, 8), normal(8)
_STATE = normal(3, 2), normal(3, 2)
_GRU_WEIGHTS = normal(5, 6), normal(2, 6), normal(2, 6)


def _gru_outputs(inputs, kernel, recurrent_kernel, bias=None):
    return nn.gru(inputs, kernel, recurrent_kernel, bias).outputs


def _lstm_outputs(inputs, kernel, recurrent_kernel, bias=None):
    return nn.lstm(inputs, kernel, recurrent_kernel, bias).outputs


SAMPLES = {
    "nn.gru": _sample(
        nn.gru,
        _STEPS,
        *_GRU_WEIGHTS,
        kwargs={"initial_state": _STATE[0], "mask": _STEP_MASK},
        variants=[
            {"bias": None, "initial_state": None, "mask": None},
            {"bias": normal(6), "reset_after": False},
            {"activation": "relu", "recurrent_activation": "hard_sigmoid", "mask": None},
            {"activation": "sigmoid", "recurrent_activation": "tanh", "reverse": True},
            {"bias": None, "activation": "hard_sigmoid", "recurrent_activation": "linear", "reset_after": False},
        ],
        edge=[
            {"inputs": _STEPS[:0], "initial_state": _STATE[0][:0], "mask": _STEP_MASK[:0]},
            {"inputs": _STEPS[:, :0], "mask": _STEP_MASK[:, :0]},
        ],
        bad=[
            ({"inputs": _STEPS[0]}, r"inputs .*\[4,5\].* expected .*\[\?,\?,\?\]"),
            (
                {"kernel": _GRU_WEIGHTS[0][:4]},
                r"kernel .*\[4,6\], expected .*: \[features, 3 \* units\]|size-incompatible",
            ),
            (
                {"recurrent_kernel": normal(2, 8)},
                r"recurrent_kernel .*\[2,8\], expected .*: \[units, 3 \* units\]|a tensor with 16 values, but .* 12",
            ),
            (
                {"bias": normal(6)},
                r"bias .*\[6\], expected .*: \[2, 3 \* units\]|a tensor with 6 values, but .* 12",
            ),
            (
                {"reset_after": False},
                r"bias .*\[2,6\], expected .*: \[3 \* units\] without|a tensor with 24 values, but .* 12",
            ),
            (
                {"initial_state": normal(3, 4)},
                r"initial_state .*\[3,4\], expected .*: \[B, units\]|h0 must be \[batch, units\]",
            ),
            ({"mask": _STEP_MASK[:, :3]}, r"mask .*\[3,3\], expected .*: \[B, T\]|Incompatible shapes"),
            ({"recurrent_activation": "gelu"}, "recurrent_activation is 'gelu', expected one of 'tanh', 'sigmoid', "),
            ({"reset_after": 1}, "reset_after is 1, expected True or False"),
        ],
        dtypes=("float32", "float64"),
    ),
    # The states of 16-bit inputs are float32.
    "nn.gru (16 bits)": _sample(_gru_outputs, _STEPS, *_GRU_WEIGHTS, dtypes=("float16", "bfloat16", "float32")),
    "nn.lstm": _sample(
        nn.lstm,
        _STEPS,
        *_GATE_WEIGHTS,
        kwargs={"initial_state": _STATE, "mask": _STEP_MASK},
        variants=[
            {"bias": None, "initial_state": None, "mask": None},
            {"activation": "relu", "recurrent_activation": "hard_sigmoid"},
            {"activation": "hard_sigmoid", "recurrent_activation": "linear", "mask": None},
            {"activation": "sigmoid", "recurrent_activation": "tanh", "reverse": True},
        ],
        edge=[
            {"inputs": _STEPS[:0], "initial_state": (_STATE[0][:0], _STATE[1][:0]), "mask": _STEP_MASK[:0]},
            {"inputs": _STEPS[:, :0], "mask": _STEP_MASK[:, :0]},
        ],
        bad=[
            ({"inputs": _STEPS[0]}, r"inputs .*\[4,5\].* expected .*\[\?,\?,\?\]"),
            ({"inputs": tf.zeros([3, 4, 5], tf.int32)}, "inputs are int32, expected float16"),
            (
                {"kernel": _GATE_WEIGHTS[0][:4]},
                r"kernel .*\[4,8\], expected .*: \[features, 4 \* units\]|size-incompatible",
            ),
            (
                {"recurrent_kernel": normal(2, 6)},
                r"recurrent_kernel .*\[2,6\], expected .*: \[units, 4 \* units\]|a tensor with 12 values, but .* 16",
            ),
            ({"bias": normal(4)}, r"bias .*\[4\], expected .*: \[4 \* units\]|a tensor with 4 values, but .* 8"),
            (
                {"initial_state": (_STATE[0], normal(3, 4))},
                r"initial_state's c .*\[3,4\], expected .*: \[B, units\]|c0 must be \[batch, units\]",
            ),
            ({"initial_state": _STATE[:1]}, r"initial_state is 1 tensors, expected a pair \(h, c\)"),
            ({"mask": _STEP_MASK[:, :3]}, r"mask .*\[3,3\], expected .*: \[B, T\]|Incompatible shapes"),
            ({"mask": tf.ones([3, 4])}, "mask are float32, expected bool"),
            (
                {"activation": "selu"},
                "activation is 'selu', expected one of 'tanh', 'sigmoid', 'relu', 'linear', 'hard",
            ),
            ({"recurrent_activation": None}, "recurrent_activation is None, expected one of 'tanh'"),
            ({"reverse": 1}, "reverse is 1, expected True or False"),
        ],
        dtypes=("float32", "float64"),
    ),
    "nn.lstm (16 bits)": _sample(_lstm_outputs, _STEPS, *_GATE_WEIGHTS, dtypes=("float16", "bfloat16", "float32")),
}
