"""Samples of depthwise_conv2d."""

import tensorflow as tf
from sample_testing import normal, sample, seed

from tensorflow_ops import nn

seed("nn.depthwise_conv2d")
_IMAGES, _FILTER = normal(2, 6, 5, 4), normal(3, 2, 4, 1)

SAMPLES = {
    "nn.depthwise_conv2d": sample(
        nn.depthwise_conv2d,
        _IMAGES,
        _FILTER,
        kwargs={"strides": [1, 1, 1, 1], "padding": "SAME"},
        variants=[
            {"filter": normal(3, 3, 4, 1), "strides": [1, 2, 2, 1]},
            {"filter": normal(5, 3, 4, 2), "padding": "VALID"},
            {"padding": [[0, 0], [2, 1], [0, 3], [0, 0]], "strides": [1, 2, 2, 1]},
            {"strides": [1, 2, 1, 1]},
            {"dilations": [2, 1], "padding": "VALID"},
            {"dilations": [1, 2], "strides": [1, 3, 2, 1]},
            {"dilations": [2, 2], "strides": [1, 1, 2, 1], "padding": [[0, 0], [2, 1], [1, 2], [0, 0]]},
            {"input": tf.transpose(_IMAGES, [0, 3, 1, 2]), "data_format": "NCHW", "strides": [1, 1, 2, 1]},
        ],
        edge=[{"input": _IMAGES[:0]}],
        bad=[
            ({"input": _IMAGES[..., :3]}, "filter (must be|has shape|is) .*input's channels"),
            ({"input": _IMAGES[0]}, r"input (has shape|is) \[6,5,4\], expected \[\?,\?,\?,\?\]: \[N, H, W, C\]"),
            ({"filter": normal(3, 2, 4)}, r"filter (has shape|is) .*: \[kh, kw, C, M\]"),
            ({"filter": normal(3, 0, 4, 1)}, "filter must be .*all at least 1"),
            ({"filter": normal(3, 9, 4, 1), "padding": "VALID"}, "input must be at least as large as the filter"),
            ({"strides": [1, 0, 1, 1]}, r"strides is 0, expected an int in \[1, 2147483647\]"),
            ({"strides": [2, 1, 1, 1]}, "strides is .*, expected 1 for the batch and the channels"),
            ({"strides": 1}, "strides is 1, expected one of each of the 4 dims"),
            ({"dilations": 2}, r"dilations is 2, expected \(vertical, horizontal\)"),
            ({"dilations": [0, 1]}, r"dilations is 0, expected an int in \[1, 2147483647\]"),
            ({"padding": "same"}, "padding is 'same', expected one of 'VALID', 'SAME'"),
            ({"padding": [[0, 0], [1, -1], [0, 0], [0, 0]]}, r"padding is -1, expected an int in \[0, 2147483647\]"),
            ({"padding": [[0, 0], [1], [0, 0], [0, 0]]}, "expected two numbers for each dim"),
            ({"padding": [[0, 0], [1, 1], [1, 1], [1, 0]]}, r"expected \[0, 0\] for the batch and the channels"),
            ({"data_format": "NWHC"}, "data_format is 'NWHC'"),
        ],
        finite=["input", "filter"],
        second_order=True,
        onnx=("Conv", 13),
    ),
}
