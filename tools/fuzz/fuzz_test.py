"""Tests of the fuzzer: a short run, and its outcomes for calls that go wrong."""

import itertools
from unittest import mock

import example_calls
import fuzz
import oracle
import programs
import tensorflow as tf
from absl.testing import parameterized

_HEADER = """
import os
import numpy as np
from calls import *
from example_calls import Call
from relations import *
from tensorflow_ops.core.python.library import ops
NONE, X = {}, {"x": tf.ones([2])}
nms, refuse = ops.tensorflow_ops_nms, ops.tensorflow_ops_refuse_gradient
"""

# Uses 300 MB that no process limit restricts.
_SHARED_MEMORY = """
import mmap, time
memory = mmap.mmap(-1, 300 << 20)
for page in range(0, len(memory), 4096):
    memory[page] = 1
time.sleep(30)
"""

_OTHER_BITS = "other bits than in the eager call: result 0"
# Arguments of `agree`: a function with a fault that it must find, and inputs; a part of the finding.
_FAULTS = {
    "unwritten memory": (
        "lambda: tf.raw_ops.Empty(shape=[300000], dtype=tf.float32), NONE",
        f"known_shapes: {_OTHER_BITS}[",
    ),
    "a few bytes of unwritten memory": (
        "lambda: tf.raw_ops.Empty(shape=[3], dtype=tf.float32), NONE",
        f"known_shapes: {_OTHER_BITS}[",
    ),
    "a graph": (
        "lambda: tf.constant(float(tf.executing_eagerly())), NONE",
        f"known_shapes: {_OTHER_BITS}[] is 0, expected 1",
    ),
    "the sign of zero": (
        "lambda: tf.constant(0.0 if tf.executing_eagerly() else -0.0), NONE, one_op=True",
        "signs of zeros",
    ),
    "a dtype": (
        "lambda: tf.zeros([2], tf.float32 if tf.executing_eagerly() else tf.int32), NONE",
        "result 0 is ((2,), 'int32'), expected as in the eager call ((2,), 'float32')",
    ),
    "unknown shapes": (
        "lambda x: x + tf.cast(x.shape.rank is None, x.dtype), X",
        f"unknown_shapes: {_OTHER_BITS}[0] is 2, expected 1",
    ),
    "constants": (
        "lambda x: x + tf.cast(not tf.executing_eagerly() and tf.get_static_value(x) is not None, x.dtype), X",
        f"known_values: {_OTHER_BITS}[0] is 2, expected 1",
    ),
    "XLA": (
        "lambda x: tf.gather(x, [7]), X, one_op=True",
        "compiled: a value, expected as in the eager call InvalidArg",
    ),
    "an error's message": (
        "lambda x: tf.gather(x, [7 + tf.executing_eagerly()]), X, one_op=True",
        "indices[0] = 8 is not in",
    ),
    "an eager error of shapes that is no ValueError": (
        "lambda x: (_ for _ in ()).throw((ValueError, lambda e: tf.errors.InvalidArgumentError(None, None, e, "
        "{b'tensorflow_ops/shape_error': b''}))[tf.executing_eagerly()]('x must be [K]')), X, one_op=True",
        "ValueError (x must be [K]",
    ),
    "a loop": ("looped(lambda x: x), X, like=lambda x: 2 * x", f"eager: {_OTHER_BITS}"),
    "vectorized_map": ("vectorized(lambda x: x), X, like=lambda x: 2 * x", "is 1, expected 2"),
    "more than rounding": (
        "lambda x: tf.constant(1e-5 if tf.executing_eagerly() else -1e-5), X, ways=[eager, compiled]",
        f"compiled: {_OTHER_BITS}",
    ),
    "a session": ("lambda x: tf.where(x == 1, x, 0.0), X", f"session: {_OTHER_BITS}[0] is 0, expected 1"),
    "a session's sizes": (
        "lambda x: x if x.shape[0] else tf.stack([2.0, 2.0]), X, ways=[eager, session_without_sizes]",
        f"session_without_sizes: {_OTHER_BITS}[0] is 2, expected 1",
    ),
    "an UnknownError": ("lambda x: tf.numpy_function(lambda x: {}[2], [x], x.dtype), X", "UnknownError"),
}
_TAKEN = {
    # Compilers swap the operands of sums, and with them the NaN that the sum keeps.
    "NaNs": "lambda: tf.constant(np.uint32([0x7FC00000 + tf.executing_eagerly()]).view(np.float32)), NONE",
    "wrong shapes": "lambda x: nms(x, x, 1.0, 1.0, 1), X, one_op=True",
    "the value of an attr": "lambda x: nms(x, x, 1.0, 1.0, 1, box_format='a'), X, one_op=True",
    "an attr that the shape function checks": (
        "lambda x: (_ for _ in ()).throw((ValueError, lambda e: tf.errors.InvalidArgumentError(None, None, e))"
        "[tf.executing_eagerly()]('dilations must be positive')), X, one_op=True"
    ),
    "XLA's refusal": "lambda x: nms(x, tf.ones([2]), 0.5, -1.0, -1), {'x': tf.ones([2, 4])}, one_op=True",
    "an unclear error of others": "lambda x: [][0], X",
    "strings": "lambda x: tf.identity(x), {'x': tf.constant(['a'])}",
    "a gradient that XLA leaves out": "lambda x: refuse(x, [X['x']], reason='f'), {'x': tf.ones([0])}, one_op=True",
    "others of the gradients that XLA leaves out": (
        "lambda x: [refuse(x, [X['x']], reason='f'), tf.ones([2])], {'x': tf.ones([0])}, ways=[eager, compiled]"
    ),
    "a dtype in a graph": (
        "lambda x, n: nms(x, tf.ones([2]), 0.5, 1.0, n), {'x': tf.ones([2, 4]), 'n': tf.ones([])}, one_op=True"
    ),
    "rounding of a long sum": (
        "lambda x: tf.constant(1e-5 if tf.executing_eagerly() else -1e-5), {'x': tf.ones([500])}, "
        "ways=[eager, compiled]"
    ),
    "rounding": "lambda x: tf.constant(-1.5e-8 if tf.executing_eagerly() else 2.2e-8), X, ways=[eager, compiled]",
    "a zero's sign": "lambda: tf.constant(0.0 if tf.executing_eagerly() else -0.0), NONE",
    "rounding in graphs": (
        "lambda: tf.constant(1.0 if tf.executing_eagerly() else 1.00001), NONE, rounds=True, ways=[eager, known_shapes]"
    ),
    "a dtype in a session": (
        "lambda x: (_ for _ in ()).throw((AssertionError, tf.errors.InvalidArgumentError)[tf.executing_eagerly()]"
        "(*(['Unreachable'], [None, None, 'a dtype'])[tf.executing_eagerly()])), X"
    ),
    "indices that XLA clips": "lambda x: tf.gather([1, 2], x), {'x': tf.constant([2])}, ways=[eager, compiled]",
    "scalars in loops": "looped(lambda x: x[0]), X, like=lambda x: x[0]",
    "a refusal of sessions": (
        "lambda x: x if tf.executing_eagerly() or tf.compat.v1.get_default_graph().building_function "
        'else (_ for _ in ()).throw(ValueError("f needs TensorFlow 2\'s behavior")), X'
    ),
}
# Functions of relations.py, and a part of the finding, or "".
_RELATIONS = {
    "padding": ("of: of.x[:, 0]", "padding that is not at the end"),
    "padding that counts for nothing": ("of: tf.reduce_sum(tf.where(of.mask, of.labels, 0))", ""),
    "padding that is refused": (
        "of: tf.gather([0.0], tf.cast(tf.reduce_any(of.mask[:, 1:] & ~of.mask[:, :-1]), tf.int32))",
        "",
    ),
    "other rows": ("row: tf.reduce_sum(row(0, 'x').values) + tf.reduce_sum(row(5, 'x').values)", "expected an error"),
    "other rows that are refused": ("row: row(0, 'x') + row(5, 'x')", ""),
    "no rows": ("row: tf.zeros(row(0, 'x').values.shape[0] == 0 and [1] or [])", "known_shapes: result 0"),
    "a switch that changes values": (
        "rng: (lambda x: x + hasattr(keras.layers.LSTM.inner_loop, '__wrapped__'), X)",
        "the switch",
    ),
    "a switch that changes none": ("rng: (lambda x: x + 1, X)", ""),
    "integers that wrap": ("n: tf.cast(n, tf.int32)", "n plus 4294967296, list"),
    "fractions that are cut": ("n: tf.cast(tf.minimum(tf.cast(n, tf.float64), 9.0), tf.int32)", "n plus 0.9, list"),
    "integers that count": ("n: n", ""),
    "integers that are refused": ("n: tf.ones(n)", ""),
    "cancellation": ("x: x + 1e9 - 1e9", "float32 differs from float64"),
    "a condition": ("x: tf.exp(x)", ""),
}


def _variants(definition, call):
    """Yields a call, it with each other value of an attr, and without the tensors of each list."""
    call = {name: programs.copied(value) for name, value in call.items()}
    yield call
    yield from (call | {arg.name: []} for arg in definition.input_arg if arg.number_attr and call.get(arg.name))
    for attr in definition.attr:
        if attr.name in call:
            allowed = [v.decode() for v in attr.allowed_values.list.s] + [False, True] * (attr.type == "bool")
            yield from (call | {attr.name: value} for value in allowed if value != call[attr.name])


class ExamplesTest(tf.test.TestCase):
    def test_every_op_and_public_name_has_an_initial_call(self):
        found = example_calls.examples()
        for name, (definition, _) in example_calls.raw_ops().items():
            if definition.input_arg:
                self.assertIn(name, found.raw, "no docstring's example calls it, so fuzzing has no initial call")
        self.assertContainsSubset({name for name, _ in example_calls.public()}, set(found.public))


class FuzzTest(parameterized.TestCase, tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.fuzzer = fuzz.Fuzzer()
        cls.addClassCleanup(cls.fuzzer.stop)

    def _run(self, source):
        """Returns the outcome and the error of a program, "" if it is no finding."""
        before, findings = self.fuzzer.counts["test"].copy(), len(self.fuzzer.findings)
        self.fuzzer.run_case("test", source, _HEADER + source)
        ((outcome, _),) = (self.fuzzer.counts["test"] - before).items()
        return outcome, self.fuzzer.findings[-1][3] if len(self.fuzzer.findings) > findings else ""

    def test_short_run_has_no_finding(self):
        fuzzer = self.fuzzer
        for case in itertools.islice(programs.programs(programs.SURFACES, 1), 100):
            fuzzer.run_case(*case)
        self.assertEmpty([finding for finding in fuzzer.findings if finding[0] != "test"])
        self.assertContainsSubset(programs.SURFACES, fuzzer.counts)
        self.assertEqual(sum(counts.total() for surface, counts in fuzzer.counts.items() if surface != "test"), 100)
        # About 0.3 of the raw calls reach a kernel (1,000 calls). Each new op draws other calls, and draws are related:
        # one run of 33 had 2.
        self.assertGreater(fuzzer.counts["raw_op"]["value"], 0)

    @parameterized.named_parameters((name, name) for name in example_calls.raw_ops())
    def test_op_writes_all_outputs(self, name):
        definition, function = example_calls.raw_ops()[name]
        calls = example_calls.examples().raw.get(name, [{}])
        calls = [variant for call in calls for variant in _variants(definition, call)]
        sources = dict.fromkeys(programs.call_source(definition, function, call) for call in calls)
        agree = "result = agree(function, inputs, ways=[eager, known_shapes], one_op=True)"
        outcomes = [self._run(source + agree) for source in sources]
        self.assertEmpty([error for _, error in outcomes if error])
        self.assertIn(("value", ""), outcomes)  # attrs that do not match are errors

    @parameterized.parameters(
        ("crash", "import os; os.abort()", "SIGABRT"),
        ("hang", "while True: pass", "more than 1 s of CPU"),
        ("memory", _SHARED_MEMORY, "more than"),
    )
    def test_finds_crashes_hangs_and_memory(self, outcome, source, error):
        fuzzer = fuzz.Fuzzer()
        with mock.patch.multiple(fuzz, _CPU_SECONDS=1, _MAX_BYTES=200 << 20):
            fuzzer.run_case("test", "case", source)
        fuzzer.stop()
        ((_, _, found, message, program),) = fuzzer.findings
        self.assertEqual((found, program), (outcome, source))
        self.assertIn(error, message)

    @parameterized.parameters(
        ("raise ValueError()", "ValueError", "it has no message"),
        ("raise ValueError('x is 3')", "ValueError", ""),
        ("raise tf.errors.InternalError(None, None, 'bad')", "InternalError", "bad"),
        ("raise tf.errors.UnknownError(None, None, 'LookupError')", "UnknownError", "LookupError"),
        ("exec(compile('[][0]', '/tensorflow_ops/nn.py', 'exec'))", "IndexError of ours", "index out of range"),
        ("exec(compile('[][0]', '/tensorflow/nn.py', 'exec'))", "IndexError of others", ""),
    )
    def test_errors(self, source, outcome, error):
        found, message = self._run(source)
        self.assertEqual(found, outcome)
        self.assertIn(error, message)
        self.assertEqual(bool(error), bool(message))

    @parameterized.named_parameters((name, *fault) for name, fault in _FAULTS.items())
    def test_finds_ways_that_disagree(self, arguments, error):
        outcome, message = self._run(f"result = agree({arguments})")
        self.assertIn(outcome, ("DisagreementError", "UnknownError"), message)
        self.assertIn(error, message)

    @parameterized.parameters("lambda x: x", "lambda x: agree(lambda: x, NONE)")
    def test_finds_results_that_differ_with_threads(self, function):
        outcome, message = self._run(f"result = ({function})(tf.constant(float(os.environ['TF_NUM_INTRAOP_THREADS'])))")
        self.assertEqual(outcome, "threads")
        self.assertIn("1 and 3 threads", message)

    @parameterized.named_parameters(_TAKEN.items())
    def test_takes_documented_differences(self, arguments):
        self.assertEqual(self._run(f"result = agree({arguments})")[1], "")

    @parameterized.named_parameters((name, *case) for name, case in _RELATIONS.items())
    def test_relations(self, function, error):
        calls = {"of": "padded('f', seed)", "row": "from_rows('f', seed)", "rng": "switched('f', seed)"}
        calls["x"] = "accurate('f', 0, {}, seed)"
        calls["n"] = "[integers('f', 0, 'n', 'list', added) for added in (0, 2**32, 0.9)]"
        source = f"WITH_PADDING['f'] = FROM_ROWS['f'] = SWITCHED['f'] = lambda {function}\n"
        argument = {"n": "tf.constant([3, 5])"}.get(function[0], "np.ones([2])")
        source += f"examples().public['f'] = [Call(lambda {function}, {{{function[0]!r}: {argument}}})]\n"
        source += f"for seed in range(20): {calls[function.partition(':')[0]]}\n"
        message = self._run(source)[1]
        self.assertIn(error, message)
        self.assertEqual(bool(error), bool(message))

    def test_caches(self):
        calls = "for seed in range(2): cached(seed)"
        self.assertEqual(self._run(calls), ("value", ""))
        forget = "tfo.seq2seq.KeyValueCache.counts = property(lambda self: 0 * self.lengths + 9)"
        source = f"{forget}\ntry:\n    {calls}\nfinally:\n    del tfo.seq2seq.KeyValueCache.counts"
        self.assertIn("a KeyValueCache differs from lists", self._run(source)[1])

    def test_takes_arguments_that_no_graph_can_make(self):
        self.assertEqual(self._run("result = public('zero_out', 0, {'x': lambda x: tf.Variable(x)})"), ("value", ""))

    @parameterized.parameters(
        "public('nn.gru', 0, {'bias': lambda value: tf.keras.Input([3])})",  # without sizes, nothing refuses it
        "agree(vectorized(gradient), inputs, like=gradient)",  # of unknown rank
        "switched('batch_normalization', 751)",  # TensorFlow's sums depend on threads
    )
    def test_earlier_findings(self, call):
        source = """
gradient = lambda **inputs: ops.tensorflow_ops_depthwise_conv2d_grad(
    **inputs, strides=[1, 2], dilations=[1, 1], padding="VALID", paddings=(0, 0, 0, 0))
inputs = {"d_output": tf.ones([1, 1, 2, 2]), "input": tf.ones([1, 1, 3, 2]), "filter": tf.ones([1, 1, 2])}
"""
        self.assertEqual(self._run(f"{source}result = {call}")[1], "")

    @parameterized.parameters(
        ("Value for attr 'mode' of \"", "Value for attr 'data_format' of \""),
        ("No attr, OpDef: goo.gle/debugproto    \nname: 'x'", "No attr, OpDef: goo.gle/debugonly  \nname: 'x'"),
    )
    def test_errors_that_differ_between_processes(self, one, other):
        self.assertEqual(oracle.text_of_error(ValueError(one)), oracle.text_of_error(ValueError(other)))


if __name__ == "__main__":
    tf.test.main()
