"""Tests of the fuzzer: a short run, and its outcomes for calls that go wrong."""

import os
from unittest import mock

import child
import example_calls
import fuzz
import tensorflow as tf
from absl.testing import parameterized

# Uses 300 MB that no process limit restricts.
_SHARED_MEMORY = """
import mmap, time
memory = mmap.mmap(-1, 300 << 20)
for page in range(0, len(memory), 4096):
    memory[page] = 1
time.sleep(30)
"""


class ExamplesTest(tf.test.TestCase):
    def test_every_op_and_public_name_has_an_initial_call(self):
        found = example_calls.examples()
        for name, (definition, _) in example_calls.raw_ops().items():
            if definition.input_arg:
                self.assertIn(name, found.raw, "no docstring's example calls it, so fuzzing has no initial call")
        self.assertContainsSubset({name for name, _ in example_calls.public()}, set(found.public))


class FuzzTest(parameterized.TestCase, tf.test.TestCase):
    def test_short_run_has_no_finding(self):
        fuzzer = fuzz.Fuzzer()
        fuzzer.run(fuzz.SURFACES, seed=1, cases=100)
        self.assertEmpty(fuzzer.findings)
        self.assertCountEqual(fuzzer.counts, fuzz.SURFACES)
        self.assertEqual(sum(counts.total() for counts in fuzzer.counts.values()), 100)
        # About 0.3 of the raw calls reach a kernel (1,000 calls). Each new op draws other calls, and draws are related:
        # one run of 33 had 2.
        self.assertGreater(fuzzer.counts["raw_op"]["value"], 0)

    @parameterized.parameters(
        ("crash", "import os; os.abort()", "SIGABRT"),
        ("hang", "while True: pass", "more than 1 s of CPU"),
        ("memory", _SHARED_MEMORY, "more than"),
    )
    def test_finds_crashes_hangs_and_memory(self, outcome, source, error):
        path = os.path.join(self.get_temp_dir(), "case.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)
        fuzzer = fuzz.Fuzzer()
        with mock.patch.multiple(fuzz, _CPU_SECONDS=1, _MAX_BYTES=200 << 20):
            fuzzer.run_program(path)
        ((_, _, found, message, program),) = fuzzer.findings
        self.assertEqual((found, program), (outcome, source))
        self.assertIn(error, message)

    @parameterized.parameters(
        ("raise ValueError()", "ValueError", "it has no message"),
        ("raise ValueError('x is 3')", "ValueError", ""),
        ("import tensorflow as tf; raise tf.errors.InternalError(None, None, 'bad')", "InternalError", "bad"),
        ("exec(compile('[][0]', '/tensorflow_ops/nn.py', 'exec'))", "IndexError of ours", "index out of range"),
        ("exec(compile('[][0]', '/tensorflow/nn.py', 'exec'))", "IndexError of others", ""),
    )
    def test_errors(self, source, outcome, error):
        found, message = child.outcome(source)
        self.assertEqual(found, outcome)
        self.assertIn(error, message)
        self.assertEqual(bool(error), bool(message))


if __name__ == "__main__":
    tf.test.main()
