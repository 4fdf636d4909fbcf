"""Runs opcheck's test "gpu" on every public op: a GPU against the CPU. Tests it with a second CPU in place of a GPU.

Also finds what would make a GPU wait, in graphs for one, which need none.
"""

import contextlib
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

# Before the samples, whose tensors start TensorFlow's runtime.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
)
from op_samples_testing import CALLS, OP_SAMPLES  # noqa: E402
from tensorflow.python.framework import kernels  # noqa: E402

import tensorflow_ops as tfo  # noqa: E402
from tensorflow_ops.core.python import gradients, library  # noqa: E402


def _second_cpu_as_gpu():
    return mock.patch.object(tf.config, "list_logical_devices", return_value=tf.config.list_logical_devices("CPU")[1:])


def _unknown(x):
    return tf.TensorSpec([None] * x.shape.rank, x.dtype)


def _ops_in(graph):
    """Yields the ops of a graph and of its functions."""
    yield from graph.get_operations()
    for function in graph._functions.values():
        yield from _ops_in(function.graph)


def _read_on_host(op_type):
    """Returns the inputs of an op that its kernels read in host memory. TensorFlow's for CPUs name them as for GPUs."""
    registered = kernels.get_registered_kernels_for_op(op_type).kernel
    return {arg for kernel in registered if kernel.device_type == "CPU" for arg in kernel.host_memory_arg}


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

    @parameterized.parameters(*CALLS)
    def test_no_constant_leaves_the_gpu(self, name):
        inputs = CALLS[name].inputs

        @tf.function(autograph=False)
        def on_gpu(*tensors):
            with tf.device("GPU:0"):
                outputs, found = inputs.vjp(tensors, lambda outputs: [tf.ones_like(y) for y in outputs])
            return [*outputs, *(x for x in found if x is not None)]

        for op in _ops_in(on_gpu.get_concrete_function(*map(_unknown, inputs.tensors)).graph):
            on_host = _read_on_host(op.type)
            # The gradient of tf.gather makes a range of the indices' dtype.
            if not on_host or (op.type == "Range" and op.name.startswith("gradient_tape/")):
                continue
            for arg, tensor in zip(gradients.input_names(op), op.inputs, strict=True):
                # TensorFlow has int32 in host memory, others on the GPU: a copy from there waits for all of its work.
                is_known = tf.get_static_value(tensor) is not None
                if is_known and tensor.dtype != tf.int32 and arg in on_host:
                    self.assertIn("CPU:0", tensor.op.device, f"{arg} of {op.name}")


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
