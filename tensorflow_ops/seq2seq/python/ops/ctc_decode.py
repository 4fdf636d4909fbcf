"""The public CTC decoders. ctc_decode_loop.py has the loop of a search with a language model."""

from typing import Any, NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, ragged
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import nn_arguments, sequence_arguments
from tensorflow_ops.seq2seq.python.ops import ctc_decode_grad, ctc_decode_loop, decoder, seq2seq_arguments
from tensorflow_ops.seq2seq.python.ops.seq2seq_arguments import StepFn


class CtcDecode(NamedTuple):
    """The result of `ctc_greedy_decode`."""

    labels: tf.Tensor  # int32 [batch, max frames], without blanks; then the pad_id
    lengths: tf.Tensor  # int32 [batch], the labels of each example
    log_probs: tf.Tensor  # [batch], of the most probable paths: float32, for float64 logits float64


class CtcBeamSearchDecode(NamedTuple):
    """The P = top_paths best label sequences of each example, best first."""

    labels: tf.Tensor  # int32 [batch, P, max frames], without blanks; then the pad_id
    lengths: tf.Tensor  # int32 [batch, P]; 0 for a missing sequence
    scores: tf.Tensor  # [batch, P], float32, for float64 logits float64; -inf for a missing sequence
    log_probs: tf.Tensor  # [batch, P], of scores' dtype: without language model and bonus


def _inputs(logits, logit_lengths, blank_index, pad_id):
    """Returns logits and lengths as tensors, and the attrs of all CTC decoders. Raises ValueError."""
    logits, logit_lengths = ragged.padded("logits", logits, "logit_lengths", logit_lengths, padding=None)
    logits = arguments.float_tensor("logits", logits)
    lengths = nn_arguments.integers("logit_lengths", logit_lengths)
    attrs = {
        "blank_index": sequence_arguments.blank_index(blank_index),
        "Tvalue": arguments.at_least_float32(logits.dtype),
    }
    if pad_id is None:
        raise ValueError("pad_id is None, expected a 32-bit int")
    return logits, lengths, attrs, seq2seq_arguments.pad_id_or_default(pad_id, ())


@autograph.op_function
def ctc_greedy_decode(
    logits: TensorLike,
    logit_lengths: TensorLike | None = None,
    *,
    blank_index: int = 0,
    merge_repeated: bool = True,
    pad_id: int = -1,
    name: str | None = None,
) -> CtcDecode:
    """Decodes CTC: the labels of the most probable path, which has each frame's best class.

    Repeated classes of the path are merged, and blanks dropped. This is fast, but not always
    the most probable label sequence, which several paths may share: see
    `ctc_beam_search_decode`.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> logits = tf.math.log([[[0.1, 0.9], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]]])
    >>> best = tfo.seq2seq.ctc_greedy_decode(logits, [4])    # the path 1, 1, blank, 1
    >>> best.labels.numpy(), best.lengths.numpy()
    (array([[ 1,  1, -1, -1]], dtype=int32), array([2], dtype=int32))
    >>> tf.exp(best.log_probs).numpy().round(4)
    array([0.3024], dtype=float32)

    Args:
      logits: [batch, max frames, classes], or a RaggedTensor [batch, (frames), classes],
        before the softmax: float16, bfloat16, float32 or float64. NaN counts as -inf,
        which forbids a class, and +inf as the largest finite number. Of equal logits the
        first wins. Frames beyond an example's length do not matter.
      logit_lengths: [batch], the frames of each example, in [0, max frames]; int32 or
        int64. None: those of ragged logits, or all.
      blank_index: the class of blank, in [0, classes), or -1: the last class.
      merge_repeated: False: a label of consecutive frames is repeated in the result.
      pad_id: an int: the label after the last.
      name: name of the op.

    Returns:
      CtcDecode(labels int32 [batch, max frames], lengths int32 [batch], log_probs [batch]).
      log_probs are float32, for float64 logits float64: the sum of each frame's greatest log
      softmax; 0 without frames, -inf if a frame has no allowed class. No gradient: asking
      for it raises LookupError, in a graph UnimplementedError.

    Raises:
      ValueError: a wrong dtype, shapes that do not fit, a blank_index that is no class.
      InvalidArgumentError: the same errors, found at run time; lengths out of their range. A
        GPU, which must not wait, gives such an example no labels and a log probability of NaN.
    """
    logits, lengths, attrs, pad_id = _inputs(logits, logit_lengths, blank_index, pad_id)
    merge_repeated = arguments.static_bool("merge_repeated", merge_repeated)
    return CtcDecode(
        *ops.tensorflow_ops_ctc_greedy_decode(
            logits, lengths, merge_repeated=merge_repeated, pad_id=pad_id, name=name, **attrs
        )
    )


@autograph.takes_keras_tensors
def ctc_beam_search_decode(
    logits: TensorLike,
    logit_lengths: TensorLike | None = None,
    *,
    beam_width: int = 100,
    top_paths: int = 1,
    blank_index: int = 0,
    step_fn: StepFn | None = None,
    initial_state: Any = None,
    lm_weight: float = 1.0,
    label_bonus: float = 0.0,
    pad_id: int = -1,
    name: str | None = None,
) -> CtcBeamSearchDecode:
    """Decodes CTC: the most probable label sequences that a prefix beam search finds.

    The probability of a label sequence is the sum over all paths that leave it, as in
    `tfo.nn.ctc_loss`. The search keeps the K = beam_width best prefixes of each frame, with
    the sums of their paths; paths of prefixes that it dropped are missing in the sums
    (arXiv:1408.2873). The score of a prefix is

        log probability + lm_weight * its labels' scores by step_fn + label_bonus * its length

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> logits = tf.math.log([[[0.6, 0.4], [0.6, 0.4]]])    # the best path is blank, blank
    >>> best = tfo.seq2seq.ctc_beam_search_decode(logits, [2], beam_width=4, top_paths=2)
    >>> best.labels.numpy()    # three paths leave a 1
    array([[[ 1, -1],
            [-1, -1]]], dtype=int32)
    >>> tf.exp(best.log_probs).numpy().round(2)
    array([[0.64, 0.36]], dtype=float32)

    With a language model that forbids label 2 after label 1:

    >>> scores = tf.math.log([[1.0, 1, 1, 1], [1, 1, 0, 1], [1, 1, 1, 1], [1, 1, 1, 1]])
    >>> def step_fn(labels, state):    # label 0, blank, before the first
    ...     return tf.gather(scores, labels), state
    >>> logits = tf.math.log([[[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.6, 0.4]]])
    >>> tfo.seq2seq.ctc_beam_search_decode(logits, [2], step_fn=step_fn).labels.numpy()[0, 0]
    array([1, 3], dtype=int32)

    Args:
      logits: [batch, max frames, classes], or a RaggedTensor [batch, (frames), classes],
        before the softmax: float16, bfloat16, float32 or float64. NaN counts as -inf,
        which forbids a class, and +inf as the largest finite number. Frames beyond an
        example's length do not matter.
      logit_lengths: [batch], the frames of each example, in [0, max frames]; int32 or
        int64. None: those of ragged logits, or all.
      beam_width: K, an int, at least 1.
      top_paths: P, an int in [1, beam_width]: the number of sequences returned.
      blank_index: the class of blank, in [0, classes), or -1: the last class.
      step_fn: a language model, or None: a function (labels int32 [batch * K], state) ->
        (label scores [batch * K, classes], state) that maps the last label of each prefix to
        the scores of the label after it, such as log probabilities. An empty prefix' last
        label is blank_index; the score of blank is not read. -inf or NaN forbids a label. In
        a graph it is traced two times or more; build Keras layers before.
      initial_state: any nest of tensors [batch, ...], the state of the empty prefix; None or
        () without a state. step_fn returns states of the same shapes: prefixes have
        different lengths, so a cache cannot grow.
      lm_weight: a finite number or a scalar tensor: the weight of step_fn's scores.
      label_bonus: a finite number or a scalar tensor: what each label adds to the score.
        Above 0 it favours long sequences, which a language model penalizes.
      pad_id: an int: the label after the last.
      name: name of the op, or a name scope.

    Returns:
      A `CtcBeamSearchDecode`. Sequences are missing (all pad, length 0, score and log
      probability -inf) where fewer than P are possible. log_probs are at most minus
      `tfo.nn.ctc_loss`, and equal to it where the beam dropped no path. Of equal scores, the
      prefix wins that was better in the frame before. No gradient: asking for it raises
      LookupError, in a graph UnimplementedError, also for what step_fn closes over; minus
      `tfo.nn.ctc_loss` of the labels has one.

    Raises:
      ValueError: a wrong dtype, shapes that do not fit, an option out of its range; a
        step_fn or state that does not return as documented above.
      InvalidArgumentError: the same errors, found at run time; lengths out of their range. A
        GPU without step_fn gives such an example no labels, and scores of NaN.
    """
    logits, lengths, attrs, pad_id = _inputs(logits, logit_lengths, blank_index, pad_id)
    width = arguments.static_int("beam_width", beam_width, 1)
    paths = arguments.static_int("top_paths", top_paths, 1)
    if paths > width:
        raise ValueError(f"top_paths is {paths}, expected [1, {width}]: beam_width is {width}")
    step_fn = seq2seq_arguments.function_or_none("step_fn", step_fn)

    def weights():
        return arguments.number("lm_weight", lm_weight), arguments.number("label_bonus", label_bonus)

    if step_fn is None:
        if initial_state is not None:
            raise ValueError("initial_state is given, but no step_fn")
        bonus = arguments.in_host_memory(weights()[1], tf.float64)
        result = ops.tensorflow_ops_ctc_beam_search_decode(
            logits, lengths, bonus, beam_width=width, top_paths=paths, pad_id=pad_id, name=name, **attrs
        )
    else:
        with tf.name_scope(name or "ctc_beam_search_decode"):
            search = ctc_decode_loop.CtcSearch(logits, lengths, width, attrs)
            initial_state = () if initial_state is None else initial_state
            model = search.model(decoder.convert(step_fn), initial_state)
            weight, bonus = weights()
            labels, label_lengths, *scores = search.run(model, weight, bonus, paths, pad_id)
            inputs = [*map(tf.convert_to_tensor, [logits, weight, bonus, *tf.nest.flatten(initial_state)])]
            inputs += model.differentiable()
            result = labels, label_lengths, *ctc_decode_grad.with_refused_gradients(scores, inputs)
    return CtcBeamSearchDecode(*result)
