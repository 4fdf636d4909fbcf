"""Depthwise convolution, forward and its gradients apart, beside TensorFlow's and PyTorch's (channels_last). 2 min."""

import functools

import peers
import tensorflow as tf
from harness import PAUSE, Case, in_graph, in_torch, normal, num_bytes, table

import tensorflow_ops as tfo

# (batch, size, channels, kernel, stride); of MobileNetV2, EfficientNetB0 and ConvNeXt, at 224x224 and as in models.py.
LAYERS = [
    *((8, 112, 32, 3, 1), (8, 112, 96, 3, 2), (8, 56, 144, 3, 1), (8, 48, 32, 3, 1), (8, 48, 96, 3, 2)),
    *((8, 24, 144, 3, 1), (8, 24, 144, 3, 2), (8, 12, 192, 3, 1), (8, 6, 576, 3, 1), (8, 3, 960, 3, 1)),
    *((8, 28, 240, 5, 1), (8, 28, 240, 5, 2), (8, 24, 144, 5, 2), (8, 6, 672, 5, 1), (8, 3, 1152, 5, 1)),
    *((8, 56, 96, 7, 1), (8, 14, 384, 7, 1), (4, 16, 96, 7, 1), (4, 4, 384, 7, 1), (4, 2, 768, 7, 1)),
]


def in_torch_channels_last(torch, inputs, kernel, stride, to, upstream):
    """Returns PyTorch's call on images in channels_last, with TensorFlow's padding."""
    size = inputs[0].shape[1]
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    pads = total // 2, total - total // 2

    def run(images, filters):
        images = images.permute(0, 3, 1, 2)  # a view: channels_last
        if pads[0] != pads[1]:
            images = torch.nn.functional.pad(images, pads * 2)
        padding = pads[0] if pads[0] == pads[1] else 0
        filters = filters.permute(2, 3, 0, 1)
        result = torch.nn.functional.conv2d(images, filters, None, stride, padding, 1, images.shape[1])
        return result.permute(0, 2, 3, 1)

    return in_torch(torch, run, inputs, to, upstream, only_gradients=bool(to))


@table(pause=PAUSE)
def layers():
    """Padding "SAME"; "gradients" are those to images and filters, without the forward pass."""
    for batch, size, channels, kernel, stride in LAYERS:
        inputs = normal(batch, size, size, channels), normal(kernel, kernel, channels, 1, seed=1)
        places = -(-size // stride)
        upstream = normal(batch, places, places, channels, seed=2)
        options = {"strides": [1, stride, stride, 1], "padding": "SAME"}
        functions = [functools.partial(f, **options) for f in (tfo.nn.depthwise_conv2d, tf.nn.depthwise_conv2d)]
        for which, to in (("forward", ()), ("gradients", (0, 1))):
            graph = {"to": to, "upstream": upstream, "only_gradients": True} if to else {}
            ours, theirs = (in_graph(f, inputs, **graph) for f in functions)
            rivals = {"TensorFlow": theirs}
            if torch := peers.torch():
                rivals["torch"] = in_torch_channels_last(torch, inputs, kernel, stride, to, upstream)
            moved = num_bytes(inputs), num_bytes(upstream)
            if to:
                moved = num_bytes(inputs) + num_bytes(upstream), num_bytes(inputs)
            where = {"[N, H, W, C]": [batch, size, size, channels], "kernel": kernel, "stride": stride, "pass": which}
            arrays = {name: (lambda r: r[0]) for name in ("ours", *rivals)} if to else {}
            yield Case(where, ours, rivals, inputs, moved, arrays=arrays)
