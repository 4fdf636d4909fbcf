"""The function under check, for all checks of opcheck: inputs, outputs, other sizes, the job of a child process."""

import dataclasses
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tensorflow_ops.testing.python import compare
from tensorflow_ops.testing.python import inputs as inputs_module
from tensorflow_ops.testing.python.inputs import Inputs, is_differentiable

_DTYPES = ("float16", "bfloat16", "float32", "float64")
# A number of elements that kernels split over threads, and the largest growth factor of a dim.
_LARGE, _MAX_GROWTH = 2**16, 64


class NotApplicableError(Exception):
    """A check does not apply; the message is the reason."""


@dataclasses.dataclass(frozen=True)
class Declarations:
    """The options of `opcheck` that declare properties of a function."""

    reference: Callable | None = None
    dtypes: Iterable = _DTYPES
    output_dtype: Any = None
    fixed_dtype: Any = ()
    non_differentiable: Any = ()
    second_order: bool | None = None
    forward_mode: bool | None = None
    xla: bool = True
    vectorize: bool = True
    unknown_rank: bool = True
    data_dependent_shapes: bool = False
    empty: bool = True
    more_args: Iterable = ()
    edge_args: Iterable = ()
    bad_args: Iterable = ()
    skip: Mapping[str, str] = dataclasses.field(default_factory=dict)
    imports: Iterable[str] | None = None
    tolerance: Mapping | float | None = None
    seed: int = 0


def packages_of(fn):
    """Returns the package that defines fn: the root of its module, or none for the main program or TensorFlow."""
    while hasattr(fn, "func"):  # functools.partial
        fn = fn.func
    root = (getattr(fn, "__module__", None) or "__main__").partition(".")[0]
    return () if root in ("__main__", "tensorflow", "keras", "builtins", "numpy") else (root,)


class Case:
    """Inputs that fn may reject: a name, tensors, and whether they were generated or come from the caller."""

    def __init__(self, name, tensors, generated=True):
        self.name, self.tensors, self.generated = name, tensors, generated


class Subject:
    """A function under check."""

    def __init__(self, fn, args, kwargs, declared: Declarations):
        self.fn, self.declared, self.seed = fn, declared, declared.seed
        self.inputs = Inputs(
            fn, args, kwargs, non_differentiable=declared.non_differentiable, fixed_dtype=declared.fixed_dtype
        )
        self.tensors = self.inputs.tensors
        self._given = [x.numpy().copy() for x in self.tensors]
        self.refresh()
        # Copies, which later calls cannot change.
        self.expected = [tf.constant(y.numpy().copy()) for y in self.inputs.call(*self.tensors)]
        self.output_names = self.inputs.output_names(*self.tensors)
        self.floats = [k for k, y in enumerate(self.expected) if is_differentiable(y.dtype)]
        self.upstream = inputs_module.random_like([self.expected[k] for k in self.floats], self.seed + 7)
        self.tolerances = dict(compare.TOLERANCES)
        if isinstance(declared.tolerance, Mapping):
            self.tolerances.update({tf.as_dtype(d): t for d, t in declared.tolerance.items()})
        elif declared.tolerance is not None:
            self.tolerances = dict.fromkeys(self.tolerances, declared.tolerance)
        self.imports = tuple(packages_of(fn) if declared.imports is None else declared.imports)
        self.groups = inputs_module.growable(self.inputs)
        self.other_sizes = self._other_sizes()
        self.job = self.save_error = self.traces_of_sizes = None
        self._vjp = None

    def refresh(self):
        """Copies the caller's inputs again: a call may have written to the last copies."""
        self.tensors[:] = [tf.constant(x.copy(), x.dtype) for x in self._given]

    @property
    def has_gradients(self):
        """Whether an output and an input are differentiable."""
        return bool(self.floats and self.inputs.differentiable)

    def need_gradients(self):
        """Raises NotApplicableError if there are no gradients."""
        if not self.floats:
            raise NotApplicableError("no output is floating or complex")
        if not self.inputs.differentiable:
            raise NotApplicableError("no input is differentiable")

    @property
    def gradient_names(self):
        """A name for each gradient."""
        return [f"gradient to {self.inputs.names[i]}" for i in self.inputs.differentiable]

    def dtypes(self):
        """Returns the dtypes to check floating inputs in."""
        dtypes = [tf.as_dtype(d) for d in self.declared.dtypes]
        floats = [
            x.dtype for i, x in enumerate(self.tensors) if is_differentiable(x.dtype) and i not in self.inputs.fixed
        ]
        if floats and all(d.is_complex for d in floats):  # complex dtypes have at least 32 bits per part
            dtypes = [d for d in dtypes if d.size >= 4]
        return dtypes

    def widest(self):
        """Returns the widest dtype that fn accepts."""
        return max(self.dtypes(), key=lambda d: (d.size, d == tf.float16), default=tf.float64)

    def wide_inputs(self):
        """Returns the inputs in the widest dtype."""
        args, kwargs = self.inputs.packed(self.inputs.cast(self.widest()))
        declared = self.declared
        return Inputs(
            self.fn, args, kwargs, non_differentiable=declared.non_differentiable, fixed_dtype=declared.fixed_dtype
        )

    def gradients(self):
        """Returns the eager gradients for `upstream`."""
        if self._vjp is None:
            self._vjp = self.inputs.vjp(self.tensors, self.upstream)[1]
        return self._vjp

    def relaxed(self):
        """Returns the most specific signature that fits all of `other_sizes`."""
        shapes = [x.shape.as_list() for x in self.tensors]
        for tensors in self.other_sizes:
            for i, x in enumerate(tensors):
                if len(x.shape) != len(shapes[i] or ()):
                    shapes[i] = None
                if shapes[i] is not None:
                    shapes[i] = [m if m == n else None for m, n in zip(shapes[i], x.shape, strict=True)]
        return [tf.TensorSpec(shape, x.dtype) for shape, x in zip(shapes, self.tensors, strict=True)]

    def _other_sizes(self):
        sizes = [inputs_module.tiled(self.tensors, dims, factor) for dims in self.groups for factor in (2, 3)]
        for args in self.declared.more_args:
            tensors = self.inputs.of(args)
            if tensors is None:
                raise ValueError("more_args differ from args in more than their tensors' values and sizes")
            sizes.append(tensors)
        return sizes

    def large(self):
        """Returns large inputs: the first dim that can grow is grown. Else the inputs themselves."""
        for dims in self.groups:
            size = sum(int(tf.size(self.tensors[i])) for i in {i for i, _ in dims})
            factor = min(_MAX_GROWTH, max(1, _LARGE // size))
            try:
                tensors = inputs_module.tiled(self.tensors, dims, factor)
                self.inputs.call(*tensors)
                return tensors
            except Exception:  # fn rejects this growth, too
                continue
        return self.tensors

    def variants(self, count):
        """Returns inputs with other values and the same shapes, or the inputs themselves if fn rejects these."""
        result = []
        for step in range(count):
            tensors = inputs_module.variant(self.tensors, step)
            try:
                outputs = self.inputs.call(*tensors)
                fits = all(y.shape == e.shape for y, e in zip(outputs, self.expected, strict=True))
            except Exception:
                fits = False
            result.append(tensors if fits else self.tensors)
        return result

    def extreme_cases(self):
        """Returns Cases of empty, single, NaN and infinite inputs, and of the caller's edge_args."""
        cases = []
        for size, word in ((0, "empty"), (1, "size 1")):
            for dims in inputs_module.dim_groups(self.tensors):
                if self.tensors[dims[0][0]].shape[dims[0][1]] > size:
                    tensors = inputs_module.sliced(self.tensors, dims, size)
                    cases.append(Case(f"{word}: {inputs_module.dims_text(self.inputs, dims)}", tensors))
        for i, x in enumerate(self.tensors):
            if is_differentiable(x.dtype) and tf.size(x) > 0:
                for value in (np.nan, np.inf, -np.inf):
                    array = x.numpy().copy()
                    array.reshape(-1)[array.size // 2] = value
                    tensors = [tf.constant(array) if k == i else t for k, t in enumerate(self.tensors)]
                    cases.append(Case(f"{value} in {self.inputs.names[i]}", tensors))
        for k, args in enumerate(self.declared.edge_args):
            tensors = self.inputs.of(args)
            if tensors is None:
                raise ValueError(f"edge_args[{k}] differs from args in more than its tensors' values and sizes")
            cases.append(Case(f"edge_args[{k}]", tensors, generated=False))
        return cases

    def wrong_cases(self):
        """Returns Cases that most functions must reject: wrong ranks and sizes, integers out of range."""
        cases = []

        def add(i, what, changed):
            tensors = [changed if k == i else t for k, t in enumerate(self.tensors)]
            cases.append(Case(f"{self.inputs.names[i]} {what}", tensors))

        for i, x in enumerate(self.tensors):
            add(i, "with a dim more", x[tf.newaxis])
            if x.shape.rank and x.shape[0]:
                add(i, "with a dim less", x[0])
            for axis, size in enumerate(x.shape):
                if size:
                    add(i, f"longer in dim {axis}", inputs_module.tiled([x], [(0, axis)], 2)[0])
                if size > 1:
                    add(i, f"shorter in dim {axis}", inputs_module.sliced([x], [(0, axis)], size - 1)[0])
                if size and len(self.tensors) > 1:
                    add(i, f"empty in dim {axis}", inputs_module.sliced([x], [(0, axis)], 0)[0])
            if x.dtype.is_integer and not x.dtype.is_unsigned and tf.size(x) > 0:
                for value in (-1, int(tf.reduce_max(x)) + 1000):
                    if x.dtype.min <= value <= x.dtype.max:
                        array = x.numpy().copy()
                        array.reshape(-1)[-1] = value
                        add(i, f"with a {value}", tf.constant(array))
        return cases

    def bad_cases(self):
        """Yields the caller's bad_args: (name, args, kwargs, regex, tensors; None if other arguments differ, too)."""
        for k, bad in enumerate(self.declared.bad_args):
            *given, regex = bad
            args, kwargs = given if len(given) == 2 else (given[0], {})
            kwargs = {**self.inputs.kwargs, **kwargs}
            yield f"bad_args[{k}]", args, kwargs, regex, self.inputs.of(args, kwargs)

    def plan(self, job, tests):
        """Saves the function, and adds the tests' steps to the job of a child process."""
        try:
            tf.saved_model.save(self._model(), job.model)
        except Exception as error:
            self.save_error = error
            return
        self.job = job
        arrays = _arrays(self.tensors)
        indices = list(self.inputs.differentiable)
        upstream = _arrays(self.upstream)
        if "saved_model" in tests:
            job.add("forward", arrays=arrays)
            if self.has_gradients:
                job.add("gradient", arrays=arrays, indices=indices, upstream=upstream)
                job.add("saved_gradient", arrays=arrays, upstream=upstream)
        if "distribution" in tests and not self.declared.data_dependent_shapes:
            replicas = [_arrays(tensors) for tensors in self.variants(2)]
            job.add("mirrored", replicas=replicas, indices=indices, upstream=upstream)
        if "determinism" in tests:
            job.add("large", arrays=_arrays(self.large()), indices=indices)
        cases = self.extreme_cases() if "extreme_values" in tests else []
        if "bad_input" in tests:
            cases += self.wrong_cases()
            cases += [Case(name, t) for name, _, _, _, t in self.bad_cases() if t is not None]
        for case in cases:
            job.add(_step_name(case.name), arrays=_arrays(case.tensors), indices=indices if self.floats else [])

    def crash(self, case_name):
        """Returns how a case ended a child process, or None."""
        if self.job is None:
            return None
        state, text = self.job.result(_step_name(case_name))
        return text if state == "crashed" else None

    def _model(self):
        model = tf.Module()
        model.owner = getattr(self.fn, "__self__", None) if not isinstance(self.fn, tf.Module) else self.fn
        relaxed = self.relaxed()
        model.forward = tf.function(self.inputs.call, input_signature=relaxed, autograph=False)
        model.forward.get_concrete_function()
        model.loose = self._loose(relaxed)
        if self.has_gradients:
            count = len(self.tensors)
            upstream = [tf.TensorSpec(None, u.dtype) for u in self.upstream]

            def gradient(*tensors):
                return [g for g in self.inputs.vjp(tensors[:count], list(tensors[count:]))[1] if g is not None]

            model.gradient = tf.function(gradient, input_signature=[*relaxed, *upstream], autograph=False)
            model.gradient.get_concrete_function()
        return model

    def _loose(self, relaxed):
        """Returns the function for the least specific signature that it accepts."""
        ranks = [tf.TensorSpec([None] * x.shape.rank, x.dtype) for x in self.tensors]
        for signature in ([tf.TensorSpec(None, x.dtype) for x in self.tensors], ranks, relaxed):
            function = tf.function(self.inputs.call, input_signature=signature, autograph=False)
            try:
                function.get_concrete_function()
                return function
            except Exception:
                if signature is relaxed:
                    raise


def _arrays(tensors):
    return [x.numpy() for x in tensors]


def _step_name(case_name):
    """Returns a case's name as a file name."""
    return "case_" + "".join(c if c.isalnum() else "_" for c in case_name) + f"_{zlib.crc32(case_name.encode())}"


# Errors that a missing gradient raises: LookupError eagerly, UnimplementedError in a graph.
MISSING_GRADIENT = (LookupError, tf.errors.UnimplementedError)


def refusal_text(error):
    """Returns the line of an exception with its message, without the names of nodes."""
    lines = [line.strip() for line in re.sub(r"\{\{[^}]*\}\} ?", "", str(error)).splitlines() if line.strip()]
    if lines and lines[0].startswith(("Graph execution error", "in user code", "Exception encountered")):
        # The traceback of user code comes before the message.
        raised = [line.partition(": ")[2] for line in lines if re.match(r"\w+(Error|Exception): ", line)]
        lines = raised or lines[-1:]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
