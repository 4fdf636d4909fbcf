"""Tests of opcheck's results, options and processes. opcheck_faults_test.py tests the faults that it finds."""

import functools
import os
import re
import tempfile
import textwrap
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from opcheck_testing import (
    OTHER,
    X,
    cube,
    gradient_of_another_element,
    square_without_gradient,
    swallows_nan,
    wrong_in_bfloat16,
)

import tensorflow_ops as tfo
from tensorflow_ops.testing.python import children


class ResultsTest(tf.test.TestCase, parameterized.TestCase):
    """Uses tests that need no new process."""

    def test_runs_the_selected_tests(self):
        results = tfo.testing.opcheck(tf.nn.relu, [X], tests=["xla", "gradients"])
        self.assertEqual(
            [(test, r.status) for test, r in results.items()], [("gradients", "SUCCESS"), ("xla", "SUCCESS")]
        )
        self.assertEqual(list(tfo.testing.opcheck(tf.nn.relu, [X], tests="xla")), ["xla"])

    def test_raises_with_a_table_and_a_program(self):
        with self.assertRaises(tfo.testing.OpCheckError) as caught:
            tfo.testing.opcheck(wrong_in_bfloat16, [X], tests=("gradients", "dtypes"))
        message = str(caught.exception)
        self.assertStartsWith(message, "1 of 2 tests failed\n\ngradients  SUCCESS: ")
        self.assertIn("\ndtypes     FAILED: inputs in bfloat16: output[", message)
        self.assertIn("To repeat dtypes:\n\n    import numpy", message)
        self.assertIsInstance(caught.exception, AssertionError)
        self.assertEqual(list(caught.exception.results.failures), ["dtypes"])

    @parameterized.parameters(
        (wrong_in_bfloat16, [X], "dtypes", {}),
        (functools.partial(wrong_in_bfloat16), [tf.cast(X, tf.bfloat16)], "dtypes", {"tolerance": 1e-3}),
        (gradient_of_another_element, [X], "gradients", {"seed": 3, "dtypes": (tf.float32,)}),
        (tf.math.special.dawsn, [X], "xla", {}),
        (tf.multiply, [X, OTHER], "missing_gradients", {"non_differentiable": 0}),
        (tf.square, [X], "second_order", {"second_order": False}),
        (swallows_nan, [tf.constant([1.0, np.nan])], "dtypes", {"reference": np.negative}),
    )
    def test_program_reproduces_the_failure(self, function, args, test, options):
        result = tfo.testing.opcheck(function, args, tests=[test], raise_on_failure=False, **options)[test]
        self.assertEqual(result.status, "FAILED")
        with self.assertRaises(tfo.testing.OpCheckError) as caught:
            exec(compile(result.reproduction, "reproduction", "exec"), {})

        def without_numbers(detail):  # of graph names
            return re.sub(r"_\d+", "", detail)

        self.assertEqual(without_numbers(caught.exception.results[test].detail), without_numbers(result.detail))

    def test_program_shows_a_function_that_it_cannot_import(self):
        seven = 7
        results = tfo.testing.opcheck(
            lambda x: (x, seven)[0] + 0 * x, [X], tests="xla", raise_on_failure=False, xla=False
        )
        self.assertRegex(
            results["xla"].reproduction, r"# fn is a function of .*opcheck_test.py:\d+: put it here.\n#   .*seven"
        )

    def test_declared_exceptions_are_skipped_with_their_reason(self):
        results = tfo.testing.opcheck(tf.nn.relu, [X], tests=("xla", "gradients"), skip={"xla": "not today"})
        self.assertEqual((results["xla"].status, results["xla"].detail), ("SKIPPED", "not today"))
        results = tfo.testing.opcheck(tf.math.special.dawsn, [X], tests="xla", xla=False)
        self.assertRegex(
            results["xla"].detail, "declared xla=False: .*No registered|declared xla=False: .*unsupported op"
        )
        results = tfo.testing.opcheck(
            lambda n: n + 1, [tf.constant([1])], tests=("gradients", "dtypes", "second_order")
        )
        self.assertEqual({r.status for r in results.values()}, {"SKIPPED"})
        self.assertEqual(results["gradients"].detail, "no output is floating or complex")

    def test_second_order_may_raise_unless_declared(self):
        function = cube(square_without_gradient)
        for declared in (None, False):
            result = tfo.testing.opcheck(function, [X], tests="second_order", second_order=declared)["second_order"]
            self.assertRegex(result.detail, r"raises for args\[0\]: LookupError: the square has no gradient")

    @parameterized.parameters(
        ({"tests": ("gradient",)}, r"unknown test 'gradient'; expected one of static_shapes, graph_modes"),
        ({"skip": {"jit": "no"}}, r"unknown test 'jit'"),
        ({"non_differentiable": "bias"}, r"non_differentiable names 'bias', expected one of the inputs args\[0\]"),
        ({"more_args": [(X, 2)], "tests": "gradients"}, "more_args differ from args"),
        ({"edge_args": [(tf.constant(["a"]),)], "tests": "extreme_values"}, r"edge_args\[0\] differs from args"),
    )
    def test_bad_arguments(self, options, message):
        with self.assertRaisesRegex((ValueError, AssertionError), message):
            tfo.testing.opcheck(tf.nn.relu, [X], **options)

    def test_unknown_option_of_a_sample(self):
        with self.assertRaisesRegex(ValueError, "unknown option 'jit'; expected one of reference, dtypes"):
            tfo.testing.opcheck_samples({"relu": tfo.testing.OpSample(tf.nn.relu, [X], None, {"jit": 1})}, tests="xla")

    def test_error_of_fn_for_args_is_raised(self):
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "[Mm]atrix size|[Dd]im"):
            tfo.testing.opcheck(tf.matmul, [X, X], tests="gradients")

    def test_many_samples_raise_together(self):
        samples = {
            name: tfo.testing.OpSample(fn, [X])
            for name, fn in (("good", tf.nn.relu), ("bad", wrong_in_bfloat16), ("worse", wrong_in_bfloat16))
        }
        with self.assertRaisesRegex(tfo.testing.OpCheckError, r"^2 of 3 functions failed\n\nbad\n\ndtypes  FAILED"):
            tfo.testing.opcheck_samples(samples, tests="dtypes")


class ChildrenTest(tf.test.TestCase):
    """Uses child processes that do not import TensorFlow."""

    def _run(self, script, steps, preloaded=()):
        folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        path = os.path.join(folder, "script.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(script))
        job = children.Job(folder, "job", ())
        for step in steps:
            job.add(step)
        with mock.patch.multiple(children, _SCRIPT=path, _STEP_SECONDS=3, _PRELOADED=preloaded):
            children.run(folder, [job])
        return job

    def test_continues_after_a_step_that_crashes_or_hangs(self):
        job = self._run(
            """
            import os, pickle, sys, time
            folder, threads = sys.argv[1:]
            with open(os.path.join(folder, "plan.pkl"), "rb") as file:
                plan = pickle.load(file)
            for job, steps in plan["jobs"]:
                for step in steps:
                    path = os.path.join(folder, job, f"{step}.{threads}.result")
                    if os.path.exists(path):
                        continue
                    with open(os.path.join(folder, "underway"), "w") as file:
                        file.write(f"{job}\\n{step}")
                    if step == "abort":
                        os.abort()
                    if step == "hang":
                        time.sleep(60)
                    with open(path, "wb") as file:
                        pickle.dump(("ok", threads), file)
            with open(os.path.join(folder, "underway"), "w") as file:
                file.write("done")
            """,
            ["first", "abort", "large", "hang", "last"],
        )
        self.assertEqual(job.result("first"), ("ok", "4"))
        self.assertEqual(job.result("abort")[0], "crashed")
        self.assertIn("SIGABRT", job.result("abort")[1])
        self.assertEqual(job.result("hang"), ("crashed", "it was still running after 3 s"))
        self.assertEqual(job.result("last"), ("ok", "4"))
        self.assertEqual([job.result("large", threads) for threads in (1, 4)], [("ok", "1"), ("ok", "4")])
        self.assertEqual(job.result("first", 1), ("missing", ""))

    def test_child_that_does_not_start(self):
        job = self._run("raise ImportError('planted')", ["first", "second"])
        for step in ("load", "first", "second"):
            self.assertEqual(job.result(step), ("raised", "ImportError: planted"))

    def test_server_that_does_not_start(self):
        job = self._run("", ["first"], ["no_module_of_this_name"])
        for step in ("load", "first"):
            self.assertEqual(
                job.result(step), ("raised", "ModuleNotFoundError: No module named 'no_module_of_this_name'")
            )


class OtherProcessesTest(tf.test.TestCase):
    """Differences in child processes fail the right tests only."""

    def test_finds_different_results(self):
        real = children.run

        def changing(folder, jobs):
            real(folder, jobs)
            (job,) = jobs
            state, (outputs, gradients) = job.result("large", 1)
            flipped = [np.nextafter(y, np.float32(np.inf)) for y in outputs]
            job.put("large", 1, (state, (flipped, gradients)))
            state, (replicas, reduced) = job.result("mirrored")
            job.put("mirrored", 4, (state, (replicas, [g + 0.5 for g in reduced])))
            state, found = job.result("gradient")
            job.put("gradient", 4, (state, [g * 1.001 for g in found]))

        with mock.patch.object(children, "run", changing):
            results = tfo.testing.opcheck(tf.nn.tanh, [X], raise_on_failure=False)
        self.assertEqual(list(results.failures), ["determinism", "saved_model", "distribution"], f"\n{results}")
        self.assertIn("with 4 intra-op threads, compared with 1: output has other bits", results["determinism"].detail)
        self.assertIn("gradient to args[0]", results["saved_model"].detail)
        self.assertIn("the replicas' summed gradient to args[0] is", results["distribution"].detail)


if __name__ == "__main__":
    tf.test.main()
