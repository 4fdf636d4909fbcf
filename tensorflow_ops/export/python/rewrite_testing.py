"""For tests: compares public functions with their rewritten graphs."""

import tempfile

import numpy as np
import tensorflow as tf

from tensorflow_ops.export.python import standard_ops

# Largest relative and absolute difference of results.
_TOLERANCES = {tf.float64: 1e-12, tf.float32: 2e-5, tf.float16: 2e-3, tf.bfloat16: 1.6e-2}


def composed(function, *specs):
    """Returns a function of tensors, whose ops are replaced by compositions; it returns arrays."""
    concrete = tf.function(function, autograph=False).get_concrete_function(*specs)
    graph_def = concrete.graph.as_graph_def()
    if not standard_ops.rewrite(graph_def):
        raise AssertionError("the function calls no op of this package")
    # A graph of its own: those of the cases have functions of the same names.
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    session = tf.compat.v1.Session(graph=graph)
    inputs, outputs = ([tensor.name for tensor in tensors] for tensors in (concrete.inputs, concrete.outputs))

    def run(*args):
        values = [x.numpy() for x in (*args, *concrete.captured_inputs)]
        return session.run(outputs, dict(zip(inputs, values, strict=True)))

    return run


def assert_same(function, *cases):
    """Compares results for each case, a list of tensors, with those of the composition; rounding may differ."""
    cases = [[tf.convert_to_tensor(x) for x in case] for case in cases]
    composition = composed(function, *(tf.TensorSpec([None] * x.shape.rank, x.dtype) for x in cases[0]))
    for case in cases:
        for of_ops, found in zip(tf.nest.flatten(function(*case)), composition(*case), strict=True):
            if of_ops.dtype != found.dtype:
                raise AssertionError(f"{found.dtype}, expected {of_ops.dtype}")
            if of_ops.dtype.is_floating:
                tolerance = _TOLERANCES[of_ops.dtype]
                results = (np.asarray(x, np.float64) for x in (found, of_ops.numpy()))
                np.testing.assert_allclose(*results, rtol=tolerance, atol=tolerance, strict=True)
            else:
                np.testing.assert_array_equal(found, of_ops.numpy(), strict=True)


def assert_same_in_litert(function, *cases, variables=()):
    """Compares a tf.function of an input_signature with its rewritten SavedModel, in TensorFlow and in LiteRT.

    Invokes cases, lists of arrays, in turn and the first one again: what an invocation leaves behind may not count.

    Returns:
      The names of the operators in LiteRT.
    """
    module = tf.Module()
    module.function, module.of_function = function, variables
    with tempfile.TemporaryDirectory() as folder:
        model, standard = f"{folder}/model", f"{folder}/standard"
        tf.saved_model.save(module, model, function)
        if not standard_ops.to_standard_ops(model, standard):
            raise AssertionError("the function calls no op of this package")
        loaded = tf.saved_model.load(standard).signatures["serving_default"]
        converter = tf.lite.TFLiteConverter.from_saved_model(standard)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        interpreter = tf.lite.Interpreter(model_content=converter.convert())
        run = interpreter.get_signature_runner()
        for case in (*cases, cases[0]):
            named = {
                spec.name: tf.constant(x, spec.dtype) for spec, x in zip(function.input_signature, case, strict=True)
            }
            expected = tf.nest.flatten(function(*named.values()))
            for found in (loaded(**named), run(**named)):
                for of_ops, (name, x) in zip(expected, sorted(found.items()), strict=True):
                    np.testing.assert_allclose(x, of_ops, 1e-5, 1e-5, err_msg=name)
    return [details["op_name"] for details in interpreter._get_ops_details()]
