"""Samples of quantized_matmul."""

import numpy as np
import tensorflow as tf
from sample_testing import RNG, normal, sample, seed

from tensorflow_ops import nn

# Weights of 4 bits in groups of 8 along the depth, which is not a whole number of groups.
seed("nn.quantized_matmul")
_PACKED = tf.constant(RNG.integers(-128, 128, [21, 3]), tf.int8)
_GROUP_ZEROS = tf.constant(RNG.integers(-8, 8, [3, 5]), tf.int8)
_GROUP_SCALES = tf.constant(RNG.uniform(0.1, 0.5, [3, 5]), tf.float32)


def _quantized_matmul(inputs, kernel, scale, zero, *, bits=8, block_size=None):
    """The definition, of kernels [depth, columns] with a zero."""
    q = kernel.astype(int)
    if bits == 4:
        q = np.stack([(q & 15 ^ 8) - 8, (q >> 4 & 15 ^ 8) - 8], 2)
        q = q.reshape(len(q), 2 * q.shape[1])[:, : zero.shape[-1]]
    group = np.arange(len(q)) // (block_size or len(q))
    return inputs @ ((q - np.atleast_2d(zero)[group]) * np.atleast_2d(scale)[group])


SAMPLES = {
    "nn.quantized_matmul": sample(
        nn.quantized_matmul,
        normal(2, 3, 21),
        _PACKED,
        _GROUP_SCALES,
        kwargs={"zero": _GROUP_ZEROS, "bits": 4, "block_size": 8},
        variants=[
            {"bits": 8, "scale": _GROUP_SCALES[:, :3], "zero": _GROUP_ZEROS[:, :3]},
            {"bits": 8, "block_size": None, "scale": _GROUP_SCALES[0, :3], "zero": None},
            {"block_size": None, "group_index": tf.constant(np.arange(21) * 5 % 3, tf.float32)},
            {
                "transposed": True,
                "kernel": tf.bitcast(tf.transpose(_PACKED), tf.uint8),
                "scale": tf.transpose(_GROUP_SCALES),
                "zero": tf.bitcast(tf.transpose(_GROUP_ZEROS), tf.uint8),
            },
            {
                "packed_axis": 0,
                "kernel": tf.reshape(_PACKED[:11], [11, 3]),
                "scale": _GROUP_SCALES[:, :3],
                "zero": _GROUP_ZEROS[:, :3],
            },
            {
                "packed_axis": -1,
                "transposed": True,
                "kernel": tf.transpose(_PACKED[:11]),
                "scale": tf.transpose(_GROUP_SCALES[:, :3]),
                "zero": tf.transpose(_GROUP_ZEROS[:, :3]),
            },
            {"zero": tf.constant(RNG.uniform(-20, 20, [3, 5]), tf.float32)},
            {"zero": tf.constant(RNG.uniform(-20, 20, [3, 5]), tf.float16), "activation_bits": 8},
            {"activation_bits": 8},
            {"activation_bits": 8, "block_size": None, "scale": _GROUP_SCALES[0], "zero": _GROUP_ZEROS[0]},
        ],
        edge=[
            {"inputs": tf.zeros([0, 3, 21])},
            {
                "inputs": tf.zeros([2, 3, 0]),
                "kernel": tf.zeros([0, 3], tf.int8),
                "scale": tf.zeros([0, 5]),
                "zero": tf.zeros([0, 5], tf.int8),
            },
            {"kernel": tf.zeros([21, 0], tf.int8), "scale": tf.zeros([3, 0]), "zero": tf.zeros([3, 0], tf.int8)},
        ],
        bad=[
            ({"inputs": tf.zeros([2, 20])}, r"kernel must be \[depth, pairs of columns\]"),
            ({"kernel": _PACKED[:, :2]}, r"scale must be .* with columns = 3 or 4, the kernel's: it has 5"),
            ({"group_index": [0.5] * 21, "block_size": None}, r"group_index\[0\] is 0.5, expected a whole number"),
            ({"scale": _GROUP_SCALES[:2], "zero": _GROUP_ZEROS[:2]}, "with groups = 3, of depth 21 in blocks of 8"),
            ({"zero": _GROUP_ZEROS[:2]}, "zero must have scale's shape"),
            ({"bits": 3}, "bits is 3, expected 8 or 4"),
            ({"kernel": tf.zeros([21, 3])}, "kernel is float32, expected int8 or uint8"),
        ],
        finite=["scale"],
        reference=_quantized_matmul,
        non_differentiable=2,
        second_order=True,
    ),
}
