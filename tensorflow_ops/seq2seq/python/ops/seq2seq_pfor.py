"""tf.vectorized_map and its kin for the seq2seq ops: the iterations become part of the batch."""

import tensorflow as tf

# Registering converters is no public API; the package is made for one TensorFlow.
from tensorflow.python.ops.parallel_for import pfor as pfor_lib


def _same_for_all(pfor_input, index, name):
    """An input that no iteration changes. Raises ValueError."""
    value = pfor_input.inputs[index]
    if value.is_stacked:
        raise ValueError(f"{name} differs between the iterations of vectorized_map, expected one for all")
    return value.t


def _into_batch(tensor, axis):
    """[P, ...] with the first axis made part of an axis of the rest."""
    tensor = tf.experimental.numpy.moveaxis(tensor, 0, axis) if axis else tensor
    shape = tf.shape(tensor)
    return tf.reshape(tensor, tf.concat([shape[:axis], [shape[axis] * shape[axis + 1]], shape[axis + 2 :]], 0))


def _out_of_batch(tensor, iterations, axis):
    shape = tf.shape(tensor)
    split = tf.stack([iterations, shape[axis] // tf.maximum(iterations, 1)])
    tensor = tf.reshape(tensor, tf.concat([shape[:axis], split, shape[axis + 1 :]], 0))
    return tf.experimental.numpy.moveaxis(tensor, axis, 0) if axis else tensor


def _call(pfor_input, inputs, axis):
    op = pfor_input.op
    dtypes = [output.dtype for output in op.outputs]
    outputs = pfor_lib._create_op(op.type, inputs, dtypes, attrs=op.node_def.attr).outputs
    iterations = pfor_input.pfor.loop_len_vector[0]
    return [pfor_lib.wrap(_out_of_batch(output, iterations, axis), True) for output in outputs]


@pfor_lib.RegisterPFor("TensorflowOps>BeamSearchStep")
def _beam_search_step(pfor_input):
    same = ("eos_ids", "length_penalty", "eos_rule", "beam_width")
    unchanged = [_same_for_all(pfor_input, 4 + i, name) for i, name in enumerate(same)]
    batched = [0, 1, 2, 3, *range(8, pfor_input.num_inputs)]
    pfor_input.stack_inputs(batched)
    logits, log_probs, finished, lengths, *forbidden = (
        _into_batch(pfor_input.stacked_input(i), axis=0) for i in batched
    )
    return _call(pfor_input, [logits, log_probs, finished, lengths, *unchanged, *forbidden], axis=0)


@pfor_lib.RegisterPFor("TensorflowOps>GatherTree")
def _gather_tree(pfor_input):
    pad_id = _same_for_all(pfor_input, 3, "pad_id")
    pfor_input.stack_inputs([0, 1, 2])
    token_ids, parent_ids, lengths = (pfor_input.stacked_input(i) for i in range(3))
    inputs = [_into_batch(token_ids, 1), _into_batch(parent_ids, 1), _into_batch(lengths, 0), pad_id]
    return _call(pfor_input, inputs, axis=1)
