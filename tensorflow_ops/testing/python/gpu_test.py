"""Runs opcheck's test "gpu" on every public op: a GPU against the CPU. Tests it with a second CPU in place of a GPU."""

import contextlib
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

# Before the samples, whose tensors start TensorFlow's runtime.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
)
from op_samples_testing import OP_SAMPLES  # noqa: E402

import tensorflow_ops as tfo  # noqa: E402
from tensorflow_ops.core.python import library  # noqa: E402


def _second_cpu_as_gpu():
    return mock.patch.object(tf.config, "list_logical_devices", return_value=tf.config.list_logical_devices("CPU")[1:])


_X = tf.constant([[0.5, -1.5, 2.0], [1.0, 0.25, -0.75]])


class SamplesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*OP_SAMPLES)
    def test_gpu_and_cpu_agree(self, name):
        has_gpu = bool(tf.config.list_logical_devices("GPU"))
        with contextlib.nullcontext() if has_gpu else _second_cpu_as_gpu():
            result = tfo.testing.opcheck_samples({name: OP_SAMPLES[name]}, tests="gpu")[name]["gpu"]
        self.assertEqual(result.status, "SUCCESS", result.detail)
        if not has_gpu:
            self.skipTest("there is no GPU: two CPUs agree")


def _is_on_gpu(x):
    return "CPU:1" in tf.identity(x).device


def _wrong_eagerly(x):
    return x + float(tf.executing_eagerly() and _is_on_gpu(x))


def _wrong_in_graphs(x):
    return x + float(not tf.executing_eagerly() and _is_on_gpu(x))


@tf.custom_gradient
def _wrong_gradient(x):
    return tf.identity(x), lambda dy: dy + float(_is_on_gpu(dy))


def _not_compiled(x):
    text = tf.strings.as_string(tf.stop_gradient(x))
    return x + tf.reshape(tf.strings.to_number(text), tf.shape(x)) * 0


def _without_kernel(x):
    with tf.device("CPU:0"):
        return tf.identity(x)


class CheckTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(_second_cpu_as_gpu())

    def check(self, fn, *args, **options):
        return tfo.testing.opcheck(fn, args or [_X], tests="gpu", raise_on_failure=False, **options)["gpu"]

    @parameterized.parameters(
        (_wrong_eagerly, r"on a GPU, eagerly: output\[\d, \d\] is"),
        (_wrong_in_graphs, r"on a GPU, in a tf.function: output\[\d, \d\] is"),
        (_wrong_gradient, r"on a GPU, eagerly: gradient to args\[0\]\[\d, \d\] is"),
        (_not_compiled, "on a GPU, compiled by XLA: InvalidArgumentError: Detected unsupported operations"),
    )
    def test_finds(self, fn, message):
        if "XLA" in message and library.xla_error:
            self.skipTest(library.xla_error)
        result = self.check(fn)
        self.assertEqual(result.status, "FAILED")
        self.assertRegex(result.detail, message)

    def test_accepts_equal_results_in_all_modes(self):
        for fn, options, modes in (
            (tfo.nn.softmax, {}, "eagerly, in a tf.function" + ", compiled by XLA" * (library.xla_error is None)),
            (_not_compiled, {"xla": False}, "eagerly, in a tf.function"),
        ):
            result = self.check(fn, **options)
            self.assertEqual((result.status, result.detail), ("SUCCESS", modes))

    def test_says_that_no_kernel_ran_on_the_gpu(self):
        result = self.check(_without_kernel)
        self.assertEqual(result.status, "SKIPPED")
        self.assertIn("eagerly, all outputs are on the CPU", result.detail)


if __name__ == "__main__":
    tf.test.main()
