"""Gradients of the CTC decoders' ops: none, an error instead of a zero."""

import tensorflow as tf

from tensorflow_ops.core.python.gradients import refuse


def _register(op_name, inputs, reason):
    @tf.RegisterGradient(f"TensorflowOps>{op_name}")
    def _grad(op, *_):
        return [refuse(op, i, reason) if i in inputs else None for i in range(len(op.inputs))]


_SEARCH = "ctc_beam_search_decode has no gradient: tfo.nn.ctc_loss of its labels has one"
_register("CtcGreedyDecode", (0,), "ctc_greedy_decode has no gradient: tfo.nn.ctc_loss of its labels has one")
_register("CtcBeamSearchDecode", (0, 2), _SEARCH)
_register("CtcBeamSearchStep", (0, 2, 4, 5, 6), _SEARCH)
