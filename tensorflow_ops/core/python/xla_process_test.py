"""Tests of XLA in new processes: threads, order of imports, SavedModel, a TensorFlow without XLA, replicas."""

import os
import unittest

import process_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import build_info, library


def setUpModule():
    if library.xla_error:
        raise unittest.SkipTest(library.xla_error)


class XlaProcessTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(1, 3)
    def test_calls_that_outnumber_threads_finish(self, threads):
        """XLA calls kernels on the threads that the kernels' loops use."""
        printed = process_testing.output(
            self.get_temp_dir(),
            f"""
            import faulthandler
            faulthandler.dump_traceback_later(120, exit=True)
            import tensorflow as tf
            tf.config.threading.set_intra_op_parallelism_threads({threads})
            import tensorflow_ops as tfo

            def branches(x):
                return [tfo.nn.softmax(x * i) for i in range(6)]

            x = tf.random.stateless_normal([512, 1000], [1, 2])
            compiled = tf.function(branches, jit_compile=True)
            expected = branches(x)
            for _ in range(200):
                found = compiled(x)
            print(all(bool(tf.reduce_all(tf.abs(x - y) < 1e-6)) for x, y in zip(expected, found)))
            """,
        )
        self.assertEqual(printed, "True\n")

    def test_ops_that_are_imported_after_xla_has_compiled(self):
        printed = process_testing.output(
            self.get_temp_dir(),
            """
            import tensorflow as tf
            tf.function(lambda x: x + 1, jit_compile=True)(tf.constant(1.0))
            import tensorflow_ops as tfo
            softmax = tf.function(tfo.nn.softmax, jit_compile=True)
            print(softmax(tf.zeros([1, 2])).numpy())
            pool = tf.function(tfo.detection.roi_pool, jit_compile=True)
            print(pool(tf.ones([1, 4, 4, 1]), tf.zeros([1, 4]), tf.constant([0]), tf.constant([1, 2])).numpy().tolist())

            from tensorflow.python.framework import kernels
            registered = kernels.get_registered_kernels_for_op("TensorflowOps>RoiPool").kernel
            print(*sorted({kernel.device_type for kernel in registered}))
            """,
        )
        devices = "CPU GPU XLA_CPU_JIT XLA_GPU_JIT" if build_info.CUDA_VERSION else "CPU XLA_CPU_JIT"
        self.assertEqual(printed, f"[[0.5 0.5]]\n[[[[1.0], [1.0]]]]\n{devices}\n")

    def test_saved_model_of_a_compiled_function(self):
        class Model(tf.Module):
            @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None, 3])])
            def loss(self, x):
                return tfo.nn.sparse_softmax_cross_entropy(tf.zeros_like(x[:, 0], tf.int32), x)

        model, path = Model(), os.path.join(self.get_temp_dir(), "model")
        tf.saved_model.save(model, path)
        printed = process_testing.output(
            self.get_temp_dir(),
            """
            import sys
            import tensorflow as tf
            import tensorflow_ops
            model = tf.saved_model.load(sys.argv[1])
            for rows in (1, 2):
                print(model.loss(tf.zeros([rows, 3])).numpy().round(4))
            """,
            path,
        )
        self.assertEqual(printed, "[1.0986]\n[1.0986 1.0986]\n")

    def test_tensorflow_without_xla(self):
        printed = process_testing.output(
            self.get_temp_dir(),
            """
            import tensorflow as tf

            load_library = tf.load_library

            def without_xla(path):
                if path.endswith("_xla.so"):
                    raise tf.errors.NotFoundError(None, None, "undefined symbol: xla")
                return load_library(path)

            tf.load_library = without_xla
            import tensorflow_ops as tfo
            print(tfo.nn.softmax([[0.0, 0.0]]).numpy())
            try:
                tf.function(tfo.nn.softmax, jit_compile=True)(tf.zeros([1, 2]))
            except tf.errors.InvalidArgumentError as error:
                print("unsupported" in str(error))
            tfo.show_versions()
            """,
        ).splitlines()
        self.assertEqual(printed[:2], ["[[0.5 0.5]]", "True"])
        self.assertIn("XLA: no: undefined symbol: xla", printed)

    def test_compiled_steps_of_replicas(self):
        # TensorFlow cannot compile a step that reads a variable on CPU:1, so there is none.
        printed = process_testing.output(
            self.get_temp_dir(),
            """
            import tensorflow as tf
            import tensorflow_ops as tfo

            cpu = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
            strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

            def gradient(x, labels):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    loss = tf.reduce_sum(tfo.nn.sparse_softmax_cross_entropy(labels, x))
                return tape.gradient(loss, x)

            compiled = tf.function(gradient, jit_compile=True)

            @tf.function
            def step(x, labels):
                return strategy.experimental_local_results(strategy.run(compiled, [x, labels]))

            x, labels = tf.random.stateless_normal([6, 3], [1, 2]), tf.constant([0, 1, 2, 2, 1, 0])
            found, expected = step(x, labels), gradient(x, labels)
            print(len(found), *(bool(tf.reduce_all(gradient == expected)) for gradient in found))
            """,
        )
        self.assertEqual(printed, "2 True True\n")


if __name__ == "__main__":
    tf.test.main()
