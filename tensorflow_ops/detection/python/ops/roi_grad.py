"""Gradients of the region pooling ops.

Boxes have a gradient in ops that average bilinear samples. They have none in ops that round
corners to pixels. The gradient to boxes has no gradient.
"""

import functools

import tensorflow as tf

from tensorflow_ops.core.python.gradients import call, is_needed, refuse
from tensorflow_ops.core.python.library import ops


def _shape(features):
    return tf.shape(features, out_type=tf.int64)


def _bins(pooled):
    """Returns (height, width) of a pooled tensor."""
    return tf.shape(pooled)[1:3]


def _boxes_grad_grad(function, op, dd_boxes):
    """Gradient of the gradient to boxes, an op of d_output, maps, boxes and box_indices: there is none."""
    reason = (
        f"the gradient of {function} to its boxes has no gradient, "
        "which forward mode (tf.autodiff.ForwardAccumulator) along boxes needs, too"
    )
    return [*(refuse(op, i, reason, [dd_boxes]) for i in range(len(op.inputs) - 1)), None]


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
        tf.RegisterGradient(f"TensorflowOps>{name}BoxesGrad")(functools.partial(_boxes_grad_grad, function))
    return gradient


for _name, _function in (
    ("RoiAlign", "roi_align"),
    ("PsRoiPool", "ps_roi_pool"),
    ("PsRoiAlign", "ps_roi_align"),
    ("MultiscaleRoiAlign", "multiscale_roi_align"),
):
    tf.RegisterGradient(f"TensorflowOps>{_name}")(_register_average(_name, _function))


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
