"""Checks in other processes: SavedModel, bad input that may crash, two devices."""

import re

import numpy as np
import tensorflow as tf

from tensorflow_ops.testing.python.compare import check_close
from tensorflow_ops.testing.python.inputs import REFUSALS
from tensorflow_ops.testing.python.subject import NotApplicableError, refusal_text


def _result(s, step, what):
    state, value = s.job.result(step)
    if state == "ok":
        return value
    hint = ""
    if "not registered" in str(value) or "No registered" in str(value) or "gradient registry" in str(value):
        hint = f" (the new process imported {', '.join(s.imports) or 'tensorflow alone'}; imports= names what must be)"
    raise AssertionError(f"{what} in a new process: {value}{hint}")


def saved_model(s):
    """Checks the outputs and gradients of a SavedModel that a new process loads."""
    if s.job is None:
        raise AssertionError(f"it cannot be saved: {refusal_text(s.save_error)}") from s.save_error
    _result(s, "load", "loading the SavedModel")
    check_close("loaded in a new process", s.output_names, _result(s, "forward", "a call"), s.expected, s.tolerances)
    if not s.has_gradients:
        return
    found = _result(s, "gradient", "the gradient of the loaded function")
    expected = s.gradients()
    for name, i, g, e in zip(s.gradient_names, s.inputs.differentiable, found, expected, strict=True):
        g = np.zeros(s.tensors[i].shape) if g is None else g
        e = tf.zeros_like(s.tensors[i]) if e is None else e
        check_close("of the function loaded in a new process", [name], [g], [e], s.tolerances, [e.dtype])
    found = _result(s, "saved_gradient", "a saved gradient function")
    existing = [(n, e) for n, e in zip(s.gradient_names, expected, strict=True) if e is not None]
    check_close("saved", [n for n, _ in existing], found, [e for _, e in existing], s.tolerances)


def bad_input(s):
    """Checks that bad input raises ValueError or InvalidArgumentError with the expected message, without a crash."""
    generated = s.wrong_cases()
    for case in generated:
        crash = s.crash(case.name)
        if crash:
            raise AssertionError(f"{case.name}: {crash}")
        try:
            s.inputs.call(*case.tensors)
        except REFUSALS:
            continue
        except Exception as error:
            raise AssertionError(
                f"{case.name}: {refusal_text(error)}, expected ValueError or InvalidArgumentError"
            ) from error
    count = 0
    for name, args, kwargs, regex, tensors in s.bad_cases():
        count += 1
        crash = s.crash(name) if tensors is not None else None
        if crash:
            raise AssertionError(f"{name}: {crash}")
        _must_refuse(f"{name} eagerly", regex, lambda args=args, kwargs=kwargs: s.fn(*args, **kwargs))
        if tensors is not None:
            specs = [tf.TensorSpec(None, x.dtype) for x in tensors]
            if not s.declared.unknown_rank:
                specs = [tf.TensorSpec([None] * x.shape.rank, x.dtype) for x in tensors]
            function = tf.function(s.inputs.call, input_signature=specs, autograph=False)
            _must_refuse(f"{name} in a tf.function", regex, lambda f=function, t=tensors: f(*t))
    return f"{count} of the caller's cases, {len(generated)} generated ones" + (
        "" if s.job else ", not in a process of their own"
    )


def _must_refuse(what, regex, call):
    try:
        call()
    except REFUSALS as error:
        if not re.search(regex, str(error)):
            raise AssertionError(f"{what}: {refusal_text(error)}, expected a message with {regex!r}") from error
        return
    except Exception as error:
        raise AssertionError(
            f"{what}: {refusal_text(error)}, expected ValueError or InvalidArgumentError with {regex!r}"
        ) from error
    raise AssertionError(f"{what}: no error, expected one with {regex!r}")


def distribution(s):
    """Checks the outputs of two replicas of a MirroredStrategy, and their summed gradients."""
    if s.declared.data_dependent_shapes:
        raise NotApplicableError("sizes of outputs depend on values")
    if s.job is None:
        raise NotApplicableError(f"needs a SavedModel, but saving fails: {refusal_text(s.save_error)}")
    if s.job.result("load")[0] != "ok":
        raise NotApplicableError(f"the SavedModel does not load: {s.job.result('load')[1]}")
    outputs, reduced = _result(s, "mirrored", "MirroredStrategy")
    variants = s.variants(2)
    expected = [s.inputs.vjp(tensors, s.upstream) for tensors in variants]
    for r in range(2):
        check_close(f"replica {r}", s.output_names, outputs[r], expected[r][0], s.tolerances)
    if not s.has_gradients:
        return
    for k, i in enumerate(s.inputs.differentiable):
        terms = [
            np.conj(_wide(tensors[i])) * _wide(found[k])
            for tensors, (_, found) in zip(variants, expected, strict=True)
            if found[k] is not None
        ]
        total = 0 if reduced[k] is None else _wide(reduced[k])
        # Sums of many terms, in another order.
        allowed = s.tolerances[s.tensors[i].dtype] * (1 + sum(np.abs(t).sum() for t in terms))
        expected_total = sum(t.sum() for t in terms)
        if not np.abs(total - expected_total) <= allowed:
            raise AssertionError(
                f"the replicas' summed gradient to {s.inputs.names[i]} is {total}, expected {expected_total}"
            )


def _wide(x):
    array = np.asarray(x)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
