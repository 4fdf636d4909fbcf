"""Checks of execution modes: static shapes, graphs, loops, sizes, vectorized_map, XLA, a GPU."""

import contextlib
import re
from unittest import mock

import numpy as np
import tensorflow as tf

# TensorFlow has no public API to count traces; a wheel fits one TensorFlow release.
from tensorflow.python.framework import func_graph

from tensorflow_ops.core.python import library
from tensorflow_ops.testing.python import inputs as inputs_module
from tensorflow_ops.testing.python.compare import check_close
from tensorflow_ops.testing.python.inputs import REFUSALS
from tensorflow_ops.testing.python.subject import NotApplicableError, refusal_text

# XLA's error for a custom op, whose name has a namespace.
_MISSING_KERNEL = re.compile(r"No registered '\w+>")


def _function(function, signature=None, **options):
    return tf.function(function, input_signature=signature, autograph=False, **options)


def _specs(tensors, shapes=None):
    shapes = [x.shape for x in tensors] if shapes is None else shapes
    return [tf.TensorSpec(shape, x.dtype) for shape, x in zip(shapes, tensors, strict=True)]


def _signature_text(shapes):
    return ", ".join(
        "?" if s.rank is None else "[" + ",".join("?" if n is None else str(n) for n in s) + "]" for s in shapes
    )


def _fits(tensors, shapes):
    return all(s.is_compatible_with(x.shape) for s, x in zip(shapes, tensors, strict=True))


def static_shapes(s):
    """Checks static shapes against run-time ones for masks of unknown dims; known inputs must give known outputs."""
    others = [(tensors, s.inputs.call(*tensors)) for tensors in s.other_sizes]
    known = [x.shape for x in s.tensors]
    count = 0
    for shapes in inputs_module.masks(s.tensors, s.seed):
        if not s.declared.unknown_rank and any(shape.rank is None for shape in shapes):
            continue
        what = f"inputs of static shapes {_signature_text(shapes)}"
        try:
            concrete = _function(s.inputs.call, _specs(s.tensors, shapes)).get_concrete_function()
        except Exception as error:
            raise AssertionError(f"{what}: {refusal_text(error)}") from error
        static = [y.shape for y in concrete.structured_outputs]
        if shapes == known and not s.declared.data_dependent_shapes:
            for name, shape in zip(s.output_names, static, strict=True):
                if not shape.is_fully_defined():
                    raise AssertionError(
                        f"{what}: {name} has static shape {shape}, though all sizes are known; declare "
                        "data_dependent_shapes=True if it depends on values"
                    )
        # One of the other sizes that fit, in turn.
        fitting = [other for other in others if _fits(other[0], shapes)]
        count += 1
        for tensors, expected in [(s.tensors, s.expected), *(fitting[count % len(fitting) :][:1] if fitting else ())]:
            try:
                outputs = concrete(*tensors)
            except Exception as error:
                raise AssertionError(
                    f"{what}, run with {_signature_text([x.shape for x in tensors])}: {refusal_text(error)}"
                ) from error
            for name, shape, y, e in zip(s.output_names, static, outputs, expected, strict=True):
                if not shape.is_compatible_with(e.shape):
                    raise AssertionError(f"{what}: {name} has static shape {shape}, and {e.shape} at run time")
                if y.shape != e.shape:
                    raise AssertionError(f"{what}: {name} is {y.shape}, eagerly {e.shape}")
            check_close(what, s.output_names, outputs, expected, s.tolerances)
    return f"{count} masks of unknown dims"


def _loop(s):
    """Returns a function with a while loop that calls fn twice."""
    zeros = [tf.zeros_like(y) for y in s.expected]
    # static_shapes checks the shapes of outputs.
    shapes = [tf.TensorShape(None) for _ in s.expected]

    def run(*tensors):
        def body(i, tensors, _):
            return i + 1, tensors, s.inputs.call(*tensors)

        invariants = tf.TensorShape([]), [x.shape for x in s.tensors], shapes
        start = tf.constant(0), list(tensors), zeros
        return tf.while_loop(lambda i, *_: i < 2, body, start, shape_invariants=invariants)[2]

    return run


def graph_modes(s):
    """Checks that eager execution, tf.function and a tf.while_loop return the same outputs and gradients."""
    _check_mode(s, "in a tf.function", s.inputs.call)
    _check_mode(s, "in a tf.while_loop", _loop(s))


def _check_mode(s, what, call, **options):
    try:
        check_close(what, s.output_names, _function(call, **options)(*s.tensors), s.expected, s.tolerances)
        if s.has_gradients:

            def gradients(*tensors):
                indices = s.inputs.differentiable
                with tf.GradientTape() as tape:
                    tape.watch([tensors[i] for i in indices])
                    outputs = call(*tensors)
                outputs = [outputs[k] for k in s.floats]
                found = tape.gradient(outputs, [tensors[i] for i in indices], output_gradients=s.upstream)
                found = [None if g is None else tf.convert_to_tensor(g) for g in found]
                # A loop has gradients for all its variables: zeros instead of None.
                return [tf.zeros_like(tensors[i]) if g is None else g for i, g in zip(indices, found, strict=True)]

            expected = [
                tf.zeros_like(s.tensors[i]) if g is None else g
                for i, g in zip(s.inputs.differentiable, s.gradients(), strict=True)
            ]
            found = _function(gradients, **options)(*s.tensors)
            check_close(what, s.gradient_names, found, expected, s.tolerances)
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{what}: {refusal_text(error)}") from error


@contextlib.contextmanager
def _traces():
    """Yields a list to which the name of each new graph is added."""
    made, original = [], func_graph.FuncGraph.__init__

    def counting(graph, name, *args, **kwargs):
        made.append(name)
        original(graph, name, *args, **kwargs)

    with mock.patch.object(func_graph.FuncGraph, "__init__", counting):
        yield made


def traces_of_sizes(s):
    """Returns a message if eager calls trace a function again for each new size, else None."""
    for dims in s.groups:
        made = []
        first, *more = inputs_module.MORE_GROWTH
        for factor in (first, *more, more[-1]):
            tensors = inputs_module.tiled(s.tensors, dims, factor)
            with _traces() as names:
                try:
                    s.inputs.call(*tensors)
                except REFUSALS:
                    break
            made.append(names)
        else:
            # A function may trace a second time, for unknown sizes.
            *new, again = made[1:]
            if all(len(names) > len(again) for names in new):
                problem = f"each new size of {inputs_module.dims_text(s.inputs, dims)} traces {sorted(set(new[-1]))}"
                return f"{problem} again: use tf.function(reduce_retracing=True) or an input_signature"
    return None


def retracing(s):
    """Checks that one trace serves all sizes, and that eager calls do not trace again for each new size."""
    if not s.other_sizes:
        raise NotApplicableError("fn accepts no other size along any dim; pass some as more_args")
    signature = s.relaxed()
    function = _function(s.inputs.call, signature)
    what = f"traced once, for {_signature_text([spec.shape for spec in signature])}"
    for tensors in [s.tensors, *s.other_sizes]:
        shapes = _signature_text([x.shape for x in tensors])
        try:
            outputs = function(*tensors)
        except Exception as error:
            raise AssertionError(f"{what}, run with {shapes}: {refusal_text(error)}") from error
        check_close(f"{what}, run with {shapes}", s.output_names, outputs, s.inputs.call(*tensors), s.tolerances)
    if s.traces_of_sizes:
        raise AssertionError(s.traces_of_sizes)
    return f"{len(s.other_sizes)} other sizes"


def vectorization(s):
    """Checks tf.vectorized_map and a tape's jacobian against a loop, without a fallback to one."""
    if s.declared.data_dependent_shapes:
        raise NotApplicableError("sizes of outputs depend on values")
    variants = s.variants(3)
    subsets = [[i] for i in range(len(s.tensors))]
    if len(s.tensors) > 1:
        subsets.append(list(range(len(s.tensors))))
    problems = []
    for subset in subsets:
        what = f"vectorized_map over {', '.join(s.inputs.names[i] for i in subset)}"

        def of(rows, subset=subset):
            tensors = list(s.tensors)
            for i, row in zip(subset, rows, strict=True):
                tensors[i] = row
            return s.inputs.call(*tensors)

        rows = [[v[i] for i in subset] for v in variants]
        try:
            each = [of(row) for row in rows]
        except Exception:  # fn rejects a change of one input without the others
            continue
        if any(y.shape != e.shape for one in each for y, e in zip(one, s.expected, strict=True)):
            continue
        try:
            stacked = [tf.stack(tensors) for tensors in zip(*rows, strict=True)]
            mapped = tf.vectorized_map(of, stacked, fallback_to_while_loop=False)
        except Exception as error:
            problems.append(f"{what}: {refusal_text(error)}")
            continue
        expected = [tf.stack(tensors) for tensors in zip(*each, strict=True)]
        check_close(what, s.output_names, mapped, expected, s.tolerances)
    if s.has_gradients and not problems:
        _jacobian(s, problems)
    if problems and s.declared.vectorize:
        raise AssertionError("; ".join(problems))
    if not problems and not s.declared.vectorize:
        raise AssertionError("vectorize=False is declared, but vectorized_map works")
    if problems:
        raise NotApplicableError(f"declared vectorize=False: {problems[0]}")


def _jacobian(s, problems):
    indices = s.inputs.differentiable
    k = s.floats[0]
    if s.expected[k].dtype.is_complex or tf.size(s.expected[k]) == 0:
        return
    with tf.GradientTape(persistent=True) as tape:
        watched = [tf.identity(s.tensors[i]) for i in indices]
        tape.watch(watched)
        tensors = list(s.tensors)
        for i, x in zip(indices, watched, strict=True):
            tensors[i] = x
        # Few rows: the loop is slow.
        y = tf.reshape(s.inputs.call(*tensors)[k], [-1])
        y = tf.gather(y, np.unique(np.linspace(0, y.shape[0] - 1, 8).astype(int)))
    try:
        fast = tape.jacobian(y, watched)
    except Exception as error:
        problems.append(f"jacobian: {refusal_text(error)}")
        return
    rows = [tape.gradient(y, watched, output_gradients=tf.one_hot(r, y.shape[0], dtype=y.dtype)) for r in range(len(y))]
    slow = [
        None if column[0] is None else tf.stack([tf.convert_to_tensor(g) for g in column])
        for column in zip(*rows, strict=True)
    ]
    check_close(
        "jacobian", [f"d {s.output_names[k]} / d {s.inputs.names[i]}" for i in indices], fast, slow, s.tolerances
    )


def xla(s):
    """Checks the outputs and gradients of tf.function(jit_compile=True), unless it is declared not to work."""
    try:
        _check_mode(s, "compiled by XLA", s.inputs.call, jit_compile=True)
    except AssertionError as error:
        if not s.declared.xla:
            raise NotApplicableError(f"declared xla=False: {str(error)[:160]}") from error
        if library.xla_error and _MISSING_KERNEL.search(f"{error} {error.__cause__}"):  # with an older TensorFlow
            raise NotApplicableError(library.xla_error) from error
        raise
    if not s.declared.xla:
        raise AssertionError("xla=False is declared, but XLA compiles it")


@contextlib.contextmanager
def _products_in_float32():
    """Keeps TensorFlow from rounding the factors of matrix products on a GPU to 10 bits."""
    enabled = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(enabled)


def gpu(s):
    """Checks outputs and gradients on a GPU against those on the CPU: eagerly, in a tf.function, compiled by XLA."""
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus:
        raise NotApplicableError("there is no GPU")
    device, count = gpus[0].name, len(s.tensors)

    def on(device):
        def run(*tensors):
            with tf.device(device):
                outputs, found = s.inputs.vjp(tensors[:count], list(tensors[count:]))
            return [*outputs, *found]

        return run

    modes = {"eagerly": on(device), "in a tf.function": _function(on(device))}
    if s.declared.xla and "xla" not in s.declared.skip and not library.xla_error:
        modes["compiled by XLA"] = _function(on(device), jit_compile=True)
    with _products_in_float32():
        expected = on("CPU:0")(*s.tensors, *s.upstream)
        for what, call in modes.items():
            try:
                with tf.device(device):
                    found = call(*[tf.identity(x) for x in (*s.tensors, *s.upstream)])
            except Exception as error:
                raise AssertionError(f"on a GPU, {what}: {refusal_text(error)}") from error
            check_close(f"on a GPU, {what}", [*s.output_names, *s.gradient_names], found, expected, s.tolerances)
            if not any(y.device.endswith(device) for y in found[: len(s.expected)]):
                raise NotApplicableError(f"{what}, all outputs are on the CPU: fn has no kernels for a GPU")
    return ", ".join(modes)
