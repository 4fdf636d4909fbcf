"""The public function to_standard_ops."""

import collections
import inspect
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, graph_pb2, node_def_pb2
from tensorflow.core.protobuf import saved_model_pb2

# TensorFlow has no public API to look up an op.
from tensorflow.python.framework import op_def_registry

from tensorflow_ops.core.python.library import ops  # noqa: F401  (registers the definitions)
from tensorflow_ops.export.python.compositions import PREFIX, compositions

_MODEL = "saved_model.pb"
# Of the model as it was.
_FINGERPRINT = "fingerprint.pb"


def _value(attr: attr_value_pb2.AttrValue) -> Any:
    """Returns an attr's value as compositions take it."""
    kind = attr.WhichOneof("value")
    if kind == "list":
        dtypes = [tf.as_dtype(t) for t in attr.list.type]
        return dtypes or [float(f) for f in attr.list.f] or list(attr.list.i) or [s.decode() for s in attr.list.s]
    if kind == "s":
        return attr.s.decode()
    return tf.as_dtype(attr.type) if kind == "type" else getattr(attr, kind)


def _attrs(node, op_def) -> dict[str, Any]:
    """Returns a node's attrs by name; a SavedModel leaves those with default values out."""
    given = {attr.name: attr.default_value for attr in op_def.attr} | dict(node.attr.items())
    return {attr.name: _value(given[attr.name]) for attr in op_def.attr}


def _is_list(arg) -> bool:
    return bool(arg.number_attr or arg.type_list_attr)


def _args(arg_defs, attrs) -> list[list[tf.DType]]:
    """Returns the dtypes of each input or output, one for each tensor."""

    def dtypes(arg):
        if arg.type_list_attr:
            return attrs[arg.type_list_attr]
        dtype = tf.as_dtype(arg.type) if arg.type else attrs[arg.type_attr]
        return [dtype] * (attrs[arg.number_attr] if arg.number_attr else 1)

    return [dtypes(arg) for arg in arg_defs]


def composition_arguments(op_def, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the attrs that a composition takes by keyword: all but counts and dtypes, and what dtypes it names."""
    args = [*op_def.input_arg, *op_def.output_arg]
    kinds = {name for arg in args for name in (arg.type_attr, arg.number_attr, arg.type_list_attr)}
    named = inspect.signature(compositions()[op_def.name[len(PREFIX) :]].function).parameters
    return {name: value for name, value in attrs.items() if name not in kinds or name in named}


def _traced(op: str, op_def, attrs) -> tf.types.experimental.ConcreteFunction:
    """Traces an op's composition for its attrs."""
    registered = compositions()[op]
    specs = []
    for arg, dtypes, rank in zip(op_def.input_arg, _args(op_def.input_arg, attrs), registered.ranks, strict=True):
        of_arg = [tf.TensorSpec(None if rank is None else [None] * rank, dtype) for dtype in dtypes]
        specs.append(of_arg if _is_list(arg) else of_arg[0])
    options = composition_arguments(op_def, attrs)
    function = tf.function(lambda *inputs: registered.function(*inputs, **options), autograph=False)
    return function.get_concrete_function(*specs)


def function_references(nodes) -> Iterable[attr_value_pb2.NameAttrList]:
    """Yields each reference to a function."""
    for node in nodes:
        for attr in node.attr.values():
            if attr.HasField("func"):
                yield attr.func
            yield from attr.list.func


class _Library:
    """A graph's library of functions, to which compositions are added."""

    def __init__(self, functions: function_pb2.FunctionDefLibrary):
        self._functions = functions
        self._names = {function.signature.name for function in functions.function}
        self._added: dict[str, function_pb2.FunctionDef] = {}

    def _new_name(self, op: str) -> str:
        name = next(name for i in range(len(self._names) + 1) if (name := f"standard_{op}_{i}") not in self._names)
        self._names.add(name)
        return name

    def composition(self, op: str, op_def, attrs) -> function_pb2.FunctionDef:
        """Returns the function of an op's composition for these attrs, and adds it unless it is there."""
        key = f"{op} {sorted(attrs.items())}"
        if key not in self._added:
            concrete = _traced(op, op_def, attrs)
            traced = [concrete.function_def, *concrete.graph.as_graph_def().library.function]
            # The model may have other functions of these names: from another process, they count from 0, too.
            names = {function.signature.name: self._new_name(op) for function in traced}
            for function in traced:
                added = self._functions.function.add()
                added.CopyFrom(function)
                added.signature.name = names[function.signature.name]
                for reference in function_references(added.node_def):
                    reference.name = names[reference.name]
                self._added.setdefault(key, added)
        return self._added[key]


def _call(node, op_def, library: _Library) -> node_def_pb2.NodeDef:
    """Returns the call of a composition that replaces a node."""
    attrs = _attrs(node, op_def)
    function = library.composition(node.op[len(PREFIX) :], op_def, attrs)
    call = node_def_pb2.NodeDef(name=node.name, input=node.input, device=node.device)
    call.op = "StatefulPartitionedCall" if function.signature.is_stateful else "PartitionedCall"
    call.attr["f"].func.name = function.signature.name
    for types, args in (("Tin", op_def.input_arg), ("Tout", op_def.output_arg)):
        for dtypes in _args(args, attrs):
            call.attr[types].list.type.extend(dtype.as_datatype_enum for dtype in dtypes)
    for name, value in node.attr.items():
        if name.startswith("_"):
            call.attr[name].CopyFrom(value)
    return call


def _renamed(reference: str, first_outputs: Mapping[str, Mapping[str, int]]) -> str:
    """Returns a function's reference to an output, "node:name:i", as that of a call where the node became one."""
    node, *output = reference.split(":")
    if node not in first_outputs or len(output) != 2:
        return reference
    return f"{node}:output:{first_outputs[node][output[0]] + int(output[1])}"


def _rewrite_nodes(nodes, library: _Library, counts: collections.Counter, keeps) -> dict[str, dict[str, int]]:
    """Replaces ops by calls. Returns, for each node replaced, the number of each output's first tensor by name."""
    first_outputs = {}
    for node in nodes:
        if not node.op.startswith(PREFIX) or keeps(node):
            continue
        op_def = op_def_registry.get(node.op)
        first_outputs[node.name], at = {}, 0
        for arg, dtypes in zip(op_def.output_arg, _args(op_def.output_arg, _attrs(node, op_def)), strict=True):
            first_outputs[node.name][arg.name] = at
            at += len(dtypes)
        counts[node.op] += 1
        node.CopyFrom(_call(node, op_def, library))
    return first_outputs


def all_nodes(graph: graph_pb2.GraphDef) -> Iterable[node_def_pb2.NodeDef]:
    """Yields the nodes of a graph and of its functions."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def rewrite(graph: graph_pb2.GraphDef, keeps: Callable = lambda node: False) -> collections.Counter:
    """Rewrites a graph in place, but no node that `keeps` is true for. Returns how many of each op were replaced."""
    functions, counts = list(graph.library.function), collections.Counter()
    library = _Library(graph.library)
    _rewrite_nodes(graph.node, library, counts, keeps)
    for function in functions:
        first_outputs = _rewrite_nodes(function.node_def, library, counts, keeps)
        for node in function.node_def:
            node.input[:] = [_renamed(reference, first_outputs) for reference in node.input]
        for name, reference in function.ret.items():
            function.ret[name] = _renamed(reference, first_outputs)
    return counts


def _read(folder: str) -> saved_model_pb2.SavedModel:
    path = os.path.join(folder, _MODEL)
    if not os.path.isfile(path):
        raise ValueError(f"saved_model_dir is {folder!r}, expected the folder of a SavedModel: it has no {_MODEL}")
    model = saved_model_pb2.SavedModel()
    with open(path, "rb") as file:
        model.ParseFromString(file.read())
    return model


def _check_ops(model: saved_model_pb2.SavedModel) -> None:
    used = {node.op for meta in model.meta_graphs for node in all_nodes(meta.graph_def) if node.op.startswith(PREFIX)}
    refused = sorted(op for op in used if op[len(PREFIX) :] not in compositions())
    if refused:
        raise ValueError(
            f"the model has ops without a composition of TensorFlow's ops: {', '.join(refused)}; gradients have none: "
            "save functions of inference only, with tf.saved_model.SaveOptions(experimental_custom_gradients=False)"
        )


def to_standard_ops(saved_model_dir: str | os.PathLike[str], output_dir: str | os.PathLike[str]) -> dict[str, int]:
    """Rewrites a SavedModel in TensorFlow's own ops, so that it runs without this package.

    Each op of this package becomes a call of a composition: a function of TensorFlow's ops
    that computes the same results. Signatures, variables and assets stay. The new model runs
    where kernels cannot be loaded: TensorFlow Serving as it is, LiteRT, TensorFlow.js, other
    systems. It is for inference, and slow: a composition takes 20 to 1,000 times
    the time of its kernel, see docs/deploy.md.

    >>> import os, tempfile
    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> class Model(tf.Module):
    ...     @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([None])])
    ...     def keep(self, boxes, scores):
    ...         return tfo.detection.nms(boxes, scores, 0.5)
    >>> folder = tempfile.mkdtemp()
    >>> model, standard = os.path.join(folder, "model"), os.path.join(folder, "standard")
    >>> tf.saved_model.save(Model(), model)
    >>> tfo.export.to_standard_ops(model, standard)
    {'TensorflowOps>Nms': 1}
    >>> tf.saved_model.load(standard).keep([[0.0, 0, 10, 10], [1, 1, 11, 11]], [0.6, 0.9]).numpy()
    array([1], dtype=int32)

    Results agree within rounding. Errors differ: compositions do not check values. An index
    of an image that is out of range pools zeros, as on a GPU; other values that the ops refuse
    when they run give unspecified results, or errors of TensorFlow's ops.

    Args:
      saved_model_dir: a SavedModel of `tf.saved_model.save` or Keras's `Model.export`.
      output_dir: where the new model is written; a folder that is empty or does not exist.

    Returns:
      How many nodes were replaced in all functions of the model, by the names of ops.

    Raises:
      ValueError: saved_model_dir is no SavedModel, output_dir is not empty, or the model has
        ops without a composition, such as those of gradients: the error names all. Nothing
        is written. Unless `tf.saved_model.SaveOptions(experimental_custom_gradients=False)`
        says otherwise, TensorFlow saves the functions of some gradients, such as that of
        `linear_cross_entropy`, with those of inference.
    """
    source, target = os.fspath(saved_model_dir), os.fspath(output_dir)
    model = _read(source)
    if os.path.exists(target) and not (os.path.isdir(target) and not os.listdir(target)):
        raise ValueError(f"output_dir is {target!r}, expected a folder that is empty or does not exist")
    _check_ops(model)
    counts = collections.Counter()
    for meta in model.meta_graphs:
        counts += rewrite(meta.graph_def)
        listed = meta.meta_info_def.stripped_op_list.op
        for i in reversed(range(len(listed))):
            if listed[i].name.startswith(PREFIX):
                del listed[i]
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=lambda *_: {_MODEL, _FINGERPRINT})
    with open(os.path.join(target, _MODEL), "wb") as file:
        file.write(model.SerializeToString())
    return dict(counts)
