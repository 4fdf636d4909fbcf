"""For tests: compares compositions with the ops."""

import re

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tensorflow_ops.core.python import arguments, library
from tensorflow_ops.export.python import compositions

FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
# Relative to values, and to 1: of the widest rounding in sums of a few dozen numbers.
TOLERANCES = {tf.float16: 2e-3, tf.bfloat16: 2e-2, tf.float32: 1e-5, tf.float64: 1e-12}

# Concrete functions of compositions, which any shapes share.
_TRACED = {}


def run_op(op, inputs, attrs):
    """Returns the outputs of an op as a list."""
    function = getattr(library.ops, "tensorflow_ops_" + re.sub("(?<!^)([A-Z])", r"_\1", op).lower())
    definition = op_def_registry.get(compositions.PREFIX + op)
    if "Tvalue" in {arg.type_attr for arg in definition.output_arg} - {arg.type_attr for arg in definition.input_arg}:
        dtype = next(x.dtype for x in inputs if x.dtype.is_floating)
        attrs = attrs | {"Tvalue": arguments.at_least_float32(dtype)}
    result = function(*inputs, **attrs)
    return [result] if isinstance(result, tf.Tensor) else list(result)


def run_composition(op, inputs, attrs):
    """Returns the outputs of the composition, traced without static dims, as a list."""
    dtypes = tf.nest.map_structure(lambda x: x.dtype, inputs)
    key = repr((op, dtypes, attrs))
    if key not in _TRACED:
        _TRACED[key] = _trace(op, dtypes, attrs)
    result = _TRACED[key](*tf.nest.flatten(inputs))
    return [result] if isinstance(result, tf.Tensor) else list(result)


def _trace(op, dtypes, attrs):
    """Traces a composition. Asserts that it has no ops of this package, nor tensor lists, which converters lack."""
    made = compositions.compositions()[op]

    def spec(dtype, rank):
        return tf.TensorSpec(None if rank is None else [None] * rank, dtype)

    specs = []
    for one, rank in zip(dtypes, made.ranks, strict=True):
        specs.append([spec(x, rank) for x in one] if isinstance(one, list) else spec(one, rank))
    function = tf.function(lambda *args: made.function(*args, **attrs), autograph=False)
    concrete = function.get_concrete_function(*specs)
    graph = concrete.graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    assert not {n.op for n in nodes if n.op.startswith((compositions.PREFIX, "TensorList", "TensorArray"))}
    return concrete


def check(test, op, inputs, attrs, compared=lambda outputs: outputs):
    """Fails the test unless the composition returns what the op does, in values, dtypes and shapes.

    Args:
      test: a tf.test.TestCase.
      op: the name of an op, without the prefix.
      inputs: tensors, in order; a list of inputs as a list.
      attrs: those that the composition takes.
      compared: a function from the list of outputs to those that have a meaning.
    """
    expected, actual = compared(run_op(op, inputs, attrs)), compared(run_composition(op, inputs, attrs))
    test.assertEqual([x.dtype for x in actual], [x.dtype for x in expected])
    test.assertEqual([x.shape for x in actual], [x.shape for x in expected])
    for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
        message = f"output {i} of {op}, {attrs}"
        if one.dtype.is_floating:
            wide, bound = arguments.at_least_float32(one.dtype), TOLERANCES[one.dtype]
            test.assertAllClose(tf.cast(one, wide), tf.cast(other, wide), bound, bound, message)
        else:
            test.assertAllEqual(one, other, message)
