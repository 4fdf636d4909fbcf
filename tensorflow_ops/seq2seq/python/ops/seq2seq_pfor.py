"""Vectorization of the seq2seq ops (core/python/pfor.py): the iterations become part of the batch."""

import tensorflow as tf

from tensorflow_ops.core.python import pfor


@pfor.register("TensorflowOps>GatherTree")
def _gather_tree(pfor_input):
    """Makes the iterations part of the batch, which is dim 1 of the trees."""
    if pfor_input.inputs[3].is_stacked:  # the pad_id
        return pfor.loop(pfor_input)
    pfor_input.stack_inputs([0, 1, 2])
    token_ids, parent_ids, lengths = (pfor_input.stacked_input(i) for i in range(3))
    inputs = [pfor.fold(token_ids, 1), pfor.fold(parent_ids, 1), pfor.fold(lengths), pfor_input.inputs[3].t]
    return [pfor.stacked(pfor.unfold(y, tf.shape(lengths)[0], 1)) for y in pfor.call(pfor_input, inputs)]


def _register(name, *shared):
    pfor.register(f"TensorflowOps>{name}")(lambda pfor_input: pfor.convert_folded(pfor_input, shared))


_register("BeamSearchStep", 4, 5, 6, 7)
_register("CtcGreedyDecode")
_register("CtcBeamSearchDecode", 2)
_register("CtcBeamSearchStep", 5, 6)
