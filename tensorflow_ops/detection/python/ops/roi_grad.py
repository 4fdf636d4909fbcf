"""Gradients of the region pooling ops."""

import tensorflow as tf

from tensorflow_ops.core.python.library import ops


def _attrs(op):
    """The attrs that the forward op and its gradient ops share."""
    return {name: op.get_attr(name) for name in ("spatial_scale", "data_format", "box_format")}


def _to_features(op, d_output, argmax, boxes, box_indices, features):
    """Adds each d_output to the pixel of its argmax, in a tensor of features' shape."""
    return ops.tensorflow_ops_roi_pool_grad(
        d_output=d_output,
        argmax=argmax,
        boxes=boxes,
        box_indices=box_indices,
        features_shape=tf.shape(features, out_type=tf.int64),
        **_attrs(op),
    )


@tf.RegisterGradient("TensorflowOps>RoiPool")
def _roi_pool_grad(op, d_output, d_argmax):
    """To features only: boxes are rounded to pixels, indices and sizes are integers."""
    del d_argmax
    features, boxes, box_indices, _ = op.inputs
    return _to_features(op, d_output, op.outputs[1], boxes, box_indices, features), None, None, None


@tf.RegisterGradient("TensorflowOps>RoiPoolGrad")
def _roi_pool_grad_grad(op, dd_features):
    """RoiPoolGrad is linear in d_output: it adds each to one pixel, so this reads that pixel."""
    _, argmax, boxes, box_indices, _ = op.inputs
    dd_output = ops.tensorflow_ops_roi_pool_grad_grad(
        dd_features=dd_features, argmax=argmax, boxes=boxes, box_indices=box_indices, **_attrs(op)
    )
    return dd_output, None, None, None, None


@tf.RegisterGradient("TensorflowOps>RoiPoolGradGrad")
def _roi_pool_grad_grad_grad(op, d_output):
    """The two are each other's transpose, so gradients of any order exist."""
    dd_features, argmax, boxes, box_indices = op.inputs
    return _to_features(op, d_output, argmax, boxes, box_indices, dd_features), None, None, None
