"""Times grid_sample, dense_image_warp and correlation_cost against PyTorch, Keras and compositions of TensorFlow ops.

    python benchmarks/image/sampling.py [grid | warp | correlation]... [--seconds S]

Smooth grids: each pixel moves by up to three. Without PyTorch, its columns are missing. "floor" is measured in turns
with the others: TensorFlow copies features to samples, once forward and twice with gradients; or multiplies matrices of
as many products as the correlation has.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import harness
import keras
import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

try:
    import torch
except ImportError:
    torch = None

PARTS = ("grid", "warp", "correlation")
THREADS = 2
PAUSE = 0.01  # seconds between calls: PyTorch's threads spin after one, and keep a core from the next


def smooth_places(batch, height, width):
    """Returns places (x, y) in pixels, [batch, height, width, 2]."""
    y, x = np.mgrid[:height, :width]
    places = np.stack([x + 3 * np.sin(y / 17.3) + 0.37, y + 3 * np.cos(x / 13.1) + 0.21], -1)
    return np.tile(np.float32(places), (batch, 1, 1, 1))


def normalize(places, height, width):
    """Returns the coordinates of places for align_corners=False."""
    return np.float32((2 * places + 1) / (width, height) - 1)


@tf.function
def copy(x):
    """Returns a tensor of x's size, read and written once."""
    return x + 1


def with_gradients(function):
    """Returns a graph of a function and its gradients to both arguments."""

    @tf.function
    def call(a, b, upstream):
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            y = function(a, b)
        return y, *tape.gradient(y, [a, b], upstream)

    return call


def row(case, calls, seconds, off=None):
    """Times calls in turns. Returns a table row with their ratios to ours."""
    times = harness.interleave(calls, seconds, min_rounds=5, pause=PAUSE)
    result = {"case": case, "ms": f"{1e3 * times['ours']:.2f}"}
    for peer, time in times.items():
        if peer == "floor":
            result["floor, ms"] = f"{1e3 * time:.2f}: {times['ours'] / time:.1f}x floor"
        elif peer != "ours":
            ratio = time / times["ours"]
            result[f"{peer}, ms"] = f"{1e3 * time:.1f}: {ratio:.1f}x"
    if off is not None:
        result["off"] = f"{off:.1e}"
    return result


def torch_calls(x, grid, up, mode):
    """Returns PyTorch's calls: forward, and with gradients. Layouts are its own."""
    sample = torch.nn.functional.grid_sample
    x, up = (torch.tensor(np.moveaxis(t, -1, 1).copy()) for t in (x, up))
    grid = torch.tensor(grid)

    def forward():
        with torch.no_grad():
            return sample(x, grid, mode=mode, align_corners=False)

    def gradients():
        a, b = x.clone().requires_grad_(), grid.clone().requires_grad_()
        sample(a, b, mode=mode, align_corners=False).backward(up)
        return a.grad, b.grad

    return forward, gradients


def grid_rows(seconds, shape=(4, 128, 128, 64), modes=("bilinear", "bicubic")):
    """Returns rows of grid_sample."""
    rng, rows = np.random.default_rng(0), []
    x, up = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    grid = normalize(smooth_places(*shape[:3]), *shape[1:3])
    inputs = [tf.constant(t) for t in (x, grid, up)]
    for mode in modes:

        def sample(a, b, mode=mode):
            return tfo.image.grid_sample(a, b, mode=mode)

        forward, gradients = tf.function(sample), with_gradients(sample)
        calls = [
            {"ours": lambda f=forward: f(*inputs[:2]), "floor": lambda: copy(inputs[0])},
            {"ours": lambda f=gradients: f(*inputs), "floor": lambda: (copy(inputs[0]), copy(inputs[2]))},
        ]
        off = None
        if torch is not None:
            theirs = torch_calls(x, grid, up, mode)
            off = np.abs(np.moveaxis(theirs[0]().numpy(), 1, -1) - forward(*inputs[:2])).max()
            for call, peer in zip(calls, theirs, strict=True):
                call["PyTorch"] = peer
        for call, name in zip(calls, ("forward", "with gradients"), strict=True):
            case = f"{'x'.join(map(str, shape))}, {mode}, {name}"
            rows.append(row(case, call, seconds, off))
    return rows


def warp_rows(seconds, shape=(4, 512, 512, 3)):
    """Returns rows of a warp: PyTorch's grid_sample, and Keras' map_coordinates, plane by plane."""
    batch, height, width, channels = shape
    rows = grid_rows(seconds, shape, ("bilinear",))
    images = tf.random.normal(shape)
    own = np.float32(np.mgrid[:height, :width].transpose(1, 2, 0))
    flow = tf.constant(own - smooth_places(batch, height, width)[..., ::-1])

    @tf.function
    def planes(images, flow):
        places = own - flow
        return tf.stack(
            [
                tf.stack(
                    [
                        keras.ops.image.map_coordinates(
                            images[n, ..., c], [places[n, ..., 0], places[n, ..., 1]], 1, fill_mode="nearest"
                        )
                        for c in range(channels)
                    ],
                    -1,
                )
                for n in range(batch)
            ]
        )

    ours = tf.function(tfo.image.dense_image_warp)
    off = np.abs(ours(images, flow) - planes(images, flow)).max()
    calls = {"ours": lambda: ours(images, flow), "Keras": lambda: planes(images, flow), "floor": lambda: copy(images)}
    case = f"{'x'.join(map(str, shape))}, dense_image_warp"
    return [*rows, row(case, calls, seconds, off)]


def correlation_rows(seconds, shape=(4, 64, 112, 64), reach=4):
    """Returns rows of a cost volume of (2 reach + 1)^2 displacements."""
    height, width = shape[1:3]
    a, b = tf.random.normal(shape), tf.random.normal(shape)
    up = tf.random.normal([*shape[:3], (2 * reach + 1) ** 2])

    def ours(a, b):
        return tfo.image.correlation_cost(a, b, max_displacement=reach, padding=reach)

    def composed(a, b):
        padded = tf.pad(b, [(0, 0), (reach, reach), (reach, reach), (0, 0)])
        steps = range(2 * reach + 1)
        return tf.stack(
            [tf.reduce_mean(a * padded[:, i : i + height, j : j + width], -1) for i in steps for j in steps], -1
        )

    pixels = tf.reshape(a, [-1, shape[3]])
    square = tf.random.normal([shape[3], up.shape[-1]])

    @tf.function
    def forward_products():
        return tf.matmul(pixels, square)

    @tf.function
    def gradient_products():
        costs = tf.reshape(up, [-1, up.shape[-1]])
        to_maps = [tf.matmul(costs, sign * square, transpose_b=True) for sign in (1, -1)]
        return tf.matmul(pixels, square), *to_maps

    forward = {"ours": tf.function(ours), "composed": tf.function(composed)}
    gradients = {"ours": with_gradients(ours), "composed": with_gradients(composed)}
    off = np.abs(forward["ours"](a, b) - forward["composed"](a, b)).max()
    calls = {k: lambda f=f: f(a, b) for k, f in forward.items()} | {"floor": forward_products}
    gradient_calls = {k: lambda f=f: f(a, b, up) for k, f in gradients.items()} | {"floor": gradient_products}
    return [
        row("forward", calls, seconds, off),
        row("with gradients", gradient_calls, seconds),
    ]


def main():
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", help="all by default")
    parser.add_argument("--seconds", type=float, default=4.0, help="per row")
    args = parser.parse_args()
    if not {*args.part} <= {*PARTS}:
        parser.error(f"expected some of {', '.join(PARTS)}")
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    if torch is not None:
        torch.set_num_threads(THREADS)
    print(f"{harness.machine()}\n")
    for part, rows in (("grid", grid_rows), ("warp", warp_rows), ("correlation", correlation_rows)):
        if part in (args.part or PARTS):
            table = rows(args.seconds)
            print(f"## {part}\n")
            columns = list(dict.fromkeys(name for line in table for name in line))
            harness.table([{name: line.get(name, "") for name in columns} for line in table], columns)
            print()


if __name__ == "__main__":
    main()
