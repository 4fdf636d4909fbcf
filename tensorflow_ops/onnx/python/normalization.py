"""ONNX's operator of layer normalization."""

import tensorflow as tf

from tensorflow_ops.onnx.python.operators import dims, operator


def _is_layer_norm(op):
    x = op.inputs[0]
    _, pixels, channels = dims(x, 3)
    # It rounds epsilon to float32, and refuses rows of no numbers.
    return x.dtype != tf.float64 and pixels == op.get_attr("groups") == 1 and channels and op.get_attr("centered")


@operator("Normalization", 17, _is_layer_norm)
def _normalization(nodes):
    x = nodes.widened(nodes.inputs[0])
    y = nodes.LayerNormalization(x, *nodes.inputs[1:], axis=-1, epsilon=sum(nodes.attr("epsilon")))
    return [y, None]
