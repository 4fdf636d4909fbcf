"""Samples of gelu and silu."""

import numpy as np
import tensorflow as tf
from sample_testing import normal, sample, seed

from tensorflow_ops import nn

seed(__name__)
_FEATURES, _BIAS = normal(3, 4, 5), normal(5)
_EXTREMES = tf.constant([[np.nan, np.inf, -np.inf, -20.0, 20.0], [0.0, -3.0, 3.0, -6e4, 6e4]])
_BAD = [
    ({"features": tf.constant(1.0)}, r"features are a scalar, expected|features must be \[\.\.\., channels\]"),
    ({"features": tf.zeros([3, 5], tf.int32)}, "features are int32, expected float16"),
    ({"bias": _BIAS[:4]}, r"bias are \[4\], expected \[5\]: one for each channel|bias must be \[channels\]"),
    ({"bias": _FEATURES[0]}, r"bias are \[4,5\], expected \[5\]: one for each channel|bias must be \[channels\]"),
]
_VARIANTS = [{"features": _EXTREMES}, {"features": _FEATURES[0, 0]}]
_NO_BIAS = [{"bias": None}, {"features": _EXTREMES, "bias": None}]
_EDGE = [{"features": _FEATURES[:0]}, {"features": tf.zeros([3, 4, 0]), "bias": tf.zeros([0])}]

SAMPLES = {
    "nn.gelu": sample(
        nn.gelu,
        _FEATURES,
        _BIAS,
        variants=[*_VARIANTS, *_NO_BIAS, {"approximate": True}],
        edge=_EDGE,
        bad=_BAD,
        second_order=True,
    ),
    "nn.gelu (tanh)": sample(nn.gelu, _FEATURES, kwargs={"approximate": True}, variants=_VARIANTS, second_order=True),
    "nn.silu": sample(
        nn.silu, _FEATURES, _BIAS, variants=[*_VARIANTS, *_NO_BIAS], edge=_EDGE, bad=_BAD, second_order=True
    ),
}
