"""The public functions of one step: beam_search_step, gather_tree, batch_gather."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, pfor
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import IntLike, TensorLike
from tensorflow_ops.seq2seq.python.ops import seq2seq_arguments

# Neither the selection nor its scores are differentiable: decode first, then score with label_log_prob.
tf.no_gradient("TensorflowOps>BeamSearchStep")
tf.no_gradient("TensorflowOps>GatherTree")

# Values of eos_rule: which tokens may follow.
ANY_TOKEN, NO_EOS, ONLY_EOS = 0, 1, 2


class BeamSearchStep(NamedTuple):
    """The beams after a step, best first: each [B, W]."""

    log_probs: tf.Tensor  # float32, for float64 logits float64; -inf for a missing beam
    token_ids: tf.Tensor  # int32, the tokens added
    parent_ids: tf.Tensor  # int32 in [0, K), the beams they were added to
    finished: tf.Tensor  # bool, whether the last token is an end token
    lengths: tf.Tensor  # int32, with the end token


@autograph.op_function
def beam_search_step(
    logits: TensorLike,
    log_probs: TensorLike,
    finished: TensorLike,
    lengths: TensorLike,
    *,
    eos_ids: IntLike | Sequence[int],
    beam_width: int | None = None,
    length_penalty: float = 0.0,
    forbidden: TensorLike | None = None,
    name: str | None = None,
) -> BeamSearchStep:
    """Extends K beams by one token each, and keeps the best W of all candidates.

    A candidate is a beam b with log probability l[b] and a token v:

        log probability = l[b] + log softmax(logits[b])[v]
        score           = log probability / ((5 + length) / 6)^length_penalty

    The W candidates of the highest score stay; of equal ones the one with the lower
    b * V + v comes first. The penalty is equation 14 of "Google's Neural Machine
    Translation System", arXiv:1609.08144, at each candidate's own length, the new token
    included.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> logits = tf.math.log([[[0.1, 0.6, 0.3], [0.5, 0.1, 0.4]]])    # a batch of 1, 2 beams, 3 tokens
    >>> step = tfo.seq2seq.beam_search_step(
    ...     logits, tf.math.log([[0.7, 0.3]]), [[False, False]], [[1, 1]], eos_ids=[2])
    >>> tf.exp(step.log_probs).numpy().round(2)
    array([[0.42, 0.21]], dtype=float32)
    >>> step.token_ids.numpy(), step.parent_ids.numpy()
    (array([[1, 2]], dtype=int32), array([[0, 0]], dtype=int32))
    >>> step.finished.numpy(), step.lengths.numpy()
    (array([[False,  True]]), array([[2, 2]], dtype=int32))

    A finished beam has one candidate, itself: token eos_ids[0] (0 without eos_ids) adds
    nothing to its log probability and its length. A beam with log probability -inf has no
    candidate: to start from one beam, set the others to -inf. If there are fewer than W
    candidates, the remaining results are empty: log probability -inf, token eos_ids[0]
    (or 0), parent 0 and its length, finished.

    Reads logits once, and writes no [B, K, V] tensor of log probabilities.

    Args:
      logits: [B, K, V], of the next token, for each of K beams; float16, bfloat16,
        float32 or float64. A token at -inf, a mask, is no candidate. NaN is read as -inf,
        +inf as the largest finite number of log_probs' dtype.
      log_probs: [B, K], of the beams so far; float32, for float64 logits float64. Other
        floats are cast.
      finished: bool [B, K], whether a beam has ended.
      lengths: int32 [B, K], of the beams so far.
      eos_ids: int32 [E], or an int: tokens that end a beam, in [0, V). E may be 0.
      beam_width: W, at least 1; an int or an int32 scalar tensor. It may exceed K, and K
        may exceed V. Default: K.
      length_penalty: a finite number; above 0 favours long beams, below 0 short ones. A
        float or a scalar tensor.
      forbidden: bool [B, K, V] or None; tokens that may not be added. They remain part of
        the softmax: the log probabilities of others do not change. Finished beams ignore
        it.
      name: name of the op.

    Returns:
      A `BeamSearchStep`. No gradient.

    Raises:
      ValueError: a wrong dtype, shapes that do not fit, a beam_width below 1, a penalty
        that is not finite.
      InvalidArgumentError: the same errors, found at run time; on the CPU also
        "eos_ids[0] is 7, expected [0, 5)" (a GPU ignores such an id).
    """
    if beam_width is not None:
        beam_width = arguments.int_scalar("beam_width", beam_width, 1)
    length_penalty = arguments.number("length_penalty", length_penalty)
    eos_ids = tf.reshape(arguments.tensor_of_kind("eos_ids", eos_ids, tf.int32), [-1])
    return step(
        logits,
        log_probs,
        finished,
        lengths,
        eos_ids=eos_ids,
        eos_rule=ANY_TOKEN,
        beam_width=beam_width,
        length_penalty=length_penalty,
        forbidden=forbidden,
        name=name,
    )


def step(
    logits,
    log_probs,
    finished,
    lengths,
    *,
    eos_ids,
    eos_rule,
    beam_width,
    length_penalty=0.0,
    forbidden=None,
    name=None,
) -> BeamSearchStep:
    """`beam_search_step` with a rule for end tokens: ANY_TOKEN, NO_EOS or ONLY_EOS. Raises ValueError."""
    logits = seq2seq_arguments.logits_tensor(logits, [None, None, None], "[batch, beams, tokens]")
    beams = logits.shape[:2]
    tensors = []
    for key, value, dtype in (
        ("log_probs", log_probs, arguments.at_least_float32(logits.dtype)),
        ("finished", finished, tf.bool),
        ("lengths", lengths, tf.int32),
    ):
        tensors.append(arguments.tensor_of_kind(key, value, dtype))
        arguments.check_shape(key, tensors[-1], beams, "logits' batch and beams")
        beams = beams.merge_with(tensors[-1].shape)
    if forbidden is not None:
        forbidden = arguments.tensor_of_kind("forbidden", forbidden, tf.bool)
        arguments.check_shape("forbidden", forbidden, logits.shape, "logits' shape")
    if beam_width is None:
        beam_width = beams[1] if beams[1] is not None else tf.shape(logits)[1]
    result = ops.tensorflow_ops_beam_search_step(
        logits,
        *tensors,
        eos_ids=eos_ids,
        length_penalty=arguments.in_host_memory(length_penalty, tf.float64),
        eos_rule=eos_rule,
        beam_width=beam_width,
        forbidden=[] if forbidden is None else [forbidden],
        name=name,
    )
    return BeamSearchStep(*result)


@autograph.op_function
def gather_tree(
    token_ids: TensorLike, parent_ids: TensorLike, lengths: TensorLike, *, pad_id: IntLike, name: str | None = None
) -> tf.Tensor:
    """Follows beams back through their parents, and returns their tokens.

    For each step, beam search stores the token of each beam and the beam it was added to.
    The sequence of beam k, of length n, ends with its token of step n - 1; the token
    before is its parent's of step n - 2, and so on.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> tokens = [[[1, 2]], [[3, 4]], [[5, 6]]]     # 3 steps, a batch of 1, 2 beams
    >>> parents = [[[0, 0]], [[1, 0]], [[0, 0]]]
    >>> tfo.seq2seq.gather_tree(tokens, parents, [[3, 2]], pad_id=0)[:, 0].numpy()
    array([[2, 1],
           [3, 4],
           [5, 0]], dtype=int32)

    Differences from `GatherTree` of TensorFlow Addons: each beam has its own length, and
    the op reads nothing after it; int64; a parent out of range is an error.

    Args:
      token_ids: [T, B, K], of T steps, B examples, K beams; int32 or int64.
      parent_ids: [T, B, K], in [0, K), cast to token_ids' dtype. The first step's are
        ignored.
      lengths: int32 [B, K], in [0, T].
      pad_id: an int, or a scalar tensor: the token after the end.
      name: name of the op.

    Returns:
      [T, B, K], token_ids' dtype; the pad_id from a beam's length on. No gradient.

    Raises:
      ValueError: a wrong dtype, shapes that do not fit.
      InvalidArgumentError: the same errors, found at run time; on the CPU also
        "lengths[0, 1] is 7, expected [0, 3]" and a parent out of range, if a sequence
        contains it (a GPU returns the pad_id there and before).
    """
    token_ids = arguments.int_tensor("token_ids", token_ids)
    if token_ids.dtype not in (tf.int32, tf.int64):
        raise ValueError(f"token_ids are {token_ids.dtype.name}, expected int32 or int64")
    parent_ids = arguments.tensor_of_kind("parent_ids", parent_ids, token_ids.dtype)
    lengths = arguments.tensor_of_kind("lengths", lengths, tf.int32)
    pad_id = arguments.tensor_of_kind("pad_id", pad_id, token_ids.dtype)
    arguments.check_shape("token_ids", token_ids, [None] * 3, "[steps, batch, beams]")
    arguments.check_shape("parent_ids", parent_ids, token_ids.shape, "token_ids' shape")
    arguments.check_shape("lengths", lengths, token_ids.shape[1:], "token_ids' batch and beams")
    arguments.check_shape("pad_id", pad_id, [], "a scalar")
    pad_id = arguments.in_host_memory(pad_id, token_ids.dtype)
    return ops.tensorflow_ops_gather_tree(token_ids, parent_ids, lengths, pad_id, name=name)


@autograph.op_function
def batch_gather(params: TensorLike, indices: TensorLike, *, name: str | None = None) -> tf.Tensor:
    """Gathers entries of each example: params[b, indices[b, i]] for each b and i.

    Reorders beams, for example, or looks up values at token ids.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> tfo.seq2seq.batch_gather([[1, 2, 3], [4, 5, 6]], [[2, 0], [1, 1]]).numpy()
    array([[3, 1],
           [5, 5]], dtype=int32)

    Equals `tf.gather` with all dims of indices but the last as batch dims. (The recipe that
    flattens params and adds offsets to the indices reads the next example if an index is
    out of range; here this is an error.)

    Args:
      params: [..., N, *rest], of any dtype.
      indices: [..., M], int32 or int64 (smaller integers are cast), in [0, N); the same
        batch dims, any number of them. Its rank, or params', may be unknown.
      name: name of the op.

    Returns:
      [..., M, *rest], params' dtype. Differentiable in params, to any order; gradients to
      an entry that is gathered twice add up.

    Raises:
      ValueError: indices that are no integers or a scalar, batch dims that differ.
      InvalidArgumentError: the same errors, found at run time; on the CPU also an index out
        of range, "indices[1,0] is 7, expected [0, 3)" (a GPU gives 0 there, under XLA the
        nearest element).
    """
    with tf.name_scope(name or "batch_gather"):
        params = arguments.dense_tensor("params", params)
        indices = arguments.int_tensor("indices", indices)
        if not indices.dtype.is_integer:
            raise ValueError(f"indices are {indices.dtype.name}, expected int32 or int64")
        if indices.dtype not in (tf.int32, tf.int64):
            dtype = tf.int64 if indices.dtype in (tf.uint32, tf.uint64) else tf.int32
            indices = arguments.whole_numbers("indices", indices, dtype)
        rank = indices.shape.rank
        if rank is None:
            return _batch_gather_of_any_rank(params, indices)
        if rank == 0:
            raise ValueError("indices are a scalar, expected at least one dim")
        if params.shape.rank is not None and params.shape.rank < rank:
            text = arguments.shape_text(params.shape)
            raise ValueError(f"params are {text}, expected at least {rank} dims, as many as indices have")
        expected = indices.shape[:-1]
        if params.shape.rank is not None and not params.shape[: rank - 1].is_compatible_with(expected):
            texts = arguments.shape_text(params.shape), arguments.shape_text(indices.shape)
            raise ValueError(f"params are {texts[0]}, indices are {texts[1]}, expected the same batch dims")
        size = None if params.shape.rank is None else params.shape[rank - 1]
        return gather_by_beam(params, _checked_indices(indices, tf.shape(params)[rank - 1], size))


def gather_by_beam(params, indices):
    """`batch_gather` for tensors that fit and indices in their range."""
    batch_dims = indices.shape.rank - 1
    return tf.gather(params, indices, batch_dims=batch_dims, axis=batch_dims)


def _checked_indices(indices, size, static_size=None):
    # XLA clamps indices on the CPU.
    is_valid = (indices >= 0) & (indices < tf.cast(size, indices.dtype))
    text = "params' size" if static_size is None else static_size
    return arguments.checked("indices", indices, is_valid, f"[0, {text})", on_gpu=False)


def _batch_gather_of_any_rank(params, indices):
    """Gathers with all batch dims merged into one."""
    of_indices = tf.shape(indices)
    of_indices = arguments.checked("the shape of indices", of_indices, tf.size(of_indices) >= 1, "at least one dim")
    shape = tf.shape(params)
    has_dims = tf.size(shape) >= tf.size(of_indices)
    shape = arguments.checked("the shape of params", shape, has_dims, "at least as many dims as indices have")
    batch_dims = tf.size(of_indices) - 1
    batch = of_indices[:batch_dims]
    is_equal = tf.reduce_all(tf.equal(shape[:batch_dims], batch))
    shape = arguments.checked("the shape of params", shape, is_equal, "the batch dims of indices")
    size, rest = shape[batch_dims], shape[batch_dims + 1 :]
    flat_batch = tf.reduce_prod(batch)
    flat = tf.gather(
        tf.reshape(params, tf.concat([[flat_batch, size], rest], 0)),
        _checked_indices(tf.reshape(indices, [flat_batch, of_indices[-1]]), size),
        batch_dims=1,
    )
    return tf.reshape(flat, tf.concat([of_indices, rest], 0))


@pfor.register("TensorflowOps>GatherTree")
def _convert_gather_tree(pfor_input):
    """Makes the iterations part of the batch, which is dim 1 of the trees."""
    if pfor_input.inputs[3].is_stacked:  # the pad_id
        return pfor.loop(pfor_input)
    pfor_input.stack_inputs([0, 1, 2])
    token_ids, parent_ids, lengths = (pfor_input.stacked_input(i) for i in range(3))
    inputs = [pfor.fold(token_ids, 1), pfor.fold(parent_ids, 1), pfor.fold(lengths), pfor_input.inputs[3].t]
    return [pfor.stacked(pfor.unfold(y, tf.shape(lengths)[0], 1)) for y in pfor.call(pfor_input, inputs)]


@pfor.register("TensorflowOps>BeamSearchStep")
def _convert_beam_search_step(pfor_input):
    return pfor.convert_folded(pfor_input, (4, 5, 6, 7))
