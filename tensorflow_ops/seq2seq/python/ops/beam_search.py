"""The public function beam_search. beam_search_options.py has its checks, beam_search_loop.py the search."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import autograph
from tensorflow_ops.core.python.type_aliases import IntLike, NumberLike, TensorLike
from tensorflow_ops.seq2seq.python.ops import decoder
from tensorflow_ops.seq2seq.python.ops.beam_search_loop import BeamSearch
from tensorflow_ops.seq2seq.python.ops.beam_search_options import CutOff, EarlyStopping, LengthNormalization, Options
from tensorflow_ops.seq2seq.python.ops.seq2seq_arguments import LogitsProcessor, StepFn


class BeamSearchResult(NamedTuple):
    """The R best hypotheses of each example, best first."""

    sequences: tf.Tensor  # int32 [B, R, T], without the start token, with the end token; then the pad_id
    lengths: tf.Tensor  # int32 [B, R], with the end token; 0 for a missing hypothesis
    scores: tf.Tensor  # [B, R], float32, for float64 logits float64; -inf for a missing hypothesis
    log_probs: tf.Tensor  # [B, R], of scores' dtype: the model's, without penalties


def beam_search(
    step_fn: StepFn,
    initial_state: Any,
    *,
    batch_size: IntLike,
    beam_width: int,
    max_length: IntLike,
    bos_id: TensorLike,
    eos_ids: IntLike | Sequence[int],
    pad_id: int | None = None,
    min_length: IntLike = 0,
    length_penalty: NumberLike = 0.0,
    length_normalization: LengthNormalization = "gnmt",
    cut_off: CutOff = "end",
    early_stopping: EarlyStopping = True,
    num_return_sequences: int = 1,
    num_groups: int = 1,
    diversity_penalty: float = 0.0,
    logits_processor: LogitsProcessor | None = None,
    process_log_probs: bool = False,
    prompt: TensorLike | None = None,
    prompt_lengths: TensorLike | None = None,
    history: TensorLike | None = None,
    name: str | None = None,
) -> BeamSearchResult:
    """Searches for the sequences of highest score under an autoregressive model.

    Each step extends the K = beam_width best unfinished sequences of an example by each
    token, and keeps the best (number of end tokens + 1) * K of all candidates. Those of
    the first K that end are hypotheses; the search keeps the best K hypotheses of all
    steps. The best K candidates that do not end go on. A hypothesis' score is

        log probability / ((5 + length) / 6)^length_penalty

    (GNMT, arXiv:1609.08144, equation 14), or log probability / length^length_penalty. This
    is the search of fairseq and of `transformers`; docs/seq2seq.md maps their options.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> chain = tf.math.log([[0.1, 0.5, 0.4], [0.4, 0.3, 0.3], [0.9, 0.05, 0.05]])
    >>> def step_fn(tokens, state):             # a Markov chain; token 0 ends
    ...     return tf.gather(chain, tokens), state
    >>> result = tfo.seq2seq.beam_search(
    ...     step_fn, (), batch_size=1, beam_width=2, max_length=4, bos_id=0, eos_ids=0, num_return_sequences=2)
    >>> result.sequences.numpy()
    array([[[2, 0, 0, 0],
            [1, 0, 0, 0]]], dtype=int32)
    >>> tf.exp(result.scores).numpy().round(3)
    array([[0.36, 0.2 ]], dtype=float32)

    In a graph, one trace of the loop serves all values of a batch_size and max_length that
    are tensors.

    Args:
      step_fn: function (token_ids int32 [B * K], state) -> (logits [B * K, V], state): maps
        the last token of each sequence to the logits of the next token. float16, bfloat16,
        float32 or float64; NaN is read as -inf. The state keeps its structure, its dtypes
        and the first dim of its shapes; other dims may change, so a cache may grow. In a
        graph it is traced two times or more; build Keras layers before.
      initial_state: any nest of tensors [B, ...]; () without a state. The search repeats
        each example's state K times, and reorders the rows with the sequences after each
        step. Let step_fn close over tensors that are the same for all sequences of an
        example.
      batch_size: B, an int or an int32 scalar tensor. May be 0.
      beam_width: K, at least 1. 1 is greedy search.
      max_length: T, an int or an int32 scalar tensor, at least 1: the maximum number of
        tokens in a sequence, the end token included. See cut_off.
      bos_id: the first token passed to step_fn, an int or int32 [B].
      eos_ids: the tokens that end a sequence, an int or a list of E ints; if it is empty,
        each sequence has max_length tokens.
      pad_id: the token after the end. Default: the first of eos_ids, or 0.
      min_length: an int or an int32 scalar tensor: the minimum number of tokens before a
        sequence's end token. The log probabilities of other tokens do not change.
        max_length has precedence.
      length_penalty: a finite number or a scalar tensor; above 0 favours long hypotheses.
      length_normalization: the divisor of log probabilities: "gnmt", ((5 + length) /
        6)^length_penalty; "length", length^length_penalty, as in fairseq and
        `transformers`.
      cut_off: "end": in the last step only an end token may follow, with its own log
        probability. "count": any token may follow, and sequences cut off at max_length are
        hypotheses, as in `transformers`.
      early_stopping: when the search of an example stops. True: with K hypotheses. False:
        with K hypotheses that the best unfinished sequence would not displace if it ended
        now. "never": with K hypotheses that it would not displace at any length.
      num_return_sequences: R, in [1, K].
      num_groups: the number of groups, of K / num_groups beams each, that search one after
        the other in each step ("Diverse Beam Search", arXiv:1610.02424).
      diversity_penalty: above 0 with groups: subtracted from a token's log probability for
        each sequence of an earlier group that took the token in this step; part of the
        score.
      logits_processor: function (step, sequences, logits) -> logits, or -> (logits,
        forbidden). step is an int32 scalar, 0 first; sequences int32 [B * K, H + step], the
        history and the tokens so far; logits [B * K, V]. A logit of -inf forbids a token and
        gives its probability to the others; forbidden, bool [B * K, V], leaves their log
        probabilities unchanged.
      process_log_probs: True: the processor reads log softmax(logits) and returns log
        probabilities, with no softmax after it, as in `transformers`. No effect without a
        processor.
      prompt: int32 [B, P] or None: the first tokens of each example's sequences. They are
        part of the sequences, their lengths and log probabilities; an end token in the
        prompt does not end the sequence.
      prompt_lengths: int32 [B], the number of tokens in each example's prompt, in [0, P],
        less than max_length; with cut_off="count" at most max_length. Default: P.
      history: int32 [B, H] or None: tokens before each example's sequences that only the
        processor reads, such as a decoder-only model's prompt. They are not part of the
        sequences, lengths or scores. Pad shorter histories at the front with an id below 0.
        No effect without a processor.
      name: a name scope.

    Returns:
      A `BeamSearchResult`. If fewer than R sequences can end, the others are empty: all
      pad, length 0, score -inf. No gradient; `tfo.nn.label_log_prob` scores sequences with
      one.

    Raises:
      ValueError: an option out of its range; a step_fn, processor or state that does not
        return as documented above.
      InvalidArgumentError: the same errors, found at run time; on the CPU also an id in
        eos_ids that is no token.
    """
    with tf.name_scope(name or "beam_search"):
        return _beam_search(
            decoder.convert(step_fn),
            initial_state,
            batch_size,
            max_length,
            bos_id,
            prompt,
            prompt_lengths,
            history,
            beam_width=beam_width,
            eos_ids=eos_ids,
            pad_id=pad_id,
            min_length=min_length,
            length_penalty=length_penalty,
            length_normalization=length_normalization,
            cut_off=cut_off,
            early_stopping=early_stopping,
            num_return_sequences=num_return_sequences,
            num_groups=num_groups,
            diversity_penalty=diversity_penalty,
            logits_processor=decoder.convert(logits_processor),
            process_log_probs=process_log_probs,
        )


@autograph.ordered
def _beam_search(step_fn, initial_state, batch_size, max_length, bos_id, prompt, prompt_lengths, history, **options):
    batch_size, max_length, tokens = decoder.start(batch_size, max_length, bos_id)
    options = Options.checked(max_length=max_length, **options)
    tokens = tf.repeat(tokens, options.beam_width)
    # If only an end token may come last, the prompt must leave room for it.
    needs_room = not options.counts_cut_off
    prompt = decoder.Prompt.or_none(prompt, prompt_lengths, batch_size, options.max_length, needs_room)
    history = decoder.history_or_none(history, options.logits_processor, batch_size, options.beam_width)
    model = decoder.Decoder(step_fn, initial_state, batch_size, options.beam_width)
    return BeamSearchResult(*BeamSearch(options, model, batch_size, prompt, history).run(tokens))
