"""Samples of deform_conv2d. Places are away from whole pixels; 16-bit numbers hold them."""

import tensorflow as tf
from sample_testing import RNG, normal, sample, seed

from tensorflow_ops import nn

seed("nn.deform_conv2d")
_DEFORMED, _OFFSETS = normal(2, 5, 4, 4), tf.constant(RNG.uniform(0.2, 0.8, [2, 5, 4, 24]).round(2), tf.float32)
_TAP_MASK, _CONV_FILTERS, _CONV_BIAS = normal(2, 5, 4, 12), normal(3, 2, 2, 6), normal(6)
_NO_OPTIONS = {"mask": None, "bias": None}


def _offsets(height, width, scale=2.0):
    """Returns offsets in two groups, far outside of the image too."""
    return tf.constant(RNG.normal(size=[2, height, width, 24]) * scale, tf.float32)


SAMPLES = {
    "nn.deform_conv2d": sample(
        nn.deform_conv2d,
        _DEFORMED,
        _OFFSETS,
        _CONV_FILTERS,
        kwargs={"mask": _TAP_MASK, "bias": _CONV_BIAS, "padding": "SAME"},
        variants=[
            {"padding": "VALID", "offsets": _offsets(3, 3), "mask": _TAP_MASK[:, :3, :3]},
            {"padding": ((1, 0), (2, 3)), "offsets": _offsets(4, 8), **_NO_OPTIONS},
            {"padding": ((0, 3), (1, 0)), "offsets": _offsets(3, 2), "mask": None, "strides": (2, 3)},
            {"strides": (2, 3), "offsets": _offsets(3, 2), "mask": None},
            {"dilations": (2, 1), "offsets": tf.round(_offsets(5, 4)), "bias": None},
            {"dilations": (1, 2), "padding": ((0, 0), (0, 0)), "offsets": _offsets(3, 2), **_NO_OPTIONS},
            {"filters": normal(3, 2, 4, 6), "offsets": _OFFSETS[..., :12], "mask": _TAP_MASK[..., :6]},
            {"filters": normal(3, 2, 1, 8), "offsets": _offsets(5, 4, 9.0), **_NO_OPTIONS},
            {
                **{"features": tf.transpose(_DEFORMED, [0, 3, 1, 2]), "offsets": tf.transpose(_OFFSETS, [0, 3, 1, 2])},
                **{"mask": tf.transpose(_TAP_MASK, [0, 3, 1, 2]), "data_format": "NCHW"},
            },
        ],
        edge=[{"features": _DEFORMED[:0], "offsets": _OFFSETS[:0], "mask": _TAP_MASK[:0]}],
        bad=[
            ({"features": _DEFORMED[..., :3]}, "expected a multiple of 2 channels"),
            ({"filters": normal(3, 2, 2, 5)}, "filters are .*, expected a multiple of 2 output channels"),
            ({"filters": normal(3, 2, 6)}, "filters are|filters must be"),
            ({"filters": normal(3, 0, 2, 6)}, "filters must be .*all at least 1"),
            ({"offsets": _OFFSETS[..., :9]}, "offsets are .*expected"),
            ({"offsets": _OFFSETS[:, :4]}, r"offsets are \[2,4,4,24\], expected \[2,5,4,G \* 12\]"),
            ({"offsets": tf.tile(_OFFSETS[..., :12], [1, 1, 1, 3])}, "offsets are .* with G dividing the 4 channels"),
            ({"mask": _TAP_MASK[..., :6]}, r"mask is \[2,5,4,6\], expected \[2,5,4,12\]"),
            ({"bias": normal(5)}, "bias must"),
            ({"strides": 0}, r"strides is 0, expected an int in \[1, 2147483647\]"),
            ({"dilations": (1, 2, 3)}, r"dilations is \(1, 2, 3\), expected an int or"),
            ({"padding": "same"}, "padding is 'same', expected one of 'VALID', 'SAME'"),
            ({"padding": ((1, 1), (1, -1))}, r"padding is -1, expected an int in \[0, 2147483647\]"),
            ({"data_format": "NWHC"}, "data_format is 'NWHC'"),
        ],
        finite=["mask"],
        second_order=False,
        forward_mode=False,
        onnx=("DeformConv", 19),
    ),
}
