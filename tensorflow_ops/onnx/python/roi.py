"""ONNX's operators of region pooling."""

import numpy as np
import tensorflow as tf
from onnx import TensorProto

from tensorflow_ops.onnx.python.operators import is_constant, operator


def _boxes(nodes, boxes, dtype, scale):
    """Returns (x1, y1, x2, y2) boxes of a dtype: those that pool zeros, inverted or not finite, far from the map."""
    boxes = nodes.cast(boxes, dtype)
    if nodes.attr("box_format") == "yxyx":
        boxes = nodes.columns(boxes, 1, 0, 3, 2)
    size = nodes.Sub(nodes.columns(boxes, 2, 3), nodes.columns(boxes, 0, 1))
    # NaN if any corner is, or both are the same infinity.
    valid = nodes.And(nodes.GreaterOrEqual(size, nodes.like(boxes, 0)), nodes.Less(size, nodes.like(boxes, np.inf)))
    valid = nodes.And(nodes.columns(valid, 0), nodes.columns(valid, 1))
    return nodes.Where(valid, boxes, nodes.like(boxes, [[-1e6 / scale] * 4]))


def _pooled_samples(nodes, features, boxes, indices, output_size, scale):
    return nodes.RoiAlign(
        nodes.to_channels_first(features),
        boxes,
        indices,
        mode="avg",
        output_height=int(output_size[0]),
        output_width=int(output_size[1]),
        sampling_ratio=nodes.attr("sampling_ratio"),
        spatial_scale=scale,
        coordinate_transformation_mode="half_pixel" if nodes.attr("aligned") else "output_half_pixel",
    )


@operator("RoiAlign", 16, lambda op: is_constant(op.inputs[3]))
def _roi_align(nodes):
    features, boxes, indices, _ = nodes.inputs
    features, scale = nodes.widened(features), nodes.attr("spatial_scale")
    boxes = _boxes(nodes, boxes, nodes.dtype(features), scale)
    pooled = _pooled_samples(nodes, features, boxes, nodes.to_int64(indices), nodes.value(3), scale)
    return [nodes.to_channels_last(pooled)]


def _levels(nodes, boxes):
    """Returns the level of each box, int64 [K]."""
    sides = [nodes.Sub(nodes.columns(boxes, 2 + i), nodes.columns(boxes, i)) for i in range(2)]
    area = nodes.Mul(*sides)
    level = nodes.ints(0)
    for i, stride in enumerate(nodes.attr("strides")):
        # The tolerance of multiscale_roi_align.
        side = stride * nodes.attr("canonical_box_size") / nodes.attr("canonical_stride") * (1 - 1e-6)
        level = nodes.Where(nodes.GreaterOrEqual(area, nodes.like(area, side**2)), nodes.ints(i), level)
    return nodes.Reshape(level, nodes.ints(-1))


@operator("MultiscaleRoiAlign", 16, lambda op: is_constant(op.inputs[-1]))
def _multiscale_roi_align(nodes):
    """Pools each level's boxes and scatters them to their places."""
    *maps, boxes, indices, _ = nodes.inputs
    output_size, strides = nodes.value(len(nodes.inputs) - 1), nodes.attr("strides")
    maps, indices = [nodes.widened(features) for features in maps], nodes.to_int64(indices)
    boxes = _boxes(nodes, boxes, nodes.dtype(maps[0]), 1 / strides[-1])
    level, result = _levels(nodes, boxes), None
    for i, (features, stride) in enumerate(zip(maps, strides, strict=True)):
        rows = nodes.Reshape(nodes.NonZero(nodes.Equal(level, nodes.scalar(i))), nodes.ints(-1))
        pooled = _pooled_samples(
            nodes, features, nodes.Gather(boxes, rows), nodes.Gather(indices, rows), output_size, 1 / stride
        )
        if result is None:
            bins = nodes.Slice(nodes.Shape(pooled), nodes.ints(1), nodes.ints(4))
            result = nodes.Expand(nodes.like(pooled, 0), nodes.Concat(nodes.Shape(indices), bins, axis=0))
        result = nodes.ScatterND(result, nodes.Unsqueeze(rows, nodes.ints(1)), pooled)
    return [nodes.to_channels_last(result)]


def _roi_pool_fits(op):
    return is_constant(op.inputs[3]) and not op.outputs[1].consumers() and op.inputs[0].dtype != tf.float64


@operator("RoiPool", 13, _roi_pool_fits)
def _roi_pool(nodes):
    features, boxes, indices, _ = nodes.inputs
    features, scale = nodes.widened(features), nodes.attr("spatial_scale")
    boxes = _boxes(nodes, boxes, TensorProto.FLOAT, scale)
    image = nodes.Unsqueeze(nodes.cast(indices, TensorProto.FLOAT), nodes.ints(1))
    pooled = nodes.MaxRoiPool(
        nodes.to_channels_first(features),
        nodes.Concat(image, boxes, axis=1),
        pooled_shape=[int(n) for n in nodes.value(3)],
        spatial_scale=scale,
    )
    return [nodes.to_channels_last(pooled), None]
