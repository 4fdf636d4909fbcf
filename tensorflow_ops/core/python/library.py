"""Loads the shared objects: the ops of this package, and what lets XLA compile them."""

import os
import types

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tensorflow_ops.core.python import build_info, compatibility, shape_errors

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATH = compatibility.shared_object()
XLA_PATH = os.path.join(_FOLDER, "_tensorflow_ops_xla.so")


def _load():
    try:
        return tf.load_op_library(PATH)
    except tf.errors.OpError as error:
        problem = f"The kernels of tensorflow_ops could not be loaded: {error.message}."
        raise ImportError(f"{problem} {compatibility.advice()}") from error


def _op_functions(module):
    """Returns the generated functions of ops, by name."""
    generated = {name: value for name, value in vars(module).items() if name.startswith("tensorflow_ops_")}
    return {name: shape_errors.as_value_errors(op) for name, op in generated.items() if callable(op)}


def _load_xla():
    """Registers the ops with XLA. Returns None, or the reason why XLA cannot compile them."""
    newest = compatibility.built_minors()[-1]
    if compatibility.kernels() != newest:
        return f"XLA compiles the ops in TensorFlow {newest} only"
    try:
        tf.load_library(XLA_PATH)
    except (OSError, tf.errors.OpError) as error:  # such as a TensorFlow that was built without XLA
        return str(error)
    return None


def supports_xla():
    """Returns whether XLA can compile the ops for this machine's devices."""
    return xla_error is None and bool(build_info.CUDA_VERSION or not tf.config.list_physical_devices("GPU"))


def check_keras_jit(name):
    """Raises UnimplementedError if a Keras loss is traced for XLA, but XLA cannot compile the ops.

    A layer declines with `supports_jit`. Keras does not ask losses, so that jit_compile="auto",
    its default, would end in an error of XLA's for a user who never named XLA.
    """
    if tf.executing_eagerly() or supports_xla():
        return
    if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        reason = xla_error or "this build of tensorflow_ops has no kernels for the GPU"
        advice = 'pass jit_compile=False to compile(): its default, "auto", uses XLA where there is a GPU'
        raise tf.errors.UnimplementedError(None, None, f"XLA cannot compile {name} here, {advice} ({reason})")


# The generated op functions. Loaded with the package, so that a SavedModel finds
# its ops after `import tensorflow_ops`, and before XLA looks for kernels.
ops = types.SimpleNamespace(**_op_functions(_load()))
xla_error = _load_xla()
