"""Ops that ONNX has, too: how tf2onnx writes them as ONNX's own operators."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from onnx import TensorProto

from tensorflow_ops.onnx.python.nodes import Nodes


class Direct(NamedTuple):
    """How to write an op as operators of ONNX."""

    # The first opset that has them; none below 13, whose reductions differ.
    opset: int
    # Returns whether ONNX's operators compute what this operation of a TensorFlow graph does.
    fits: Callable[[tf.Operation], bool]
    # Makes nodes that compute the outputs; None for an output without a consumer.
    convert: Callable[[Nodes], Sequence[str | None]]


DIRECT: dict[str, Direct] = {}


def _direct(op, opset, fits):
    """Registers the decorated function as the `convert` of an op, a name without the prefix."""

    def register(convert):
        DIRECT[op] = Direct(opset, fits, convert)
        return convert

    return register


def _is_constant(tensor):
    return tensor.op.type == "Const"


def _dims(tensor, rank):
    """Returns the sizes of a tensor's dims, None where unknown."""
    return tensor.shape.with_rank(rank).as_list()


# Softmax.


# ONNX Runtime misses a NaN in float64.
@_direct("Softmax", 13, lambda op: op.inputs[0].dtype != tf.float64)
def _softmax(nodes):
    logits = nodes.widened(nodes.inputs[0])
    is_log = nodes.attr("log")
    result = (nodes.LogSoftmax if is_log else nodes.Softmax)(logits, axis=-1)
    # A row with all classes masked is NaN in ONNX.
    lowest = nodes.like(logits, -np.inf)
    masked = nodes.Equal(nodes.reduce_max(logits, -1), lowest)
    return [nodes.Where(masked, lowest if is_log else nodes.like(logits, 0), result)]


# Region pooling.


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


@_direct("RoiAlign", 16, lambda op: _is_constant(op.inputs[3]))
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


@_direct("MultiscaleRoiAlign", 16, lambda op: _is_constant(op.inputs[-1]))
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
    return _is_constant(op.inputs[3]) and not op.outputs[1].consumers() and op.inputs[0].dtype != tf.float64


@_direct("RoiPool", 13, _roi_pool_fits)
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


# Suppression.


def _suppression_fits(op):
    return op.get_attr("box_format") != b"cxcywhr" and op.inputs[0].dtype == tf.float32


def _suppressed(nodes, boxes, scores, iou_threshold, score_threshold, limit):
    """Returns the (image, class, box) of what boxes [N, K, 4] and scores [N, C, K] keep, int64 [M, 3]."""
    limit = nodes.to_int64(limit)
    limit = nodes.Where(nodes.Less(limit, nodes.scalar(0)), nodes.scalar(2**31 - 1), limit)
    # Malformed boxes overlap nothing; ONNX takes two corners in any order.
    low, high = nodes.Split(boxes, nodes.ints(2, 2), axis=2, outputs=2)
    size = nodes.Sub(high, low)
    zero, infinity = nodes.like(boxes, 0), nodes.like(boxes, np.inf)
    valid = nodes.And(nodes.Greater(size, zero), nodes.Less(size, infinity))
    x, y = nodes.Split(valid, nodes.ints(1, 1), axis=2, outputs=2)
    boxes = nodes.Where(nodes.And(x, y), boxes, zero)
    # A threshold of NaN finds all scores, also -infinity, but no NaN.
    lowest, is_nan = nodes.like(scores, -np.inf), nodes.IsNaN(score_threshold)
    scores = nodes.Max(scores, nodes.Where(is_nan, nodes.like(scores, np.finfo(np.float32).min), lowest))
    score_threshold = nodes.Where(is_nan, lowest, score_threshold)
    numbers = [nodes.Reshape(number, nodes.ints(1)) for number in (limit, iou_threshold, score_threshold)]
    return nodes.NonMaxSuppression(boxes, scores, *numbers)


@_direct("Nms", 13, _suppression_fits)
def _nms(nodes):
    boxes, scores, iou_threshold, score_threshold, limit = nodes.inputs
    boxes, scores = nodes.Unsqueeze(boxes, nodes.ints(0)), nodes.Unsqueeze(scores, nodes.ints(0, 1))
    found = _suppressed(nodes, boxes, scores, iou_threshold, score_threshold, limit)
    return [nodes.to_int32(nodes.Gather(found, nodes.scalar(2), axis=1))]


def _multiclass_nms_fits(op):
    return _suppression_fits(op) and op.inputs[0].shape.rank == 3


@_direct("MulticlassNms", 14, _multiclass_nms_fits)
def _multiclass_nms(nodes):
    """Scatters the scores of what is kept over [N, K C], and takes the best of each row."""
    boxes, scores, iou_threshold, score_threshold, limit, limit_per_class = nodes.inputs
    found = _suppressed(
        nodes, boxes, nodes.Transpose(scores, perm=[0, 2, 1]), iou_threshold, score_threshold, limit_per_class
    )
    places = nodes.columns(found, 0, 2, 1)  # image, box, class
    shape, one, lowest = nodes.Shape(scores), nodes.ints(1), nodes.like(scores, -np.inf)
    kept = nodes.Expand(lowest, shape)
    # Of a score of -infinity, too: what has it was kept.
    kept_scores = nodes.Max(nodes.GatherND(scores, places), nodes.like(scores, np.finfo(np.float32).min))
    kept = nodes.ScatterND(kept, places, kept_scores)
    images, classes = nodes.Gather(shape, nodes.ints(0)), nodes.Gather(shape, nodes.ints(2))
    size = nodes.Mul(nodes.Gather(shape, one), classes)
    kept = nodes.Reshape(kept, nodes.Concat(images, size, axis=0), allowzero=1)
    limit = nodes.Reshape(nodes.to_int64(limit), one)
    # TopK takes no more than there are.
    missing = nodes.Max(nodes.Sub(limit, size), nodes.ints(0))
    kept = nodes.Pad(kept, nodes.Concat(nodes.ints(0, 0, 0), missing, axis=0), lowest)
    values, positions = nodes.TopK(kept, limit, axis=1, outputs=2)
    is_box, zero = nodes.Greater(values, lowest), nodes.scalar(0)
    classes = nodes.Max(classes, one)  # No division by 0.
    return [
        nodes.to_int32(nodes.Where(is_box, nodes.Div(positions, classes), nodes.scalar(-1))),
        nodes.to_int32(nodes.Where(is_box, nodes.Mod(positions, classes), zero)),
        nodes.to_int32(nodes.Where(is_box, positions, zero)),
        nodes.to_int32(nodes.ReduceSum(nodes.to_int64(is_box), one, keepdims=0)),
    ]


# Bilinear samples.


def _grid_sample_fits(op):
    if op.inputs[0].dtype == tf.float64:
        return False
    # Pixels become normalized coordinates and back, which moves halves between two pixels. Rounding them before helps,
    # unless reflection comes first.
    coordinates, mode, padding_mode = (op.get_attr(name) for name in ("coordinates", "mode", "padding_mode"))
    if padding_mode not in (b"zeros", b"border", b"reflection") or op.get_attr("fill_value"):
        return False
    if coordinates == b"indices":
        return mode != b"nearest"  # which rounds halves up
    return coordinates == b"normalized" or (mode, padding_mode) != (b"nearest", b"reflection")


def _places(nodes, grid, features):
    """Returns the (x, y) in pixels of a grid or flow."""
    if nodes.attr("coordinates") == "pixels":
        return grid
    if nodes.attr("coordinates") == "indices":
        return nodes.Gather(grid, nodes.ints(1, 0), axis=-1)
    # A flow of (y, x) is subtracted from the pixels' own places.
    zero, one = nodes.scalar(0), nodes.scalar(1)
    sizes = nodes.Slice(nodes.Shape(features), nodes.ints(1), nodes.ints(3))
    height, width = nodes.Split(sizes, nodes.ints(1, 1), outputs=2)
    x = nodes.Range(zero, nodes.Squeeze(width), one)
    y = nodes.Unsqueeze(nodes.Range(zero, nodes.Squeeze(height), one), nodes.ints(1))
    pixels = nodes.Concat(*(nodes.Unsqueeze(nodes.Expand(place, sizes), nodes.ints(2)) for place in (x, y)), axis=2)
    return nodes.Sub(nodes.cast(pixels, TensorProto.FLOAT), nodes.Gather(grid, nodes.ints(1, 0), axis=3))


def _normalized(nodes, places, features, align_corners):
    """Returns places in pixels as the coordinates of which -1 and 1 are the outer pixels' centres or edges."""
    size = nodes.cast(nodes.Gather(nodes.Shape(features), nodes.ints(2, 1)), TensorProto.FLOAT)
    one, two = nodes.like(size, 1), nodes.like(size, 2)
    twice = nodes.Mul(places, two)
    if align_corners:
        return nodes.Sub(nodes.Div(twice, nodes.Max(nodes.Sub(size, one), one)), one)
    return nodes.Sub(nodes.Div(nodes.Add(twice, one), size), one)


@_direct("GridSample", 16, _grid_sample_fits)
def _grid_sample(nodes):
    features, grid = nodes.inputs
    features, shape = nodes.widened(features), nodes.Shape(grid)
    mode, padding_mode, align_corners = nodes.attr("mode"), nodes.attr("padding_mode"), nodes.attr("align_corners")
    if nodes.attr("coordinates") != "normalized":
        grid = _places(nodes, grid, features)
        if mode == "nearest":
            grid = nodes.Round(grid)
        # In pixels, only reflection depends on it.
        align_corners = int(align_corners and padding_mode == "reflection")
        grid = _normalized(nodes, grid, features, align_corners)
    if padding_mode != "reflection":  # Runtimes overflow far outside of the image.
        grid = nodes.Clip(grid, nodes.like(grid, -1e4), nodes.like(grid, 1e4))
    is_image = len(nodes.shape(grid) or []) == 4
    if not is_image:
        samples = nodes.ReduceProd(nodes.Slice(shape, nodes.ints(1), nodes.ints(-1)), keepdims=1)
        flat = nodes.Concat(nodes.Gather(shape, nodes.ints(0)), samples, nodes.ints(1, 2), axis=0)
        grid = nodes.Reshape(grid, flat, allowzero=1)
    sampled = nodes.GridSample(
        nodes.to_channels_first(features), grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners
    )
    sampled = nodes.to_channels_last(sampled)
    if not is_image:
        channels = nodes.Gather(nodes.Shape(features), nodes.ints(3))
        unflattened = nodes.Concat(nodes.Slice(shape, nodes.ints(0), nodes.ints(-1)), channels, axis=0)
        sampled = nodes.Reshape(sampled, unflattened, allowzero=1)
    return [sampled]


def _deform_conv_fits(op):
    (_, height, width, channels), offsets, filters = (_dims(tensor, 4) for tensor in op.inputs[:3])
    sizes = [height, width] if op.get_attr("padding") == b"SAME" else []
    return None not in [*sizes, channels, offsets[3], *filters]


def _same_padding(size, filter_size, stride, dilation):
    """Returns TensorFlow's padding "SAME" before and behind an axis."""
    total = max((-(-size // stride) - 1) * stride + (filter_size - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


@_direct("DeformConv2d", 19, _deform_conv_fits)
def _deform_conv2d(nodes):
    features, offsets, filters, *options = nodes.inputs
    mask, bias = options[: nodes.attr("has_mask")], options[nodes.attr("has_mask") :]
    *filter_size, channels_in_group, channels = nodes.shape(filters)
    strides, dilations = nodes.attr("strides"), nodes.attr("dilations")
    _, *size, features_channels = nodes.shape(features)
    top, bottom, left, right = nodes.attr("paddings")
    if nodes.attr("padding") == "SAME":
        (top, bottom), (left, right) = map(_same_padding, size, filter_size, strides, dilations)
    inputs = [
        nodes.to_channels_first(nodes.widened(features)),
        nodes.Transpose(nodes.widened(filters), perm=[3, 2, 0, 1]),
        nodes.to_channels_first(offsets),
    ]
    if options:
        none = nodes.like(inputs[0], [0] * channels)
        inputs.append(nodes.widened(bias[0]) if bias else none)
    if mask:
        inputs.append(nodes.to_channels_first(nodes.widened(mask[0])))
    output = nodes.DeformConv(
        *inputs,
        kernel_shape=filter_size,
        strides=strides,
        dilations=dilations,
        pads=[top, left, bottom, right],
        group=features_channels // channels_in_group,
        offset_group=nodes.shape(offsets)[3] // (2 * filter_size[0] * filter_size[1]),
    )
    return [nodes.to_channels_last(output)]


# Recurrent layers.

# The operators' names of activations; alpha and beta of those that have them.
_ACTIVATIONS = {
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "relu": "Relu",
    "linear": "Affine",
    "hard_sigmoid": "HardSigmoid",
}
_NUMBERS = {"linear": (1.0, 0.0), "hard_sigmoid": (1 / 6, 0.5)}


def _recurrent_fits(states):
    """Returns the `fits` of an op with this many states; its other outputs are for its gradient."""

    def fits(op):
        for_gradient = any(output.consumers() for output in op.outputs[1 + states :])
        return op.inputs[0].dtype == tf.float32 and bool(_dims(op.inputs[1], 3)[0]) and not for_gradient

    return fits


def _inputs_and_kernel(nodes, sums):
    """Returns inputs [B, T, D] and a kernel [D, gates * units] of which the sums [B, T, gates, units] are the product.

    The operators multiply, too: without a product to take over, the kernel is a diagonal.
    """
    reshape = nodes.producer(sums)
    product = nodes.producer(reshape.input[0]) if reshape.type == "Reshape" else reshape
    if product.type == "MatMul" and not any(product.get_attr_value(f"transpose_{x}") for x in "ab"):
        (inputs, kernel), shape = product.input, nodes.to_int64(reshape.input[1])
    else:
        columns = int(np.prod(nodes.shape(sums)[2:]))
        inputs, kernel, shape = sums, nodes.like(sums, np.eye(columns)), nodes.Shape(sums)
    features = nodes.Slice(nodes.Shape(kernel), nodes.ints(0), nodes.ints(1))
    shape = nodes.Concat(nodes.Slice(shape, nodes.ints(0), nodes.ints(2)), features, axis=0)
    return nodes.Reshape(inputs, shape, allowzero=1), kernel


def _recurrent(nodes, operator, order, activations, bias, states, mask, **attrs):
    """Returns the outputs [B, T, U] and last states [B, U] of an operator whose gates are ours in another order.

    The operators end early, but leave out no steps in between: those of a mask follow the others, in the operator.
    """
    sums, recurrent_kernel = nodes.inputs[:2]
    units, gates, _ = nodes.shape(recurrent_kernel)
    inputs, kernel = _inputs_and_kernel(nodes, sums)

    def reordered(weights):
        """Returns weights [rows, gates, units] as [1, gates * units, rows]."""
        by_gates = nodes.Gather(nodes.Transpose(weights, perm=[1, 2, 0]), nodes.ints(*order))
        return nodes.Reshape(by_gates, nodes.ints(1, gates * units, -1))

    steps, zero, one = nodes.Slice(nodes.Shape(inputs), nodes.ints(1), nodes.ints(2)), nodes.ints(0), nodes.ints(1)
    lengths = ""
    if mask:
        is_step = nodes.to_int64(mask[0])
        places = nodes.Range(nodes.scalar(0), nodes.Squeeze(steps, zero), nodes.scalar(1))
        _, first_steps = nodes.TopK(nodes.Sub(nodes.Mul(is_step, steps), places), steps, axis=1, outputs=2)
        inputs = nodes.GatherND(inputs, nodes.Unsqueeze(first_steps, nodes.ints(2)), batch_dims=1)
        done = nodes.CumSum(is_step, nodes.scalar(1))
        steps = nodes.ReduceSum(is_step, one, keepdims=1)
        lengths = nodes.to_int32(nodes.Squeeze(steps, one))
    numbers = [_NUMBERS[name] for name in activations if name in _NUMBERS]
    if numbers:
        attrs["activation_alpha"], attrs["activation_beta"] = map(list, zip(*numbers, strict=True))
    outputs, *last = getattr(nodes, operator)(
        nodes.Transpose(inputs, perm=[1, 0, 2]),
        reordered(nodes.Reshape(kernel, nodes.ints(-1, gates, units))),
        reordered(recurrent_kernel),
        bias,
        lengths,
        *(nodes.Unsqueeze(x, zero) for x in states),
        outputs=1 + len(states),
        hidden_size=units,
        activations=[_ACTIVATIONS[name] for name in activations],
        **attrs,
    )
    outputs = nodes.Transpose(nodes.Squeeze(outputs, one), perm=[1, 0, 2])
    if mask:
        place = nodes.Unsqueeze(nodes.Max(nodes.Sub(done, one), zero), nodes.ints(2))
        is_done = nodes.Unsqueeze(nodes.Greater(done, zero), nodes.ints(2))
        outputs = nodes.Where(is_done, nodes.GatherND(outputs, place, batch_dims=1), nodes.like(outputs, 0))
    # ONNX Runtime returns states of 0 without a step.
    is_first = nodes.Equal(steps, zero)
    return outputs, *(nodes.Where(is_first, x, nodes.Squeeze(y, zero)) for x, y in zip(states, last, strict=True))


@_direct("Lstm", 14, _recurrent_fits(2))
def _lstm(nodes):
    _, _, bias, *states = nodes.inputs[:5]
    order = 0, 3, 1, 2  # i, o, f, g
    bias = nodes.Reshape(nodes.Gather(bias, nodes.ints(*order)), nodes.ints(1, -1))
    bias = nodes.Concat(bias, nodes.Sub(bias, bias), axis=1)
    gate, activation = nodes.attr("recurrent_activation"), nodes.attr("activation")
    results = _recurrent(nodes, "LSTM", order, [gate, activation, activation], bias, states, nodes.inputs[5:])
    return [*results, None, None]


@_direct("Gru", 14, _recurrent_fits(1))
def _gru(nodes):
    _, _, bias, state = nodes.inputs[:4]
    bias = nodes.Reshape(bias, nodes.ints(1, -1))
    activations, is_after = [nodes.attr("recurrent_activation"), nodes.attr("activation")], nodes.attr("reset_after")
    order = 0, 1, 2  # z, r, g
    results = _recurrent(
        nodes, "GRU", order, activations, bias, [state], nodes.inputs[4:], linear_before_reset=int(is_after)
    )
    return [*results, None, None]
