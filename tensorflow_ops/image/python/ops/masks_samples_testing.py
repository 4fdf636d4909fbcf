"""Samples of distances and components of masks. Nothing has a gradient."""

import numpy as np
import tensorflow as tf
from sample_testing import RNG, normal, sample, seed

from tensorflow_ops import image

seed(__name__)
_MASK = tf.constant(RNG.random([2, 5, 7, 3]) < 0.7)
_VALUES = tf.constant(RNG.integers(0, 3, [2, 5, 7]), tf.int32)
_TOO_FEW_DIMS = ({"images": tf.zeros([3], tf.int32)}, r"images (are|must be) .*\[N, H, W\]")
_DTYPE = "expected float16, bfloat16, float32 or float64"


def _spiral():
    """Returns a winding line of one pixel's width: components of many rounds."""
    spiral = np.zeros([15, 15], np.int32)
    for i in range(0, 7, 2):
        spiral[i, i : 15 - i] = spiral[i : 15 - i, 14 - i] = spiral[14 - i, i : 15 - i] = 1
        spiral[i + 2 : 15 - i, i] = spiral[i + 2, i : i + 3] = 1
    return tf.constant(spiral)


# A value that no other dtype has.
_LARGE = tf.constant(_VALUES.numpy().astype(np.uint64) << 62)
SAMPLES = {
    "image.euclidean_distance_transform": sample(
        image.euclidean_distance_transform,
        tf.cast(_MASK, tf.float32) * normal(2, 5, 7, 3),
        kwargs={"spacing": (0.5, 2.0)},
        variants=[
            *({"dtype": dtype, "spacing": (0.7, 2.3)} for dtype in (tf.float16, tf.float64)),
            {"dtype": tf.bfloat16, "onnx": "ONNX Runtime lacks the dtype"},
            {"images": tf.tile(_MASK[:, :1, :, 0], [1, 9, 1]), "spacing": (1.0, 1.5)},
            {"images": _LARGE},
        ],
        bad=[
            _TOO_FEW_DIMS,
            ({"images": tf.constant(["a"])}, "images are string, expected bool, an integer or a float"),
            ({"spacing": 1.0}, "spacing is 1.0, expected two numbers"),
            ({"spacing": (1.0, 2.0, 3.0)}, "spacing is .*expected two numbers"),
            ({"spacing": (1.0, 0.0)}, r"spacing\[1\] is 0.0, expected a number in \[1e-38, 1e38\]"),
            ({"spacing": (np.nan, 1.0)}, r"spacing\[0\] is nan"),
            ({"spacing": (2e38, 1.0)}, r"spacing\[0\] is 2e\+38, expected a number in \[1e-38, 1e38\]"),
            ({"spacing": tf.constant([1.0, np.inf])}, r"spacing\[1\] is inf"),
            ({"spacing": tf.constant(2.0)}, "expected two numbers"),
            ({"spacing": "ab"}, r"spacing\[0\] is 'a'"),
            ({"spacing": tf.constant("ab")}, "spacing are string, expected float64"),
            ({"dtype": tf.int32}, f"dtype is tf.int32, {_DTYPE}"),
            ({"dtype": "real"}, "dtype is 'real'"),
        ],
        non_differentiable=0,
        output_dtype="float32",
    ),
    "image.euclidean_distance_transform (bool)": sample(image.euclidean_distance_transform, _MASK),
    "image.euclidean_distance_transform (one plane)": sample(image.euclidean_distance_transform, _VALUES[0]),
    "image.connected_components": sample(
        image.connected_components,
        _VALUES,
        variants=[
            *({"images": tf.cast(_VALUES, dtype)} for dtype in ("int8", "uint16", "int64")),
            {"images": _LARGE, "connectivity": 8},
            {"images": _spiral()},
            {"images": tf.stack([_spiral()[::-1, ::-1], 1 - _spiral()]), "connectivity": 8},
        ],
        bad=[
            _TOO_FEW_DIMS,
            ({"images": tf.zeros([5, 7])}, "images are float32, expected bool or an integer"),
            *(({"connectivity": x}, f"connectivity is {x!r}, expected 4 or 8") for x in (6, True, "4", None)),
        ],
    ),
    "image.connected_components (8 neighbors)": sample(image.connected_components, _MASK, kwargs={"connectivity": 8}),
    "image.connected_components (one plane)": sample(image.connected_components, _VALUES[0]),
}
