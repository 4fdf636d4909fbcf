"""Loads the shared object that holds every op of this package."""

import os
import types

import tensorflow as tf

from tensorflow_ops.core.python import compatibility, shape_errors

# Beside the package's own __init__.py.
PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "_tensorflow_ops.so")


def _load():
    compatibility.check_tensorflow()
    try:
        return tf.load_op_library(PATH)
    except tf.errors.OpError as error:
        problem = f"The kernels of tensorflow_ops could not be loaded: {error.message}."
        raise ImportError(f"{problem} {compatibility.advice()}") from error


def _op_functions(module):
    """Returns the generated functions of ops, by name."""
    generated = {name: value for name, value in vars(module).items() if name.startswith("tensorflow_ops_")}
    return {name: shape_errors.as_value_errors(op) for name, op in generated.items() if callable(op)}


# The generated op functions. Loaded with the package, so that a SavedModel finds
# its ops after `import tensorflow_ops`, and before XLA looks for kernels.
ops = types.SimpleNamespace(**_op_functions(_load()))
