"""Vectorization of the seq2seq ops (core/python/pfor.py): the iterations become part of the batch."""

import tensorflow as tf

from tensorflow_ops.core.python import pfor


def _unstacked_input(pfor_input, index, name):
    """Returns an input that is equal in all iterations. Raises ValueError."""
    value = pfor_input.inputs[index]
    if value.is_stacked:
        raise ValueError(f"{name} differs between the iterations of vectorized_map, expected one for all")
    return value.t


def _call(pfor_input, inputs, batch_axis):
    iterations = pfor_input.pfor.loop_len_vector[0]
    return [pfor.stacked(pfor.unfold(y, iterations, batch_axis)) for y in pfor.call(pfor_input, inputs)]


@pfor.register("TensorflowOps>BeamSearchStep")
def _beam_search_step(pfor_input):
    names = ("eos_ids", "length_penalty", "eos_rule", "beam_width")
    unstacked = [_unstacked_input(pfor_input, 4 + i, name) for i, name in enumerate(names)]
    batched = [0, 1, 2, 3, *range(8, pfor_input.num_inputs)]
    pfor_input.stack_inputs(batched)
    logits, log_probs, finished, lengths, *forbidden = (pfor.fold(pfor_input.stacked_input(i)) for i in batched)
    return _call(pfor_input, [logits, log_probs, finished, lengths, *unstacked, *forbidden], batch_axis=0)


@pfor.register("TensorflowOps>GatherTree")
def _gather_tree(pfor_input):
    pad_id = _unstacked_input(pfor_input, 3, "pad_id")
    pfor_input.stack_inputs([0, 1, 2])
    token_ids, parent_ids, lengths = (pfor_input.stacked_input(i) for i in range(3))
    inputs = [pfor.fold(token_ids, 1), pfor.fold(parent_ids, 1), pfor.fold(lengths, 0), pad_id]
    return _call(pfor_input, inputs, batch_axis=1)


def _ctc(pfor_input, numbers=()):
    """Converts an op of which dim 0 of inputs and outputs is the batch, except for inputs that are equal numbers."""
    unstacked = {i: _unstacked_input(pfor_input, i, name) for i, name in numbers}
    pfor_input.stack_inputs([i for i in range(pfor_input.num_inputs) if i not in unstacked])
    inputs = [unstacked[i] if i in unstacked else pfor_input.stacked_input(i) for i in range(pfor_input.num_inputs)]
    shape = tf.shape(inputs[0])
    folded = [t if i in unstacked else pfor.fold(t) for i, t in enumerate(inputs)]
    return [pfor.stacked(pfor.unfold(y, shape[0], size=shape[1])) for y in pfor.call(pfor_input, folded)]


pfor.register("TensorflowOps>CtcGreedyDecode")(_ctc)
pfor.register("TensorflowOps>CtcBeamSearchDecode")(lambda pfor_input: _ctc(pfor_input, [(2, "label_bonus")]))
pfor.register("TensorflowOps>CtcBeamSearchStep")(
    lambda pfor_input: _ctc(pfor_input, [(5, "lm_weight"), (6, "label_bonus")])
)
