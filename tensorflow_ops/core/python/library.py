"""Loads the shared object that holds every op of this package."""

import os

import tensorflow as tf

from tensorflow_ops.core.python import versions

# Beside the package's own __init__.py.
PATH = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "_tensorflow_ops.so")


def _load():
    versions.check_tensorflow()
    try:
        return tf.load_op_library(PATH)
    except tf.errors.OpError as error:
        problem = f"The kernels of tensorflow_ops could not be loaded: {error.message}."
        raise ImportError(f"{problem} {versions.advice()}") from error


# The generated op functions. Loaded with the package, so that a SavedModel finds
# its ops after `import tensorflow_ops`, and before XLA looks for kernels.
ops = _load()
