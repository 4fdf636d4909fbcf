"""LSTM in the form of Keras 2, which LiteRT's converter replaces by its operator UNIDIRECTIONAL_SEQUENCE_LSTM.

The form is a function with the attrs of _FORM, and the arguments and results of Keras 2's `standard_lstm` in its order.
The converter replaces it where the size of a batch is static and nothing reads the states that it returns. It ignores
the body, which is for TensorFlow and other batches.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from tensorflow_ops.export.python.compositions import PREFIX, compositions

# TensorFlow may call any function of the same "api_implements" instead: all of these compute the same.
_FORM = {"api_implements": "lstm_tensorflow_ops", "time_major": False, "go_backwards": False}

_ACTIVATIONS = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def _lstm(inputs, kernel, recurrent_kernel, bias, h0, c0):
    """Returns the op's outputs and h for inputs [B, T, D] and kernel [D, 4U], and nothing as its other results."""

    def standard_lstm(inputs, h, c, kernel, weights, bias):
        (batch, steps, features), units = tf.unstack(tf.shape(inputs)), tf.shape(h)[1]
        sums = tf.matmul(tf.reshape(inputs, [batch * steps, features]), kernel)
        outputs, h, c, _, _ = compositions()["Lstm"].function(
            tf.reshape(sums, [batch, steps, 4, units]),
            tf.reshape(weights, [units, 4, units]),
            tf.reshape(bias, [4, units]),
            h,
            c,
            [],
            **_ACTIVATIONS,
        )
        return h, outputs, h, c, tf.zeros([])

    units = tf.shape(h0)[1]
    weights = tf.reshape(recurrent_kernel, [units, 4 * units])
    call = tf.function(standard_lstm, autograph=False, experimental_attributes=_FORM)
    h, outputs, *_ = call(inputs, h0, c0, kernel, weights, tf.reshape(bias, [4 * units]))
    return outputs, h, *[tf.zeros([])] * 3


def traced() -> tf.types.experimental.ConcreteFunction:
    """Returns a function of inputs, kernel and the op's other inputs, to the op's results."""
    specs = [tf.TensorSpec([None] * rank) for rank in (3, 2, 3, 2, 2, 2)]
    return tf.function(_lstm, autograph=False).get_concrete_function(*specs)


class InputFinder:
    """Finds what gives the inputs of `traced` to nodes of a function."""

    def __init__(self, function: function_pb2.FunctionDef):
        self._nodes = {node.name: node for node in function.node_def}
        references = [*function.ret.values(), *(reference for node in function.node_def for reference in node.input)]
        self._read = {tuple(reference.split(":")[:2]) for reference in references}

    def _producer(self, reference, op):
        """Returns the node of an output if it is of an op, else None."""
        node = self._nodes.get(reference.split(":")[0])
        return node if node and node.op == op else None

    def __call__(self, node: node_def_pb2.NodeDef, attrs: Mapping[str, Any]) -> list[str] | None:
        """Returns the inputs for a node, or None if it computes something else."""
        if node.op != f"{PREFIX}Lstm" or dict(attrs) != {"T": tf.float32, "has_mask": 0, **_ACTIVATIONS}:
            return None
        if any((node.name, output) in self._read for output in ("c", "gates", "cells")):
            return None
        # As the public function computes them.
        sums = self._producer(node.input[0], "Reshape")
        product = sums and self._producer(sums.input[0], "MatMul")
        inputs = product and self._producer(product.input[0], "Reshape")
        return [inputs.input[0], product.input[1], *node.input[1:]] if inputs else None
