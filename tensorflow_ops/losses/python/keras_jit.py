"""Refuses losses that Keras would compile with XLA where XLA cannot compile the ops."""

import tensorflow as tf

# TensorFlow has no public API that tells whether XLA will compile a graph.
from tensorflow.python.ops import control_flow_util

from tensorflow_ops.core.python import library


def check(name):
    """Raises UnimplementedError if a Keras loss is traced for XLA, but XLA cannot compile the ops.

    A layer declines with `supports_jit`. Keras does not ask losses, so that jit_compile="auto",
    its default, would end in an error of XLA's for a user who never named XLA.
    """
    if tf.executing_eagerly() or library.supports_xla():
        return
    if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        reason = library.xla_error or "this build of tensorflow_ops has no kernels for the GPU"
        advice = 'Pass jit_compile=False to compile(); its default, "auto", uses XLA on machines with a GPU.'
        raise tf.errors.UnimplementedError(None, None, f"XLA cannot compile {name} here: {reason}. {advice}")
