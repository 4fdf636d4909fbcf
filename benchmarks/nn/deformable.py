"""Deformable convolution and attention, compared with torchvision, PyTorch and TensorFlow. 3 min.

Also with their floors (needs gcc); memory. Passes are "forward" and "with gradients" to all inputs.
"""

import functools

import harness
import numpy as np
import peers
import tensorflow as tf
from harness import PAUSE, Case, channels_first, channels_last, in_graph, in_torch, normal, table

import tensorflow_ops as tfo

CONVOLUTIONS = ((100, 152, 128), (50, 76, 256), (25, 38, 512))  # (height, width, channels)
DECODER = ((100, 134), (50, 67), (25, 34), (13, 17))
ENCODER = ((50, 67), (25, 34), (13, 17), (7, 9))
ATTENTIONS = {"decoder": (300, DECODER), "encoder": (sum(h * w for h, w in ENCODER), ENCODER)}  # (queries, levels)
HEADS, DEPTH, POINTS = 8, 32, 4


def products(height, width, channels, which):
    """Returns a call of the matrix products of a convolution, on columns that exist already."""
    sizes = ((height * width, 9 * channels), (9 * channels, channels), (height * width, channels))

    def multiply(columns, filters, d):
        forward = tf.matmul(columns, filters)
        if which == "forward":
            return forward
        return forward, tf.matmul(columns, d, transpose_a=True), tf.matmul(d, filters, transpose_b=True)

    return in_graph(multiply, [normal(*size) for size in sizes])


@table(memory=("ours",), pause=PAUSE)
def convolution():
    """Version 2 with a mask, 3 x 3, padding 1, offsets of standard deviation 1.

    The floor is its matrix products. tf.nn.conv2d does as many; "NCHW" is ours on such tensors, which it transposes.
    """

    def ours(features, offsets, filters, mask, **options):
        return tfo.nn.deform_conv2d(features, offsets, filters, mask=mask, padding=1, **options)

    for height, width, channels in CONVOLUTIONS:
        offsets, filters = normal(1, height, width, 18, seed=1), normal(3, 3, channels, channels, seed=2)
        mask = np.random.default_rng(3).random((1, height, width, 9), np.float32)
        inputs = normal(1, height, width, channels), offsets, filters, mask
        first = [channels_first(x) for x in inputs]
        for which, to in (("forward", ()), ("with gradients", range(4))):
            rivals = {
                "NCHW": in_graph(
                    functools.partial(ours, data_format="NCHW"), (first[0], first[1], filters, first[3]), to
                ),
                "conv2d": in_graph(lambda f, w: tf.nn.conv2d(f, w, 1, "SAME"), (inputs[0], filters), to and (0, 1)),
            }
            if peers.torchvision():
                torch, ops = peers.torchvision()
                rivals["torchvision"] = in_torch(
                    torch,
                    lambda f, o, w, m, conv=ops.deform_conv2d: conv(f, o, w, padding=1, mask=m),
                    (first[0], first[1], np.transpose(filters, (3, 2, 0, 1)), first[3]),
                    to,
                )
            value = lambda result, to=to: channels_last(result[0] if to else result)  # noqa: E731
            yield Case(
                {"[height, width, channels]": [height, width, channels], "pass": which},
                in_graph(ours, inputs, to),
                rivals,
                inputs,
                floor=(products(height, width, channels, which),),
                off=[name for name in rivals if name != "conv2d"],
                arrays={"ours": lambda result, to=to: result[0] if to else result, "NCHW": value, "torchvision": value},
            )


def torch_attention(torch, levels):
    """Deformable DETR's composition of grid_sample."""

    def run(values, locations, weights):
        parts = values.split([h * w for h, w in levels], 1)
        samples = []
        for i, (height, width) in enumerate(levels):
            image = parts[i].flatten(2).transpose(1, 2).reshape(HEADS, DEPTH, height, width)
            grid = 2 * locations[:, :, :, i].transpose(1, 2).flatten(0, 1) - 1
            samples.append(torch.nn.functional.grid_sample(image, grid, align_corners=False))
        weights = weights.transpose(1, 2).reshape(HEADS, 1, weights.shape[1], len(levels) * POINTS)
        output = (torch.stack(samples, -2).flatten(-2) * weights).sum(-1)
        return output.view(1, HEADS * DEPTH, -1).transpose(1, 2)

    return run


def tf_attention(levels):
    """Keras models' composition of gathers."""

    def run(values, locations, weights):
        parts = tf.split(values, [h * w for h, w in levels], 1)
        output = 0.0
        for i, (height, width) in enumerate(levels):
            pixels = tf.transpose(parts[i][0], [1, 0, 2])  # [heads, pixels, depth]
            place = tf.transpose(locations[0, :, :, i], [1, 0, 2, 3]) * tf.constant([width, height], tf.float32) - 0.5
            weight = tf.transpose(weights[0, :, :, i], [1, 0, 2])
            low = tf.floor(place)
            for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
                at = low + tf.constant([dx, dy], tf.float32)
                inside = tf.reduce_all((at >= 0) & (at < [float(width), float(height)]), -1)
                factor = tf.reduce_prod(1 - tf.abs(place - at), -1) * weight * tf.cast(inside, tf.float32)
                at = tf.cast(tf.clip_by_value(at, 0.0, [width - 1.0, height - 1.0]), tf.int32)
                samples = tf.gather(pixels, at[..., 1] * width + at[..., 0], batch_dims=1)
                output += tf.einsum("hqpd,hqp->qhd", samples, factor)
        return tf.reshape(output, [1, -1, HEADS * DEPTH])

    return run


def attention_rows(case, locations, which):
    """Returns a call that reads from the pixels that attention reads from, and adds to them (row_visits.py).

    Of the encoder, the pixels of a head are side by side, as our op copies them; the decoder reads
    the heads of a query in turn.
    """
    from nn import row_visits  # compiles C

    _, levels = ATTENTIONS[case]
    sizes = np.array(levels)[:, None, ::-1]  # (width, height), as in locations
    first = np.cumsum([0] + [h * w for h, w in levels])
    corners = np.array([(0, 0), (1, 0), (0, 1), (1, 1)])
    at = np.floor(locations[0] * sizes - 0.5)[..., None, :] + corners  # [queries, heads, levels, points, corners, 2]
    inside = ((at >= 0) & (at < sizes[..., None, :])).all(-1)
    pixels = (first[:-1, None, None] + at[..., 1] * sizes[..., None, 0] + at[..., 0]).astype(np.int64)
    head = np.arange(HEADS).reshape(1, HEADS, 1, 1, 1)
    if case == "encoder":
        places, inside, axis = (head * first[-1] + pixels).swapaxes(0, 1), inside.swapaxes(0, 1), 0
    else:
        places, axis = pixels * HEADS + head, 1
    parts = (np.array_split(array, harness.THREADS, axis) for array in (places, inside))
    floor = row_visits.Rows(HEADS * first[-1], DEPTH, [place[counts] for place, counts in zip(*parts, strict=True)])
    return floor.read if which == "forward" else lambda: (floor.read(), floor.read_and_add())


@table(memory=("ours",), pause=PAUSE)
def attention():
    """8 heads of 32 channels and 4 points on 4 levels, composed as PyTorch's and Keras's models do.

    The floor is a TensorFlow call that writes the output and the gradients to locations and weights, and reading from
    as many pixels at the same places; with gradients also reading them again, writing zeros to the gradient to the
    values and adding to its pixels. It needs gcc.
    """
    for case, (queries, levels) in ATTENTIONS.items():
        generator = np.random.default_rng(0)
        pixels, shape = sum(h * w for h, w in levels), (1, queries, HEADS, len(levels), POINTS)
        # Around a reference point, as trained models sample.
        centers = generator.random((1, queries, 1, 1, 1, 2), np.float32)
        locations = centers + 0.05 * generator.standard_normal((*shape, 2), np.float32)
        weights = generator.random(shape, np.float32)
        inputs = normal(1, pixels, HEADS, DEPTH), locations, weights / weights.sum()
        for which, to in (("forward", ()), ("with gradients", range(3))):

            def fill(values, locations, weights, to=to):
                number = weights[0, 0, 0, 0, 0]
                output = tf.fill([1, weights.shape[1], HEADS * DEPTH], number)
                return output, *(tf.fill(tensor.shape, number) for tensor in (locations, weights) if to)

            rivals = {"tf": in_graph(tf_attention(levels), inputs, to)}
            if torch := peers.torch():
                rivals["PyTorch"] = in_torch(torch, torch_attention(torch, levels), inputs, to)
            yield Case(
                {"case": case, "pass": which},
                in_graph(
                    lambda v, x, w, levels=levels: tfo.nn.multiscale_deformable_attention(v, levels, x, w), inputs, to
                ),
                rivals,
                inputs,
                floor=(in_graph(fill, inputs), attention_rows(case, locations, which)),
                arrays=dict.fromkeys(("ours", *rivals), lambda result, to=to: result[0] if to else result),
            )
