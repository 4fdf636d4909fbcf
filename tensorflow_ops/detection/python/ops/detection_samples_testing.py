"""Samples of tfo.detection."""

import numpy as np
import tensorflow as tf
from sample_testing import IN_ANOTHER_SAMPLE, RNG, ROW_DTYPES, sample, seed, without_gradient

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
_INF, _NAN = np.inf, np.nan
# Inverted, empty and not finite; outside, and as large as they get.
_MALFORMED = [[3, 2, 1, 4], [1, 3, 3, 2], [1, 1, 1, 1], [1, 1, _NAN, 5], [1, 1, _INF, 5], [-_INF, 1, 4, 5]]
_MALFORMED_BOXES = tf.constant([*_MALFORMED, [_INF, 1, _INF, 2]])
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
            {"boxes": _MALFORMED_BOXES},
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
        **options,
    )


_BAD_SCALE = [
    ({"spatial_scale": n}, f"spatial_scale is .*, {_POSITIVE}")
    for n in (0.0, -1.0, _NAN, _INF, 1e60, 1e-60, 1e-45, "1")
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
    *(((a, b), "positive, finite numbers") for a, b in ((8, 4), (4, 4), (0, 4), (-4, 4), (4, _INF), ("4", "8"))),
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
            {"boxes": _MALFORMED_BOXES, "output_size": (3, 1)},
            {"features": tf.transpose(MAP, [0, 3, 1, 2]), "data_format": "NCHW"},
        ],
        edge=[{"boxes": tf.zeros([0, 4]), "box_indices": tf.zeros([0], tf.int32)}],
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
                for n in (0, -1.0, _NAN, _INF, "224")
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

# Overlaps are float32 for 16-bit boxes. Corners differ by at least 1/16, so that small steps leave their order; 16-bit
# numbers hold them.
SOME_BOXES = tf.constant([[1, 2, 6, 5], [3, 0, 8, 7], [0.5, 3, 2.5, 9]], tf.float32)
MORE_BOXES = tf.constant([[2, 1, 7, 6], [1.5, 4, 9, 8], [4, 2.5, 5, 3.5]], tf.float32)
# Twice as wide as high: the gradient of CIoU keeps its weight of aspect ratios constant, which a numeric one cannot.
_WIDE_BOXES = tf.constant([[1, 2, 6, 4.5], [3, 0, 8, 2.5], [0.5, 3.125, 2.5, 4.125]], tf.float32)
_MORE_WIDE_BOXES = tf.constant([[2, 1, 7, 3.5], [1.5, 4, 9.5, 8], [4, 2.25, 5, 2.75]], tf.float32)
_ROTATED = tf.constant([[2, 3, 4, 2, 30], [1, 2, 3, 5, -70]], tf.float32)
# Of right angles; equal; turned by a quarter; without area; not finite.
_MORE_ROTATED = tf.constant(
    [
        *([2, 3, 4, 2, angle] for angle in (0, 90, 180, -90, 360, 45, 120)),
        *([2, 3, 0, 2, 0], [2, 3, 4, -1, 0], [_NAN, 3, 4, 2, 0], [2, 3, 4, 2, _INF], [2, 3, 0.001, 2, 30]),
    ],
    tf.float32,
)
# Of other sizes; malformed.
_SIZES = tf.concat([SOME_BOXES, 1e-3 * SOME_BOXES, [1e-2, 1e2, 1e-2, 1e2] * SOME_BOXES, _MALFORMED_BOXES], 0)


def _overlap(fn, mode, **options):
    boxes = (_WIDE_BOXES, _MORE_WIDE_BOXES) if mode == "ciou" else (SOME_BOXES, MORE_BOXES)
    return sample(
        fn,
        *boxes,
        kwargs={"mode": mode},
        variants=[
            {"boxes1": _SIZES, "boxes2": _SIZES[::-1], "box_format": "xywh"},
            {"boxes1": tf.stack(boxes)[:, tf.newaxis], "boxes2": tf.stack(boxes[::-1])[:, tf.newaxis]},
        ],
        edge=[{"boxes1": SOME_BOXES[:0], "boxes2": MORE_BOXES[:0]}],
        bad=[
            ({"boxes2": MORE_BOXES[:, :3]}, r"boxes2 must be \[.*4\]"),
            ({"boxes1": SOME_BOXES[:, :3]}, r"boxes1 must be \[.*4\]"),
            ({"boxes1": SOME_BOXES[0, 0]}, r"boxes1 must be \[.*4\]"),
            ({"mode": "IoU"}, "mode is 'IoU', expected one of 'iou', 'giou', 'diou', 'ciou'"),
            ({"box_format": "XYXY"}, "box_format is 'XYXY', expected one of 'xyxy', 'yxyx'"),
            *(
                ({"mode": x, "box_format": "rel_xyxy"}, f"mode is '{x}', expected 'iou' or 'giou': .* in pixels")
                for x in ("diou", "ciou")
            ),
        ],
        output_dtype=ROW_DTYPES,
        second_order=False,
        **options,
    )


SAMPLES |= {
    f"detection.{fn.__name__} ({mode})": _overlap(fn, mode)
    for fn, modes in ((detection.box_iou, ("iou", "ciou")), (detection.box_iou_loss, ("giou", "diou")))
    for mode in modes
}
SAMPLES["detection.box_iou (rotated)"] = sample(
    without_gradient(detection.box_iou),
    _ROTATED,
    _ROTATED[:1] + 1,
    kwargs={"box_format": "cxcywhr"},
    variants=[{"boxes1": _MORE_ROTATED, "boxes2": _MORE_ROTATED}],
    bad=[({"mode": "giou"}, "mode is 'giou', expected 'iou': box_format is 'cxcywhr'")],
    output_dtype=ROW_DTYPES,
    non_differentiable=(0, 1),
)

# Suppression: 16-bit numbers hold these boxes and scores, and no IoU is near a threshold.

seed("detection.nms")
_RIVALS = tf.constant([[0, 0, 8, 8], [1, 0, 9, 8], [16, 16, 24, 24], [0, 1, 8, 8], [17, 17, 25, 26]], tf.float32)
_RIVAL_SCORES = tf.constant([0.5, 0.75, 0.25, 0.625, 0.375])
_GROUPS = tf.constant([3, -1, 3, 3, -1])
# Many boxes, some malformed, with equal scores and some that are not finite.
_MOVES = [np.float32([x, y, x, y]) for x, y in RNG.integers(0, 5, [4, 2])]
_CROWD = tf.concat([_MALFORMED_BOXES, *(_RIVALS + move for move in _MOVES)], 0)
_CROWD_SCORES = np.round(RNG.uniform(0, 1, [27]), 1).astype(np.float32)
_CROWD_SCORES[[3, 11, 19, 25]] = _NAN, _INF, -_INF, -0.5
_CROWD_OF_ROTATED = tf.constant(
    np.concatenate([RNG.uniform([0, 0, 2, 2, -90], [9, 9, 6, 6, 90], [25, 5]), _MORE_ROTATED[-3:-1]]), tf.float32
)
_SUPPRESSION = {"vectorize": False, "xla": False, "data_dependent_shapes": True}
_OF_CROWD = {"boxes": _CROWD, "scores": tf.constant(_CROWD_SCORES)}
_SUPPRESSED = [
    _OF_CROWD,
    {**_OF_CROWD, "iou_threshold": 0.0, "score_threshold": 0.3, "box_format": "yxyx"},
    {**_OF_CROWD, "iou_threshold": 1.0, "score_threshold": -_INF, "max_outputs": 9},
    {"max_outputs": 0, "score_threshold": 0.3},
    {**_OF_CROWD, "boxes": _CROWD_OF_ROTATED, "box_format": "cxcywhr", "onnx": None},
]
_BAD_THRESHOLDS = [
    ({"iou_threshold": 1.5}, r"iou_threshold is 1.5, expected a number in \[0, 1\]"),
    ({"iou_threshold": _NAN}, "iou_threshold is nan"),
    ({"iou_threshold": "a"}, "iou_threshold is 'a'"),
    ({"score_threshold": _NAN}, "score_threshold is nan, expected None or a number below infinity"),
    ({"score_threshold": _INF}, "score_threshold is inf, expected None or a number below infinity"),
    ({"max_outputs": -1}, r"max_outputs is -1, expected an int in \[0, 2147483647\]"),
    ({"max_outputs": 2**31}, r"max_outputs is 2147483648, expected an int in \[0, 2147483647\]"),
    ({"box_format": "XYXY"}, "box_format is 'XYXY', expected one of 'xyxy', 'yxyx', .*'cxcywhr'"),
]
_NO_RIVALS = {"boxes": _RIVALS[:0], "scores": _RIVAL_SCORES[:0]}
_IMAGES = tf.stack([_RIVALS, _RIVALS[::-1]])
_BAD_IMAGES = {"boxes": _IMAGES}, r"boxes must be \[K, 4\](, got \[2,5,4\]: nms and multiclass_nms take|.*\[2,5,4\])"
_CLASS_SCORES = tf.constant(RNG.permutation(30).reshape(2, 5, 3) / 32, tf.float32)
_CROWDED_IMAGES = {
    "boxes": tf.stack([_CROWD, _CROWD[::-1]]),
    "scores": tf.stack([tf.stack([scores, scores[::-1], tf.fill([27], 0.5)], 1) for scores in [_CROWD_SCORES] * 2]),
}
SAMPLES |= {
    "detection.nms": sample(
        detection.nms,
        _RIVALS,
        _RIVAL_SCORES,
        kwargs={"iou_threshold": 0.4},
        variants=_SUPPRESSED,
        edge=[_NO_RIVALS],
        bad=[
            ({"boxes": _RIVALS[:, :3]}, "boxes must be"),
            ({"scores": _RIVAL_SCORES[:2]}, "scores must be"),
            ({"boxes": _IMAGES, "scores": _CLASS_SCORES[:, :4, 0]}, r"scores are \[2,4\], expected \[2,5\]|must be"),
            *_BAD_THRESHOLDS,
        ],
        non_differentiable=(0, 1),
        onnx=("NonMaxSuppression", 13),
        **_SUPPRESSION,
    ),
    "detection.batched_nms": sample(
        detection.batched_nms,
        _RIVALS,
        _RIVAL_SCORES,
        _GROUPS,
        kwargs={"iou_threshold": 0.4},
        variants=[{**variant, "group_ids": tf.range(27) % 2 - 1} for variant in _SUPPRESSED if "boxes" in variant],
        edge=[{**_NO_RIVALS, "group_ids": _GROUPS[:0]}],
        bad=[
            _BAD_IMAGES,
            ({"group_ids": _GROUPS[:2]}, "group_ids must be"),
            ({"group_ids": _RIVAL_SCORES}, "group_ids are float32, expected int32 or int64"),
            *_BAD_THRESHOLDS,
        ],
        non_differentiable=(0, 1),
        **_SUPPRESSION,
    ),
    "detection.soft_nms": sample(
        detection.soft_nms,
        _RIVALS,
        _RIVAL_SCORES,
        variants=[*_SUPPRESSED, {"method": "linear", "iou_threshold": 0.4, **_OF_CROWD}, {"sigma": 0.1, **_OF_CROWD}],
        edge=[_NO_RIVALS],
        bad=[
            _BAD_IMAGES,
            ({"scores": _RIVAL_SCORES[:2]}, "scores must be"),
            ({"method": "hard"}, "method is 'hard', expected one of 'gaussian', 'linear'"),
            ({"sigma": 1e-45}, "sigma is 1e-45, expected a finite number, at least 1.18e-38"),
            ({"sigma": _INF}, "sigma is inf"),
            *_BAD_THRESHOLDS,
        ],
        output_dtype=ROW_DTYPES,
        non_differentiable=(0, 1),
        **_SUPPRESSION,
    ),
    "detection.multiclass_nms": sample(
        detection.multiclass_nms,
        _IMAGES,
        _CLASS_SCORES,
        kwargs={"iou_threshold": 0.4, "max_outputs": 7},
        variants=[
            {**_CROWDED_IMAGES, "box_format": "xywh"},
            {**_CROWDED_IMAGES, "max_outputs_per_class": 2, "score_threshold": 0.3},
            {**_CROWDED_IMAGES, "max_outputs": 1000, "score_threshold": None, "iou_threshold": 1.0},
            {"max_outputs": 0},
            {"boxes": tf.stack([_IMAGES, _IMAGES + 1, _IMAGES[:, ::-1]], 2), "onnx": None},
        ],
        edge=[
            {"boxes": tf.zeros([0, 5, 4]), "scores": tf.zeros([0, 5, 3])},
            {"boxes": tf.zeros([2, 0, 4]), "scores": tf.zeros([2, 0, 3])},
        ],
        bad=[
            ({"boxes": _IMAGES[..., :3]}, "boxes must be"),
            ({"boxes": _IMAGES[0]}, "boxes must be"),
            ({"boxes": tf.stack([_IMAGES] * 2, 2)}, "boxes must be"),
            ({"scores": _CLASS_SCORES[:, :3]}, "boxes must be"),
            ({"scores": _CLASS_SCORES[0]}, r"scores must be \[N, K, C\]"),
            ({"max_outputs": None}, "max_outputs is None"),
            ({"max_outputs_per_class": 0.5}, "max_outputs_per_class is 0.5"),
            *_BAD_THRESHOLDS,
        ],
        second_order=True,
        unknown_rank=False,
        onnx=("NonMaxSuppression", 14),
    ),
}

_COSTS = tf.constant(np.random.default_rng(1).permutation(40).reshape(2, 5, 4) / 8, tf.float32)
SAMPLES |= {
    "detection.linear_sum_assignment": sample(
        detection.linear_sum_assignment,
        _COSTS,
        kwargs={"counts": tf.constant([4, 2])},
        edge=[
            {"costs": _COSTS[:0], "counts": tf.zeros([0], tf.int32)},
            {"costs": _COSTS[:, :0], "counts": tf.constant([4, 2])},
            {"costs": _COSTS[..., :0], "counts": tf.constant([0, 0])},
        ],
        bad=[
            ({"costs": _COSTS[0, 0]}, r"costs must be \[.., rows, columns\]"),
            ({"counts": tf.constant([4])}, r"counts must be of the leading dims of costs \[2,5,4\]"),
            ({"counts": tf.constant([4.0, 2.0])}, "counts are float32, expected int64"),
            ({"counts": tf.constant([4, 5])}, r"counts\[1\] is 5, expected \[0, 4\]: the columns of costs"),
            ({"costs": _COSTS > 1}, "costs are bool, expected float16, bfloat16, float32, float64 or an integer dtype"),
            ({"maximize": 1}, "maximize is 1, expected True or False"),
        ],
        non_differentiable=(0,),
    ),
}
