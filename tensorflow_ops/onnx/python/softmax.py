"""ONNX's operators of softmax."""

import numpy as np
import tensorflow as tf

from tensorflow_ops.onnx.python.operators import operator


# ONNX Runtime misses a NaN in float64.
@operator("Softmax", 13, lambda op: op.inputs[0].dtype != tf.float64)
def _softmax(nodes):
    logits = nodes.widened(nodes.inputs[0])
    is_log = nodes.attr("log")
    result = (nodes.LogSoftmax if is_log else nodes.Softmax)(logits, axis=-1)
    # A row with all classes masked is NaN in ONNX.
    lowest = nodes.like(logits, -np.inf)
    masked = nodes.Equal(nodes.reduce_max(logits, -1), lowest)
    return [nodes.Where(masked, lowest if is_log else nodes.like(logits, 0), result)]
