"""ONNX's operators of deformable and depthwise convolution."""

from tensorflow_ops.onnx.python.operators import dims, operator


def _deform_conv_fits(op):
    (_, height, width, channels), offsets, filters = (dims(tensor, 4) for tensor in op.inputs[:3])
    sizes = [height, width] if op.get_attr("padding") == b"SAME" else []
    return None not in [*sizes, channels, offsets[3], *filters]


def _same_padding(size, filter_size, stride, dilation):
    """Returns TensorFlow's padding "SAME" before and behind an axis."""
    total = max((-(-size // stride) - 1) * stride + (filter_size - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


@operator("DeformConv2d", 19, _deform_conv_fits)
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


def _depthwise_conv_fits(op):
    _, *sizes, _ = dims(op.inputs[0], 4)
    filters = dims(op.inputs[1], 3)
    return None not in [*(sizes if op.get_attr("padding") == b"SAME" else []), *filters]


@operator("DepthwiseConv2d", 13, _depthwise_conv_fits)
def _depthwise_conv2d(nodes):
    images, filters = nodes.inputs
    *filter_size, channels = nodes.shape(filters)
    strides, dilations = nodes.attr("strides"), nodes.attr("dilations")
    top, bottom, left, right = nodes.attr("paddings")
    if nodes.attr("padding") == "SAME":
        size = nodes.shape(images)[1:3]
        (top, bottom), (left, right) = map(_same_padding, size, filter_size, strides, dilations)
    output = nodes.Conv(
        nodes.to_channels_first(nodes.widened(images)),
        nodes.Unsqueeze(nodes.Transpose(nodes.widened(filters), perm=[2, 0, 1]), nodes.ints(1)),
        kernel_shape=filter_size,
        strides=strides,
        dilations=dilations,
        pads=[top, left, bottom, right],
        group=channels,
    )
    return [nodes.to_channels_last(output)]
