"""Gradients of the region pooling ops.

Boxes have a gradient in ops that average bilinear samples or take the largest one. They
have none in ops that round corners to pixels.

The gradient to boxes has a gradient to its upstream gradient, in which it is linear: forward
mode needs it. It has no other.
"""

import functools
import types

import tensorflow as tf

from tensorflow_ops.core.python.gradients import attrs, call, is_needed, refuse
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.detection.python.ops.roi_box_motion import bins_derivative


def _shape(features):
    return tf.shape(features, out_type=tf.int64)


def _bins(pooled):
    """Returns (height, width) of a pooled tensor."""
    return tf.shape(pooled)[1:3]


def _boxes_grad_grad(function, to_boxes, op, dd_boxes, num_selectors=0):
    """Gradient of the gradient to boxes: to d_output it is the derivative of the bins along dd_boxes.

    Args:
      function: the name of the public function.
      to_boxes: the gradient op.
      op: the gradient op that is differentiated, of d_output, maps, boxes and box_indices.
      dd_boxes: the upstream gradient.
      num_selectors: the number of maps, the first ones, that only select a bin's sample. They
        have no gradient.
    """
    d_output, *selectors_and_maps, boxes, box_indices = op.inputs
    selectors, maps = selectors_and_maps[:num_selectors], selectors_and_maps[num_selectors:]
    options = {name: tuple(v) if isinstance(v, list) else v for name, v in attrs(op, to_boxes).items()}
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
            features = [maps] if "strides" in options else [*selectors, *maps]
            d_motion = to_boxes(upstream, *features, boxes, box_indices, **options)
            return [d_motion, *refused(types.SimpleNamespace(inputs=inputs), 0, upstream)]

        return tf.ensure_shape(change, d_output.shape), grad

    to_d_output = along(dd_boxes, *maps, boxes) if is_needed(op, 0) else None
    return [to_d_output, *[None] * num_selectors, *refused(op, 1 + num_selectors, dd_boxes), None]


def _register_average(name, function):
    """Registers the gradients of an op whose bins are weighted averages of pixels, except its own; returns that."""
    pool, to_features = (getattr(ops, f"tensorflow_ops_{function}{suffix}") for suffix in ("", "_grad"))
    to_boxes = getattr(ops, f"tensorflow_ops_{function}_boxes_grad", None)

    def features_of(maps):
        return list(maps) if function == "multiscale_roi_align" else maps[0]

    def gradient(op, d_output):
        """To features by the transpose, and to boxes."""
        *maps, boxes, box_indices, _ = op.inputs
        d_maps, d_boxes = [None] * len(maps), None
        if any(is_needed(op, i) for i in range(len(maps))):
            shapes = features_of([_shape(m) for m in maps])
            d_maps = tf.nest.flatten(call(to_features, op, d_output, boxes, box_indices, shapes))
        if to_boxes and is_needed(op, len(maps)):
            d_boxes = call(to_boxes, op, d_output, features_of(maps), boxes, box_indices)
        return [*d_maps, d_boxes, None, None]

    @tf.RegisterGradient(f"TensorflowOps>{name}Grad")
    def _grad_grad(op, *dd_maps):
        """The gradient to features is linear in d_output: its transpose is the op itself."""
        d_output, boxes, box_indices, *shapes = op.inputs
        dd_output = d_boxes = None
        if is_needed(op, 0):
            dd_output = call(pool, op, features_of(dd_maps), boxes, box_indices, _bins(d_output))
        if to_boxes and is_needed(op, 1):
            d_boxes = call(to_boxes, op, d_output, features_of(dd_maps), boxes, box_indices)
        return [dd_output, d_boxes, None, *[None] * len(shapes)]

    if to_boxes:
        of_boxes = functools.partial(_boxes_grad_grad, function, to_boxes)
        tf.RegisterGradient(f"TensorflowOps>{name}BoxesGrad")(of_boxes)
    return gradient


_of_averages = _register_average("RoiAlign", "roi_align")  # one of its two modes
for _name, _function in (
    ("PsRoiPool", "ps_roi_pool"),
    ("PsRoiAlign", "ps_roi_align"),
    ("MultiscaleRoiAlign", "multiscale_roi_align"),
):
    tf.RegisterGradient(f"TensorflowOps>{_name}")(_register_average(_name, _function))


@tf.RegisterGradient("TensorflowOps>RoiAlign")
def _roi_align_grad(op, d_output):
    if op.get_attr("mode") == b"avg":
        return _of_averages(op, d_output)
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
    return call(ops.tensorflow_ops_roi_align_max_grad, op, d_output, features, boxes, box_indices)


def _max_to_boxes(op, d_output, values, features, boxes, box_indices):
    """Computes the gradient to boxes from the slopes of `values` at the samples that are largest in features."""
    return call(ops.tensorflow_ops_roi_align_max_boxes_grad, op, d_output, features, values, boxes, box_indices)


@tf.RegisterGradient("TensorflowOps>RoiAlignMaxGrad")
def _roi_align_max_grad_grad(op, dd_features):
    """RoiAlignMaxGrad is linear in d_output: its transpose reads the sample. Features only select the sample."""
    d_output, *roi = op.inputs
    dd_output = d_boxes = None
    if is_needed(op, 0):
        dd_output = call(ops.tensorflow_ops_roi_align_max_grad_grad, op, dd_features, *roi, _bins(d_output))
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
    functools.partial(_boxes_grad_grad, "roi_align", ops.tensorflow_ops_roi_align_max_boxes_grad, num_selectors=1)
)


def _pool_to_features(op, d_output, argmax, boxes, box_indices, features):
    """Adds each d_output to the pixel of its argmax, in a tensor of features' shape."""
    return call(ops.tensorflow_ops_roi_pool_grad, op, d_output, argmax, boxes, box_indices, _shape(features))


@tf.RegisterGradient("TensorflowOps>RoiPool")
def _roi_pool_grad(op, d_output, d_argmax):
    del d_argmax
    features, boxes, box_indices, _ = op.inputs
    return _pool_to_features(op, d_output, op.outputs[1], boxes, box_indices, features), None, None, None


@tf.RegisterGradient("TensorflowOps>RoiPoolGrad")
def _roi_pool_grad_grad(op, dd_features):
    """RoiPoolGrad is linear in d_output: it adds each to one pixel; its transpose reads that pixel."""
    dd_output = call(ops.tensorflow_ops_roi_pool_grad_grad, op, dd_features, *op.inputs[1:4])
    return dd_output, None, None, None, None


@tf.RegisterGradient("TensorflowOps>RoiPoolGradGrad")
def _roi_pool_grad_grad_grad(op, d_output):
    """The two ops are each other's transpose, so gradients of any order exist."""
    dd_features, argmax, boxes, box_indices = op.inputs
    return _pool_to_features(op, d_output, argmax, boxes, box_indices, dd_features), None, None, None
