"""Products with weights of 8 and 4 bits, compared with float weights, Keras's composition and PyTorch."""

import keras
import numpy as np
import peers
import tensorflow as tf
from harness import PAUSE, Case, in_graph, in_torch, normal, reader, table

import tensorflow_ops as tfo

DEPTH, COLUMNS, GROUP = 4096, 16384, 128


def keras_int8(inputs, kernel, scale):
    """Returns what keras.layers.Dense computes in the mode int8; its scale is the reciprocal."""
    integers, factors = keras.quantizers.abs_max_quantize(inputs, axis=-1)
    return tf.cast(tf.matmul(integers, kernel, output_type=tf.int32), inputs.dtype) * scale / factors


def keras_int4(inputs, kernel, scale, zero):
    """Returns what keras.layers.Dense computes in the mode int4."""
    numbers = keras.quantizers.unpack_int4(kernel, COLUMNS, axis=-1)
    groups = tf.range(DEPTH) // GROUP
    weights = (tf.cast(numbers, scale.dtype) - tf.gather(tf.cast(zero, scale.dtype), groups)) * tf.gather(scale, groups)
    return tf.matmul(inputs, weights)


def torch_int4(torch, numbers, scale, zero):
    """Returns a function of inputs, with PyTorch's own layout of the weights."""
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(torch.tensor(numbers.T + 8, dtype=torch.int32), 1)
    parameters = torch.tensor(np.stack([scale, -scale * zero], -1))
    return lambda x: torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, GROUP, parameters)


@table(pause=PAUSE, threads=True)
def products():
    """A layer [4096, 16384]: int8 with rounded inputs, and int4 in groups of 128 with zeros.

    The floor reads the kernel's bytes and does the float product's work, whichever is slower: up to 8 rows, the bytes.
    "float32" is tf.matmul with float weights, "Keras" the composition of its layer, "torch" its
    _weight_int4pack_mm_for_cpu.
    """
    rng = np.random.default_rng(0)
    numbers = rng.integers(-8, 8, [DEPTH, COLUMNS], np.int8)
    zero = rng.integers(-8, 8, [DEPTH // GROUP, COLUMNS], np.int8)
    scale = rng.uniform(0.01, 0.02, zero.shape).astype(np.float32)
    packed = ((numbers[:, ::2] & 15) | (numbers[:, 1::2] << 4)).astype(np.int8)
    weights = normal(DEPTH, COLUMNS, seed=1, scale=0.02)
    for rows in (1, 2, 4, 8, 16, 64):
        x = normal(rows, DEPTH)
        of_float = in_graph(tf.matmul, (x, weights))
        for bits, kernel in ((8, numbers), (4, packed)):
            if bits == 8:
                inputs = x, kernel, scale[0]
                ours = in_graph(lambda x, k, s: tfo.nn.quantized_matmul(x, k, s, activation_bits=8), inputs)
                rivals = {"float32": of_float, "Keras": in_graph(keras_int8, inputs)}
            else:
                inputs = x, kernel, scale, zero
                ours = in_graph(
                    lambda x, k, s, z: tfo.nn.quantized_matmul(x, k, s, zero=z, bits=4, block_size=GROUP), inputs
                )
                rivals = {"float32": of_float, "Keras": in_graph(keras_int4, inputs)}
                if peers.torch():
                    torch = peers.torch()
                    rivals["torch"] = in_torch(torch, torch_int4(torch, numbers, scale, zero), (x,))
            yield Case(
                {"bits": bits, "rows": rows},
                ours,
                rivals,
                inputs,
                floor=(reader(kernel),) if rows <= 8 else (of_float,),
                off=["Keras"] + ["torch"] * ("torch" in rivals),
            )
