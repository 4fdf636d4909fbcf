"""Tests the ops under tf.distribute: two devices and two processes give the losses of one process.

opcheck tests each op on two devices.
"""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import textwrap

import numpy as np
import tensorflow as tf

_SECONDS = 240  # time limit of a process; on expiry faulthandler prints its stacks and ends it, even without its parent

# Arguments: KIND (one, mirrored or workers), METHODS (fit, loop), RESULTS, SECONDS.
_SCRIPT = """
    import faulthandler, sys
    faulthandler.dump_traceback_later(int(sys.argv[4]), exit=True)
    import numpy as np
    import tensorflow as tf
    import keras
    import tensorflow_ops as tfo

    kind, methods, results = sys.argv[1:4]
    tf.config.threading.set_inter_op_parallelism_threads(4)  # collectives wait for each other
    if kind == "mirrored":
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
        )
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    elif kind == "workers":
        strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(timeout_seconds=60)
        )
    else:
        strategy = tf.distribute.get_strategy()
    assert strategy.num_replicas_in_sync == (1 if kind == "one" else 2)

    def train(method):
        keras.utils.set_random_seed(1)
        rng = np.random.default_rng(0)
        count, batch, steps = 48, 8, 6
        images = rng.normal(size=[count, 12, 12, 3]).astype(np.float32)
        corners = rng.uniform(0, 12, [count, 3, 2, 2])
        boxes = np.concatenate([corners.min(2), corners.max(2)], -1).astype(np.float32)
        labels = rng.integers(0, 4, [count, 3])

        class Bias(keras.layers.Layer):
            def build(self, shape):
                self.bias = self.add_weight(shape=[shape[-1]], initializer="ones")

            def call(self, x):
                return x + tfo.zero_out(tf.convert_to_tensor(self.bias))

        with strategy.scope():
            image, box = keras.Input([12, 12, 3]), keras.Input([3, 4])
            features = keras.layers.Conv2D(8, 3, activation="relu", padding="same")(image)
            regions = tfo.layers.RoIAlign(3, sampling_ratio=2)(features, box)
            merged = tfo.layers.Merge(16, "relu")([keras.layers.Reshape([3, 72])(regions), box])
            model = keras.Model([image, box], keras.layers.Dense(4)(Bias()(merged)))
            loss_fn = tfo.losses.SparseSoftmaxCrossEntropy(label_smoothing=0.1, z_loss=1e-3)
            optimizer = keras.optimizers.SGD(0.1)

        data = tf.data.Dataset.from_tensor_slices(((images, boxes), labels)).batch(batch)
        options = tf.data.Options()
        # Workers take alternate examples, so together they process the same batches.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        data = data.with_options(options)
        if method == "fit":
            with strategy.scope():
                model.compile(optimizer, loss_fn)
            history = model.fit(data, epochs=3, verbose=0, shuffle=False).history["loss"]
            with strategy.scope():
                layers = [tfo.layers.DeformConv2D(1, 3), keras.layers.GlobalAveragePooling2D()]
                model = keras.Sequential([keras.Input([12, 12, 3]), *layers])
                model.compile("sgd", "mse")
            model.fit(images[:9], labels[:9, :1], batch, verbose=0)  # leaves a second replica without examples
            assert all(np.isfinite(weight.numpy()).all() for weight in model.weights)
        else:
            with strategy.scope():
                variables = [tf.Variable(v.numpy()) for v in model.trainable_variables]

            def loss_of(x, boxes, y):
                w_conv, b_conv, w_merge, b_merge, bias, w, b = variables
                features = tf.nn.relu(tf.nn.conv2d(x, w_conv, 1, "SAME") + b_conv)
                indices = tf.repeat(tf.range(tf.shape(x)[0]), 3)
                regions = tfo.detection.roi_align(features, tf.reshape(boxes, [-1, 4]), indices, 3, sampling_ratio=2)
                regions = tf.concat([tfo.shapes.reshape(regions, [0, [1, 2, 3]]), tf.reshape(boxes, [-1, 4])], 1)
                hidden = tf.nn.relu(regions @ w_merge + b_merge) + tfo.zero_out(bias)
                logits = hidden @ w + b
                sum_of_losses = tfo.losses.SparseSoftmaxCrossEntropy(label_smoothing=0.1, reduction="sum")
                loss = sum_of_losses(tf.reshape(y, [-1]), logits)
                return (loss + 0.01 * tf.reduce_sum(tfo.nn.gaussian_kl((hidden, -hidden)))) / (3 * batch)

            def replica_step(x, boxes, y):
                with tf.GradientTape() as tape:
                    loss = loss_of(x, boxes, y)
                context = tf.distribute.get_replica_context()
                gradients = context.all_reduce("SUM", tape.gradient(loss, variables))

                def update(strategy, *pairs):
                    for variable, gradient in pairs:
                        strategy.extended.update(variable, lambda v, g: v.assign_sub(0.1 * g), args=(gradient,))

                context.merge_call(update, args=tuple(zip(variables, gradients)))
                return context.all_reduce("SUM", loss)

            @tf.function
            def step(x, boxes, y):
                loss = strategy.run(replica_step, args=(x, boxes, y))
                return strategy.experimental_local_results(loss)[0]

            history = [step(*x, y).numpy() for _ in range(3) for x, y in strategy.experimental_distribute_dataset(data)]
        return history


    np.savez(results, **{method: train(method) for method in methods.split(',')})
"""


def _free_ports(count):
    """Returns free ports of the loopback device.

    None of those from 32768 on, of which the system may give one to another process before a worker binds it.
    """
    ports = set()
    while len(ports) < count:
        port = random.SystemRandom().randrange(10000, 32768)  # others than another run of this test finds
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            ports.add(port)
    return [*ports]


def _run(directory, commands):
    """Runs a process per (arguments, environment) concurrently; kills all when one fails or times out."""
    path = os.path.join(directory, "script.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(textwrap.dedent(_SCRIPT))
    processes = []
    try:
        for number, (arguments, environment) in enumerate(commands):
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
            with open(os.path.join(directory, f"log{number}"), "wb") as log:
                command = [sys.executable, path, *arguments, str(_SECONDS)]
                processes.append(
                    subprocess.Popen(command, env=environment, cwd=directory, stdout=log, stderr=subprocess.STDOUT)
                )
        codes = [process.wait(_SECONDS + 30) for process in processes]
    except subprocess.TimeoutExpired:
        codes = ["none in time"]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if any(code != 0 for code in codes):
        logs = []
        for number in range(len(processes)):
            with open(os.path.join(directory, f"log{number}"), encoding="utf-8", errors="replace") as log:
                logs.append(log.read()[-5000:])
        raise AssertionError(f"exit codes {codes}\n" + "\n\n".join(logs))


class StrategiesTest(tf.test.TestCase):
    def _losses(self, kind, *methods):
        """Returns {method: losses}."""
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        environments = [{}]
        if kind == "workers":
            workers = [f"127.0.0.1:{port}" for port in _free_ports(2)]
            configs = [{"cluster": {"worker": workers}, "task": {"type": "worker", "index": i}} for i in range(2)]
            # Bypasses proxies for the loopback device.
            direct = {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
            environments = [{"TF_CONFIG": json.dumps(config), **direct} for config in configs]
        _run(directory, [([kind, ",".join(methods), f"losses{i}.npz"], e) for i, e in enumerate(environments)])
        losses, *others = [dict(np.load(f"{directory}/losses{i}.npz")) for i in range(len(environments))]
        for other in others:
            self.assertAllEqual([*other.values()], [*losses.values()])
        return losses

    def test_losses_equal_those_of_one_process(self):
        one = self._losses("one", "fit", "loop")
        # Keras 3.12's fit does not support MultiWorkerMirroredStrategy: any model raises "Attempt to convert a value
        # (PerReplica ...". Custom training loops work.
        for kind, method in (("mirrored", "fit"), ("workers", "loop")):
            self.assertLess(one[method][-1], 0.98 * one[method][0])  # training makes progress
            found = self._losses(kind, method)[method]
            self.assertAllClose(found, one[method], rtol=1e-5, atol=1e-5, msg=kind)


if __name__ == "__main__":
    tf.test.main()
