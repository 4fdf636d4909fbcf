"""Vectorization of the ops of label sequences (core/python/pfor.py): the iterations become part of the batch."""

import tensorflow as tf

from tensorflow_ops.core.python import pfor


def _convert(pfor_input):
    """Converts an op of which dim 0 of all inputs and outputs is the batch."""
    pfor_input.stack_inputs()
    inputs = [value.t for value in pfor_input.inputs]
    shape = tf.shape(inputs[0])
    outputs = pfor.call(pfor_input, [pfor.fold(t) for t in inputs])
    return [pfor.stacked(pfor.unfold(y, shape[0], size=shape[1])) for y in outputs]


for _name in ("CtcLoss", "CtcLossGrad", "RnntLoss", "RnntLossGrad"):
    pfor.register(f"TensorflowOps>{_name}")(_convert)
