"""Tests of RoIAlign and its relatives that need processes of their own: threads, instruction sets, SavedModel."""

import functools
import itertools
import os
import subprocess
import sys
import textwrap

import numpy as np
import roi_reference_test as reference
import tensorflow as tf

import tensorflow_ops as tfo
from tensorflow_ops.core.python import versions

# Arguments: the number of threads, and the file that takes what it computes. Prints a line of hashes for each op,
# dtype and layout.
_EVERY_OP = """
    import hashlib, sys
    import numpy as np
    import tensorflow as tf
    import tensorflow_ops as tfo

    tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
    detection = tfo.detection
    rng = np.random.default_rng(1)
    # 4 x 34 channels: position-sensitive ops have 34, whole vectors and a rest.
    values = rng.normal(size=[2, 40, 50, 136])
    corners = rng.uniform(-10, 60, [50, 2])
    boxes = np.concatenate([corners, corners + rng.exponential(15, [50, 2])], 1).astype(np.float32)
    box_indices = rng.integers(0, 2, 50).astype(np.int32)
    ops = {
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
    saved = {}
    for name, op in ops.items():
        for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
            for data_format in ("NHWC", "NCHW"):
                x = tf.cast(values if data_format == "NHWC" else values.transpose(0, 3, 1, 2), dtype)
                coordinates = tf.constant(boxes, tf.float64 if dtype == tf.float64 else tf.float32)
                hashes = set()
                for run in range(2):
                    with tf.GradientTape() as second:
                        with tf.GradientTape() as first:
                            first.watch([x, coordinates])
                            y = op(x, coordinates, box_indices, 2, data_format=data_format)
                        upstream = tf.cast(np.random.default_rng(2).normal(size=y.shape), dtype)
                        second.watch(upstream)
                        dx, d_boxes = first.gradient(y, [x, coordinates], upstream)
                    results = {"y": y, "dx": dx, "d_upstream": second.gradient(dx, upstream, x)}
                    if d_boxes is not None:
                        results["d_boxes"] = d_boxes
                    results = {what: result.numpy() for what, result in results.items()}
                    hashes.add(hashlib.sha256(b"".join(r.tobytes() for r in results.values())).hexdigest())
                print(name, dtype.name, data_format, *hashes)
                for what, result in results.items():
                    # One image tells as much as two.
                    saved[f"{name} {dtype.name} {data_format} {what}"] = result[:1].astype(np.float64)
    np.savez(sys.argv[2], **saved)
    """


def _run(directory, script, *arguments, **environment):
    """Runs a Python script in a new process, away from the source tree; returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


class ProcessTest(tf.test.TestCase):
    def test_threads_give_the_same_bits_and_instruction_sets_agree(self):
        directory = self.get_temp_dir()
        *others, best = versions.cpu_levels()
        printed = {}
        for threads, level in (*itertools.product("125", [best]), *itertools.product("2", others)):
            file = os.path.join(directory, f"{threads}_{level}.npz")
            printed[threads, level] = _run(directory, _EVERY_OP, threads, file, TENSORFLOW_OPS_CPU=level)

        first = printed["1", best]
        self.assertLen(first.splitlines(), 7 * 4 * 2)
        for line in first.splitlines():
            self.assertLen(line.split(), 4)  # one hash: the same in both runs
        self.assertEqual(printed["2", best], first)
        self.assertEqual(printed["5", best], first)

        with np.load(os.path.join(directory, f"2_{best}.npz")) as expected:
            for level in others:
                with np.load(os.path.join(directory, f"2_{level}.npz")) as results:
                    self.assertEqual(set(results), set(expected))
                    for key in results:
                        self._check_another_instruction_set(f"{level} {key}", results[key], expected[key])

    def _check_another_instruction_set(self, key, result, expected):
        """Fused multiplications round once, not twice: no more than that may differ."""
        *_, dtype, _, what = key.split()
        # Two values that are rounded to neighbours are a unit apart. Gradients to boxes are not in 16 bits.
        unit = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2e-6, "float64": 1e-13}[dtype]
        unit = min(unit, 2e-6) if what == "d_boxes" else unit
        atol = np.abs(expected).max() * (1e-14 if dtype == "float64" else 2e-6)
        self.assertAllClose(result, expected, rtol=unit, atol=atol, msg=key)

    def test_saved_model_in_a_new_process(self):
        boxes, box_indices = np.array([[0.3, 0.4, 6.1, 5.2], [1.1, 1.2, 4.3, 4.4]]), [0, 1]
        detection = tfo.detection
        pools = {
            "roi_align": lambda x, b: detection.roi_align(x, b, box_indices, 2),
            "max": lambda x, b: detection.roi_align(x, b, box_indices, 2, mode="max"),
            "ps_roi_pool": lambda x, b: detection.ps_roi_pool(x, b, box_indices, 2),
            "ps_roi_align": lambda x, b: detection.ps_roi_align(x, b, box_indices, 2),
            "multiscale": lambda x, b: detection.multiscale_roi_align(
                [x, x[:, ::2, ::2]], b, box_indices, 2, strides=(1, 2), canonical_box_size=40
            ),
        }
        specs = [tf.TensorSpec([None, None, None, 4], tf.float64), tf.TensorSpec([None, 4], tf.float64)]

        def gradients(pool, x, b):
            with tf.GradientTape() as tape:
                tape.watch([x, b])
                y = pool(x, b) ** 3
            return [g for g in tape.gradient(y, [x, b]) if g is not None]

        module = tf.Module()
        for name, pool in pools.items():
            setattr(module, name, tf.function(pool, input_signature=specs))
            function = tf.function(functools.partial(gradients, pool), input_signature=specs)
            setattr(module, f"{name}_gradients", function)
        directory = self.get_temp_dir()
        tf.saved_model.save(module, os.path.join(directory, "model"))
        x = reference.random([2, 6, 7, 4])
        np.savez(os.path.join(directory, "inputs.npz"), x=x, boxes=boxes, names=list(pools))
        _run(
            directory,
            """
            import numpy as np
            import tensorflow as tf
            import tensorflow_ops

            model = tf.saved_model.load("model")
            inputs = np.load("inputs.npz")
            x, boxes = tf.constant(inputs["x"]), tf.constant(inputs["boxes"])
            results = {}
            for name in inputs["names"]:
                with tf.GradientTape() as tape:
                    tape.watch([x, boxes])
                    y = getattr(model, name)(x, boxes)
                loaded = tape.gradient(y, [x, boxes])
                results[name] = y
                for i, g in enumerate(getattr(model, f"{name}_gradients")(x, boxes)):
                    results[f"{name} saved {i}"] = g
                for i, g in enumerate(g for g in loaded if g is not None):
                    results[f"{name} loaded {i}"] = g
            np.savez("results.npz", **results)
            """,
        )
        x, b = tf.constant(x), tf.constant(boxes)
        with np.load(os.path.join(directory, "results.npz")) as results:
            for name, pool in pools.items():
                self.assertAllEqual(results[name], pool(x, b))
                saved = gradients(pool, x, b)
                self.assertLen(saved, 1 if name == "ps_roi_pool" else 2)
                for i, gradient in enumerate(saved):
                    self.assertAllClose(results[f"{name} saved {i}"], gradient, rtol=1e-12)
                with tf.GradientTape() as tape:
                    tape.watch([x, b])
                    y = pool(x, b)
                for i, gradient in enumerate(g for g in tape.gradient(y, [x, b]) if g is not None):
                    self.assertAllClose(results[f"{name} loaded {i}"], gradient, rtol=1e-12)


if __name__ == "__main__":
    tf.test.main()
