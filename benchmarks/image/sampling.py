"""Sampling and cost volumes, compared with PyTorch, Keras and compositions of TensorFlow ops. 2 min.

Grids are smooth: each pixel moves by up to three.
"""

import functools

import keras
import numpy as np
import peers
import tensorflow as tf
from harness import PAUSE, Case, channels_first, channels_last, in_graph, in_torch, normal, table

import tensorflow_ops as tfo


def smooth_places(batch, height, width):
    """Returns places (x, y) in pixels, [batch, height, width, 2]."""
    y, x = np.mgrid[:height, :width]
    places = np.stack([x + 3 * np.sin(y / 17.3) + 0.37, y + 3 * np.cos(x / 13.1) + 0.21], -1)
    return np.tile(np.float32(places), (batch, 1, 1, 1))


def shape_text(shape):
    return "x".join(map(str, shape))


def grid_cases(shape, mode):
    """Yields the cases of grid_sample."""
    x, up = normal(*shape), normal(*shape, seed=1)
    places = smooth_places(*shape[:3])
    grid = np.float32((2 * places + 1) / (shape[2], shape[1]) - 1)
    copy = in_graph(lambda t: t + 1, (x,))
    torch = peers.torch()
    for to, which in (((), "forward"), ((0, 1), "with gradients")):
        rivals = {}
        if torch:
            rivals["PyTorch"] = in_torch(
                torch,
                lambda a, b: torch.nn.functional.grid_sample(a, b, mode=mode, align_corners=False),
                (channels_first(x), grid),
                to,
                channels_first(up),
            )
        yield Case(
            {"case": f"{shape_text(shape)}, {mode}", "pass": which},
            in_graph(lambda a, b: tfo.image.grid_sample(a, b, mode=mode), (x, grid), to, up),
            rivals,
            floor=(copy, in_graph(lambda t: t + 1, (up,))) if to else (copy,),
            arrays={
                "ours": lambda result, to=to: result[0] if to else result,
                "PyTorch": lambda result, to=to: channels_last(result[0] if to else result),
            },
        )


@table(pause=PAUSE)
def grid():
    """The floor is TensorFlow's copy of features to samples, twice with gradients."""
    for mode in ("bilinear", "bicubic"):
        yield from grid_cases((4, 128, 128, 64), mode)


@table(pause=PAUSE)
def warp():
    """grid_sample and dense_image_warp of images; Keras' map_coordinates takes plane by plane."""
    shape = batch, height, width, channels = 4, 512, 512, 3
    yield from grid_cases(shape, "bilinear")
    own = np.float32(np.mgrid[:height, :width].transpose(1, 2, 0))
    inputs = normal(*shape), own - smooth_places(batch, height, width)[..., ::-1]

    def planes(images, flow):
        places = tf.unstack(own - flow, axis=-1)

        def plane(n, c):
            at = [p[n] for p in places]
            return keras.ops.image.map_coordinates(images[n, ..., c], at, 1, fill_mode="nearest")

        return tf.stack([tf.stack([plane(n, c) for c in range(channels)], -1) for n in range(batch)])

    yield Case(
        {"case": f"{shape_text(shape)}, dense_image_warp", "pass": "forward"},
        in_graph(tfo.image.dense_image_warp, inputs),
        {"Keras": in_graph(planes, inputs)},
        floor=(in_graph(lambda t: t + 1, inputs[:1]),),
    )


def keras_map_coordinates(images, coordinates):
    """A loop over images and channels, as in Keras's elastic_transform."""

    def plane(n, c):
        at = [coordinates[n, ..., axis] for axis in (0, 1)]
        return keras.ops.image.map_coordinates(images[n, ..., c], at, 1)

    batch, *_, channels = images.shape
    return tf.stack([tf.stack([plane(n, c) for c in range(channels)], -1) for n in range(batch)])


@table(pause=PAUSE)
def map_coordinates():
    """Keras's fill_mode "constant" is "grid-constant" here. The floor is TensorFlow's copy of the images."""
    for shape in ((4, 512, 512, 3), (4, 512, 512, 1)):
        inputs = normal(*shape), smooth_places(*shape[:3])[..., ::-1]
        up = normal(*shape, seed=1)
        ours = functools.partial(tfo.image.map_coordinates, fill_mode="grid-constant")
        for to, which in (((), "forward"), ((0, 1), "with gradients")):
            yield Case(
                {"case": shape_text(shape), "pass": which},
                in_graph(ours, inputs, to, up),
                {
                    "Keras": in_graph(keras_map_coordinates, inputs, to, up),
                    "Keras, XLA": in_graph(keras_map_coordinates, inputs, to, up, jit_compile=True),
                },
                floor=(in_graph(lambda t: t + 1, inputs[:1]),),
            )


@table(pause=PAUSE)
def elastic(shape=(8, 256, 256, 3)):
    """Keras filters by a square kernel, and takes plane by plane. The floor is TensorFlow's copy of the images."""
    images = normal(*shape)
    # TensorFlow would compute the displacements of a constant seed while it optimizes the graph.
    seed, generator = np.array([1, 2], np.int32), keras.random.SeedGenerator(1)
    yield Case(
        {"case": shape_text(shape), "pass": "forward"},
        in_graph(lambda images, seed: tfo.image.elastic_transform(images, seed=seed), (images, seed)),
        {"Keras": in_graph(lambda images: keras.ops.image.elastic_transform(images, seed=generator), (images,))},
        floor=(in_graph(lambda t: t + 1, (images,)),),
        off=(),
    )


@table(pause=PAUSE)
def correlation(shape=(4, 64, 112, 64), reach=4):
    """A cost volume of 81 displacements. The floor is matrix products of as many multiply-adds."""
    height, width = shape[1:3]
    inputs = normal(*shape), normal(*shape, seed=1)
    up = normal(*shape[:3], (2 * reach + 1) ** 2, seed=2)

    def composed(a, b):
        padded = tf.pad(b, [(0, 0), (reach, reach), (reach, reach), (0, 0)])
        steps = range(2 * reach + 1)
        parts = [padded[:, i : i + height, j : j + width] for i in steps for j in steps]
        return tf.stack([tf.reduce_mean(a * part, -1) for part in parts], -1)

    square = normal(shape[3], up.shape[-1], seed=3)
    pixels, costs = tf.reshape(inputs[0], [-1, shape[3]]), tf.reshape(up, [-1, up.shape[-1]])
    product = in_graph(tf.matmul, (pixels, square))
    backward = in_graph(lambda d, s: [tf.matmul(d, sign * s, transpose_b=True) for sign in (1, -1)], (costs, square))
    ours = functools.partial(tfo.image.correlation_cost, max_displacement=reach, padding=reach)
    for to, which in (((), "forward"), ((0, 1), "with gradients")):
        yield Case(
            {"case": shape_text(shape), "pass": which},
            in_graph(ours, inputs, to, up),
            {"composed": in_graph(composed, inputs, to, up)},
            floor=(product, backward) if to else (product,),
        )
