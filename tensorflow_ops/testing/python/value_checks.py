"""Checks of values: gradients, dtypes, extreme values, determinism, unmodified inputs, mixed precision."""

import dataclasses
import threading

import keras
import numpy as np
import tensorflow as tf

from tensorflow_ops.testing.python import gradients as gradients_module
from tensorflow_ops.testing.python import inputs as inputs_module
from tensorflow_ops.testing.python.compare import bits, check_bits, check_close, difference
from tensorflow_ops.testing.python.inputs import REFUSALS, Inputs, is_differentiable
from tensorflow_ops.testing.python.subject import MISSING_GRADIENT, NotApplicableError, refusal_text

_RUNS, _THREADS = 3, 4


def gradients(s):
    """Checks first-order gradients against numeric ones, for each output element and random upstream gradients."""
    s.need_gradients()
    result = gradients_module.of_inputs(s.wide_inputs(), numeric_dtype=s.widest(), seed=s.seed)
    # missing_gradients checks gradients that are None.
    result = dataclasses.replace(result, inputs=tuple(i for i in result.inputs if not i.missing))
    gradients_module.check(result)
    return f"largest difference {result.error:.1e}"


def missing_gradients(s):
    """Checks that a floating input has no gradient if and only if it is declared to have none."""
    floats = [i for i, x in enumerate(s.tensors) if is_differentiable(x.dtype)]
    if not s.floats or not floats:
        raise NotApplicableError("no output or no input is floating or complex")
    for mode in ("eagerly", "in a tf.function"):
        found = []

        def look(*tensors):
            outputs, gradients = s.inputs.vjp(tensors, s.upstream, floats)
            found[:] = gradients  # noqa: B023  (called in the same iteration)
            return outputs

        if mode == "eagerly":
            look(*s.tensors)
        else:
            tf.function(look, autograph=False)(*s.tensors)
        for i, gradient in zip(floats, found, strict=True):
            name, declared = s.inputs.names[i], i in s.inputs.declared_none
            if gradient is None and not declared:
                raise AssertionError(
                    f"the gradient to {name} is None {mode}; declare it in non_differentiable if that is intended"
                )
            if gradient is not None and declared:
                raise AssertionError(f"{name} is declared non_differentiable, but has a gradient {mode}")


def second_order(s):
    """Checks gradients of gradients, to inputs and upstream gradients, against numeric ones; a refusal is allowed."""
    s.need_gradients()
    wide = s.wide_inputs()
    count = len(wide.tensors)
    outputs = wide.call(*wide.tensors)
    upstream = inputs_module.random_like([outputs[k] for k in s.floats], s.seed + 3)
    raised = []
    for k, i in enumerate(wide.differentiable):
        if s.gradients()[k] is None:
            continue

        def gradient(*tensors, i=i):
            return wide.vjp(tensors[:count], list(tensors[count:]), [i])[1][0]

        first = Inputs(
            gradient,
            [*wide.tensors, *upstream],
            non_differentiable=wide.declared_none,
            # Upstream gradients have the dtypes of outputs, which need not follow the inputs'.
            fixed_dtype=[*wide.fixed, *(count + n for n, u in enumerate(upstream) if u.dtype.real_dtype != s.widest())],
        )
        try:
            result = gradients_module.of_inputs(first, numeric_dtype=s.widest(), seed=s.seed)
        except MISSING_GRADIENT as error:
            raised.append(f"{wide.names[i]}: {refusal_text(error)[:100]}")
            continue
        gradients_module.check(
            result, f"wrong gradients (args[{count}] and later: upstream) of the gradient to {wide.names[i]},"
        )
    if raised and s.declared.second_order:
        raise AssertionError(f"second_order=True is declared, but of the gradient to {'; '.join(raised)}")
    if not raised and s.declared.second_order is False:
        raise AssertionError("second_order=False is declared, but second derivatives are right")
    return f"raises for {'; '.join(raised)}" if raised else None


def _expected_dtype(s, dtype, at):
    """Returns the expected dtype of an output for inputs that are cast to `at`."""
    if s.declared.output_dtype is None:
        return inputs_module.widened(dtype, at) if is_differentiable(dtype) else dtype
    declared = s.declared.output_dtype
    if not isinstance(declared, dict):
        return tf.as_dtype(declared) if is_differentiable(dtype) else dtype
    by_input = {tf.as_dtype(k): tf.as_dtype(v) for k, v in declared.items()}
    return inputs_module.widened(dtype, by_input.get(at, at)) if is_differentiable(dtype) else dtype


def _reference(s, tensors):
    """Returns the reference's outputs for inputs in float64."""
    arrays = [x.numpy() for x in s.inputs.cast(tf.float64, tensors)]
    args, kwargs = s.inputs.packed(arrays)
    outputs = tf.nest.flatten(s.declared.reference(*args, **kwargs), expand_composites=True)
    return [np.asarray(y) for y in outputs if y is not None]


def dtypes(s):
    """Checks outputs and gradients in each dtype against those in float64 or the reference, and the dtypes."""
    if s.declared.reference is not None:
        reference = _reference(s, s.tensors)
        check_close("against the reference", s.output_names, s.expected, reference, s.tolerances)
    if not any(is_differentiable(x.dtype) for i, x in enumerate(s.tensors) if i not in s.inputs.fixed):
        if s.declared.reference is None:
            raise NotApplicableError("no input is floating or complex")
        return None
    for dtype in s.dtypes():
        _check_dtype(s, dtype)
    return ", ".join(d.name for d in s.dtypes())


def _check_dtype(s, dtype):
    what = f"inputs in {dtype.name}"
    narrow = s.inputs.cast(dtype)
    # The same, rounded, values: only the computation differs.
    wide = s.inputs.cast(s.widest(), narrow)
    try:
        outputs = s.inputs.call(*narrow)
    except Exception as error:
        raise AssertionError(f"{what}: {refusal_text(error)}; list in dtypes only those that fn accepts") from error
    for name, y, e in zip(s.output_names, outputs, s.expected, strict=True):
        expected = _expected_dtype(s, e.dtype, dtype)
        real_of_complex = y.dtype == expected.real_dtype or expected == y.dtype.real_dtype
        if y.dtype != expected and not (real_of_complex and any(x.dtype.is_complex for x in narrow)):
            raise AssertionError(
                f"{what}: {name} is {y.dtype.name}, expected {expected.name}; declare output_dtype if that is intended"
            )
    expected = s.inputs.call(*wide) if s.declared.reference is None else _reference(s, narrow)
    # The tolerance of the inputs' dtype, even if outputs are wider: intermediate results may be rounded to it.
    roundings = [y.dtype if is_differentiable(y.dtype) else dtype for y in outputs]
    check_close(what, s.output_names, outputs, expected, s.tolerances, roundings)
    if not s.has_gradients:
        return
    upstream = inputs_module.random_like([outputs[k] for k in s.floats], s.seed + 11)
    _, found = s.inputs.vjp(narrow, upstream)
    wide_outputs = s.inputs.call(*wide)
    wide_upstream = [tf.cast(u, wide_outputs[k].dtype) for k, u in zip(s.floats, upstream, strict=True)]
    _, exact = s.inputs.vjp(wide, wide_upstream)
    for i, name, g, e in zip(s.inputs.differentiable, s.gradient_names, found, exact, strict=True):
        if g is None and e is None:
            continue
        if g is not None and g.dtype != narrow[i].dtype:
            raise AssertionError(f"{what}: {name} is {g.dtype.name}, expected {narrow[i].dtype.name}")
        check_close(what, [name], [g], [e], s.tolerances)


def extreme_values(s):
    """Checks empty inputs, size 1, NaN and infinity: no crash, forward and backward; the reference's values."""
    refused, empty_works, has_empty = [], False, False
    for case in s.extreme_cases():
        crash = s.crash(case.name)
        if crash:
            raise AssertionError(f"{case.name}: {crash}")
        is_empty = case.name.startswith("empty")
        has_empty |= is_empty
        try:
            outputs = s.inputs.call(*case.tensors)
            found = s.inputs.vjp(case.tensors, lambda ys: inputs_module.random_like(ys, s.seed))[1]
        except REFUSALS as error:
            if not case.generated:
                raise AssertionError(f"{case.name}: {refusal_text(error)}") from error
            refused.append(f"{case.name}: {refusal_text(error)[:100]}")
            continue
        except Exception as error:
            raise AssertionError(f"{case.name}: {refusal_text(error)}") from error
        empty_works |= is_empty
        for i, g in zip(s.inputs.differentiable, found, strict=True):
            if g is not None and g.shape != case.tensors[i].shape:
                raise AssertionError(
                    f"{case.name}: the gradient to {s.inputs.names[i]} is {g.shape}, expected {case.tensors[i].shape}"
                )
        # Memory that a kernel leaves unwritten differs in the next call.
        check_close(f"{case.name}, again", s.output_names, s.inputs.call(*case.tensors), outputs, s.tolerances)
        _check_in_graph(s, case, outputs)
        if s.declared.reference is not None:
            check_close(
                f"{case.name}, against the reference",
                s.output_names,
                outputs,
                _reference(s, case.tensors),
                s.tolerances,
            )
    if s.declared.empty and has_empty and not empty_works:
        raise AssertionError(
            f"no empty input is accepted; declare empty=False if that is intended. {'; '.join(refused)}"
        )
    return f"refused: {'; '.join(refused)}" if refused else None


def _check_in_graph(s, case, outputs):
    """Checks the case's outputs and static shapes in a graph."""
    shapes = [tf.TensorSpec(x.shape, x.dtype) for x in case.tensors]
    try:
        concrete = tf.function(s.inputs.call, input_signature=shapes, autograph=False).get_concrete_function()
        in_graph = concrete(*case.tensors)
    except Exception as error:
        raise AssertionError(f"{case.name}, in a tf.function: {refusal_text(error)}") from error
    for name, static, y in zip(s.output_names, concrete.structured_outputs, outputs, strict=True):
        if not static.shape.is_compatible_with(y.shape):
            raise AssertionError(f"{case.name}: {name} has static shape {static.shape}, and {y.shape} at run time")
    check_close(f"{case.name}, in a tf.function", s.output_names, in_graph, outputs, s.tolerances)


def inputs_unmodified(s):
    """Checks that no call writes to its inputs: eagerly, in a tf.function, with gradients."""
    before = [bits(x) for x in s.tensors]

    def check(what):
        for name, x, b in zip(s.inputs.names, s.tensors, before, strict=True):
            if bits(x) != b:
                old = np.frombuffer(b[2], x.numpy().dtype).reshape(b[0]) if isinstance(b[2], bytes) else b[2]
                raise AssertionError(f"{what} changes its input: {difference(name, x, old, 0)}")

    s.inputs.call(*s.tensors)
    check("an eager call")
    tf.function(s.inputs.call, autograph=False)(*s.tensors)
    check("a tf.function")
    if s.has_gradients:
        s.inputs.vjp(s.tensors, s.upstream)
        check("the gradient")
        tf.function(lambda *t: s.inputs.vjp(t, s.upstream)[1], autograph=False)(*s.tensors)
        check("the gradient in a tf.function")


def determinism(s):
    """Checks for equal bits in repeated and concurrent calls and with 1 and 4 intra-op threads."""
    for tensors in (s.tensors, s.large()):
        outputs, found = s.inputs.vjp(tensors, lambda ys: inputs_module.random_like(ys, s.seed))
        first = [*outputs, *found]
        first = [None if t is None else t.numpy().copy() for t in first]
        for _ in range(_RUNS):
            outputs, found = s.inputs.vjp(tensors, lambda ys: inputs_module.random_like(ys, s.seed))
            check_bits("the next run", [*s.output_names, *s.gradient_names], [*outputs, *found], first)
    _concurrent(s)
    if s.job is None:
        return "not compared between thread counts: it cannot be saved"
    if s.job.result("load")[0] != "ok":
        return "not compared between thread counts: the SavedModel does not load"
    (state_4, four), (state_1, one) = s.job.result("large", 4), s.job.result("large", 1)
    if state_4 != "ok" or state_1 != "ok":
        bad = four if state_4 != "ok" else one
        raise AssertionError(f"in a new process: {bad}")
    for names, a, b in zip((s.output_names, s.gradient_names), four, one, strict=True):
        check_bits("with 4 intra-op threads, compared with 1", names, a, b)
    return None


def _concurrent(s):
    """Checks that concurrent calls with other values return the same as calls alone."""
    variants = s.variants(_THREADS)
    alone = [[y.numpy().copy() for y in s.inputs.call(*tensors)] for tensors in variants]
    start, problems = threading.Barrier(_THREADS), []

    def work(k):
        start.wait()
        try:
            for _ in range(4 * _RUNS):
                check_bits("a call beside others in threads", s.output_names, s.inputs.call(*variants[k]), alone[k])
        except BaseException as error:  # raised below, by the main thread
            problems.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        if isinstance(problems[0], AssertionError):
            raise problems[0]
        raise AssertionError(f"a call beside others in threads: {refusal_text(problems[0])}") from problems[0]


class _MixedLayer(keras.layers.Layer):
    """Multiplies each floating input with a variable, which the policy keeps in float32, and calls the function."""

    def __init__(self, s):
        # No autocast: `call` casts, but not inputs of a fixed dtype.
        super().__init__(dtype="mixed_float16", autocast=False, name="mixed_precision")
        self._subject = s
        self.factors = [
            self.add_weight(shape=(), initializer="ones", name=f"factor_{i}", dtype="float32")
            for i in s.inputs.differentiable
        ]

    def call(self, *tensors):
        s = self._subject
        tensors = s.inputs.cast(tf.as_dtype(self.compute_dtype), tensors)
        for factor, i in zip(self.factors, s.inputs.differentiable, strict=True):
            tensors[i] = tensors[i] * tf.cast(factor, tensors[i].dtype)
        return s.inputs.call(*tensors)


def mixed_precision(s):
    """Checks Keras's mixed_float16 policy: float16 outputs, finite float32 gradients of variables, a scaled loss."""
    if tf.float16 not in s.dtypes():
        raise NotApplicableError("float16 is not in dtypes")
    s.need_gradients()
    if any(s.tensors[i].dtype.is_complex for i in s.inputs.differentiable):
        raise NotApplicableError("complex numbers have no 16-bit dtype")
    layer = _MixedLayer(s)
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.0), initial_scale=64.0)
    optimizer.build(layer.trainable_variables)
    exact = s.inputs.cast(s.widest(), s.inputs.cast(tf.float16))
    _, found = s.inputs.vjp(exact, [tf.cast(u, y.dtype) for u, y in _upstream_of(s, exact)])

    def step(*tensors):
        with tf.GradientTape() as tape:
            outputs = layer(*tensors)
            floats = [tf.cast(outputs[k], tf.float32) for k in s.floats]
            losses = [tf.reduce_sum(y * tf.cast(u, tf.float32)) for y, u in zip(floats, s.upstream, strict=True)]
            loss = optimizer.scale_loss(tf.add_n(losses))
        variables = [v.value for v in layer.trainable_variables]
        scaled = [tf.zeros([]) if g is None else g for g in tape.gradient(loss, variables)]
        optimizer.apply(scaled, layer.trainable_variables)
        return outputs, [g / 64.0 for g in scaled]

    for what, run in (("eagerly", step), ("in a tf.function", tf.function(step, autograph=False))):
        outputs, gradients = run(*s.tensors)
        narrow = s.inputs.call(*s.inputs.cast(tf.float16))
        check_close(f"mixed_float16 {what}", s.output_names, outputs, narrow, s.tolerances)
        for i, g, exact_g in zip(s.inputs.differentiable, gradients, found, strict=True):
            name = f"mixed_float16 {what}: the gradient to a float32 factor of {s.inputs.names[i]}"
            if g.dtype != tf.float32:
                raise AssertionError(f"{name} is {g.dtype.name}")
            if exact_g is None:
                continue
            terms = exact[i].numpy() * exact_g.numpy()
            # Each term is rounded in float16, even if terms cancel.
            allowed = s.tolerances[tf.float16] * (1 + np.abs(terms).sum())
            if not np.isfinite(g.numpy()) or abs(g.numpy() - terms.sum()) > allowed:
                raise AssertionError(f"{name} is {g.numpy()}, expected {terms.sum():.6g} +- {allowed:.2g}")


def _upstream_of(s, tensors):
    outputs = s.inputs.call(*tensors)
    return [(u, outputs[k]) for u, k in zip(s.upstream, s.floats, strict=True)]
