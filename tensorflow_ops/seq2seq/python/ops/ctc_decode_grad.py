"""Vectorization of the CTC decoders' ops, and their gradients: none, an error instead of a zero."""

import functools
import types

import tensorflow as tf

from tensorflow_ops.core.python import pfor
from tensorflow_ops.core.python.gradients import refuse


def _register(op_name, inputs, reason):
    @tf.RegisterGradient(f"TensorflowOps>{op_name}")
    def _grad(op, *upstream):
        upstream = [x for x in upstream if x is not None and x.dtype.is_floating]
        return [refuse(op, i, reason, upstream) if i in inputs else None for i in range(len(op.inputs))]


_SEARCH = "ctc_beam_search_decode has no gradient: tfo.nn.ctc_loss of its labels has one"
_register("CtcGreedyDecode", (0,), "ctc_greedy_decode has no gradient: tfo.nn.ctc_loss of its labels has one")
_register("CtcBeamSearchDecode", (0, 2), _SEARCH)

for _name, _shared in {"CtcGreedyDecode": (), "CtcBeamSearchDecode": (2,), "CtcBeamSearchStep": (5, 6)}.items():
    pfor.register(f"TensorflowOps>{_name}")(functools.partial(pfor.convert_folded, shared=_shared))


def with_refused_gradients(results, inputs):
    """Returns floating results of a search in steps; a gradient of them to an input raises.

    Differentiating the loop would save the intermediates of all steps before it fails, which XLA cannot compile;
    without steps the gradient would be 0.
    """
    results = [tf.stop_gradient(x) for x in results]
    inputs = [x for x in inputs if x.dtype.is_floating]

    @tf.custom_gradient
    def refused(*inputs):
        def grad(*upstream):
            op = types.SimpleNamespace(inputs=inputs)
            return [refuse(op, i, _SEARCH, upstream) for i in range(len(inputs))]

        return [tf.identity(x) for x in results], grad

    return refused(*inputs)
