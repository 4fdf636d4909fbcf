"""Whether XLA will compile what is being traced."""

import tensorflow as tf

# TensorFlow has no public API that tells whether XLA will compile a graph.
from tensorflow.python.ops import control_flow_util


def is_compiled() -> bool:
    """Returns whether the current graph is traced for XLA; False outside of graphs."""
    if tf.executing_eagerly():
        return False
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
