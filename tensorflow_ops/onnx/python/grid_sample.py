"""ONNX's operator of bilinear samples."""

import tensorflow as tf
from onnx import TensorProto

from tensorflow_ops.onnx.python.operators import operator


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


@operator("GridSample", 16, _grid_sample_fits)
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
