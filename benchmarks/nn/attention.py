"""Attention, compared with Keras's composition, also compiled by XLA, and with PyTorch. 26 min.

Also with a matrix product of as many multiply-adds: sizes, windows, grouped heads, steps of decoders and of beam
searches, curves over the length; memory of a training step (needs 16 GB).
Passes are "inference" and "with gradients" to query, key and value. Keras repeats the keys of
grouped heads and reads a mask for windows, as its layers do. PyTorch's tensors are
[B, N, T, D], which it prefers.
"""

import functools

import keras
import numpy as np
import peers
import tensorflow as tf
from harness import PAUSE, Case, in_graph, in_torch, integers, normal, table

import tensorflow_ops as tfo

WINDOW = 256
OPTIONS = {"full": {}, "causal": {"causal": True}, f"window {WINDOW}": {"causal": True, "window": WINDOW}}
PASSES = {"inference": (), "with gradients": (0, 1, 2)}
SIZES = (
    (8, 16, 8, 64),
    (4, 128, 8, 64),
    (1, 512, 8, 64),
    (1, 2048, 8, 64),
    (1, 2048, 4, 128),
    (1, 8192, 1, 64),
    (1, 16384, 1, 64),
)
STEPS = (  # [B, T, S, N, K, D]
    (1, 1, 64, 8, 8, 64),
    (16, 1, 512, 8, 8, 64),
    (1, 1, 4096, 32, 8, 128),
    (1, 4, 4096, 32, 8, 128),
    (8, 4, 512, 8, 8, 64),
    (8, 15, 64, 8, 8, 64),
    (8, 15, 512, 8, 8, 64),
)
# The bytes of scores, and of tensors of their size, that peers may hold: 5 with gradients, 2 without.
SCORES_LIMIT = 16e9


def floor(shape, pairs, dtype, to):
    """Returns a call of one square matrix product with the multiply-adds of 2 products of attention, or 7.

    With gradients there are 7, since the scores are computed again.
    """
    batch, length, heads, depth = shape
    keys = np.full(length, length) if pairs == "full" else np.arange(1, length + 1)  # of each query
    attended = np.minimum(keys, OPTIONS[pairs].get("window", length)).sum()
    multiply_adds = (7 if to else 2) * batch * heads * depth * attended
    size = round(multiply_adds ** (1 / 3))
    return in_graph(tf.matmul, [tf.cast(normal(size, size, seed=seed), dtype) for seed in (3, 4)])


def in_keras(pairs, groups, inputs, to, **options):
    """Returns a call of Keras's composition."""
    # A constant of the graph, so that no call computes it.
    place = tf.range(inputs[0].shape[1])
    distance = place[:, tf.newaxis] - place
    mask = (distance >= 0) & (distance < WINDOW) if pairs.startswith("window") else None

    def attend(query, key, value):
        if groups > 1:
            key, value = (tf.repeat(x, groups, 2) for x in (key, value))
        return keras.ops.dot_product_attention(query, key, value, mask=mask, is_causal=pairs == "causal")

    return in_graph(attend, inputs, to, **options)


def in_pytorch(torch, pairs, groups, inputs, to):
    """Returns a call of scaled_dot_product_attention."""
    ones = torch.ones(2 * [inputs[0].shape[1]], dtype=torch.bool)
    mask = ones.tril().triu(1 - WINDOW) if pairs.startswith("window") else None

    def attend(query, key, value):
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=pairs == "causal", enable_gqa=groups > 1
        )

    return in_torch(torch, attend, [tf.transpose(x, [0, 2, 1, 3]) for x in inputs], to)


def from_torch(result):
    """Returns tensors [B, N, T, D] of PyTorch as float32 arrays [B, T, N, D]."""
    return tf.nest.map_structure(lambda x: x.detach().float().transpose(1, 2).numpy(), result)


def case_of(where, shape, pairs, dtype, which, groups=1):
    """Returns a case of as many query heads for each key head as `groups`."""
    batch, length, heads, depth = shape
    to = PASSES[which]
    key_shape = batch, length, heads // groups, depth
    inputs = [tf.cast(normal(*s, seed=i), dtype) for i, s in enumerate((shape, key_shape, key_shape))]
    rivals = {}
    if (5 if to else 2) * 4 * batch * heads * length**2 <= SCORES_LIMIT:
        rivals["Keras"] = in_keras(pairs, groups, inputs, to)
        if dtype == "float32":
            rivals["XLA"] = in_keras(pairs, groups, inputs, to, jit_compile=True)
    if torch := peers.torch():
        rivals["PyTorch"] = in_pytorch(torch, pairs, groups, inputs, to)
    return Case(
        where | {"dtype": dtype, "pairs": pairs, "pass": which},
        in_graph(lambda q, k, v: tfo.nn.attention(q, k, v, **OPTIONS[pairs]), inputs, to),
        rivals,
        inputs,
        floor=(floor(shape, pairs, dtype, to),),
        off=[name for name in rivals if name != "XLA"],
        arrays={"PyTorch": from_torch},
    )


def cases_of(sizes, all_pairs=OPTIONS, dtypes=("float32", "bfloat16"), groups=1):
    """Yields the cases of sizes."""
    for shape in sizes:
        where = {"[B, T, N, D]": list(shape)} | ({"key heads": shape[2] // groups} if groups > 1 else {})
        for pairs in all_pairs:
            for dtype in dtypes:
                for which in PASSES:
                    yield case_of(where, shape, pairs, dtype, which, groups)


@table(pause=PAUSE)
def sizes():
    """The floor is a matrix product with as many multiply-adds: 2 products without gradients, 7 with."""
    yield from cases_of(SIZES, ("full", "causal"))


@table(pause=PAUSE)
def window():
    """Each query attends to itself and the 255 keys before it; the floor multiplies no others."""
    yield from cases_of(((1, 2048, 8, 64), (1, 8192, 1, 64)), (f"window {WINDOW}",))


@table(pause=PAUSE)
def grouped():
    """Several query heads share a key head."""
    yield from cases_of(((1, 2048, 8, 64), (1, 2048, 4, 128)), ("full", "causal"), groups=4)


def step_of(shape, dtype):
    """Returns a case of T queries that follow S - T keys."""
    batch, queries, keys, heads, key_heads, depth = shape
    shapes = (batch, queries, heads, depth), *2 * [(batch, keys, key_heads, depth)]
    inputs = [tf.cast(normal(*s, seed=i), dtype) for i, s in enumerate(shapes)]
    mask = None if queries == 1 else np.tri(queries, keys, keys - queries, dtype=bool)

    def in_keras(query, key, value):
        if heads > key_heads:
            key, value = (tf.repeat(x, heads // key_heads, 2) for x in (key, value))
        return keras.ops.dot_product_attention(query, key, value, mask=mask)

    rivals = {"Keras": in_graph(in_keras, inputs)}
    if torch := peers.torch():
        attend = functools.partial(
            torch.nn.functional.scaled_dot_product_attention,
            attn_mask=None if mask is None else torch.from_numpy(mask),
            enable_gqa=heads > key_heads,
        )
        rivals["PyTorch"] = in_torch(torch, attend, [tf.transpose(x, [0, 2, 1, 3]) for x in inputs])
    return Case(
        {"[B, T, S, N, K, D]": list(shape), "dtype": dtype},
        in_graph(lambda q, k, v: tfo.nn.attention(q, k, v, causal=True), inputs),
        {"call": in_graph(lambda q, k, v: tf.identity(q), inputs)} | rivals,
        inputs,
        off=list(rivals),
        arrays={"PyTorch": from_torch},
    )


@table(pause=PAUSE)
def steps():
    """Steps of decoders: T queries after a cache, S keys with them, and K key heads.

    "call" is a tf.identity, the time of a call of TensorFlow.
    """
    for shape in STEPS:
        for dtype in ("float32", "bfloat16", "float16"):
            yield step_of(shape, dtype)


@table(pause=PAUSE)
def beams():
    """A step of a search of W beams after a cache of S positions, by ancestors.

    "gather" copies keys and values by the beams' parents, and attends to the copies.
    """
    for examples, width, keys, heads, key_heads, depth in ((4, 4, 512, 8, 8, 64), (2, 4, 2048, 32, 8, 128)):
        rows = examples * width
        shapes = (rows, 1, heads, depth), *2 * [(rows, keys, key_heads, depth)]
        inputs = [normal(*shape, seed=i) for i, shape in enumerate(shapes)]
        ancestors = integers(0, width, examples, width, keys, seed=3)
        parents = integers(0, width, examples, width, seed=4)

        def gathered(query, key, value, parents, keys=keys, shape=(examples, width)):
            copies = [tf.gather(tf.reshape(x, [*shape, *x.shape[1:]]), parents, batch_dims=1) for x in (key, value)]
            key, value = (tf.reshape(x, key.shape) for x in copies)
            return tfo.nn.decode_attention(query, key, value, keys)

        def attend(query, key, value, ancestors, keys=keys):
            return tfo.nn.decode_attention(query, key, value, keys, ancestors=ancestors)

        yield Case(
            {"[B, W, S, N, K, D]": [examples, width, keys, heads, key_heads, depth]},
            in_graph(attend, [*inputs, ancestors]),
            {
                "call": in_graph(lambda q, k, v: tf.identity(q), inputs),
                "no ancestors": in_graph(lambda q, k, v, n=keys: tfo.nn.decode_attention(q, k, v, n), inputs),
                "gather": in_graph(gathered, [*inputs, parents]),
            },
            inputs,
            off=[],
        )


@table(pause=PAUSE, axis="T")
def lengths():
    """One head of 64 over its length."""
    for length in (16, 64, 256, 1024, 4096, 16384):
        for pairs in OPTIONS:
            for which in PASSES:
                yield case_of({"T": length}, (1, length, 1, 64), pairs, "float32", which)


@table(speed=False, memory=("ours", "Keras", "XLA", "PyTorch"))
def memory():
    """A step of training of 8 heads."""
    for length in (2048, 8192):
        yield case_of({"[B, T, N, D]": [1, length, 8, 64]}, (1, length, 8, 64), "causal", "float32", "with gradients")
