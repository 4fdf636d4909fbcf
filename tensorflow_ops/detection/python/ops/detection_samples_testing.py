"""Samples of tfo.detection for opcheck."""

import keras
import numpy as np
import tensorflow as tf
from sample_testing import IN_ANOTHER_SAMPLE, RNG, ROW_DTYPES, bind, sample

from tensorflow_ops import detection

# Feature values differ by at least 1/8, so that small steps change no maximum.


def features_of(*shape):
    size = int(np.prod(shape))
    return tf.constant((RNG.permutation(size) - size // 2).reshape(shape) / 8, tf.float32)


# Random boxes: corners, bins and samples are away from pixels' edges and centres, where gradients have kinks.
_CORNERS = RNG.uniform(0.1, 2.4, [7, 2])
BOXES = tf.constant(np.concatenate([_CORNERS, _CORNERS + RNG.uniform(1.1, 2.9, [7, 2])], 1), tf.float32)
BOX_INDICES = tf.constant([0, 1, 1, 0, 1, 0, 1])
_NO_BOXES = (tf.zeros([0, 4]), tf.zeros([0], tf.int32))


def _pool(fn, features, output_size=2, **options):
    bad_index = tf.constant([0, 1, 1, 9, 1, 0, 1])
    return sample(
        fn,
        features,
        BOXES,
        BOX_INDICES,
        output_size,
        edge_args=[(features, *_NO_BOXES, output_size)],
        bad_args=[
            (
                (features, BOXES, bad_index, output_size),
                r"box_indices\[3\] is 9, expected \[0, 2\): features has 2 images",
            ),
            ((features, BOXES[:, :3], BOX_INDICES, output_size), "boxes must be"),
            ((features, BOXES, BOX_INDICES, 0), "output_size is 0"),
        ],
        **options,
    )


MAP, BIN_MAP = features_of(2, 5, 6, 3), features_of(2, 5, 6, 12)
SAMPLES = {
    "detection.roi_pool": _pool(detection.roi_pool, MAP, non_differentiable=1, second_order=True),
    "detection.roi_pool_with_argmax": _pool(detection.roi_pool_with_argmax, MAP, non_differentiable=1),
    "detection.roi_align": _pool(detection.roi_align, MAP, forward_mode=False),
    "detection.roi_align (maximum)": _pool(
        bind(detection.roi_align, sampling_ratio=2, mode="max"),
        MAP,
        dtypes=("float16", "float32", "float64"),  # bfloat16 rounds two samples to the same maximum
        forward_mode=False,
    ),
    "detection.roi_align (NCHW)": _pool(
        bind(detection.roi_align, sampling_ratio=2, aligned=False, data_format="NCHW", box_format="yxyx"),
        tf.transpose(MAP, [0, 3, 1, 2]),
        skip=IN_ANOTHER_SAMPLE,
    ),
    "detection.ps_roi_pool": _pool(detection.ps_roi_pool, BIN_MAP, non_differentiable=1, second_order=True),
    "detection.ps_roi_align": _pool(detection.ps_roi_align, BIN_MAP, forward_mode=False),
    "detection.multiscale_roi_align": _pool(
        bind(detection.multiscale_roi_align, strides=(1, 2), canonical_box_size=40.0),
        [features_of(2, 8, 9, 3), features_of(2, 4, 5, 3)],
        forward_mode=False,
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


def _overlap(fn, mode):
    boxes = (_WIDE_BOXES, _MORE_WIDE_BOXES) if mode == "ciou" else (SOME_BOXES, MORE_BOXES)
    return sample(
        bind(fn, mode=mode),
        *boxes,
        output_dtype=ROW_DTYPES,
        edge_args=[(SOME_BOXES[:0], MORE_BOXES[:0])],
        bad_args=[((SOME_BOXES, MORE_BOXES[:, :3]), r"boxes2 must be \[.*4\]")],
    )


def _rotated_iou(boxes1, boxes2):
    # Its gradient is an error, by design.
    return detection.box_iou(keras.ops.stop_gradient(boxes1), keras.ops.stop_gradient(boxes2), box_format="cxcywhr")


SAMPLES |= {
    **{
        f"detection.{fn.__name__} ({mode})": _overlap(fn, mode)
        for fn, modes in ((detection.box_iou, ("iou", "ciou")), (detection.box_iou_loss, ("giou", "diou")))
        for mode in modes
    },
    "detection.box_iou (rotated)": sample(
        _rotated_iou,
        _ROTATED,
        _ROTATED[:1] + 1,
        output_dtype=ROW_DTYPES,
        non_differentiable=(0, 1),
    ),
}

# Suppression: 16-bit numbers hold these boxes and scores, and no IoU is near a threshold.

_RIVALS = tf.constant([[0, 0, 8, 8], [1, 0, 9, 8], [16, 16, 24, 24], [0, 1, 8, 8], [17, 17, 25, 26]], tf.float32)
_RIVAL_SCORES = tf.constant([0.5, 0.75, 0.25, 0.625, 0.375])
_GROUPS = tf.constant([3, -1, 3, 3, -1])
_SUPPRESSION = {"vectorize": False, "xla": False, "data_dependent_shapes": True}
SAMPLES |= {
    "detection.nms": sample(
        bind(detection.nms, iou_threshold=0.4),
        _RIVALS,
        _RIVAL_SCORES,
        non_differentiable=(0, 1),
        edge_args=[(_RIVALS[:0], _RIVAL_SCORES[:0])],
        bad_args=[((_RIVALS[:, :3], _RIVAL_SCORES), "boxes must be"), ((_RIVALS, _RIVAL_SCORES[:2]), "scores must be")],
        **_SUPPRESSION,
    ),
    "detection.batched_nms": sample(
        bind(detection.batched_nms, iou_threshold=0.4),
        _RIVALS,
        _RIVAL_SCORES,
        _GROUPS,
        non_differentiable=(0, 1),
        edge_args=[(_RIVALS[:0], _RIVAL_SCORES[:0], _GROUPS[:0])],
        bad_args=[((_RIVALS, _RIVAL_SCORES, _GROUPS[:2]), "group_ids must be")],
        **_SUPPRESSION,
    ),
    "detection.soft_nms": sample(
        detection.soft_nms,
        _RIVALS,
        _RIVAL_SCORES,
        output_dtype=ROW_DTYPES,
        non_differentiable=(0, 1),
        edge_args=[(_RIVALS[:0], _RIVAL_SCORES[:0])],
        bad_args=[((_RIVALS, _RIVAL_SCORES[:2]), "scores must be")],
        **_SUPPRESSION,
    ),
    "detection.multiclass_nms": sample(
        bind(detection.multiclass_nms, iou_threshold=0.4, max_outputs=7),
        tf.stack([_RIVALS, _RIVALS[::-1]]),
        tf.constant(RNG.permutation(30).reshape(2, 5, 3) / 32, tf.float32),
        second_order=True,
        unknown_rank=False,
        edge_args=[(tf.zeros([0, 5, 4]), tf.zeros([0, 5, 3])), (tf.zeros([2, 0, 4]), tf.zeros([2, 0, 3]))],
        bad_args=[((tf.zeros([2, 5, 3]), tf.zeros([2, 5, 3])), "boxes must be")],
    ),
}
