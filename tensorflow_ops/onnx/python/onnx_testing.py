"""For tests: exports functions and runs them in ONNX Runtime."""

import warnings

import numpy as np
import onnxruntime
import tensorflow as tf

import tensorflow_ops as tfo

# Relative to values, and to 1.
TOLERANCES = {np.dtype("float16"): 2e-3, np.dtype("float32"): 1e-5, np.dtype("float64"): 1e-12}


def convert(function, specs, opset=18):
    """Returns the ONNX model of a function."""
    import tf2onnx  # After register: what it replaces is found all the same.

    tfo.onnx.register()
    model, _ = tf2onnx.convert.from_function(tf.function(function, autograph=False), specs, opset=opset)
    return model


def operators(model):
    """Returns the names of a model's operators, without those of bodies of loops."""
    return {node.op_type for node in model.graph.node}


def run(model, inputs):
    """Returns the outputs of an ONNX model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # Errors only.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))


def check(test, function, *inputs, opset=18, dynamic=True, also=(), tolerance=None):
    """Fails the test unless ONNX Runtime returns what a function does, in values, dtypes and shapes.

    Args:
      test: a tf.test.TestCase.
      function: of tensors, to tensors.
      *inputs: arrays.
      opset: of ONNX.
      dynamic: whether the model's inputs have no static dims.
      also: more lists of inputs, which the model of the first takes, too.
      tolerance: instead of that of TOLERANCES.

    Returns:
      The names of the model's operators.
    """
    specs = [tf.TensorSpec([None] * x.ndim if dynamic else x.shape, x.dtype) for x in inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = convert(function, specs, opset)
    for args in [inputs, *also]:
        expected, found = [np.asarray(t) for t in tf.nest.flatten(function(*args))], run(model, args)
        for one, other in zip(expected, found, strict=True):
            test.assertEqual(other.dtype, one.dtype)
            test.assertEqual(other.shape, one.shape)
            if one.dtype.kind == "f":
                bound = tolerance or TOLERANCES[one.dtype]
                test.assertAllClose(other, one, bound, bound)
            else:
                test.assertAllEqual(other, one)
    return operators(model)
