"""The public functions of conditional random fields."""

from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, ragged
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import nn_arguments


class CrfDecode(NamedTuple):
    """The result of `crf_decode`.

    Attributes:
      labels: int32 [batch, frames], the best tags; 0 beyond the length.
      scores: [batch], their scores.
    """

    labels: tf.Tensor
    scores: tf.Tensor


def _scores(logits, transitions, lengths):
    """Returns the inputs of an op as tensors. Raises ValueError."""
    logits, lengths = ragged.padded("logits", logits, "lengths", lengths, padding=None)
    logits = arguments.float_tensor("logits", logits)
    value_dtype = arguments.at_least_float32(logits.dtype)
    transitions = arguments.tensor_of_kind("transitions", transitions, value_dtype)
    return logits, transitions, nn_arguments.integers("lengths", lengths)


def _like(logits, by_frame):
    """Returns a result for each frame, ragged if logits are."""
    if not isinstance(logits, tf.RaggedTensor):
        return by_frame
    return tf.RaggedTensor.from_tensor(by_frame, logits.row_lengths())


@autograph.op_function
def crf_log_likelihood(
    labels: TensorLike,
    logits: TensorLike,
    transitions: TensorLike,
    *,
    lengths: TensorLike | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Log likelihood of tag sequences in a linear-chain conditional random field.

    The score of tags l is sum_t logits[t, l_t] + sum_t transitions[l_t, l_t+1]; their
    probability is e^score over the sum of that for all tag sequences ("Conditional Random
    Fields", Lafferty et al. 2001). Scores of a start and an end belong into the logits of
    the first and the last frame.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> logits, transitions = tf.zeros([1, 2, 3]), tf.zeros([3, 3])    # 9 equal sequences
    >>> round(float(tf.exp(-tfo.nn.crf_log_likelihood([[2, 0]], logits, transitions)[0])), 4)
    9.0

    Args:
      labels: [batch, max frames], each frame's tag, int32 or int64; within the example's
        length in [0, tags), beyond it anything: padding must be at the end. A RaggedTensor
        [batch, (frames)], or a SparseTensor.
      logits: [batch, max frames, tags], or a RaggedTensor [batch, (frames), tags]:
        float16, bfloat16, float32 or float64. -inf forbids a tag. A NaN or +inf makes its
        example's result NaN; beyond the example's length it changes nothing.
      transitions: [tags, tags], from the row's tag to the column's; cast to float32, for
        float64 logits to float64. -inf forbids a transition.
      lengths: [batch], the frames of each example, in [0, max frames], int32 or int64. None:
        those of ragged labels, or the frames up to the last label that is not negative.
      name: name of the op.

    Returns:
      [batch], in nats, not above 0: float32, for float64 logits float64. 0 for length 0. -inf
      for forbidden tags, and where no sequence is allowed. Differentiable once in logits
      and transitions: one-hot tags minus `crf_marginals`, and counts minus expected counts;
      both are 0 where no sequence is allowed.

    Raises:
      ValueError: a wrong dtype, no tag, shapes that do not fit.
      InvalidArgumentError: the same errors, found at run time; on the CPU also
        "labels[0, 1] is 9, expected [0, 4)" and lengths out of their range (a GPU makes that
        example's result and gradient NaN).
    """
    are_ragged = isinstance(logits, tf.RaggedTensor)
    cuts = are_ragged or ragged.is_ragged_or_sparse(labels)
    labels, label_lengths = ragged.padded("labels", labels, "lengths", lengths, padding=-1)
    logits, transitions, lengths = _scores(logits, transitions, lengths if are_ragged else label_lengths)
    if are_ragged:
        fit = arguments.equal(tf.cast(label_lengths, lengths.dtype), lengths)
        lengths = arguments.checked("the frames of logits", lengths, fit, "as many as labels")
    labels = nn_arguments.integers("labels", labels)
    if cuts:
        labels = ragged.with_width(labels, tf.shape(logits)[1])
    return ops.tensorflow_ops_crf_log_likelihood(labels, logits, transitions, lengths, name=name)


@autograph.op_function
def crf_decode(
    logits: TensorLike, transitions: TensorLike, *, lengths: TensorLike | None = None, name: str | None = None
) -> CrfDecode:
    """Finds the tag sequence of the highest score in a linear-chain conditional random field.

    `crf_log_likelihood` defines scores. Of equal scores the lowest tag wins, at the end and
    then in each step back (Viterbi).

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> transitions = [[0.0, -9.0], [-9.0, 0.0]]    # changes are expensive
    >>> best = tfo.nn.crf_decode([[[1.0, 0.0], [0.0, 3.0], [1.0, 0.0]]], transitions)
    >>> best.labels.numpy(), best.scores.numpy()
    (array([[1, 1, 1]], dtype=int32), array([3.], dtype=float32))

    Args:
      logits: [batch, max frames, tags], or a RaggedTensor [batch, (frames), tags]:
        float16, bfloat16, float32 or float64. NaN counts as -inf, here and in
        transitions.
      transitions: [tags, tags], from the row's tag to the column's; cast to float32, for
        float64 logits to float64.
      lengths: [batch], the frames of each example, in [0, max frames], int32 or int64. None:
        those of ragged logits, or all.
      name: name of the op.

    Returns:
      CrfDecode(labels int32 [batch, max frames], scores [batch]); labels are 0 beyond the
      length, scores float32, for float64 logits float64, and 0 for length 0. Scores are
      differentiable in logits and transitions: along the best sequence.

    Raises:
      ValueError: a wrong dtype, no tag, shapes that do not fit.
      InvalidArgumentError: the same errors, found at run time; on the CPU also lengths out
        of their range (a GPU makes that example's score NaN).
    """
    inputs = _scores(logits, transitions, lengths)
    labels, scores = ops.tensorflow_ops_crf_decode(*inputs, name=name)
    return CrfDecode(_like(logits, labels), scores)


@autograph.op_function
def crf_marginals(
    logits: TensorLike, transitions: TensorLike, *, lengths: TensorLike | None = None, name: str | None = None
) -> tf.Tensor:
    """Probability of each tag at each frame in a linear-chain conditional random field.

    `crf_log_likelihood` defines the probability of a sequence; the marginal of a tag is the
    sum over all sequences with this tag at this frame.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> logits = tf.math.log([[[0.5, 0.5], [0.9, 0.1]]])
    >>> tfo.nn.crf_marginals(logits, [[0.0, -99.0], [-99.0, 0.0]]).numpy().round(3)
    array([[[0.9, 0.1],
            [0.9, 0.1]]], dtype=float32)

    Args:
      logits: [batch, max frames, tags], or a RaggedTensor [batch, (frames), tags]:
        float16, bfloat16, float32 or float64. -inf forbids a tag. A NaN or +inf makes its
        example's result NaN.
      transitions: [tags, tags], from the row's tag to the column's; cast to float32, for
        float64 logits to float64. -inf forbids a transition.
      lengths: [batch], the frames of each example, in [0, max frames], int32 or int64. None:
        those of ragged logits, or all.
      name: name of the op.

    Returns:
      [batch, max frames, tags], float32, for float64 logits float64. 0 beyond the length,
      and where no sequence is allowed. No gradient: asking for it raises LookupError.

    Raises:
      ValueError: a wrong dtype, no tag, shapes that do not fit.
      InvalidArgumentError: the same errors, found at run time; on the CPU also lengths out
        of their range (a GPU makes that example NaN).
    """
    inputs = _scores(logits, transitions, lengths)
    return _like(logits, ops.tensorflow_ops_crf_marginals(*inputs, name=name))
