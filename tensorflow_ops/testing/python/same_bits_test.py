"""Tests that results are bit-identical for any number of threads and nearly equal for all instruction sets.

opcheck compares 1 and 4 threads for small inputs. These larger inputs reach the code for
tiles of short rows, parts of a row, results written past the caches, and blocks of channels.
"""

import itertools
import os

import numpy as np
import process_testing
import tensorflow as tf
from absl.testing import parameterized

from tensorflow_ops.core.python import versions

# Computes functions and their gradients twice. Arguments: the number of threads, a file for a sample of the results.
# Prints for each function, dtype and shape a name and the distinct hashes of its results.
_SCRIPT = """
    import hashlib, sys
    import numpy as np
    import tensorflow as tf
    import tensorflow_ops as tfo

    tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
    dtypes = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
    saved = {}

    def check(name, function, *inputs):
        hashes = set()
        for run in range(2):
            with tf.GradientTape() as second:
                with tf.GradientTape() as first:
                    first.watch(inputs)
                    y, *others = tf.nest.flatten(function(*inputs))
                upstream = tf.cast(np.random.default_rng(2).normal(size=y.shape), y.dtype)
                second.watch(upstream)
                gradients = first.gradient(y, inputs, upstream)
            results = {"y": y, **{f"d{i}": g for i, g in enumerate(gradients) if g is not None}}
            if SECOND_ORDER:
                results["second"] = second.gradient(gradients[0], upstream, inputs[0])
            hashed = b"".join(r.numpy().tobytes() for r in (*results.values(), *others))
            hashes.add(hashlib.sha256(hashed).hexdigest())
        print(name, *hashes)
        for what, result in results.items():
            values = result.numpy().reshape(-1)
            saved[f"{name} {what}"] = values[:: max(1, values.size // 20000)].astype(np.float64)
"""

_DETECTION = (
    _SCRIPT.replace("SECOND_ORDER", "True")
    + """
    detection = tfo.detection
    rng = np.random.default_rng(1)
    # 4 x 34 channels: 34 for position-sensitive ops, that is whole vectors and a remainder.
    values = rng.normal(size=[2, 40, 50, 136])
    values[rng.random(values.shape) < 0.2] = 0.25  # ties: the first maximum wins
    corners = rng.uniform(-10, 60, [50, 2])
    boxes = np.concatenate([corners, corners + rng.exponential(15, [50, 2])], 1).astype(np.float32)
    box_indices = rng.integers(0, 2, 50).astype(np.int32)
    ops = {
        "roi_pool": detection.roi_pool_with_argmax,
        "roi_align": detection.roi_align,
        "two_samples": lambda *a, **k: detection.roi_align(*a, sampling_ratio=2, aligned=False, **k),
        "max": lambda *a, **k: detection.roi_align(*a, mode="max", **k),
        "ps_roi_pool": detection.ps_roi_pool,
        "ps_roi_align": detection.ps_roi_align,
        "bin_major": lambda *a, **k: detection.ps_roi_align(*a, channel_order="bin_major", **k),
        "multiscale": lambda x, *a, **k: detection.multiscale_roi_align(
            [x, -x], *a, strides=(1, 2), canonical_box_size=320, **k
        ),
    }
    for name, op in ops.items():
        for dtype in dtypes:
            for data_format in ("NHWC", "NCHW"):
                x = tf.cast(values if data_format == "NHWC" else values.transpose(0, 3, 1, 2), dtype)
                coordinates = tf.constant(boxes, tf.float64 if dtype == tf.float64 else tf.float32)

                def pool(x, coordinates, op=op, data_format=data_format):
                    return op(x, coordinates, box_indices, 7 if name == "roi_pool" else 2, data_format=data_format)

                check(f"{name} {dtype.name} {data_format}", pool, x, coordinates)
    np.savez(sys.argv[2], **saved)
    """
)

_NN = (
    _SCRIPT.replace("SECOND_ORDER", "False")
    + """
    nn = tfo.nn
    functions = {
        "softmax": nn.softmax,
        "log_prob": nn.log_prob_from_logits,
        "entropy": nn.softmax_entropy,
        "dense": lambda x: nn.softmax_cross_entropy(tf.cast(tf.abs(x) < 1, x.dtype), x, label_smoothing=0.1),
        "sparse": lambda x: nn.sparse_softmax_cross_entropy(
            np.arange(x.shape[0]) % x.shape[1], x, ignore_index=1, label_smoothing=0.1, z_loss=0.01
        ),
        "label_log_prob": lambda x: nn.label_log_prob(np.arange(x.shape[0]) % x.shape[1], x),
        "gaussian_kl": lambda x: nn.gaussian_kl((x, 0.1 * x), (0.5 * x, 0.2 * x)),
        "unit_kl": lambda x: nn.gaussian_kl((x, x)),
        "linear": lambda x: nn.linear_cross_entropy(
            x, tf.cast(np.random.default_rng(4).normal(size=[x.shape[1], 9]), x.dtype), np.arange(x.shape[0]) % 9
        ),
    }
    for dtype in dtypes:
        for shape in ([1001, 7], [101, 333], [2, 70001], [700, 13000]):
            if shape[0] == 700 and dtype != tf.float32:
                continue
            x = tf.cast(np.random.default_rng(1).normal(size=shape) * 3, dtype)
            for name, function in functions.items():
                if name == "linear" and shape[1] > 1000 or shape[0] == 700 and name not in ("softmax", "sparse"):
                    continue
                check(f"{name} {dtype.name} {shape[0]}", function, x)
    np.savez(sys.argv[2], **saved)
    """
)


def _detection_bounds(function, dtype, what, expected):
    """Returns (rtol, atol) for the rounding of fused multiply-adds: once instead of twice."""
    if function == "roi_pool":  # copies input values and adds them
        return 0, 0
    # Values rounded to neighbours differ by a unit. Gradients to boxes have at least 32 bits.
    unit = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2e-6, "float64": 1e-13}[dtype]
    unit = min(unit, 2e-6) if what == "d1" else unit
    return unit, np.abs(expected).max() * (1e-14 if dtype == "float64" else 2e-6)


def _nn_bounds(function, dtype, what, expected):
    """Returns (rtol, atol) for the summation order of other vector sizes and the rounding of fused multiply-adds."""
    unit = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 3e-6, "float64": 1e-14}[dtype]
    # Per-row results have at least 32 bits.
    if what == "y" and function not in ("softmax", "log_prob", "linear"):
        unit = min(unit, 3e-6)
    atol = {"float16": 6e-8, "float64": 1e-14}.get(dtype, 1e-6) * max(1, np.abs(expected).max())
    # linear_cross_entropy uses TensorFlow's matmuls.
    return (8 * unit, 8 * unit) if function == "linear" else (unit, atol)


class SameBitsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.named_parameters(
        ("detection", _DETECTION, 8 * 4 * 2, _detection_bounds), ("nn", _NN, 9 * 4 * 2 + 8 * 4 + 2, _nn_bounds)
    )
    def test_for_every_number_of_threads(self, script, num_lines, bounds):
        directory = self.get_temp_dir()
        *others, best = versions.cpu_levels()
        printed, files = {}, {}
        for threads, level in (*itertools.product("125", [best]), *itertools.product("2", others)):
            files[level] = os.path.join(directory, f"{level}.npz")
            text = process_testing.output(directory, script, threads, files[level], TENSORFLOW_OPS_CPU=level)
            printed[threads, level] = [line.split() for line in text.splitlines()]

        first = printed["1", best]
        self.assertLen(first, num_lines)
        for line in first:
            self.assertLen(line, 4, "two runs have different results")
        for threads in "25":
            for mine, one in zip(printed[threads, best], first, strict=True):
                self.assertTrue(mine == one or one[0] == "linear", f"{threads} threads: {mine}, 1: {one}")

        for level in others:
            self.assertNotEqual(printed["2", level], first)  # a different instruction set ran
            with np.load(files[best]) as expected, np.load(files[level]) as results:
                self.assertEqual(set(results), set(expected))
                for key in results:
                    function, dtype, _, what = key.split()
                    rtol, atol = bounds(function, dtype, what, expected[key])
                    self.assertAllClose(results[key], expected[key], rtol=rtol, atol=atol, msg=f"{level} {key}")


if __name__ == "__main__":
    tf.test.main()
