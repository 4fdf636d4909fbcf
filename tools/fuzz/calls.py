"""Building blocks of fuzzing programs: tensors, functions of functions, and ways to call a function.

`agree` makes a call in every way of `WAYS`, each with other bytes in fresh memory, and compares results (oracle.py).
"""

import contextlib
import math
import os
import tempfile
from unittest import mock

import fresh_memory
import numpy as np
import oracle
import tensorflow as tf
from example_calls import examples
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import ops as tf_ops


def tensor(values, shape, dtype):
    """Returns a tensor with `values` repeated in order, or with normal ones of the seed `values`."""
    if isinstance(values, int):
        return tf.cast(np.random.default_rng(values).normal(size=shape), dtype)
    if 0 in shape or not values:
        return tf.zeros(shape, dtype)
    if dtype == tf.string:
        return tf.constant(np.resize(np.array(values, object), shape), dtype)
    return tf.cast(np.resize(np.array(values), shape), dtype)


def ragged(value, lengths):
    """Returns the rows [N, R, ...] of a value, cut to lengths, which repeat."""
    value = tf.convert_to_tensor(value)
    return tf.RaggedTensor.from_tensor(value, np.minimum(np.resize(lengths, value.shape[0]), value.shape[1]))


# Functions of functions. Each returns all outputs, so that a graph leaves out no op that an eager call makes.


def gradient(function):
    """Returns a function: the first floating output's gradients to all inputs. Twice applied: second order."""

    def of(**inputs):
        watched = [x for x in tf.nest.flatten(inputs) if x.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            outputs = tf.nest.flatten(function(**inputs))
        return tape.gradient([y for y in outputs if y is not None and y.dtype.is_floating][:1], watched), outputs

    return of


def forward(function):
    """Returns a function of the derivatives along ones, in forward mode."""

    def of(**inputs):
        watched = [x for x in tf.nest.flatten(inputs) if x.dtype.is_floating]
        with tf.autodiff.ForwardAccumulator(watched, [tf.ones_like(x) for x in watched]) as accumulator:
            outputs = tf.nest.flatten(function(**inputs))
        return [accumulator.jvp(y) for y in outputs if y.dtype.is_floating], outputs

    return of


def _rank(y):
    """Returns a shape of y's rank, if it is known."""
    return y.shape if y.shape.rank is None else tf.TensorShape([None] * y.shape.rank)


def looped(function):
    """Returns a function with the same results, from the last iteration of a loop."""

    def of(**inputs):
        start = tf.constant(0), function(**inputs)
        # In a loop, sizes from the values of constants are not static.
        shapes = tf.nest.map_structure(_rank, start)
        return tf.while_loop(lambda i, _: i < 2, lambda i, _: (i + 1, function(**inputs)), start, shapes)[1]

    return of


def vectorized(function):
    """Returns a function with the same results, as one of two elements of vectorized_map."""

    def of(**inputs):
        stacked = tf.nest.map_structure(lambda x: tf.stack([x, x]), inputs)
        return tf.nest.map_structure(lambda y: y[1], tf.vectorized_map(lambda x: function(**x), stacked))

    return of


# Ways of a call.


def eager(function, inputs):
    """Calls the function outside of graphs."""
    return function(**inputs)


def _signature(inputs, shape=lambda shape: None):
    return tf.nest.map_structure(lambda x: tf.TensorSpec(shape(x.shape), x.dtype), inputs)


def known_shapes(function, inputs):
    """Calls the function in a graph with static shapes."""
    return tf.function(function, autograph=False)(**inputs)


def unknown_shapes(function, inputs):
    """Calls the function in a graph without static shapes, so that the kernel checks first."""
    traced = tf.function(lambda inputs: function(**inputs), [_signature(inputs)], autograph=False)
    with _hidden_sizes():
        return traced(inputs)


def _without_batch(shape):
    return [None, *shape[1:]] if len(shape) else shape


def unknown_batches(function, inputs):
    """Calls the function in a graph where the first size of each input is unknown: equal ones are a guess."""
    traced = tf.function(lambda inputs: function(**inputs), [_signature(inputs, _without_batch)], autograph=False)
    with _hidden_sizes(_without_batch):
        return traced(inputs)


def known_values(function, inputs):
    """Calls the function in a graph with constants, which shape functions and constant folding evaluate."""

    def constants():
        return function(**tf.nest.map_structure(_constant, inputs))

    with _placing(_constant):
        return tf.function(constants, autograph=False)()


def _constant(x):
    if not tf.is_tensor(x) or x.dtype == tf.string:  # TensorFlow crashes for strings, now and then
        return x
    if 0 in x.shape:  # NumPy refuses some empty shapes, and TensorFlow sizes above 32 bits in Python
        return tf.zeros(tf.constant(x.shape.as_list(), tf.int64), x.dtype)
    return tf.constant(x.numpy(), x.dtype)


def compiled(function, inputs):
    """Calls the function as compiled by XLA."""
    return tf.function(function, autograph=False, jit_compile=True)(**inputs)


_capture = tf_ops._EagerTensorBase.__tf_tensor__


def _to_tensor(eager_tensor, dtype=None, name=None):
    """Makes constants of tensors that functions such as a `step_fn` hold, which a session's graph refuses."""
    captures = tf.executing_eagerly() or tf.compat.v1.get_default_graph().building_function
    if captures or eager_tensor.dtype in (tf.resource, tf.variant):
        return _capture(eager_tensor, dtype, name)
    return tf.constant(eager_tensor.numpy(), eager_tensor.dtype)


def session(function, inputs):
    """Calls the function in a graph and a session of TensorFlow 1, with placeholders of static shapes."""
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.arithmetic_optimization = config.graph_options.rewrite_options.OFF  # fuzz.py
    with tf.Graph().as_default(), mock.patch.object(tf_ops._EagerTensorBase, "__tf_tensor__", _to_tensor):
        outputs = tf.nest.flatten(function(**placed(inputs)), expand_composites=True)
        is_fetched = [tf.is_tensor(y) and not isinstance(y, tf_ops._EagerTensorBase) for y in outputs]
        fetches = [y for y, fetched in zip(outputs, is_fetched, strict=True) if fetched]
        with tf.compat.v1.Session(config=config) as running:
            values = iter(running.run(fetches) if fetches else ())
    return [next(values) if fetched else y for y, fetched in zip(outputs, is_fetched, strict=True)]


def session_without_sizes(function, inputs):
    """Calls the function in a session of TensorFlow 1, with placeholders of unknown sizes."""
    with _hidden_sizes():
        return session(function, inputs)


_place = None  # makes a tensor in a graph of an argument from outside


@contextlib.contextmanager
def _placing(place):
    global _place
    _place = place
    try:
        yield
    finally:
        _place = None


def _hidden_sizes(known=lambda shape: [None] * len(shape)):
    """Lets placeholders know of shapes what `known` returns."""
    return _placing(lambda x: tf.compat.v1.placeholder_with_default(x, known(x.shape)))


def placed(arguments):
    """Returns arguments from outside of graphs as this way passes them: through placeholders in a session's graph."""
    in_session = not (tf.executing_eagerly() or tf.compat.v1.get_default_graph().building_function)

    def of(x):
        # Scalars, and integers in arrays, may be options that a graph has to know.
        is_array = isinstance(x, np.ndarray) and x.dtype.kind == "f"
        is_tensor = tf.is_tensor(x) and x.dtype not in (tf.resource, tf.variant)
        if not (is_array or is_tensor) or len(x.shape) == 0:
            return x
        return place(x.numpy() if in_session and tf.is_tensor(x) else x)

    place = _place or (lambda x: tf.compat.v1.placeholder_with_default(x, x.shape))
    if not (in_session or _place):
        return arguments
    return {k: tf.nest.map_structure(of, v, expand_composites=True) for k, v in arguments.items()}


WAYS = [eager, known_shapes, unknown_shapes, unknown_batches, known_values, compiled, session, session_without_sizes]
# Called with the name of a way before it runs.
on_way = print


def agree(function, inputs, like=None, ways=None, one_op=False, rounds=False):
    """Calls the function in each way. Returns or raises what the eager call does if all agree, else DisagreementError.

    Args:
      function: takes the inputs by name.
      inputs: tensors, or lists of tensors, by name.
      like: a function with the same results, whose eager call counts.
      ways: if not all.
      one_op: whether the function is one raw op of ours, so that errors must be the same.
      rounds: whether TensorFlow's optimizer changes the rounding.
    """
    if like is not None and any(x.dtype.is_quantized for x in tf.nest.flatten(inputs)):
        raise NoSuchCallError("TensorFlow has no loops of quantized numbers")
    expected = None
    largest_input = oracle.largest(inputs)
    ways = [way for way in WAYS if ways is None or way in ways]
    if like is not None and any(x.shape.rank == 0 for x in tf.nest.flatten(inputs)):
        # Where ranks are unknown, vectorized_map passes the dim of its loop as one of a scalar's.
        ways = [way for way in ways if way is not unknown_shapes]
    if any(x.dtype == tf.string for x in tf.nest.flatten(inputs)):
        ways = [way for way in ways if way is not known_values]
    if any(math.prod(size or 1 for size in x.shape) > 2**40 for x in tf.nest.flatten(inputs)):
        ways = [way for way in ways if way is not compiled]  # XLA crashes, also in TensorFlow's own ops
    if any(0 in x.shape for x in tf.nest.flatten(inputs)):
        # NumPy refuses some empty shapes, and sessions leave out ops whose results are empty.
        ways = [way for way in ways if way not in (session, session_without_sizes)]
    for i, way in enumerate(ways if like is None else [eager, *ways]):
        on_way(way.__name__)
        compared = expected is not None
        try:
            with fresh_memory.filled_with(16 * i):
                outcome = oracle.bits(way(function if like is None or compared else like, inputs))
        except Exception as error:
            outcome = error
        if compared and not (isinstance(outcome, NoSuchCallError) or any(text in str(outcome) for text in _REFUSALS)):
            problem = oracle.difference(
                expected, outcome, compiled=way is compiled, one_op=one_op, rounds=rounds, largest_input=largest_input
            )
            if problem:
                raise oracle.DisagreementError(f"{way.__name__}: {problem}")
        expected = expected if compared else outcome
    if isinstance(expected, Exception):
        raise expected
    return expected


def edited_graph(function, inputs, edit):
    """Calls the function in a GraphDef after `edit(node, inputs)` has changed the op's node or its inputs' nodes."""
    concrete = tf.function(lambda inputs: function(**inputs), autograph=False).get_concrete_function(inputs)
    graph_def = concrete.graph.as_graph_def()
    _edit(graph_def.node, "Placeholder", edit)
    feeds = [n.name + ":0" for n in graph_def.node if n.op == "Placeholder"]
    (fetch,) = (n.name for n in graph_def.node if n.op.startswith("TensorflowOps>"))
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        fetches = [output.name for output in graph.get_operation_by_name(fetch).outputs]
    call = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(graph_def, name=""), []).prune(feeds, fetches)
    return call(*tf.nest.flatten(inputs))


def edited_saved_model(function, inputs, edit):
    """Like `edited_graph`, but in a SavedModel."""
    module = tf.Module()
    module.call = tf.function(
        lambda inputs: function(**inputs), [_signature(inputs, lambda shape: shape)], autograph=False
    )
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


# TensorFlow's refusals: of eager calls' variables in sessions, of new ones in a tf.function, of some empty shapes.
_REFUSALS = "capture an EagerTensor", "only supports singleton tf.Variables", "Failed to create numpy array"


class NoSuchCallError(TypeError):
    """The call could not be made. TensorFlow makes some arguments in eager calls only, such as variables."""


def public_call(name, number, changes):
    """Returns a function of no inputs, a call from an example: `changes` are functions of the original arguments."""
    call = examples().public[name][number]

    def function(edit=placed):
        try:
            with tf.init_scope(), context.eager_mode():  # they are made anew for each way, and outside of graphs
                arguments = call.arguments | {k: change(call.arguments[k]) for k, change in changes.items()}
            arguments = edit(arguments)
        except Exception as error:
            raise NoSuchCallError(f"an argument cannot be made: {error}") from error
        positional = [v for k, v in arguments.items() if isinstance(k, int)]
        keywords = {k: v for k, v in arguments.items() if isinstance(k, str)}
        return oracle.tensors(call.function(*positional, **keywords))  # a graph returns nothing else

    return function


def public(name, number, changes):
    """Repeats a call from an example with some arguments replaced."""
    # Keras's layers need some sizes, and get_shape returns sizes that are known as ints.
    needs_sizes = name.startswith(("layers.", "losses.CRF", "shapes.get_shape"))
    left_out = [unknown_shapes, session_without_sizes] * needs_sizes
    left_out += [unknown_batches] * name.startswith(("losses.CRF", "shapes.get_shape"))
    left_out += [known_values, session] * name.startswith("losses.CRF")  # only what is captured remembers the layer
    ways = [way for way in WAYS if way not in left_out]
    return agree(public_call(name, number, changes), {}, ways=ways, rounds=name == "image.elastic_transform")
