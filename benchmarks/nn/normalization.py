"""Normalizations in training: values and gradients, compared with Keras's, also by XLA, and PyTorch's. 4 min."""

import keras
import numpy as np
import peers
import tensorflow as tf
from harness import PAUSE, THREADS, Case, in_graph, in_torch, normal, on_threads, reader, table

import tensorflow_ops as tfo

LAYERS = {"BERT": (4096, 768), "GPT": (2048, 256), "ConvNeXt": (8, 56, 56, 96)}
RMS = {"Llama": (1024, 4096), "BERT": (4096, 768), "small": (2048, 256)}
GROUPS = {"U-Net": (4, 64, 64, 128), "ResNet50": (4, 56, 56, 256), "small": (4, 16, 16, 128)}


def _keras_group_norm(x, gamma, beta):
    layer = keras.layers.GroupNormalization(32)
    layer.built, layer.gamma, layer.beta = True, gamma, beta
    return layer.call(x)


def _rms_norm(x, gamma):
    """What keras.layers.RMSNormalization computes."""
    wide = tf.cast(x, tf.float32)
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(wide), -1, keepdims=True) + 1e-6)
    return tf.cast(wide * inverse * gamma, x.dtype)


def _copier(numbers, dtype):
    """Returns a call that reads and writes as many numbers."""
    size = numbers * tf.as_dtype(dtype).size
    parts = np.array_split(np.ones(2 * (size // 2), np.uint8), 2 * THREADS)
    return on_threads(lambda pair: np.copyto(*pair), list(zip(parts[::2], parts[1::2], strict=True)))


def _cases(shapes, ours, of_keras, of_torch, factors):
    for model, shape in shapes.items():
        for dtype in ("float32", "bfloat16"):
            channels, to = shape[-1], range(1 + factors)
            inputs = [tf.cast(normal(*shape), dtype), *(1 + normal(channels, seed=i + 1) for i in range(factors))]
            rivals = {"Keras": in_graph(of_keras, inputs, to), "XLA": in_graph(of_keras, inputs, to, jit_compile=True)}
            if torch := peers.torch():
                narrow = [tf.cast(x, dtype) for x in inputs]
                rivals["torch"] = in_torch(torch, lambda *args: of_torch(torch.nn.functional, *args), narrow, to)
            # Two streams, and three of the gradient.
            numbers = int(np.prod(shape))
            floor = _copier(4 * numbers, dtype), reader(np.ones(numbers * tf.as_dtype(dtype).size // 4, np.float32))
            yield Case(
                {"model": model, "shape": list(shape), "dtype": dtype},
                in_graph(ours, inputs, to),
                rivals,
                inputs,
                floor=floor,
                off=("Keras",),
            )


@table(pause=PAUSE)
def layer_norm():
    """The last axis. The floor reads x twice and the upstream gradient, and writes values and gradients."""
    yield from _cases(
        LAYERS,
        tfo.nn.layer_norm,
        lambda x, gamma, beta: keras.ops.layer_normalization(x, gamma, beta, -1, 1e-3),
        lambda f, x, gamma, beta: f.layer_norm(x, gamma.shape, gamma, beta, 1e-3),
        2,
    )


@table(pause=PAUSE)
def rms_norm():
    """The last axis. Keras's composition, as all releases compute it."""
    yield from _cases(RMS, tfo.nn.rms_norm, _rms_norm, lambda f, x, gamma: f.rms_norm(x, gamma.shape, gamma, 1e-6), 1)


@table(pause=PAUSE)
def group_norm():
    """32 groups. PyTorch's tensors are channels_last."""
    yield from _cases(
        GROUPS,
        tfo.nn.group_norm,
        _keras_group_norm,
        lambda f, x, gamma, beta: f.group_norm(x.permute(0, 3, 1, 2), 32, gamma, beta, 1e-3).permute(0, 2, 3, 1),
        2,
    )
