"""Gradients of the region pooling ops.

Boxes have a gradient in ops that average bilinear samples or take the largest one. They
have none in ops that round corners to pixels.

The gradient to boxes has a gradient to its upstream gradient, in which it is linear: forward
mode needs it. It has no other.
"""

import functools
import types
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python.gradients import attrs, is_needed, refuse
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.detection.python.ops.roi_box_motion import bins_derivative

_ROI_ATTRS = ("spatial_scale", "box_format")
_SAMPLING_ATTRS = ("sampling_ratio", "aligned")
_MAX_ATTRS = _ROI_ATTRS + _SAMPLING_ATTRS


class _Average(NamedTuple):
    """An op with bins that are weighted averages of pixels, and its gradient ops."""

    function: str  # the public one
    pool: Callable  # features, boxes, box_indices, output_size
    to_features: Callable  # d_output, boxes, box_indices, shape of features
    to_boxes: Callable | None  # d_output, features, boxes, box_indices
    attrs: tuple[str, ...]  # of all three
    pyramid: bool = False  # features are a list of maps


_AVERAGES = {
    "RoiAlign": _Average(
        "roi_align",
        ops.tensorflow_ops_roi_align,
        ops.tensorflow_ops_roi_align_grad,
        ops.tensorflow_ops_roi_align_boxes_grad,
        (*_ROI_ATTRS, *_SAMPLING_ATTRS),
    ),
    "PsRoiPool": _Average(
        "ps_roi_pool",
        ops.tensorflow_ops_ps_roi_pool,
        ops.tensorflow_ops_ps_roi_pool_grad,
        None,
        (*_ROI_ATTRS, "channel_order"),
    ),
    "PsRoiAlign": _Average(
        "ps_roi_align",
        ops.tensorflow_ops_ps_roi_align,
        ops.tensorflow_ops_ps_roi_align_grad,
        ops.tensorflow_ops_ps_roi_align_boxes_grad,
        (*_ROI_ATTRS, "channel_order", "sampling_ratio"),
    ),
    "MultiscaleRoiAlign": _Average(
        "multiscale_roi_align",
        ops.tensorflow_ops_multiscale_roi_align,
        ops.tensorflow_ops_multiscale_roi_align_grad,
        ops.tensorflow_ops_multiscale_roi_align_boxes_grad,
        ("box_format", *_SAMPLING_ATTRS, "strides", "canonical_box_size", "canonical_stride"),
        pyramid=True,
    ),
}


def _shape(features):
    return tf.shape(features, out_type=tf.int64)


def _bins(pooled):
    """Returns (height, width) of a pooled tensor."""
    return tf.shape(pooled)[1:3]


def _average_grad(average, op, d_output):
    """Gradient of an averaging op: to features by its transpose, and to boxes."""
    *maps, boxes, box_indices, _ = op.inputs
    options = attrs(op, average.attrs)
    features = maps if average.pyramid else maps[0]
    d_maps, d_boxes = [None] * len(maps), None
    if any(is_needed(op, i) for i in range(len(maps))):
        shapes = tf.nest.map_structure(_shape, features)
        d_maps = tf.nest.flatten(average.to_features(d_output, boxes, box_indices, shapes, **options))
    if average.to_boxes and is_needed(op, len(maps)):
        d_boxes = average.to_boxes(d_output, features, boxes, box_indices, **options)
    return [*d_maps, d_boxes, None, None]


def _average_grad_grad(average, op, *dd_maps):
    """Gradient of the gradient to features, which is linear in d_output: its transpose is the op itself."""
    d_output, boxes, box_indices, *shapes = op.inputs
    options = attrs(op, average.attrs)
    dd_features = list(dd_maps) if average.pyramid else dd_maps[0]
    dd_output = d_boxes = None
    if is_needed(op, 0):
        dd_output = average.pool(dd_features, boxes, box_indices, _bins(d_output), **options)
    if average.to_boxes and is_needed(op, 1):
        d_boxes = average.to_boxes(d_output, dd_features, boxes, box_indices, **options)
    return [dd_output, d_boxes, None, *[None] * len(shapes)]


def _boxes_grad_grad(function, to_boxes, names, op, dd_boxes, num_selectors=0):
    """Gradient of the gradient to boxes: to d_output it is the derivative of the bins along dd_boxes.

    Args:
      function: the name of the public function.
      to_boxes: the gradient op.
      names: of the attrs.
      op: the gradient op that is differentiated, of d_output, maps, boxes and box_indices.
      dd_boxes: the upstream gradient.
      num_selectors: the number of maps, the first ones, that only select a bin's sample. They
        have no gradient.
    """
    d_output, *selectors_and_maps, boxes, box_indices = op.inputs
    selectors, maps = selectors_and_maps[:num_selectors], selectors_and_maps[num_selectors:]
    options = {name: tuple(v) if isinstance(v, list) else v for name, v in attrs(op, names).items()}
    bins = _bins(d_output)

    def refused(op, first, upstream):
        reason = f"the gradient of {function} to its boxes has no gradient"
        return [refuse(op, first + i, reason, [upstream]) for i in range(len(maps) + 1)]

    @tf.custom_gradient
    def along(motion, *inputs):
        *maps, boxes = inputs

        def derivative():
            change = bins_derivative(maps, boxes, box_indices, bins, motion, selectors, **options)
            return tf.cast(change, d_output.dtype)

        # Constant boxes do not move: TensorFlow computes this gradient for them in forward mode and for a
        # tf.function that two tapes watch.
        change = tf.cond(tf.reduce_any(tf.not_equal(motion, 0)), derivative, lambda: tf.zeros_like(d_output))

        def grad(upstream):
            features = [maps] if "strides" in names else [*selectors, *maps]
            d_motion = to_boxes(upstream, *features, boxes, box_indices, **options)
            return [d_motion, *refused(types.SimpleNamespace(inputs=inputs), 0, upstream)]

        return tf.ensure_shape(change, d_output.shape), grad

    to_d_output = along(dd_boxes, *maps, boxes) if is_needed(op, 0) else None
    return [to_d_output, *[None] * num_selectors, *refused(op, 1 + num_selectors, dd_boxes), None]


for _name, _average in _AVERAGES.items():
    if _name != "RoiAlign":  # its gradient, below, has a second mode
        tf.RegisterGradient(f"TensorflowOps>{_name}")(functools.partial(_average_grad, _average))
    tf.RegisterGradient(f"TensorflowOps>{_name}Grad")(functools.partial(_average_grad_grad, _average))
    if _average.to_boxes:
        tf.RegisterGradient(f"TensorflowOps>{_name}BoxesGrad")(
            functools.partial(_boxes_grad_grad, _average.function, _average.to_boxes, _average.attrs)
        )


@tf.RegisterGradient("TensorflowOps>RoiAlign")
def _roi_align_grad(op, d_output):
    if op.get_attr("mode") == b"avg":
        return _average_grad(_AVERAGES["RoiAlign"], op, d_output)
    features, boxes, box_indices, _ = op.inputs
    roi = (features, boxes, box_indices)
    return [
        _max_to_features(op, d_output, *roi) if is_needed(op, 0) else None,
        _max_to_boxes(op, d_output, features, *roi) if is_needed(op, 1) else None,
        None,
        None,
    ]


def _max_to_features(op, d_output, features, boxes, box_indices):
    """Adds each d_output to the pixels around the sample that is largest in features."""
    return ops.tensorflow_ops_roi_align_max_grad(d_output, features, boxes, box_indices, **attrs(op, _MAX_ATTRS))


def _max_to_boxes(op, d_output, values, features, boxes, box_indices):
    """Computes the gradient to boxes from the slopes of `values` at the samples that are largest in features."""
    return ops.tensorflow_ops_roi_align_max_boxes_grad(
        d_output, features, values, boxes, box_indices, **attrs(op, _MAX_ATTRS)
    )


@tf.RegisterGradient("TensorflowOps>RoiAlignMaxGrad")
def _roi_align_max_grad_grad(op, dd_features):
    """RoiAlignMaxGrad is linear in d_output: its transpose reads the sample. Features only select the sample."""
    d_output, *roi = op.inputs
    dd_output = d_boxes = None
    if is_needed(op, 0):
        dd_output = ops.tensorflow_ops_roi_align_max_grad_grad(
            dd_features, *roi, _bins(d_output), **attrs(op, _MAX_ATTRS)
        )
    if is_needed(op, 2):
        d_boxes = _max_to_boxes(op, d_output, dd_features, *roi)
    return dd_output, None, d_boxes, None


@tf.RegisterGradient("TensorflowOps>RoiAlignMaxGradGrad")
def _roi_align_max_grad_grad_grad(op, d_output):
    """The two ops are each other's transpose, so gradients of any order exist."""
    dd_features, *roi, _ = op.inputs
    return [
        _max_to_features(op, d_output, *roi) if is_needed(op, 0) else None,
        None,
        _max_to_boxes(op, d_output, dd_features, *roi) if is_needed(op, 2) else None,
        None,
        None,
    ]


tf.RegisterGradient("TensorflowOps>RoiAlignMaxBoxesGrad")(
    functools.partial(
        _boxes_grad_grad, "roi_align", ops.tensorflow_ops_roi_align_max_boxes_grad, _MAX_ATTRS, num_selectors=1
    )
)


def _pool_to_features(op, d_output, argmax, boxes, box_indices, features):
    """Adds each d_output to the pixel of its argmax, in a tensor of features' shape."""
    return ops.tensorflow_ops_roi_pool_grad(
        d_output=d_output,
        argmax=argmax,
        boxes=boxes,
        box_indices=box_indices,
        features_shape=_shape(features),
        **attrs(op, _ROI_ATTRS),
    )


@tf.RegisterGradient("TensorflowOps>RoiPool")
def _roi_pool_grad(op, d_output, d_argmax):
    del d_argmax
    features, boxes, box_indices, _ = op.inputs
    return _pool_to_features(op, d_output, op.outputs[1], boxes, box_indices, features), None, None, None


@tf.RegisterGradient("TensorflowOps>RoiPoolGrad")
def _roi_pool_grad_grad(op, dd_features):
    """RoiPoolGrad is linear in d_output: it adds each to one pixel; its transpose reads that pixel."""
    _, argmax, boxes, box_indices, _ = op.inputs
    dd_output = ops.tensorflow_ops_roi_pool_grad_grad(
        dd_features=dd_features, argmax=argmax, boxes=boxes, box_indices=box_indices, **attrs(op, _ROI_ATTRS)
    )
    return dd_output, None, None, None, None


@tf.RegisterGradient("TensorflowOps>RoiPoolGradGrad")
def _roi_pool_grad_grad_grad(op, d_output):
    """The two ops are each other's transpose, so gradients of any order exist."""
    dd_features, argmax, boxes, box_indices = op.inputs
    return _pool_to_features(op, d_output, argmax, boxes, box_indices, dd_features), None, None, None
