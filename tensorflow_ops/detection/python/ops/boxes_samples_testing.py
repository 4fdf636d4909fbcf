"""Samples of overlaps."""

import numpy as np
import tensorflow as tf
from sample_testing import ROW_DTYPES, sample, without_gradient

from tensorflow_ops import detection

_INF, _NAN = np.inf, np.nan
# Inverted, empty and not finite; outside, and as large as they get.
_MALFORMED = [[3, 2, 1, 4], [1, 3, 3, 2], [1, 1, 1, 1], [1, 1, _NAN, 5], [1, 1, _INF, 5], [-_INF, 1, 4, 5]]
MALFORMED_BOXES = tf.constant([*_MALFORMED, [_INF, 1, _INF, 2]])
# Overlaps are float32 for 16-bit boxes. Corners differ by at least 1/16, so that small steps leave their order; 16-bit
# numbers hold them.
SOME_BOXES = tf.constant([[1, 2, 6, 5], [3, 0, 8, 7], [0.5, 3, 2.5, 9]], tf.float32)
MORE_BOXES = tf.constant([[2, 1, 7, 6], [1.5, 4, 9, 8], [4, 2.5, 5, 3.5]], tf.float32)
# Twice as wide as high: the gradient of CIoU keeps its weight of aspect ratios constant, which a numeric one cannot.
_WIDE_BOXES = tf.constant([[1, 2, 6, 4.5], [3, 0, 8, 2.5], [0.5, 3.125, 2.5, 4.125]], tf.float32)
_MORE_WIDE_BOXES = tf.constant([[2, 1, 7, 3.5], [1.5, 4, 9.5, 8], [4, 2.25, 5, 2.75]], tf.float32)
_ROTATED = tf.constant([[2, 3, 4, 2, 30], [1, 2, 3, 5, -70]], tf.float32)
# Of right angles; equal; turned by a quarter; without area; not finite.
MORE_ROTATED = tf.constant(
    [
        *([2, 3, 4, 2, angle] for angle in (0, 90, 180, -90, 360, 45, 120)),
        *([2, 3, 0, 2, 0], [2, 3, 4, -1, 0], [_NAN, 3, 4, 2, 0], [2, 3, 4, 2, _INF], [2, 3, 0.001, 2, 30]),
    ],
    tf.float32,
)
# Of other sizes; malformed.
_SIZES = tf.concat([SOME_BOXES, 1e-3 * SOME_BOXES, [1e-2, 1e2, 1e-2, 1e2] * SOME_BOXES, MALFORMED_BOXES], 0)


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
        ragged=fn is detection.box_iou_loss,
        output_dtype=ROW_DTYPES,
        second_order=False,
        **options,
    )


SAMPLES = {
    f"detection.{fn.__name__} ({mode})": _overlap(fn, mode)
    for fn, modes in ((detection.box_iou, ("iou", "ciou")), (detection.box_iou_loss, ("giou", "diou")))
    for mode in modes
}
SAMPLES["detection.box_iou (rotated)"] = sample(
    without_gradient(detection.box_iou),
    _ROTATED,
    _ROTATED[:1] + 1,
    kwargs={"box_format": "cxcywhr"},
    variants=[{"boxes1": MORE_ROTATED, "boxes2": MORE_ROTATED}],
    bad=[({"mode": "giou"}, "mode is 'giou', expected 'iou': box_format is 'cxcywhr'")],
    output_dtype=ROW_DTYPES,
    non_differentiable=(0, 1),
)
