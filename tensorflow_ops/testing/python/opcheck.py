"""The public functions that check an op in all of TensorFlow's execution modes."""

import contextlib
import dataclasses
import logging
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args

import tensorflow as tf
from typing_extensions import TypeAliasType

from tensorflow_ops.core.python.type_aliases import DTypeLike
from tensorflow_ops.testing.python import (
    children,
    forward_checks,
    mode_checks,
    process_checks,
    reproduction,
    value_checks,
)
from tensorflow_ops.testing.python.inputs import InputNames
from tensorflow_ops.testing.python.subject import Declarations, NotApplicableError, Subject, refusal_text

# In this order: failures of the first ones explain failures of later ones.
TestName = TypeAliasType(
    "TestName",
    Literal[
        "static_shapes",
        "graph_modes",
        "retracing",
        "gradients",
        "missing_gradients",
        "determinism",
        "dtypes",
        "extreme_values",
        "inputs_unmodified",
        "saved_model",
        "vectorization",
        "second_order",
        "forward_mode",
        "mixed_precision",
        "bad_input",
        "distribution",
        "xla",
        "gpu",
    ],
)
TESTS = get_args(TestName.__value__)
_CHECKS = {
    check.__name__: check
    for check in (
        mode_checks.static_shapes,
        mode_checks.graph_modes,
        mode_checks.retracing,
        value_checks.gradients,
        value_checks.missing_gradients,
        value_checks.determinism,
        value_checks.dtypes,
        value_checks.extreme_values,
        value_checks.inputs_unmodified,
        process_checks.saved_model,
        mode_checks.vectorization,
        value_checks.second_order,
        forward_checks.forward_mode,
        value_checks.mixed_precision,
        process_checks.bad_input,
        process_checks.distribution,
        mode_checks.xla,
        mode_checks.gpu,
    )
}
# Tests that run in part in a child process.
_IN_CHILDREN = {"saved_model", "distribution", "determinism", "extreme_values", "bad_input"}

SUCCESS, FAILED, SKIPPED = "SUCCESS", "FAILED", "SKIPPED"


@dataclasses.dataclass(frozen=True)
class OpCheckResult:
    """The result of one test of `opcheck`.

    Attributes:
      status: "SUCCESS", "FAILED" or "SKIPPED".
      detail: the failure, the reason to skip the test, or the extent of a success.
      error: the exception of a failure, else None.
      reproduction: a program that repeats a failure, else None.
    """

    status: str
    detail: str = ""
    error: BaseException | None = None
    reproduction: str | None = None


class OpCheckResults(dict[str, OpCheckResult]):
    """`{test: OpCheckResult}` of one function; prints as a table, with a reproduction of each failure."""

    @property
    def failures(self) -> dict[str, OpCheckResult]:
        """The results of failed tests."""
        return {test: result for test, result in self.items() if result.status == FAILED}

    def __str__(self):
        width = max(map(len, self), default=0)
        lines = [f"{test:{width}}  {r.status}{': ' if r.detail else ''}{r.detail}" for test, r in self.items()]
        for test, result in self.failures.items():
            lines += ["", f"To repeat {test}:", "", *("    " + line for line in result.reproduction.splitlines())]
        return "\n".join(lines)


class OpCheckError(AssertionError):
    """A function failed tests of `opcheck`.

    Attributes:
      results: the `OpCheckResults`; of `opcheck_samples` a dict of them by name.
    """

    def __init__(self, message: str, results: OpCheckResults | dict[str, OpCheckResults]) -> None:
        super().__init__(message)
        self.results = results


@dataclasses.dataclass(frozen=True)
class OpSample:
    """A function, its arguments, and the options of `opcheck` that hold for it: an entry of `opcheck_samples`.

    Attributes:
      fn: the function.
      args: positional arguments.
      kwargs: keyword arguments.
      options: the keyword-only options of `opcheck`.
    """

    fn: Callable[..., Any]
    args: Iterable[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def opcheck(
    fn: Callable[..., Any],
    args: Iterable[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    tests: TestName | Iterable[TestName] | None = None,
    reference: Callable[..., Any] | None = None,
    dtypes: Iterable[DTypeLike] = ("float16", "bfloat16", "float32", "float64"),
    output_dtype: DTypeLike | Mapping[Any, DTypeLike] | None = None,
    fixed_dtype: InputNames = (),
    non_differentiable: InputNames = (),
    second_order: bool | None = None,
    forward_mode: bool | None = None,
    xla: bool = True,
    vectorize: bool = True,
    unknown_rank: bool = True,
    data_dependent_shapes: bool = False,
    empty: bool = True,
    more_args: Iterable[Any] = (),
    edge_args: Iterable[Any] = (),
    bad_args: Iterable[Any] = (),
    skip: Mapping[TestName, str] | None = None,
    imports: Iterable[str] | None = None,
    tolerance: float | Mapping[Any, float] | None = None,
    seed: int = 0,
    raise_on_failure: bool = True,
) -> OpCheckResults:
    """Checks that a function of tensors gives the same results in all of TensorFlow's execution modes.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> x = tf.constant([[0.5, -1.0, 2.0], [1.5, 0.25, -0.5]])
    >>> results = tfo.testing.opcheck(tf.nn.relu, [x], tests=("gradients", "graph_modes"))
    >>> results["graph_modes"].status
    'SUCCESS'

    fn is any function of tensors: TensorFlow's, a wrapper of an op, a composition.
    docs/opcheck.md describes the tests; each can run alone:

        static_shapes      static shapes against run-time ones, for masks of unknown dims
        graph_modes        eager = tf.function = tf.while_loop, gradients too
        retracing          one trace serves all sizes
        gradients          gradients against numeric ones
        missing_gradients  a gradient is None only where it is declared
        determinism        same bits: runs, threads, 1 and 4 intra-op threads
        dtypes             each dtype against float64 or the reference; no silent upcast
        extreme_values     empty, size 1, NaN, infinity
        inputs_unmodified  no call writes to its inputs
        saved_model        round trip through a new process, gradient included
        vectorization      vectorized_map and jacobian against a loop
        second_order       gradients of gradients against numeric ones
        forward_mode       ForwardAccumulator against gradients; forward over reverse
        mixed_precision    Keras's mixed_float16 policy
        bad_input          an error and no crash
        distribution       two devices under MirroredStrategy
        xla                jit_compile=True
        gpu                GPU against CPU: eagerly, in a tf.function, with jit_compile=True

    Calls that may crash run in a new process first. So do the saved_model, distribution and
    determinism tests, on the CPU: about ten seconds.

    Args:
      fn: the function.
      args: its positional arguments. Tensors and arrays anywhere in a nest are inputs;
        Python numbers, strings and None are passed unchanged. Use different sizes for
        dims of different meaning, and values away from kinks.
      kwargs: its keyword arguments, the same.
      tests: names of the tests to run; None is all.
      reference: a function with fn's signature that takes NumPy arrays, floating ones in
        float64, and returns the expected results. None: fn itself in float64.
      dtypes: the dtypes to check floating inputs in.
      output_dtype: floating outputs' dtype: None, the inputs'; a dtype; or a dict from
        inputs' to outputs', such as {"float16": "float32", "bfloat16": "float32"}.
      fixed_dtype: inputs that are not cast with the others: positions in args (1, or
        (0, 2) for args[0][2]) or names in kwargs.
      non_differentiable: floating inputs, named the same way, whose gradient must be None.
      second_order: True: must work; False: must raise LookupError (in a graph
        UnimplementedError); None: either.
      forward_mode: True: must work, alone and over a tape; False: must raise the same errors;
        None: must work if second_order is True, else either.
      xla: False: fn must not compile.
      vectorize: False: vectorized_map must not work.
      unknown_rank: False: fn requires inputs of known rank in a graph.
      data_dependent_shapes: True: sizes of outputs depend on values.
      empty: False: fn rejects every empty input. True: it must accept a dim of size 0
        somewhere, and may reject others with an error.
      more_args: other args, of other sizes. opcheck generates sizes along dims that can grow.
      edge_args: other args that must work, such as no boxes; fn must not reject these.
      bad_args: (args, regex) or (args, kwargs, regex): fn must raise ValueError, TypeError
        or InvalidArgumentError with a message that the regex matches.
      skip: {test: reason} of tests that cannot hold.
      imports: the modules that a program imports to load a SavedModel of fn; None is the
        package that defines fn.
      tolerance: the allowed difference of results, times 1 + |expected|; a number, or a dict
        from dtype. None is 5e-3 for float16, 4e-2 for bfloat16, 2e-5 for float32, 1e-10
        for float64. Gradients against numeric ones have other tolerances
        (`assert_gradients`).
      seed: of all random numbers.
      raise_on_failure: False: failures are only in the result.

    Returns:
      An `OpCheckResults`: {test: OpCheckResult}. Printed, it is a table.

    Raises:
      OpCheckError: an AssertionError with the table and a program that repeats each failure.
      ValueError: an unknown test, a declaration that names no input.
      Exception: an error that fn raises for args.
    """
    options = {k: v for k, v in locals().items() if k not in ("fn", "args", "kwargs", "tests", "raise_on_failure")}
    sample = OpSample(fn, args, kwargs, options)
    results = _run({"": sample}, tests)[""]
    if raise_on_failure and results.failures:
        raise OpCheckError(f"{len(results.failures)} of {len(results)} tests failed\n\n{results}", results)
    return results


def opcheck_samples(
    samples: Mapping[str, OpSample],
    *,
    tests: TestName | Iterable[TestName] | None = None,
    raise_on_failure: bool = True,
) -> dict[str, OpCheckResults]:
    """Runs `opcheck` for many functions, which share the new processes.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> x = tf.constant([0.5, -1.0, 2.0])
    >>> samples = {"relu": tfo.testing.OpSample(tf.nn.relu, [x]), "exp": tfo.testing.OpSample(tf.exp, [x])}
    >>> results = tfo.testing.opcheck_samples(samples, tests=["gradients"])
    >>> [r["gradients"].status for r in results.values()]
    ['SUCCESS', 'SUCCESS']

    Args:
      samples: {name: OpSample}.
      tests: names of the tests to run; None is all.
      raise_on_failure: False: failures are only in the result.

    Returns:
      {name: OpCheckResults}.

    Raises:
      OpCheckError: an AssertionError with the tables of the functions that failed.
      ValueError: an unknown test or option, a declaration that names no input.
    """
    results = _run(samples, tests)
    failed = {name: r for name, r in results.items() if r.failures}
    if raise_on_failure and failed:
        tables = "\n\n".join(f"{name}\n\n{r}" for name, r in failed.items())
        raise OpCheckError(f"{len(failed)} of {len(results)} functions failed\n\n{tables}", results)
    return results


def _defaults():
    return {field.name: getattr(Declarations(), field.name) for field in dataclasses.fields(Declarations)}


def _chosen(tests):
    tests = TESTS if tests is None else (tests,) if isinstance(tests, str) else tuple(tests)
    unknown = [test for test in tests if test not in _CHECKS]
    if unknown:
        raise ValueError(f"unknown test {unknown[0]!r}; expected one of {', '.join(TESTS)}")
    return [test for test in TESTS if test in tests]


def _declarations(options):
    options = {**options, "skip": dict(options.get("skip") or {})}
    unknown = sorted(set(options) - set(_defaults()))
    if unknown:
        raise ValueError(f"unknown option {unknown[0]!r}; expected one of {', '.join(_defaults())}")
    _chosen(options["skip"])
    for field in ("dtypes", "more_args", "edge_args", "bad_args"):
        if field in options:
            options[field] = tuple(options[field])
    return Declarations(**options)


@contextlib.contextmanager
def _quiet():
    """Suppresses TensorFlow's logs of many traces and of saving, which the tests cause on purpose."""

    def keep(record):
        return record.levelno > logging.INFO and "triggered tf.function retracing" not in record.getMessage()

    loggers = [tf.get_logger(), logging.getLogger("absl")]
    for logger in loggers:
        logger.addFilter(keep)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(keep)


def _run(samples, tests):
    """Runs all checks of all samples: adds jobs, runs child processes, then runs the checks."""
    tests = _chosen(tests)
    with _quiet():
        return _run_quietly(samples, tests)


def _run_quietly(samples, tests):
    subjects = {}
    for name, sample in samples.items():
        subject = Subject(sample.fn, sample.args, sample.kwargs, _declarations(sample.options))
        if "retracing" in tests:  # before any trace for unknown sizes, which would serve all sizes
            subject.traces_of_sizes = mode_checks.traces_of_sizes(subject)
        subjects[name] = subject
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for index, subject in enumerate(subjects.values()):
            in_children = [test for test in tests if test in _IN_CHILDREN and test not in subject.declared.skip]
            if in_children:
                job = children.Job(folder, f"job_{index}", subject.imports)
                subject.plan(job, in_children)
                jobs += [job] if subject.job else []
        children.run(folder, jobs)
        return {name: _check(subject, samples[name], tests) for name, subject in subjects.items()}


def _check(subject, sample, tests):
    results = OpCheckResults()
    for test in tests:
        if test in subject.declared.skip:
            results[test] = OpCheckResult(SKIPPED, subject.declared.skip[test])
            continue
        subject.refresh()
        try:
            results[test] = OpCheckResult(SUCCESS, _CHECKS[test](subject) or "")
        except NotApplicableError as reason:
            results[test] = OpCheckResult(SKIPPED, str(reason))
        except Exception as error:
            detail = str(error) if isinstance(error, AssertionError) else refusal_text(error)
            results[test] = OpCheckResult(FAILED, detail, error, _reproduction(subject, sample, test))
    return results


def _reproduction(subject, sample, test):
    defaults = _defaults()
    options = {name: value for name, value in sample.options.items() if not _same(value, defaults[name])}
    return reproduction.program(sample.fn, subject.inputs.args, subject.inputs.kwargs, options, test)


def _same(value, default):
    """Returns whether an option has its default value."""
    if value is None or (isinstance(value, tuple | list | dict) and not value):
        return not default
    return type(value) is type(default) and value == default
