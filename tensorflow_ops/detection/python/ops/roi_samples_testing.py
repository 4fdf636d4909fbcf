"""Samples of region pooling."""

import numpy as np
import tensorflow as tf
from boxes_samples_testing import MALFORMED_BOXES
from sample_testing import IN_ANOTHER_SAMPLE, RNG, sample, seed

from tensorflow_ops import detection

seed(__name__)

# Feature values differ by at least 1/8, so that small steps change no maximum.


def features_of(*shape):
    size = int(np.prod(shape))
    return tf.constant((RNG.permutation(size) - size // 2).reshape(shape) / 8, tf.float32)


# Random boxes: corners, bins and samples are away from pixels' edges and centres, where gradients have kinks.
_CORNERS = RNG.uniform(0.1, 2.4, [7, 2])
BOXES = tf.constant(np.concatenate([_CORNERS, _CORNERS + RNG.uniform(1.1, 2.9, [7, 2])], 1), tf.float32)
BOX_INDICES = tf.constant([0, 1, 1, 0, 1, 0, 1])
_FAR_BOXES = tf.constant(
    [[-1e3, -1e3, 1e3, 1e3], [1e30, 1e30, 2e30, 3e30], [-20, -20, -10, -10], [2.5, 2.5, 2.5, 7.5], *[[-1.0] * 4] * 3]
)
# Of the options that all region poolings have.
_POSITIVE = "expected a positive, finite number"
_REGION_BAD = [
    ({"output_size": 0}, "output_size is 0, expected an int"),
    ({"output_size": (2, 0)}, r"output_size is \(2, 0\), expected an int"),
    ({"output_size": (2, 2, 2)}, r"output_size is \(2, 2, 2\), expected an int"),
    ({"output_size": 2.5}, "output_size is 2.5, expected an int"),
    ({"output_size": True}, "output_size is True, expected an int"),
    ({"output_size": 2**32 + 2}, "output_size is 4294967298, expected an int"),
    ({"output_size": tf.constant([2.0, 2.0])}, "output_size is float32, expected integers"),
    ({"output_size": tf.constant([2, 2, 2])}, r"output_size must be \(height, width\).*\[3\]"),
    ({"output_size": tf.constant([0, 2])}, r"output_size is \(0, 2\)"),
    ({"output_size": tf.constant([2, -1])}, r"output_size is \(2, -1\)"),
    ({"output_size": tf.constant([2**20 + 1, 1])}, r"output_size is \(1048577, 1\), .* in \[1, 2\^20\]|multiple of ph"),
    ({"output_size": tf.constant([2**32 + 2, 2])}, r"output_size\[0\] is 4294967298, expected a whole number"),
    ({"data_format": "NHCW"}, "data_format is 'NHCW', expected one of 'NHWC', 'NCHW'"),
    ({"box_format": "XYXY"}, "box_format is 'XYXY', expected one of 'xyxy', 'yxyx'"),
    ({"boxes": BOXES[:, :3]}, r"boxes must be \[K, 4\].*\[7,3\]|boxes must be \[K, 4\]: .*must be 4 but is 3"),
    ({"boxes": BOXES[0]}, r"boxes must be \[K, 4\].*\[4\]|boxes are \[4\]"),
    ({"box_indices": BOX_INDICES[:2]}, r"box_indices must be \[K\] with boxes' K.*\[2\]"),
    ({"box_indices": BOX_INDICES[:, tf.newaxis]}, r"box_indices must be \[K\] with boxes' K.*\[7,1\]"),
    ({"box_indices": tf.zeros([7])}, "box_indices are float32, expected int32 or int64"),
    ({"box_indices": np.ones([7], bool)}, "box_indices are bool, expected int32"),
    ({"box_indices": tf.constant([0, 1, 1, 9, 1, 0, 1])}, r"box_indices\[3\] is 9, expected \[0, 2\)"),
    ({"box_indices": tf.constant([0, 1, 1, -1, 1, 0, 1])}, r"box_indices\[3\] is -1, expected \[0, 2\)"),
    ({"box_indices": tf.constant([0, 1, 1, 2**31 - 1, 1, 0, 1])}, r"box_indices\[3\] is 2147483647, expected"),
]


def _pool(fn, features, variants=(), bad=(), **options):
    maps = tf.nest.flatten(features)
    is_list = isinstance(features, list)

    def changed(change):
        return [*map(change, maps)] if is_list else change(maps[0])

    return sample(
        fn,
        features,
        BOXES,
        BOX_INDICES,
        2,
        variants=[
            {"boxes": MALFORMED_BOXES},
            {"boxes": _FAR_BOXES, "onnx": "its samples of a huge box are rounded differently"},
            {"box_format": "yxyx", "output_size": (3, 1)},
            {"features": changed(lambda x: tf.transpose(x, [0, 3, 1, 2])), "data_format": "NCHW"},
            {"boxes": tf.stack([BOXES, BOXES[::-1]]), "box_indices": None},
            *variants,
        ],
        edge=[{"boxes": tf.zeros([0, 4]), "box_indices": tf.zeros([0], tf.int32)}],
        bad=[
            ({"features": changed(lambda x: x[0])}, "features must be 4-D|must have rank 4"),
            ({"features": changed(lambda x: tf.cast(x, tf.int32))}, "features are int32, expected float16"),
            ({"features": changed(lambda x: x[:0])}, r"box_indices\[0\] is 0, expected \[0, 0\)"),
            *_REGION_BAD,
            *bad,
        ],
        ragged=True,
        **options,
    )


_BAD_SCALE = [
    ({"spatial_scale": n}, f"spatial_scale is .*, {_POSITIVE}")
    for n in (0.0, -1.0, np.nan, np.inf, 1e60, 1e-60, 1e-45, "1")
]


def _scaled(variants=(), bad=()):
    """Returns variants and bad arguments of the functions of one map."""
    return {
        "variants": [{"spatial_scale": 0.7}, {"boxes": BOXES / 6, "normalized": True}, *variants],
        "bad": [*_BAD_SCALE, *bad],
    }


_BAD_RATIO = [
    ({"sampling_ratio": n}, r"sampling_ratio is .*, expected an int in \[0, 1024\]") for n in (-1, 1025, 2.0, "2", None)
]
_BAD_ALIGNED = [({"aligned": x}, "aligned is .*, expected True or False") for x in (1, None)]
_BAD_ORDER = [
    ({"channel_order": "bins"}, "channel_order is 'bins', expected one of 'channel_major', 'bin_major'"),
    ({"output_size": 5}, r"features must have a multiple of ph \* pw channels"),
]
_BAD_STRIDES = [
    ((4, 8, 16), "one for each of the 2 feature maps"),
    ((4,), "one for each of the 2 feature maps"),
    *(((a, b), "positive, finite numbers") for a, b in ((8, 4), (4, 4), (0, 4), (-4, 4), (4, np.inf), ("4", "8"))),
    (tf.constant([4.0, 8.0]), "positive, finite numbers"),
]
MAP, BIN_MAP = features_of(2, 5, 6, 3), features_of(2, 5, 6, 12)
_MAPS = [features_of(2, 8, 9, 3), features_of(2, 4, 5, 3)]
_ONE_BIN = {"output_size": (2, 3), "channel_order": "bin_major"}
SAMPLES = {
    "detection.roi_pool": _pool(
        detection.roi_pool,
        MAP,
        **_scaled(),
        non_differentiable=1,
        second_order=True,
        onnx=("MaxRoiPool", 13),
    ),
    "detection.roi_pool_with_argmax": _pool(detection.roi_pool_with_argmax, MAP, **_scaled(), non_differentiable=1),
    "detection.roi_align": _pool(
        detection.roi_align,
        MAP,
        **_scaled(
            variants=[{"aligned": False, "sampling_ratio": 3}, {"sampling_ratio": 1, "aligned": True}],
            bad=[
                *_BAD_RATIO,
                *_BAD_ALIGNED,
                ({"mode": "mean"}, "mode is 'mean', expected one of 'avg', 'max'"),
                ({"mode": "max"}, r"sampling_ratio is 0, expected an int in \[1, 1024\]: mode='max' takes"),
            ],
        ),
        forward_mode=False,
        onnx=("RoiAlign", 16),
    ),
    "detection.roi_align (maximum)": sample(
        detection.roi_align,
        MAP,
        BOXES,
        BOX_INDICES,
        2,
        kwargs={"sampling_ratio": 2, "mode": "max"},
        variants=[
            {"aligned": False, "sampling_ratio": 3, "box_format": "yxyx", "spatial_scale": 0.7},
            {"boxes": MALFORMED_BOXES, "output_size": (3, 1)},
            {"features": tf.transpose(MAP, [0, 3, 1, 2]), "data_format": "NCHW"},
        ],
        edge=[{"boxes": tf.zeros([0, 4]), "box_indices": tf.zeros([0], tf.int32)}],
        ragged=True,
        dtypes=("float16", "float32", "float64"),  # bfloat16 rounds two samples to the same maximum
        forward_mode=False,
        onnx=("RoiAlign", 16),
    ),
    "detection.roi_align (NCHW)": sample(
        detection.roi_align,
        tf.transpose(MAP, [0, 3, 1, 2]),
        BOXES,
        BOX_INDICES,
        2,
        kwargs={"sampling_ratio": 2, "aligned": False, "data_format": "NCHW", "box_format": "yxyx"},
        ragged=True,
        skip=IN_ANOTHER_SAMPLE,
        onnx=("RoiAlign", 16),
    ),
    "detection.ps_roi_pool": _pool(
        detection.ps_roi_pool,
        BIN_MAP,
        **_scaled(variants=[_ONE_BIN], bad=_BAD_ORDER),
        non_differentiable=1,
        second_order=True,
    ),
    "detection.ps_roi_align": _pool(
        detection.ps_roi_align,
        BIN_MAP,
        **_scaled(variants=[{**_ONE_BIN, "sampling_ratio": 2}], bad=[*_BAD_RATIO, *_BAD_ORDER]),
        forward_mode=False,
    ),
    "detection.multiscale_roi_align": _pool(
        detection.multiscale_roi_align,
        _MAPS,
        kwargs={"strides": (1, 2), "canonical_box_size": 40.0},
        variants=[
            {"canonical_box_size": 1.75, "canonical_stride": 2},
            {"canonical_box_size": 6.0, "canonical_stride": 2, "aligned": False, "sampling_ratio": 0},
            {"features": [*_MAPS, features_of(2, 1, 2, 3)], "strides": (1, 2, 4.0), "canonical_stride": 1},
            {"features": _MAPS[:1], "strides": (2,), "sampling_ratio": 3},
        ],
        bad=[
            *_BAD_RATIO,
            *_BAD_ALIGNED,
            *(
                ({option: n}, f"{option} is .*, {_POSITIVE}")
                for option in ("canonical_box_size", "canonical_stride")
                for n in (0, -1.0, np.nan, np.inf, "224")
            ),
            *(({"strides": strides}, f"strides are .*, expected {text}") for strides, text in _BAD_STRIDES),
            ({"features": [], "strides": ()}, "features has 0 maps, expected a list of 1 to 16 feature maps"),
            ({"features": [MAP] * 17, "strides": range(1, 18)}, "features has 17 maps, expected a list of 1 to 16"),
            ({"features": MAP}, "features is of type .*, expected a list of 1 to 16"),
            ({"features": [MAP, tf.cast(MAP, tf.float64)]}, "features are float32, float64, expected one dtype"),
            ({"features": [_MAPS[0], _MAPS[1][:1]]}, "features must have the same batch size and channels"),
            ({"features": [_MAPS[0], _MAPS[1][..., :2]]}, "features must have the same batch size and channels"),
        ],
        forward_mode=False,
        onnx=("RoiAlign", 16),
    ),
}
