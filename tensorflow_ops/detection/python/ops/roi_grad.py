"""Gradients of the region pooling ops.

Boxes have a gradient where bins are made of bilinear samples, whose average or largest
one they take. Where corners are rounded to pixels, they have none. Indices and sizes are
integers.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python.library import ops
from tensorflow_ops.detection.python.ops.roi_box_motion import change_of_bins, gradient_of_change

_ROI_ATTRS = ("spatial_scale", "data_format", "box_format")
_SAMPLING_ATTRS = ("sampling_ratio", "aligned")
_MAX_ATTRS = _ROI_ATTRS + _SAMPLING_ATTRS


class _Average(NamedTuple):
    """An op whose bins are weighted averages of pixels, and its gradient ops."""

    pool: Callable  # features, boxes, box_indices, output_size
    to_features: Callable  # d_output, boxes, box_indices, shape of features
    to_boxes: Callable | None  # d_output, features, boxes, box_indices
    attrs: tuple[str, ...]  # of all three
    pyramid: bool = False  # features are a list of maps


_AVERAGES = {
    "RoiAlign": _Average(
        ops.tensorflow_ops_roi_align,
        ops.tensorflow_ops_roi_align_grad,
        ops.tensorflow_ops_roi_align_boxes_grad,
        (*_ROI_ATTRS, *_SAMPLING_ATTRS),
    ),
    "PsRoiPool": _Average(
        ops.tensorflow_ops_ps_roi_pool,
        ops.tensorflow_ops_ps_roi_pool_grad,
        None,
        (*_ROI_ATTRS, "channel_order"),
    ),
    "PsRoiAlign": _Average(
        ops.tensorflow_ops_ps_roi_align,
        ops.tensorflow_ops_ps_roi_align_grad,
        ops.tensorflow_ops_ps_roi_align_boxes_grad,
        (*_ROI_ATTRS, "channel_order", "sampling_ratio"),
    ),
    "MultiscaleRoiAlign": _Average(
        ops.tensorflow_ops_multiscale_roi_align,
        ops.tensorflow_ops_multiscale_roi_align_grad,
        ops.tensorflow_ops_multiscale_roi_align_boxes_grad,
        ("data_format", "box_format", *_SAMPLING_ATTRS, "strides", "canonical_box_size", "canonical_stride"),
        pyramid=True,
    ),
}


def _attrs(op, names):
    """The attrs that an op and its gradient ops share."""
    return {name: op.get_attr(name) for name in names}


def _is_needed(op, index):
    """Does anyone ask for the gradient to this input? Eagerly a tape tells; a graph drops what nobody reads."""
    return index not in (getattr(op, "skip_input_indices", None) or ())


def _shape(features):
    return tf.shape(features, out_type=tf.int64)


def _bins(op, pooled):
    """(height, width) of a pooled tensor."""
    first = 2 if op.get_attr("data_format") == b"NCHW" else 1
    return tf.shape(pooled)[first : first + 2]


def _average_grad(average, op, d_output):
    """To features, by the transpose; and to boxes."""
    *maps, boxes, box_indices, _ = op.inputs
    attrs = _attrs(op, average.attrs)
    features = maps if average.pyramid else maps[0]
    d_maps, d_boxes = [None] * len(maps), None
    if any(_is_needed(op, i) for i in range(len(maps))):
        shapes = tf.nest.map_structure(_shape, features)
        d_maps = tf.nest.flatten(average.to_features(d_output, boxes, box_indices, shapes, **attrs))
    if average.to_boxes and _is_needed(op, len(maps)):
        d_boxes = average.to_boxes(d_output, features, boxes, box_indices, **attrs)
    return [*d_maps, d_boxes, None, None]


def _average_grad_grad(average, op, *dd_maps):
    """Of the gradient to features. It is linear in d_output: to that, the op itself."""
    d_output, boxes, box_indices, *shapes = op.inputs
    attrs = _attrs(op, average.attrs)
    dd_features = list(dd_maps) if average.pyramid else dd_maps[0]
    dd_output = d_boxes = None
    if _is_needed(op, 0):
        dd_output = average.pool(dd_features, boxes, box_indices, _bins(op, d_output), **attrs)
    if average.to_boxes and _is_needed(op, 1):
        d_boxes = average.to_boxes(d_output, dd_features, boxes, box_indices, **attrs)
    return [dd_output, d_boxes, None, *[None] * len(shapes)]


def _boxes_grad_grad(names, op, dd_boxes, choosers=0):
    """Of the gradient to boxes: to d_output how bins change where boxes move by dd_boxes; to the others its gradient.

    TensorFlow asks for these in forward mode, and of a tf.function that two tapes watch, for
    boxes that are constant, too. Then zeros come in, and nothing is computed.

    Args:
      names: of the attrs.
      op: d_output, maps, boxes and box_indices to d_boxes.
      dd_boxes: what comes in.
      choosers: how many of the maps, the first ones, say which sample is a bin's. They have no gradient.
    """
    d_output, *maps, boxes, box_indices = op.inputs
    choosing, maps = maps[:choosers], maps[choosers:]
    attrs = {name: tuple(v) if isinstance(v, list) else v for name, v in _attrs(op, names).items()}
    moved = (maps, boxes, box_indices, _bins(op, d_output), dd_boxes, choosing)
    moves = tf.reduce_any(tf.not_equal(dd_boxes, 0))

    # No tf.function: where forward mode has gone through one, TensorFlow's third derivatives of it are wrong.
    def unless_zero(index, function, *args, **options):
        if not _is_needed(op, index):
            return None
        like = op.inputs[index]
        result = tf.cond(
            moves, lambda: tf.cast(function(*args, **options, **attrs), like.dtype), lambda: tf.zeros_like(like)
        )
        return tf.ensure_shape(result, like.shape)

    to_d_output = unless_zero(0, change_of_bins, *moved)
    others = [
        unless_zero(1 + choosers + i, gradient_of_change, d_output, *moved, wanted=i) for i in range(len(maps) + 1)
    ]
    return [to_d_output, *[None] * choosers, *others, None]


for _name, _average in _AVERAGES.items():
    if _name != "RoiAlign":  # which has another mode, below
        tf.RegisterGradient(f"TensorflowOps>{_name}")(functools.partial(_average_grad, _average))
    tf.RegisterGradient(f"TensorflowOps>{_name}Grad")(functools.partial(_average_grad_grad, _average))
    if _average.to_boxes:
        tf.RegisterGradient(f"TensorflowOps>{_name}BoxesGrad")(functools.partial(_boxes_grad_grad, _average.attrs))


@tf.RegisterGradient("TensorflowOps>RoiAlign")
def _roi_align_grad(op, d_output):
    if op.get_attr("mode") == b"avg":
        return _average_grad(_AVERAGES["RoiAlign"], op, d_output)
    features, boxes, box_indices, _ = op.inputs
    roi = (features, boxes, box_indices)
    return [
        _max_to_features(op, d_output, *roi) if _is_needed(op, 0) else None,
        _max_to_boxes(op, d_output, features, *roi) if _is_needed(op, 1) else None,
        None,
        None,
    ]


def _max_to_features(op, d_output, features, boxes, box_indices):
    """Adds each d_output to the pixels around the sample that is largest in features."""
    return ops.tensorflow_ops_roi_align_max_grad(d_output, features, boxes, box_indices, **_attrs(op, _MAX_ATTRS))


def _max_to_boxes(op, d_output, values, features, boxes, box_indices):
    """From the slopes of values at the samples that are largest in features."""
    return ops.tensorflow_ops_roi_align_max_boxes_grad(
        d_output, features, values, boxes, box_indices, **_attrs(op, _MAX_ATTRS)
    )


@tf.RegisterGradient("TensorflowOps>RoiAlignMaxGrad")
def _roi_align_max_grad_grad(op, dd_features):
    """Linear in d_output: this reads the sample it was added to. Features only choose the sample."""
    d_output, *roi = op.inputs
    dd_output = d_boxes = None
    if _is_needed(op, 0):
        dd_output = ops.tensorflow_ops_roi_align_max_grad_grad(
            dd_features, *roi, _bins(op, d_output), **_attrs(op, _MAX_ATTRS)
        )
    if _is_needed(op, 2):
        d_boxes = _max_to_boxes(op, d_output, dd_features, *roi)
    return dd_output, None, d_boxes, None


@tf.RegisterGradient("TensorflowOps>RoiAlignMaxGradGrad")
def _roi_align_max_grad_grad_grad(op, d_output):
    """The two are each other's transpose, so gradients of any order exist."""
    dd_features, *roi, _ = op.inputs
    return [
        _max_to_features(op, d_output, *roi) if _is_needed(op, 0) else None,
        None,
        _max_to_boxes(op, d_output, dd_features, *roi) if _is_needed(op, 2) else None,
        None,
        None,
    ]


tf.RegisterGradient("TensorflowOps>RoiAlignMaxBoxesGrad")(functools.partial(_boxes_grad_grad, _MAX_ATTRS, choosers=1))


def _pool_to_features(op, d_output, argmax, boxes, box_indices, features):
    """Adds each d_output to the pixel of its argmax, in a tensor of features' shape."""
    return ops.tensorflow_ops_roi_pool_grad(
        d_output=d_output,
        argmax=argmax,
        boxes=boxes,
        box_indices=box_indices,
        features_shape=_shape(features),
        **_attrs(op, _ROI_ATTRS),
    )


@tf.RegisterGradient("TensorflowOps>RoiPool")
def _roi_pool_grad(op, d_output, d_argmax):
    del d_argmax
    features, boxes, box_indices, _ = op.inputs
    return _pool_to_features(op, d_output, op.outputs[1], boxes, box_indices, features), None, None, None


@tf.RegisterGradient("TensorflowOps>RoiPoolGrad")
def _roi_pool_grad_grad(op, dd_features):
    """RoiPoolGrad is linear in d_output: it adds each to one pixel, so this reads that pixel."""
    _, argmax, boxes, box_indices, _ = op.inputs
    dd_output = ops.tensorflow_ops_roi_pool_grad_grad(
        dd_features=dd_features, argmax=argmax, boxes=boxes, box_indices=box_indices, **_attrs(op, _ROI_ATTRS)
    )
    return dd_output, None, None, None, None


@tf.RegisterGradient("TensorflowOps>RoiPoolGradGrad")
def _roi_pool_grad_grad_grad(op, d_output):
    """The two are each other's transpose, so gradients of any order exist."""
    dd_features, argmax, boxes, box_indices = op.inputs
    return _pool_to_features(op, d_output, argmax, boxes, box_indices, dd_features), None, None, None
