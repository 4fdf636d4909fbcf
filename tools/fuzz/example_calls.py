"""Initial calls for fuzzing: those in the examples of public docstrings, and their gradients.

Every public name has an example (core/python/api_test.py), so new ones are fuzzed automatically.
"""

import contextlib
import dataclasses
import doctest
import functools
import inspect
import io
import types
from collections.abc import Callable
from unittest import mock

import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import op_callbacks, op_def_registry

import tensorflow_ops as tfo
from tensorflow_ops.core.python.library import ops

# Calls of ops that examples reach in graphs only.
_GRAPH_CALLS = {
    "TensorflowOps>CheckValues": {
        "values": [1, 2],
        "valid": [True, True],
        "after": (True,),
        "argument": "x",
        "expected": "above 0",
    },
    "TensorflowOps>RefuseGradient": {"x": [1.0, 2.0], "upstream": ([0.0],), "reason": "f has no second derivatives"},
}
_LEFT_OUT = {
    "testing": "starts processes that run for minutes",
    "show_versions": "has no arguments",
    "layers.MultiHeadAttention": "Keras checks its arguments",
    "layers.GroupQueryAttention": "Keras checks its arguments",
    "layers.compare_fused": "runs models",
    "layers.fused_ops": "counts calls",
    "layers.use_fused_ops": "changes Keras",
    "optimizers": "Keras checks their arguments",
    "seq2seq.KeyValueCache": "is a state: its methods call functions of tfo.nn",
}


def raw_ops():
    """Returns the OpDef and Python function of each op in the shared object, but those of variables, by name."""
    functions = {n.replace("_", ""): f for n, f in vars(ops).items() if inspect.isfunction(f)}
    all_ops = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    names = [op.name for op in all_ops.op if op.name.startswith("TensorflowOps>")]
    found = {n: (op_def_registry.get(n), functions[n.replace(">", "").lower()]) for n in names}
    return {n: op for n, op in found.items() if all(arg.type != tf.resource for arg in op[0].input_arg)}


def public():
    """Returns public functions, layers, losses and metrics by name, such as "nn.softmax", and the tutorial's."""
    for name in (*tfo.__all__, "tutorial"):
        member = getattr(tfo, name)
        inner = member.__all__ if isinstance(member, types.ModuleType) else ()
        members = {f"{name}.{i}": getattr(member, i) for i in inner} or {name: member}
        yield from ((n, m) for n, m in members.items() if not _LEFT_OUT.keys() & {name, n} and _has_example(m))


def _has_example(member):
    return callable(member) and ">>>" in (member.__doc__ or "")


@dataclasses.dataclass
class Call:
    """A call in an example: arguments by name or by position."""

    function: Callable
    arguments: dict


@dataclasses.dataclass
class Examples:
    """The calls in all examples: by public name, and by op as {op: [{input: tensors, attr: value}]}."""

    public: dict
    raw: dict


@functools.cache
def examples():
    """Runs the docstrings' examples and gradients of their ops; returns their calls."""
    tf.keras.utils.set_random_seed(0)  # layers have the same weights in all processes
    found = Examples({}, {})
    definitions = {name: definition for name, (definition, _) in raw_ops().items()}

    def on_op(op_type, inputs, attrs, outputs, op_name=None, graph=None):
        del outputs, op_name
        op_type = tf.compat.as_str(op_type)  # some callers pass bytes
        if graph is None and op_type in definitions:
            calls = found.raw.setdefault(op_type, [])
            call = _raw_call(definitions[op_type], inputs, dict(zip(attrs[::2], attrs[1::2], strict=True)))
            if len(calls) < 4:
                calls.append(call)

    op_callbacks.add_op_callback(on_op)
    try:
        with contextlib.ExitStack() as patches:
            members = dict(public())
            for name, member in members.items():
                _record(name, member, found.public, patches)
            for name, member in members.items():
                _run_example(name, member)
        for name, call in _GRAPH_CALLS.items():
            call = {k: _tensors(v) for k, v in call.items()}
            found.raw.setdefault(name, []).append(call)
        _run_gradients(found.raw)
    finally:
        op_callbacks.remove_op_callback(on_op)
    return found


def _record(name, member, calls, patches):
    """Records the arguments of a public function, or of a layer, loss or metric and its constructor."""

    def keep(name, function, arguments):
        tensors = [x for x in tf.nest.flatten(list(arguments.values()), expand_composites=True) if tf.is_tensor(x)]
        if all(hasattr(x, "numpy") for x in tensors):
            calls.setdefault(name, []).append(Call(function, arguments))

    if inspect.isclass(member):
        is_metric = issubclass(member, tf.keras.metrics.Metric)
        method = "update_state" if is_metric else "__call__"
        original = getattr(member, method)

        @functools.wraps(original)
        def call(self, *args, **kwargs):
            keep(name, member, self.get_config())
            function = functools.partial(measured, member, self.get_config()) if is_metric else self
            keep(f"{name}()", function, dict(enumerate(args)) | kwargs)
            return original(self, *args, **kwargs)

        patches.enter_context(mock.patch.object(member, method, call))
        return

    @functools.wraps(member)
    def function(*args, **kwargs):
        bound = inspect.signature(member).bind(*args, **kwargs)
        bound.apply_defaults()
        keep(name, member, bound.arguments)
        return member(*args, **kwargs)

    module, _, short = name.rpartition(".")
    patches.enter_context(mock.patch.object(getattr(tfo, module) if module else tfo, short, function))


_metrics = {}


def measured(member, config, *args, **kwargs):
    """Returns a metric's result after one update. Calls share the metric, because tf.function makes no variables."""
    key = member, repr(config)
    if key not in _metrics:
        _metrics[key] = member.from_config(config)
    _metrics[key].reset_state()
    _metrics[key].update_state(*args, **kwargs)
    return _metrics[key].result()


def _tensors(value):
    """Returns a list as a tensor, a tuple of lists as a list of tensors, and another value unchanged."""
    if isinstance(value, tuple):
        return [tf.constant(v) for v in value]
    return tf.constant(value) if isinstance(value, list) else value


def _raw_call(definition, inputs, attrs):
    """Returns inputs and attrs by name, without the attrs that follow from inputs."""
    call, inputs, said = {}, list(inputs), set()
    for arg in definition.input_arg:
        said |= {arg.type_attr, arg.number_attr, arg.type_list_attr}
        if arg.number_attr:
            call[arg.name] = [inputs.pop(0) for _ in range(attrs[arg.number_attr])]
        elif arg.type_list_attr:
            call[arg.name] = [inputs.pop(0) for _ in attrs[arg.type_list_attr]]
        else:
            call[arg.name] = inputs.pop(0)
    return call | {a.name: _value(a, attrs) for a in definition.attr if a.name not in said}


def _value(attr, given):
    if attr.name not in given:
        value = attr.default_value
        kind = value.WhichOneof("value")
        return [*value.list.i, *value.list.f, *value.list.s] if kind == "list" else getattr(value, kind)
    return tf.as_dtype(given[attr.name]) if attr.type == "type" else given[attr.name]


def _run_example(name, member):
    (test,) = doctest.DocTestFinder(recurse=False).find(member, name, globs={})
    try:
        doctest.DebugRunner(verbose=False).run(test, out=io.StringIO().write, clear_globs=False)
    except doctest.UnexpectedException as error:
        raise error.exc_info[1] from error


def _run_gradients(calls):
    """Differentiates each op with all values of its attrs; records the calls of its gradient and repeats with these."""
    done = set()
    while set(calls) - done:
        for name in set(calls) - done:
            done.add(name)
            definition, function = raw_ops()[name]
            for call in calls[name][:]:
                options = [{}] + [
                    {a.name: v} for a in definition.attr for v in a.allowed_values.list.s if a.name in call
                ]
                for option in options:
                    _run_gradient(functools.partial(function, **(call | option)), call)


def _run_gradient(function, call):
    tensors = [x for x in tf.nest.flatten(call) if tf.is_tensor(x) and x.dtype.is_floating]
    try:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = [y for y in tf.nest.flatten(function()) if y.dtype.is_floating]
        tape.gradient(outputs[:1], tensors)  # further outputs are only saved for the gradient
    except (LookupError, ValueError, tf.errors.OpError):  # no gradient, or an attr does not match
        pass
