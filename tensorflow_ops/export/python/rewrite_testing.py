"""For tests: compares public functions with their rewritten graphs."""

import numpy as np
import tensorflow as tf

from tensorflow_ops.export.python import standard_ops

# Largest relative and absolute difference of results.
_TOLERANCES = {tf.float64: 1e-12, tf.float32: 2e-5, tf.float16: 2e-3, tf.bfloat16: 1.6e-2}


def composed(function, *args):
    """Returns the results of a function of tensors, whose ops are replaced by compositions, as arrays."""
    concrete = tf.function(function).get_concrete_function(*(tf.TensorSpec(x.shape, x.dtype) for x in args))
    graph_def = concrete.graph.as_graph_def()
    if not standard_ops.rewrite(graph_def):
        raise AssertionError("the function calls no op of this package")
    inputs = {tensor.name: x.numpy() for tensor, x in zip(concrete.inputs, args, strict=True)}
    # A graph of its own: those of the cases have functions of the same names.
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            return session.run([tensor.name for tensor in concrete.outputs], inputs)


def assert_same(function, *args):
    """Compares the results of a function of tensors with those of its composition; rounding may differ."""
    args = tf.nest.map_structure(tf.constant, args)
    expected = tf.nest.flatten(function(*args))
    for of_ops, of_composition in zip(expected, composed(function, *args), strict=True):
        if of_ops.dtype != of_composition.dtype:
            raise AssertionError(f"{of_composition.dtype}, expected {of_ops.dtype}")
        if of_ops.dtype.is_floating:
            tolerance = _TOLERANCES[of_ops.dtype]
            results = (np.asarray(x, np.float64) for x in (of_composition, of_ops.numpy()))
            np.testing.assert_allclose(*results, rtol=tolerance, atol=tolerance, strict=True)
        else:
            np.testing.assert_array_equal(of_composition, of_ops.numpy(), strict=True)
