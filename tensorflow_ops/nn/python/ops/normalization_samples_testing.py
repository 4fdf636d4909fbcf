"""Samples of layer_norm, rms_norm and group_norm."""

import numpy as np
import tensorflow as tf
from sample_testing import normal, sample, seed

from tensorflow_ops import nn

seed(__name__)
_X, _GAMMA, _BETA = normal(2, 3, 6), normal(6), normal(6)
_BAD = [
    ({"inputs": tf.zeros([2, 3, 6], tf.int32)}, "inputs are int32, expected float16"),
    ({"gamma": tf.zeros([5])}, "gamma.*expected .*: the dims of the axes"),
    ({"epsilon": -1.0}, "epsilon is -1.0, expected a number that is not negative"),
]
_BAD_AXES = [
    ({"axis": 0}, "axis is 0, expected the last axes.*, in order, such as -1"),
    ({"axis": [-1, -2]}, r"axis is \[-1, -2\], expected the last axes"),
    ({"axis": 0.5}, "axis is 0.5, expected an int, or ints"),
    ({"inputs": tf.constant(1.0)}, "inputs.*expected .*at least 1 dims"),
]
_VARIANTS = [
    {"gamma": None, "epsilon": 0.1},
    {"axis": [-2, -1], "gamma": normal(3, 6)},
    {"inputs": tf.cast(_X * 1000 + 4000, tf.bfloat16)},
]
_EDGE = [{"inputs": tf.zeros([0, 3, 6])}, {"inputs": tf.zeros([2, 3, 0]), "gamma": tf.zeros([0])}]


def _layer_norm(inputs, gamma, beta, axis=-1, epsilon=1e-3):
    axis = tuple(axis) if isinstance(axis, list) else axis
    z = inputs - inputs.mean(axis, keepdims=True)
    z /= np.sqrt(np.square(z).mean(axis, keepdims=True) + epsilon)
    return z * (1 if gamma is None else gamma) + (0 if beta is None else beta)


def _rms_norm(inputs, gamma, axis=-1, epsilon=1e-6):
    axis = tuple(axis) if isinstance(axis, list) else axis
    inverse = 1 / np.sqrt(np.square(inputs).mean(axis, keepdims=True) + epsilon)
    return inputs * inverse * (1 if gamma is None else gamma)


def _group_norm(inputs, gamma, beta, groups=32, epsilon=1e-3):
    shape = inputs.shape
    z = inputs.reshape(shape[0], int(np.prod(shape[1:-1])), groups, shape[-1] // groups)
    z = z - z.mean((1, 3), keepdims=True)
    z /= np.sqrt(np.square(z).mean((1, 3), keepdims=True) + epsilon)
    return z.reshape(shape) * (1 if gamma is None else gamma) + (0 if beta is None else beta)


SAMPLES = {
    "nn.layer_norm": sample(
        nn.layer_norm,
        _X,
        _GAMMA,
        _BETA,
        variants=[{"beta": None}, *_VARIANTS[:1], _VARIANTS[1] | {"beta": normal(3, 6)}, *_VARIANTS[2:]],
        edge=[_EDGE[0], _EDGE[1] | {"beta": tf.zeros([0])}],
        bad=[*_BAD, *_BAD_AXES, ({"beta": tf.zeros([1])}, "beta.*expected .*: the dims of the axes")],
        reference=_layer_norm,
        second_order=True,
    ),
    "nn.rms_norm": sample(
        nn.rms_norm, _X, _GAMMA, variants=_VARIANTS, edge=_EDGE, bad=[*_BAD, *_BAD_AXES], reference=_rms_norm,
        second_order=True,
    ),
    "nn.group_norm": sample(
        nn.group_norm,
        normal(2, 3, 2, 6),
        _GAMMA,
        _BETA,
        kwargs={"groups": 3},
        variants=[
            {"beta": None, "groups": 1},
            {"gamma": None, "epsilon": 0.1},
            {"inputs": normal(4, 6)},
            {"inputs": normal(2, 5, 6), "groups": 6},
        ],
        edge=[{"inputs": tf.zeros([0, 3, 2, 6])}, {"inputs": tf.zeros([2, 0, 2, 6])}],
        bad=[
            *_BAD,
            ({"groups": 4}, "there are 6 channels, expected a multiple of 4, the number of groups"),
            ({"groups": 0}, "groups is 0"),
            ({"inputs": normal(6)}, r"inputs.*expected .*\[N, ..., channels\]"),
        ],
        reference=_group_norm,
        second_order=True,
    ),
}  # fmt: skip
