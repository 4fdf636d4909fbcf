"""Tests of the nn functions that need processes of their own: threads, instruction sets, SavedModel, memory."""

import functools
import itertools
import os
import subprocess
import sys
import textwrap

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo
from tensorflow_ops.core.python import versions

# Arguments: the number of threads, and the file that takes what it computes. Prints a line of hashes for each
# function, dtype and shape: tiles of short rows, rows, parts of a row, rows whose results go past the caches.
_EVERY_FUNCTION = """
    import hashlib, sys
    import numpy as np
    import tensorflow as tf
    import tensorflow_ops as tfo

    tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
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
    saved = {}
    for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
        for shape in ([1001, 7], [101, 333], [2, 70001], [700, 13000]):
            if shape[0] == 700 and dtype != tf.float32:
                continue
            x = tf.cast(np.random.default_rng(1).normal(size=shape) * 3, dtype)
            for name, function in functions.items():
                if name == "linear" and shape[1] > 1000 or shape[0] == 700 and name not in ("softmax", "sparse"):
                    continue
                hashes = set()
                for run in range(2):
                    with tf.GradientTape() as tape:
                        tape.watch(x)
                        y = function(x)
                    upstream = tf.cast(np.random.default_rng(2).normal(size=y.shape), y.dtype)
                    results = {"y": y.numpy(), "dx": tape.gradient(y, x, upstream).numpy()}
                    hashes.add(hashlib.sha256(b"".join(r.tobytes() for r in results.values())).hexdigest())
                print(name, dtype.name, shape[0], *hashes)
                for what, result in results.items():
                    # Some tell as much as all.
                    key = f"{name} {dtype.name} {shape[0]} {what}"
                    saved[key] = result.reshape(-1)[:: max(1, result.size // 3000)].astype(np.float64)
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


class BitsTest(tf.test.TestCase):
    def test_threads_give_the_same_bits_and_instruction_sets_agree(self):
        directory = self.get_temp_dir()
        *others, best = versions.cpu_levels()
        printed = {}
        for threads, level in (*itertools.product("123", [best]), *itertools.product("2", others)):
            file = os.path.join(directory, f"{threads}_{level}.npz")
            printed[threads, level] = _run(directory, _EVERY_FUNCTION, threads, file, TENSORFLOW_OPS_CPU=level)

        first = [line.split() for line in printed["1", best].splitlines()]
        self.assertLen(first, 9 * 4 * 2 + 8 * 4 + 2)
        for line in first:
            self.assertLen(line, 4)  # one hash: the same in both runs
        for threads in "23":
            for mine, one in zip(printed[threads, best].splitlines(), first, strict=True):
                # The matmuls of linear_cross_entropy are TensorFlow's own.
                self.assertTrue(mine.split() == one or one[0] == "linear", f"{threads} threads: {mine}")

        with np.load(os.path.join(directory, f"2_{best}.npz")) as expected:
            for level in others:
                self.assertNotEqual(printed["2", level], printed["2", best])  # another one did run
                with np.load(os.path.join(directory, f"2_{level}.npz")) as results:
                    self.assertEqual(set(results), set(expected))
                    for key in results:
                        self._check_another_instruction_set(f"{level} {key}", results[key], expected[key])

    def _check_another_instruction_set(self, key, result, expected):
        """Vectors of other sizes add in another order, and fused multiplications round once, not twice."""
        *_, dtype, _, what = key.split()
        # Two values that are rounded to neighbours are a unit apart. Numbers of rows are not in 16 bits.
        unit = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 3e-6, "float64": 1e-14}[dtype]
        if what == "y" and key.split()[1] not in ("softmax", "log_prob", "linear"):
            unit = min(unit, 3e-6)
        atol = {"float16": 6e-8, "float64": 1e-14}.get(dtype, 1e-6) * max(1, np.abs(expected).max())
        if key.split()[1] == "linear":  # whose sums over dims are TensorFlow's
            unit, atol = 8 * unit, 8 * unit
        self.assertAllClose(result, expected, rtol=unit, atol=atol, msg=key)


class SavedModelTest(tf.test.TestCase):
    def test_in_a_new_process(self):
        labels = np.array([1, -1, 0])
        functions = {
            "softmax": tfo.nn.softmax,
            "log_prob": tfo.nn.log_prob_from_logits,
            "entropy": lambda x: tfo.nn.softmax_entropy(x, axis=0),
            "dense": lambda x: tfo.nn.softmax_cross_entropy(tf.stop_gradient(tfo.nn.softmax(2 * x)), x),
            "dense_labels": lambda x: tfo.nn.softmax_cross_entropy(x, tf.stop_gradient(2 * x)),
            "sparse": lambda x: tfo.nn.sparse_softmax_cross_entropy(
                labels, x, ignore_index=-1, label_smoothing=0.1, z_loss=0.01
            ),
            "label_log_prob": lambda x: tfo.nn.label_log_prob(np.abs(labels), x),
            "gaussian_kl": lambda x: tfo.nn.gaussian_kl((x, 2 * x), (3 * x, 4 * x)),
            "linear": lambda x: tfo.nn.linear_cross_entropy(x, tf.transpose(x), labels, ignore_index=-1),
        }
        specs = [tf.TensorSpec([None, None], tf.float64)]

        def gradient(function, x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x) ** 2
            return tape.gradient(y, x)

        module = tf.Module()
        for name, function in functions.items():
            setattr(module, name, tf.function(function, input_signature=specs))
            saved = tf.function(functools.partial(gradient, function), input_signature=specs)
            setattr(module, f"{name}_gradient", saved)
        directory = self.get_temp_dir()
        tf.saved_model.save(module, os.path.join(directory, "model"))
        x = np.random.default_rng(1).normal(size=[3, 5])
        np.savez(os.path.join(directory, "inputs.npz"), x=x, names=list(functions))
        _run(
            directory,
            """
            import numpy as np
            import tensorflow as tf
            import tensorflow_ops

            model = tf.saved_model.load("model")
            inputs = np.load("inputs.npz")
            x = tf.constant(inputs["x"])
            results = {}
            for name in inputs["names"]:
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = getattr(model, name)(x)
                    square = y ** 2
                results[name] = y
                results[f"{name} saved"] = getattr(model, f"{name}_gradient")(x)
                # A gradient of the loaded function, which this process makes.
                results[f"{name} loaded"] = tape.gradient(square, x)
            np.savez("results.npz", **results)
            """,
        )
        x = tf.constant(x)
        with np.load(os.path.join(directory, "results.npz")) as results:
            for name, function in functions.items():
                self.assertAllClose(results[name], function(x), rtol=1e-14)
                expected = gradient(function, x)
                self.assertGreater(np.abs(expected).max(), 1e-3)
                for which in ("saved", "loaded"):
                    self.assertAllClose(results[f"{name} {which}"], expected, rtol=1e-12, atol=1e-15)


# Prints for each function what it adds to the peak of the process' memory, in parts of the logits': forward, and
# forward and backward.
_MEMORY = """
    import tensorflow as tf
    import tensorflow_ops as tfo

    def status(name):
        with open("/proc/self/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

    nn, rows, classes = tfo.nn, 4096, 16000
    labels = tf.zeros([rows], tf.int32)
    functions = {
        "sparse": lambda x: nn.sparse_softmax_cross_entropy(labels[: x.shape[0]], x),
        "smooth": lambda x: nn.sparse_softmax_cross_entropy(labels[: x.shape[0]], x, label_smoothing=0.1, z_loss=0.1),
        "label_log_prob": lambda x: nn.label_log_prob(labels[: x.shape[0]], x),
        "entropy": nn.softmax_entropy,
        "dense": lambda x: nn.softmax_cross_entropy(x, x),
        "unit_kl": lambda x: nn.gaussian_kl((x, x)),
    }

    def gradient(function, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)

    # What is made at the first use.
    for name, function in functions.items():
        gradient(function, tf.zeros([64, classes]))
    x = tf.zeros([rows, classes])
    logits = 4 * rows * classes
    for name, function in functions.items():
        # The peak can only grow: no function before a cheaper one, and all forward passes first.
        before = max(status("VmHWM"), status("VmRSS"))
        function(x).numpy()
        print(name, (status("VmHWM") - before) / logits)
    before = max(status("VmHWM"), status("VmRSS"))
    d_x = gradient(functions["sparse"], x)
    print("gradient", (status("VmHWM") - before) / logits)
    """

# The same of linear_cross_entropy, whose logits would take 512 MiB in all, and 32 MiB a chunk.
_LINEAR_MEMORY = """
    import tensorflow as tf
    import tensorflow_ops as tfo

    def status(name):
        with open("/proc/self/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

    rows, dims, classes = 16384, 8, 8192
    weight = tf.random.normal([dims, classes])

    def gradient(features, labels, weight):
        with tf.GradientTape() as tape:
            tape.watch([features, weight])
            loss = tfo.nn.linear_cross_entropy(features, weight, labels)
        return tape.gradient(loss, [features, weight])

    for call in (gradient, tf.function(gradient)):
        call(tf.ones([300, dims]), tf.zeros([300], tf.int32), weight)
    features, labels = tf.ones([rows, dims]), tf.zeros([rows], tf.int32)
    for name, call in {
        "forward": lambda: tfo.nn.linear_cross_entropy(features, weight, labels),
        "gradient": lambda: gradient(features, labels, weight),
        "graph": lambda: tf.function(gradient)(features, labels, weight),
    }.items():
        before = max(status("VmHWM"), status("VmRSS"))
        call()
        print(name, (status("VmHWM") - before) / 2**20)
    """


class MemoryTest(tf.test.TestCase):
    def _printed(self, script):
        lines = _run(self.get_temp_dir(), script).splitlines()
        return {name: float(number) for name, number in map(str.split, lines)}

    def test_forward_adds_numbers_of_rows_and_no_more(self):
        added = self._printed(_MEMORY)
        self.assertLen(added, 7)
        gradient = added.pop("gradient")
        for name, part in added.items():
            self.assertLess(part, 0.05, name)
        # The gradient itself, and nothing beside it.
        self.assertLess(gradient, 1.05)
        self.assertGreater(gradient, 0.9)

    def test_linear_cross_entropy_holds_chunks(self):
        added = self._printed(_LINEAR_MEMORY)
        self.assertLess(added["forward"], 1.5 * 32)
        # A chunk's logits and their gradient.
        self.assertLess(added["forward"] + added["gradient"] + added["graph"], 4 * 32)


if __name__ == "__main__":
    tf.test.main()
