"""Samples of grid_sample and warps. Places, in pixels, are away from whole ones, where gradients have kinks."""

import functools

import numpy as np
import tensorflow as tf
from sample_testing import RNG, normal, sample, seed

from tensorflow_ops import image
from tensorflow_ops.image.python.ops.warps import FILL_MODES

seed("image.grid_sample")
_FEATURES = normal(2, 4, 5, 3)
_NCHW = tf.transpose(_FEATURES, [0, 3, 1, 2])
_PLACES = tf.constant(RNG.integers(-1, 5, [2, 3, 2]) + RNG.uniform(0.25, 0.75, [2, 3, 2]), tf.float32)
# Whole and half pixels and between them, also far outside.
_HALVES = tf.constant(np.round(RNG.uniform(-4, 8, [2, 40, 2]) * 4) / 4, tf.float32)
# Runtimes may take denormals for 0.
_BESIDE_HALVES = tf.math.nextafter(_HALVES + 1e-20, tf.constant([-99.0, 99.0]))
_LONG = {"images": tf.random.stateless_uniform([1, 1, 2**23 + 16, 1], [1, 2])}
_LONG["coordinates"] = tf.constant([[[0, 2.0**23 + x] for x in range(-3, 24)]])  # inside and outside, whole
_FAR = tf.constant([[[1e9, 0], [-1e20, 1e20], [np.inf, -np.inf], [-1, 1], [0.3, -0.2]]] * 2, tf.float32)
_NORMALIZED = {"normalized": True, "grid": tf.constant(RNG.uniform(-1.5, 1.5, [2, 40, 2]), tf.float32)}
_BAD_FEATURES = [
    ({"features": tf.cast(_FEATURES, tf.int32)}, "features are int32"),
    ({"features": _FEATURES[:, :0]}, r"features are \[2,0,5,3\], expected height and width in \[1, 1073741824\]"),
    ({"features": _FEATURES[0]}, "features must be 4-D"),
]
_MODES = [(mode, padding) for mode in ("bilinear", "nearest", "bicubic") for padding in ("border", "reflection")]


_LONG_IN_ONNX = "it has no sides beyond 2^23"
_FAR_IN_ONNX = "it reflects and wraps places of 1e9 otherwise"
# 16 bits round places.
_OF_PLACES = {"fixed_dtype": 1, "onnx": ("GridSample", 16)}
SAMPLES = {
    "image.grid_sample": sample(
        image.grid_sample,
        _FEATURES,
        _PLACES,
        kwargs={"normalized": False},
        variants=[
            *({"mode": mode, "padding_mode": x, **_NORMALIZED} for mode, x in _MODES),
            *({"mode": mode, **_NORMALIZED} for mode in ("nearest", "bicubic")),
            {"grid": _HALVES, "padding_mode": "reflection", "align_corners": True},
            {"grid": _HALVES, "mode": "bicubic", "padding_mode": "border", "data_format": "NCHW", "features": _NCHW},
            {"grid": _HALVES, "mode": "nearest", "align_corners": True},
            {"grid": _HALVES, "mode": "nearest", "padding_mode": "reflection", "onnx": None},
            {"grid": _FAR, "normalized": True, "align_corners": True},
            {"grid": _FAR, "padding_mode": "border", "mode": "bicubic"},
            {"features": _FEATURES[:, :1], "grid": _HALVES[:, :6], "align_corners": True},
            {"features": _FEATURES[:, :, :1], "padding_mode": "reflection", "align_corners": True},
            {"grid": tf.reshape(_HALVES, [2, 5, 8, 2]), "padding_mode": "border"},
            {"grid": tf.reshape(_HALVES, [2, 5, 4, 2, 2])},
        ],
        bad=[
            ({"grid": tf.tile(_PLACES, [2, 1, 1])}, "grid must be .* with features' N"),
            ({"grid": _PLACES[..., :1]}, r"grid must be \[N, d1, ..., dk, 2\]"),
            ({"grid": _PLACES[:, 0]}, r"grid must be \[N, d1, ..., dk, 2\]"),
            ({"grid": tf.cast(_PLACES, tf.int32)}, "grid are int32, expected float32"),
            *_BAD_FEATURES,
            ({"features": tf.zeros([2, 2**16, 2**15, 0])}, r"features are .*, expected height \* width below 2\^31"),
            ({"features": _NCHW[0], "data_format": "NCHW"}, r"features must be \[N, C, H, W\]"),
            ({"mode": "cubic"}, "mode is 'cubic', expected one of 'bilinear'"),
            ({"padding_mode": "wrap"}, "padding_mode is 'wrap'"),
            ({"data_format": "CHWN"}, "data_format is 'CHWN'"),
            ({"normalized": 1}, "normalized is 1, expected True or False"),
        ],
        **_OF_PLACES,
    ),
    "image.grid_sample (bicubic)": sample(
        image.grid_sample,
        _FEATURES / 4,
        _PLACES,
        kwargs={"normalized": False, "mode": "bicubic", "padding_mode": "reflection"},
        **_OF_PLACES,
    ),
    "image.dense_image_warp": sample(
        image.dense_image_warp,
        normal(2, 4, 5, 3),
        tf.constant(RNG.integers(-2, 2, [2, 4, 5, 2]) + RNG.uniform(0.25, 0.75, [2, 4, 5, 2]), tf.float32),
        bad=[
            ({"images": tf.zeros([5, 6, 3])}, "images must be 4-D"),
            ({"images": tf.zeros([2, 0, 5, 3])}, r"images are \[2,0,5,3\], expected height and width"),
            *(
                ({"flow": tf.zeros(shape)}, r"flow must be \[N, H, W, 2\] with images' N, H and W")
                for shape in ([2, 4, 5, 3], [2, 4, 2], [1, 4, 5, 2], [2, 2, 5, 2], [2, 4, 3, 2])
            ),
        ],
        **_OF_PLACES,
    ),
    "image.map_coordinates": sample(
        image.map_coordinates,
        _FEATURES,
        _PLACES,
        kwargs={"fill_mode": "grid-constant", "fill_value": 0.7},
        variants=[
            *({"coordinates": _HALVES, "fill_mode": mode, "order": order} for mode in FILL_MODES for order in (0, 1)),
            *({"coordinates": _BESIDE_HALVES, "fill_mode": mode, "order": 0} for mode in FILL_MODES),
            *(
                {**_LONG, "fill_mode": mode, "onnx": _LONG_IN_ONNX}
                for mode in ("reflect", "mirror", "wrap", "grid-wrap")
            ),
            *({"coordinates": _FAR, "fill_mode": mode} for mode in FILL_MODES[:3]),
            *({"coordinates": _FAR, "fill_mode": mode, "onnx": _FAR_IN_ONNX} for mode in FILL_MODES[3:]),
            *({"images": _FEATURES[:, :1], "coordinates": _HALVES, "fill_mode": mode} for mode in FILL_MODES),
            {"coordinates": _HALVES, "fill_value": float("nan"), "order": 0},
            {"coordinates": tf.reshape(_HALVES, [2, 5, 4, 2, 2])},
        ],
        bad=[
            ({"images": tf.zeros([4, 5, 3])}, "images must be 4-D"),
            ({"images": tf.zeros([2, 4, 5, 6, 3]), "coordinates": tf.zeros([2, 7, 3])}, "images must be 4-D"),
            ({"images": tf.cast(_FEATURES, tf.uint8)}, "images are uint8, expected float16"),
            ({"images": _FEATURES[:, :0]}, r"images are \[2,0,5,3\], expected height and width in \[1, 1073741824\]"),
            ({"coordinates": _PLACES[..., :1]}, r"coordinates must be \[N, d1, ..., dk, 2\] with images' N"),
            ({"coordinates": _PLACES[:1]}, r"coordinates must be \[N, d1, ..., dk, 2\] with images' N"),
            *(({"order": order}, f"order is {order!r}, expected 0 or 1") for order in (2, True, "linear", None)),
            ({"fill_mode": "zeros"}, "fill_mode is 'zeros', expected one of 'constant'"),
            *(({"fill_value": x}, "fill_value is .*, expected a number") for x in ("a", None, True, 1e300)),
        ],
        fixed_dtype=1,
    ),
    "image.map_coordinates (reflect)": sample(
        image.map_coordinates,
        _FEATURES,
        _PLACES,
        kwargs={"fill_mode": "reflect"},
        **_OF_PLACES,
    ),
    "image.elastic_transform": sample(
        functools.partial(image.elastic_transform, seed=[3, 4]),
        normal(2, 4, 5, 3),
        kwargs={"alpha": 4.0, "sigma": 1.5},
        variants=[{"order": 0, "fill_mode": "grid-constant", "fill_value": 2.0}, {"sigma": 300.0}],
        bad=[
            ({"images": tf.zeros([5, 3])}, r"(images has|the shape of images).*: \[B, H, W, C\] or \[H, W, C\]"),
            ({"images": tf.zeros([1, 0, 5, 3])}, r"images are \[1,0,5,3\], expected height and width"),
            ({"seed": [1, 2, 3]}, r"seed has shape \[3\], expected \[2\]: two integers"),
            ({"seed": [1.0, 2.0]}, "seed is float32, expected two integers"),
            ({"alpha": float("inf")}, "alpha is inf, expected a finite number"),
            *(({"sigma": x}, "sigma is .*, expected a finite number above 0") for x in (0.0, -1.0, "a")),
            ({"order": 3}, "order is 3, expected 0 or 1"),
        ],
        onnx="ONNX draws other random numbers",
    ),
}
