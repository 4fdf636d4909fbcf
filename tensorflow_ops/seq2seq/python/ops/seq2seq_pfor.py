"""Vectorization of the seq2seq ops (core/python/pfor.py): the iterations become part of the batch."""

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
