"""Tests of roi_pool that need processes of their own: threads, instruction sets, SavedModel, devices."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo
from tensorflow_ops.core.python import versions

_SHAPE = (2, 6, 7, 3)


def _distinct(shape):
    """Values that differ by 1/8 at least: no small step changes a maximum. NHWC."""
    size = int(np.prod(shape))
    values = np.random.default_rng(1).permutation(size) - size // 2
    return (values / 8).reshape(shape)


def _scatter(upstream, argmax, box_indices, shape):
    """The gradient to features by definition, in float64: each upstream goes to its maximum's pixel. NHWC."""
    result = np.zeros(shape)
    for k, p, q, c in np.ndindex(*argmax.shape):
        if argmax[k, p, q, c] >= 0:
            y, x = divmod(argmax[k, p, q, c], shape[2])
            result[box_indices[k], y, x, c] += np.float64(upstream[k, p, q, c])
    return result


def _gradient(function, x, upstream=None):
    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x, output_gradients=upstream)


def _run(directory, script, *arguments, **environment):
    """Runs a Python script in a new process, away from the source tree; returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


class ProcessTest(tf.test.TestCase):
    def test_same_bits_for_every_thread_count_and_instruction_set(self):
        narrowest, *others = versions.cpu_levels()
        script = """
            import hashlib, sys
            import numpy as np
            import tensorflow as tf
            import tensorflow_ops as tfo

            tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
            rng = np.random.default_rng(1)
            values = rng.normal(size=[2, 60, 80, 136])
            values[rng.random(values.shape) < 0.2] = 0.25
            corners = rng.uniform(-10, 90, [100, 2])
            boxes = np.concatenate([corners, corners + rng.exponential(20, [100, 2])], 1).astype(np.float32)
            box_indices = rng.integers(0, 2, 100).astype(np.int32)
            for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
                for data_format in ("NHWC", "NCHW"):
                    x = tf.cast(values if data_format == "NHWC" else values.transpose(0, 3, 1, 2), dtype)
                    hashes = set()
                    for run in range(2):
                        with tf.GradientTape() as second:
                            with tf.GradientTape() as first:
                                first.watch(x)
                                y, argmax = tfo.detection.roi_pool_with_argmax(
                                    x, boxes, box_indices, 7, data_format=data_format
                                )
                            upstream = tf.cast(np.random.default_rng(2).normal(size=y.shape), dtype)
                            second.watch(upstream)
                            dx = first.gradient(y, x, upstream)
                        d_upstream = second.gradient(dx, upstream, x)
                        data = b"".join(t.numpy().tobytes() for t in (y, argmax, dx, d_upstream))
                        hashes.add(hashlib.sha256(data).hexdigest())
                    print(dtype.name, data_format, *hashes)
            """
        results = {}
        for threads, level in [("1", narrowest), ("4", narrowest), *zip("21", others, strict=False)]:
            results[threads, level] = _run(self.get_temp_dir(), script, threads, TENSORFLOW_OPS_CPU=level)
        first = results["1", narrowest]
        self.assertLen(first.splitlines(), 8)
        for line in first.splitlines():
            self.assertLen(line.split(), 3)  # one hash: the same in both runs
        for configuration, printed in results.items():
            self.assertEqual(printed, first, configuration)

    def test_saved_model_in_a_new_process(self):
        boxes, box_indices = [[0, 0, 6, 5], [1, 1, 4, 4]], [0, 1]

        class Model(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3], tf.float64)])
            def pool(self, x):
                return tfo.detection.roi_pool(x, boxes, box_indices, 2)

            @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3], tf.float64)])
            def gradient(self, x):
                return _gradient(lambda x: self.pool(x) ** 3, x)

        directory = self.get_temp_dir()
        tf.saved_model.save(Model(), os.path.join(directory, "model"))
        x = _distinct(_SHAPE)
        np.save(os.path.join(directory, "x.npy"), x)
        _run(
            directory,
            """
            import numpy as np
            import tensorflow as tf
            import tensorflow_ops

            model = tf.saved_model.load("model")
            x = tf.constant(np.load("x.npy"))
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = model.pool(x)
                dx = model.gradient(x)
            np.savez("results.npz", y=y, dx=dx, dy=tape.gradient(y, x))
            """,
        )
        output, argmax = tfo.detection.roi_pool_with_argmax(x, boxes, box_indices, 2)
        with np.load(os.path.join(directory, "results.npz")) as results:
            self.assertAllEqual(results["y"], output)
            self.assertAllClose(results["dx"], _scatter(3 * output**2, argmax.numpy(), box_indices, _SHAPE))
            self.assertAllClose(results["dy"], _scatter(np.ones(output.shape), argmax.numpy(), box_indices, _SHAPE))

    def test_mirrored_strategy_on_two_devices(self):
        directory = self.get_temp_dir()
        x, w = _distinct([2, 1, 6, 7, 3]), np.random.default_rng(3).normal(size=[2, 1, 2, 2, 3])
        boxes = [[[0, 0, 6, 5]], [[1, 1, 4, 4]]]
        np.savez(os.path.join(directory, "inputs.npz"), x=x, w=w, boxes=boxes)
        printed = _run(
            directory,
            """
            import numpy as np
            import tensorflow as tf
            import tensorflow_ops as tfo

            tf.config.set_logical_device_configuration(
                tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
            )
            inputs = np.load("inputs.npz")
            strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
            with strategy.scope():
                bias = tf.Variable(tf.zeros([6, 7, 3], tf.float64))

            def step(x, boxes, w):
                with tf.GradientTape() as tape:
                    y = tfo.detection.roi_pool(x + bias, boxes, [0], 2)
                    loss = tf.reduce_sum(w * y)
                gradient = tape.gradient(loss, bias)
                return y, tf.distribute.get_replica_context().all_reduce("SUM", gradient)

            def values(name):
                return strategy.experimental_distribute_values_from_function(
                    lambda context: tf.constant(inputs[name][context.replica_id_in_sync_group])
                )

            @tf.function
            def run(*arguments):
                return strategy.run(step, arguments)

            run = run.get_concrete_function(values("x"), values("boxes"), values("w"))
            print(*sorted(op.device[-5:] for op in run.graph.get_operations() if op.type == "TensorflowOps>RoiPool"))
            y, gradient = run(values("x"), values("boxes"), values("w"))
            y = tf.stack(strategy.experimental_local_results(y))
            np.savez("results.npz", y=y, gradient=strategy.experimental_local_results(gradient)[0])
            """,
        )
        self.assertEqual(printed, "CPU:0 CPU:1\n")
        expected = np.zeros([6, 7, 3])
        with np.load(os.path.join(directory, "results.npz")) as results:
            for replica in range(2):
                output, argmax = tfo.detection.roi_pool_with_argmax(x[replica], np.float64(boxes[replica]), [0], 2)
                self.assertAllEqual(results["y"][replica], output)
                expected += _scatter(w[replica], argmax.numpy(), [0], (1, 6, 7, 3))[0]
            self.assertAllClose(results["gradient"], expected)

    def test_unknown_instruction_set_is_an_error(self):
        printed = _run(
            self.get_temp_dir(),
            """
            import tensorflow as tf, tensorflow_ops as tfo
            try:
                tfo.detection.roi_pool(tf.zeros([1, 4, 4, 1]), [[0, 0, 1, 1]], [0], 1)
            except tf.errors.InvalidArgumentError as error:
                print(error)
            """,
            TENSORFLOW_OPS_CPU="nonsense",
        )
        self.assertIn("TENSORFLOW_OPS_CPU is 'nonsense', expected one of", printed)
        self.assertIn(", ".join(versions.cpu_levels()), printed)


if __name__ == "__main__":
    tf.test.main()
