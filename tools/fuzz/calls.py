"""Building blocks of fuzzing programs: tensors, and ways to call an op with them."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from example_calls import examples
from tensorflow.core.protobuf import saved_model_pb2


def tensor(values, shape, dtype):
    """Returns a tensor with `values` repeated in order."""
    if 0 in shape or not values:
        return tf.zeros(shape, dtype)
    if dtype == tf.string:
        return tf.constant(np.resize(np.array(values, object), shape), dtype)
    return tf.cast(np.resize(np.array(values), shape), dtype)


def eager(function, inputs):
    return function(**inputs)


def gradient(function, inputs):
    """Calls the function and its gradient to all inputs."""
    watched = [x for x in tf.nest.flatten(inputs) if x.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        outputs = tf.nest.flatten(function(**inputs))
    try:
        return tape.gradient([y for y in outputs if y.dtype.is_floating][:1], watched)
    except LookupError:
        return None  # documented: there is no gradient


def _signature(inputs, known):
    return tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape if known else None, x.dtype), inputs)


def known_shapes(function, inputs):
    """Calls the function in a graph with static shapes."""
    return tf.function(function, autograph=False)(**inputs)


def unknown_shapes(function, inputs):
    """Calls the function in a graph without static shapes, so that the kernel checks first."""
    traced = tf.function(lambda inputs: function(**inputs), [_signature(inputs, False)], autograph=False)
    return traced(inputs)


def known_values(function, inputs):
    """Calls the function in a graph with constants, which shape functions and constant folding evaluate."""

    def constants():
        return function(**tf.nest.map_structure(lambda x: tf.constant(x.numpy(), x.dtype), inputs))

    return tf.function(constants, autograph=False)()


def edited_graph(function, inputs, edit):
    """Calls the function in a GraphDef after `edit(node, inputs)` has changed the op's node or its inputs' nodes."""
    concrete = tf.function(lambda inputs: function(**inputs), autograph=False).get_concrete_function(inputs)
    graph_def = concrete.graph.as_graph_def()
    _edit(graph_def.node, "Placeholder", edit)
    feeds = [n.name + ":0" for n in graph_def.node if n.op == "Placeholder"]
    (fetch,) = (n.name for n in graph_def.node if n.op.startswith("TensorflowOps>"))
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        fetches = graph.get_operation_by_name(fetch).outputs
    call = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(graph_def, name=""), []).prune(feeds, fetches)
    return call(*tf.nest.flatten(inputs))


def edited_saved_model(function, inputs, edit):
    """Like `edited_graph`, but in a SavedModel."""
    module = tf.Module()
    module.call = tf.function(lambda inputs: function(**inputs), [_signature(inputs, True)], autograph=False)
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        path = os.path.join(folder, "saved_model.pb")
        saved = saved_model_pb2.SavedModel()
        with open(path, "rb") as file:
            saved.ParseFromString(file.read())
        for of_function in saved.meta_graphs[0].graph_def.library.function:
            _edit(of_function.node_def, None, edit)
        with open(path, "wb") as file:
            file.write(saved.SerializeToString())
        return tf.saved_model.load(folder).call(inputs)


def _edit(nodes, input_op, edit):
    for node in nodes:
        if node.op.startswith("TensorflowOps>"):
            edit(node, [n for n in nodes if n.op == input_op])


class NoSuchCallError(TypeError):
    """The call could not be made."""


def public(name, number, changes, graph=False):
    """Repeats a call from an example with some arguments replaced: `changes` are functions of the original ones."""
    call = examples().public[name][number]
    try:
        arguments = call.arguments | {k: change(call.arguments[k]) for k, change in changes.items()}
    except Exception as error:
        raise NoSuchCallError(f"an argument cannot be made: {error}") from error
    positional = [v for k, v in arguments.items() if isinstance(k, int)]
    keywords = {k: v for k, v in arguments.items() if isinstance(k, str)}
    if graph:
        return tf.function(lambda: call.function(*positional, **keywords), autograph=False)()
    return call.function(*positional, **keywords)
