"""Samples of suppression: 16-bit numbers hold these boxes and scores, and no IoU is near a threshold."""

import numpy as np
import tensorflow as tf
from boxes_samples_testing import MALFORMED_BOXES, MORE_ROTATED
from sample_testing import RNG, ROW_DTYPES, sample, seed

from tensorflow_ops import detection

seed("detection.nms")
_INF, _NAN = np.inf, np.nan
_RIVALS = tf.constant([[0, 0, 8, 8], [1, 0, 9, 8], [16, 16, 24, 24], [0, 1, 8, 8], [17, 17, 25, 26]], tf.float32)
_RIVAL_SCORES = tf.constant([0.5, 0.75, 0.25, 0.625, 0.375])
_GROUPS = tf.constant([3, -1, 3, 3, -1])
# Many boxes, some malformed, with equal scores and some that are not finite.
_MOVES = [np.float32([x, y, x, y]) for x, y in RNG.integers(0, 5, [4, 2])]
_CROWD = tf.concat([MALFORMED_BOXES, *(_RIVALS + move for move in _MOVES)], 0)
_CROWD_SCORES = np.round(RNG.uniform(0, 1, [27]), 1).astype(np.float32)
_CROWD_SCORES[[3, 11, 19, 25]] = _NAN, _INF, -_INF, -0.5
_CROWD_OF_ROTATED = tf.constant(
    np.concatenate([RNG.uniform([0, 0, 2, 2, -90], [9, 9, 6, 6, 90], [25, 5]), MORE_ROTATED[-3:-1]]), tf.float32
)
_DISTINCT_SCORES = tf.constant([_NAN, _INF, -_INF, -0.5, *(k * 10 % 23 / 32 for k in range(23))])
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
SAMPLES = {
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
        ragged=True,
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
        ragged=True,
        non_differentiable=(0, 1),
        **_SUPPRESSION,
    ),
    "detection.soft_nms": sample(
        detection.soft_nms,
        _RIVALS,
        _RIVAL_SCORES,
        # Of equal scores, their rounding decides.
        variants=[
            {**variant, "scores": _DISTINCT_SCORES} if "boxes" in variant else variant
            for variant in [
                *_SUPPRESSED,
                {"method": "linear", "iou_threshold": 0.4, **_OF_CROWD},
                {"sigma": 0.1, **_OF_CROWD},
            ]
        ],
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
        ragged=True,
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
