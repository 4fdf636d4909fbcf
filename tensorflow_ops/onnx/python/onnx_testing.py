"""For tests: exports functions and runs them in ONNX Runtime."""

import warnings
from unittest import mock

import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx

from tensorflow_ops import onnx

# Relative to values, and to 1.
TOLERANCES = {np.dtype("float16"): 2e-3, np.dtype("float32"): 1e-5, np.dtype("float64"): 1e-12}


def convert(function, specs, opset=18, optimize=True):
    """Returns the ONNX model of a function of tensors, whose inputs are "x0", "x1" and so on."""
    onnx.register()
    specs = [tf.TensorSpec(spec.shape, spec.dtype, f"x{i}") for i, spec in enumerate(specs)]
    optimizer = tf2onnx.optimizer.optimize_graph if optimize else lambda graph, *_, **__: graph
    with mock.patch.object(tf2onnx.optimizer, "optimize_graph", optimizer):
        return tf2onnx.convert.from_function(tf.function(function, autograph=False), specs, opset=opset)[0]


def operators(model):
    """Returns the names of a model's operators, without those in bodies of loops."""
    return {node.op_type for node in model.graph.node}


def runner(model):
    """Returns a function from inputs to the outputs of an ONNX model of `convert`."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # Errors only.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    # The model has no input that its function does not use.
    used = {node.name for node in session.get_inputs()}
    return lambda inputs: session.run(None, {f"x{i}": x for i, x in enumerate(inputs) if f"x{i}" in used})


def run(model, inputs):
    """Returns the outputs of an ONNX model of `convert`."""
    return runner(model)(inputs)


def check(test, function, *inputs, opset=18, dynamic=True, also=(), tolerance=None, optimize=True):
    """Fails the test unless ONNX Runtime returns what a function does, in values, dtypes and shapes.

    Args:
      test: a tf.test.TestCase.
      function: of tensors, to tensors.
      *inputs: arrays.
      opset: of ONNX.
      dynamic: whether the model's inputs have no static dims.
      also: more lists of inputs, which the model of the first takes, too.
      tolerance: instead of that of TOLERANCES.
      optimize: whether tf2onnx optimizes the model, which takes most of the time of a large one.

    Returns:
      The names of the model's operators.
    """
    specs = [tf.TensorSpec([None] * x.ndim if dynamic else x.shape, x.dtype) for x in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = convert(function, specs, opset, optimize)
    run_model = runner(model)
    for args in [inputs, *also]:
        expected, found = [np.asarray(t) for t in tf.nest.flatten(function(*args))], run_model(args)
        for one, other in zip(expected, found, strict=True):
            test.assertEqual(other.dtype, one.dtype)
            test.assertEqual(other.shape, one.shape)
            if one.dtype.kind == "f":
                bound = tolerance or TOLERANCES[one.dtype]
                test.assertAllClose(other, one, bound, bound)
            else:
                test.assertAllEqual(other, one)
    return operators(model)
