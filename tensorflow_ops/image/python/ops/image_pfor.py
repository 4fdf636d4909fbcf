"""Vectorization of the ops of masks (core/python/pfor.py): the iterations become part of the batch."""

import tensorflow as tf

from tensorflow_ops.core.python import pfor


def _convert(pfor_input, others):
    """Converts an op whose first input is images [H, W], [N, H, W] or [N, H, W, C]; the others are not stacked."""
    pfor_input.stack_inputs([0])
    images = pfor_input.stacked_input(0)
    if images.shape.rank is None:
        raise pfor.ConversionNotImplementedError("the rank of images is unknown")
    if images.shape.rank == 3:
        return [pfor.stacked(y) for y in pfor.call(pfor_input, [images, *others])]
    iterations, size = tf.shape(images)[0], tf.shape(images)[1]
    outputs = pfor.call(pfor_input, [pfor.fold(images), *others])
    return [pfor.stacked(pfor.unfold(y, iterations, size=size)) for y in outputs]


@pfor.register("TensorflowOps>EuclideanDistanceTransform")
def _distance_transform(pfor_input):
    if pfor_input.inputs[1].is_stacked:
        raise pfor.ConversionNotImplementedError("spacing differs between iterations, expected one for all")
    return _convert(pfor_input, [pfor_input.inputs[1].t])


@pfor.register("TensorflowOps>ConnectedComponents")
def _connected_components(pfor_input):
    return _convert(pfor_input, [])
