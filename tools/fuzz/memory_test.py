"""Tests that each raw op writes all of its outputs: the same bits, whatever bytes fresh memory contains."""

import functools
import os
import sys

import example_calls
import fresh_memory
import tensorflow as tf
from absl.testing import parameterized

from tensorflow_ops.testing.python import compare

_REFUSALS = (ValueError, TypeError, tf.errors.InvalidArgumentError)


def _call(function, byte):
    with fresh_memory.filled_with(byte):
        return tf.nest.flatten(function())


def _variants(definition, call):
    """Yields a call, it with each other value of an attr, and with values in each input of shape [0]."""
    yield call
    for attr in definition.attr:
        if attr.name in call:
            allowed = [*attr.allowed_values.list.s, *([False, True] if attr.type == "bool" else [])]
            yield from (call | {attr.name: value} for value in allowed if value != call[attr.name])
    for name, value in call.items():
        if tf.is_tensor(value) and value.shape == [0]:
            yield call | {name: tf.ones([7], value.dtype)}


class MemoryTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.named_parameters((name, name) for name in example_calls.raw_ops())
    def test_outputs_do_not_depend_on_fresh_memory(self, name):
        definition, function = example_calls.raw_ops()[name]
        calls = example_calls.examples().raw.get(name) or [{}] * (not definition.input_arg)
        self.assertNotEmpty(calls, "no docstring's example calls it")
        compared = 0  # attrs that do not match are errors
        for call in (variant for original in calls for variant in _variants(definition, original)):
            bound = functools.partial(function, **call)
            try:
                first = _call(bound, 0)
            except _REFUSALS:
                continue
            compared += 1
            names = [f"output {i}" for i in range(len(first))]
            compare.check_bits(f"{call} with other bytes in fresh memory", names, _call(bound, 127), first)
            for output in first:
                self._check_that_bytes_reach(output)
        self.assertGreaterEqual(compared, len(calls))

    def _check_that_bytes_reach(self, output):
        """Checks that the bytes are in an output of this size that nobody writes."""
        if output.dtype != tf.string and output.shape.num_elements():
            (unwritten,) = _call(lambda: tf.raw_ops.Empty(shape=output.shape, dtype=output.dtype), 127)
            self.assertEqual(set(unwritten.numpy().tobytes()), {127})


if __name__ == "__main__":
    if not fresh_memory.ENVIRONMENT.items() <= os.environ.items():
        path = os.pathsep.join(p for p in sys.path if p)
        environment = {**os.environ, **fresh_memory.ENVIRONMENT, "PYTHONPATH": path}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    tf.test.main()
