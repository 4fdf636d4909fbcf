"""The public function sample: draws sequences from a model, token by token."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.type_aliases import IntLike, NumberLike, TensorLike
from tensorflow_ops.nn.python.ops import cross_entropy
from tensorflow_ops.seq2seq.python.ops import beam_search_ops, decoder
from tensorflow_ops.seq2seq.python.ops.sampling_options import SamplingOptions, row_seeds, split_seeds, uniform
from tensorflow_ops.seq2seq.python.ops.seq2seq_arguments import LogitsProcessor, StepFn


class SampleResult(NamedTuple):
    """A sequence for each example; with num_return_sequences R sequences, [B, R, ...]."""

    sequences: tf.Tensor  # int32 [B, T], without the start token, with the end token; then the pad_id
    lengths: tf.Tensor  # int32 [B], with the end token
    log_probs: tf.Tensor  # [B], float32, for float64 logits float64: the model's, of the whole sequence


def sample(
    step_fn: StepFn,
    initial_state: Any,
    *,
    batch_size: IntLike,
    max_length: IntLike,
    bos_id: TensorLike,
    eos_ids: IntLike | Sequence[int],
    seed: TensorLike,
    temperature: NumberLike = 1.0,
    top_k: int = 0,
    top_p: NumberLike = 1.0,
    min_p: NumberLike = 0.0,
    typical_p: NumberLike = 1.0,
    pad_id: int | None = None,
    min_length: IntLike = 0,
    num_return_sequences: int | None = None,
    logits_processor: LogitsProcessor | None = None,
    prompt: TensorLike | None = None,
    prompt_lengths: TensorLike | None = None,
    history: TensorLike | None = None,
    name: str | None = None,
) -> SampleResult:
    """Draws a sequence for each example from an autoregressive model.

    Draws each token from softmax(logits / temperature), after four filters in the order of
    `transformers`. Each filter removes tokens and renormalizes the others; it keeps

        top_k      the k likeliest tokens
        top_p      the smallest set of likeliest tokens with total probability of at least
                   top_p ("nucleus sampling", arXiv:1904.09751)
        min_p      tokens at least min_p times as likely as the likeliest
                   (arXiv:2407.01082)
        typical_p  the smallest set with total probability of at least typical_p, in order
                   of the distance between -log p and the entropy (arXiv:2202.00666)

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> chain = tf.math.log([[0.1, 0.5, 0.4], [0.4, 0.3, 0.3], [0.9, 0.05, 0.05]])
    >>> def step_fn(tokens, state):             # a Markov chain; token 0 ends
    ...     return tf.gather(chain, tokens), state
    >>> result = tfo.seq2seq.sample(
    ...     step_fn, (), batch_size=3, max_length=5, bos_id=0, eos_ids=0, seed=[1, 2], top_k=2)
    >>> result.sequences.shape, bool(tf.reduce_all(result.lengths <= 5))
    (TensorShape([3, 5]), True)

    The same seed gives the same sequences: random numbers are stateless, and an example's
    depend on its seed and the step only, not on batch_size or max_length.

    Args:
      step_fn: function (token_ids int32 [B], state) -> (logits [B, V], state), as for
        `beam_search`. Its rows include sequences that have ended.
      initial_state: any nest of tensors [B, ...]; () without a state.
      batch_size: B, an int or an int32 scalar tensor. May be 0.
      max_length: T, an int or an int32 scalar tensor, at least 1: the maximum number of
        tokens in a sequence. Longer sequences are cut off.
      bos_id: the first token passed to step_fn, an int or int32 [B].
      eos_ids: the tokens that end a sequence, an int or a list of ints, which may be empty.
      seed: int32 [2], or [B, 2] with a seed for each example. [2] is split by
        `tf.random.split(seed, B)`: to draw a batch in parts, split once and pass each part
        its rows.
      temperature: not negative; 0 takes the likeliest token (of equal ones the lowest). A
        float or a scalar tensor.
      top_k: the number of tokens to keep; 0 for all.
      top_p: in (0, 1]; a float or a scalar tensor; 1 for all.
      min_p: in [0, 1]; a float or a scalar tensor; 0 for all.
      typical_p: in (0, 1]; a float or a scalar tensor; 1 for all.
      pad_id: the token after the end. Default: the first of eos_ids, or 0.
      min_length: an int or an int32 scalar tensor: the minimum number of tokens before a
        sequence's end token.
      num_return_sequences: R, the number of sequences for each example; the results are
        then [B, R, ...]. None: one, without that dim. An example's first sequences are the
        same for any R.
      logits_processor: function (step, sequences int32 [rows, H + step], logits [rows, V]) ->
        logits, or -> (logits, forbidden), as for `beam_search`, called before the
        temperature; rows is B, or B * R.
      prompt: int32 [B, P] or None: the first tokens of each example's sequences. They are
        part of the sequences, their lengths and log probabilities; an end token in the
        prompt does not end the sequence.
      prompt_lengths: int32 [B], the number of tokens in each example's prompt, in [0, P], at
        most max_length. Default: P.
      history: int32 [B, H] or None: tokens before each example's sequences that only the
        processor reads, as for `beam_search`. No effect without a processor.
      name: a name scope.

    Returns:
      A `SampleResult`. Its log_probs are the model's own, log softmax(logits) of the drawn
      tokens without processor, temperature and filters; they are differentiable in the
      logits, as policy gradients need. If all logits are -inf, the sequence ends there,
      with log probability -inf.

    Raises:
      ValueError: an option out of its range; a step_fn or state that does not return as
        documented above.
      InvalidArgumentError: the same errors, found at run time; an id in eos_ids that is
        no token (not on a GPU with top_k, or with the number 0 as temperature).
    """
    with tf.name_scope(name or "sample"):
        return _sample(
            decoder.convert(step_fn),
            initial_state,
            batch_size,
            max_length,
            bos_id,
            seed,
            prompt,
            prompt_lengths,
            history,
            eos_ids=eos_ids,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            pad_id=pad_id,
            min_length=min_length,
            num_return_sequences=num_return_sequences,
            logits_processor=decoder.convert(logits_processor),
        )


@autograph.ordered
def _sample(step_fn, initial_state, batch_size, max_length, bos_id, seed, prompt, prompt_lengths, history, **options):
    batch_size, max_length, tokens = decoder.start(batch_size, max_length, bos_id)
    seeds = row_seeds(seed, batch_size)
    options = SamplingOptions.checked(max_length=max_length, **options)
    count = options.num_return_sequences or 1
    tokens = tf.repeat(tokens, count)
    prompt = decoder.Prompt.or_none(prompt, prompt_lengths, batch_size, options.max_length)
    history = decoder.history_or_none(history, options.logits_processor, batch_size, count)
    model = decoder.Decoder(step_fn, initial_state, batch_size, count)
    if options.num_return_sequences:
        seeds = split_seeds(seeds, count)
    static = tf.get_static_value(batch_size)
    tokens = tf.ensure_shape(tokens, [None if static is None else int(static) * count])
    result = _Sampler(options, model, prompt and prompt.repeat(count), history).run(tokens, seeds)
    if not options.num_return_sequences:
        return result
    shape = [None if static is None else int(static), count]
    return SampleResult(
        *(
            tf.ensure_shape(tf.reshape(x, tf.concat([[batch_size, count], tf.shape(x)[1:]], 0)), [*shape, *x.shape[1:]])
            for x in result
        )
    )


class _Loop(NamedTuple):
    """The loop's variables."""

    step: tf.Tensor
    tokens: tf.Tensor  # int32 [B], the last ones
    finished: tf.Tensor  # bool [B]
    lengths: tf.Tensor  # int32 [B]
    log_probs: tf.Tensor  # [B]
    token_list: tf.Tensor  # decoder.Steps of [B]
    sequences: Any  # int32 [B, T], or () without a processor
    state: list


class _Sampler:
    """Samples sequences; B are its rows: examples times sequences for each."""

    def __init__(self, options, model, prompt, history):
        self._options, self._model, self._batch, self._prompt = options, model, model.rows, prompt
        self._eos_ids = tf.constant(options.eos_ids, tf.int32)
        rows = tf.stack([self._batch])
        self._steps = decoder.Steps(rows)
        self._processor = decoder.Processor(options.logits_processor, history, rows, options.max_length)

    def run(self, tokens, seeds):
        """Returns the SampleResult, for first tokens [B] and seeds [B, 2]."""
        options, model, batch = self._options, self._model, self._batch
        uniform_by_step = None
        if not options.is_greedy:
            # All steps in one call, since each example needs its own op.
            numbers = uniform(seeds, [options.max_length])
            uniform_by_step = tf.transpose(tf.reshape(numbers, [batch, options.max_length]))
        start = _Loop(
            step=tf.constant(0),
            tokens=tokens,
            finished=tf.zeros([batch], tf.bool),
            lengths=tf.zeros([batch], tf.int32),
            log_probs=tf.zeros([batch], arguments.at_least_float32(model.logits_dtype or tf.float32)),
            token_list=self._steps.reserve(options.max_length),
            sequences=self._processor.first(),
            state=model.state,
        )
        static_batch = tokens.shape[0]
        length = options.max_length if isinstance(options.max_length, int) else None
        rows = [tf.TensorShape([static_batch])] * 4
        sequences = self._processor.shape([static_batch])
        with tf.control_dependencies(autograph.last_check()):
            (end,) = tf.while_loop(
                lambda loop: decoder.goes_on(loop.step, options.max_length, loop.finished),
                lambda loop: [self._step(loop, None if uniform_by_step is None else uniform_by_step[loop.step])],
                [start],
                shape_invariants=[
                    _Loop(tf.TensorShape([]), *rows, tf.TensorShape([]), sequences, list(model.state_shapes))
                ],
            )
        written = tf.transpose(self._steps.stack(end.token_list))
        is_token = tf.range(options.max_length) < end.lengths[:, tf.newaxis]
        sequences = tf.where(is_token, written, options.pad_id)
        return SampleResult(tf.ensure_shape(sequences, [static_batch, length]), end.lengths, end.log_probs)

    def _step(self, loop, uniform):
        """Extends each sequence by one token."""
        options = self._options
        logits, state = self._model(loop.tokens, loop.state)
        # In the softmax kernels a NaN makes its row NaN.
        logits = decoder.without_nan(logits)
        dtype = arguments.at_least_float32(logits.dtype)
        no_eos = loop.step < options.min_length
        processed = self._processor.masked(loop.sequences, loop.step, logits)
        if options.is_greedy or options.top_k:
            tokens, exists = self._draw_from_top_k(processed, no_eos, uniform)
        else:
            tokens, exists = self._draw_from_all(processed, no_eos, uniform)
        tokens = tf.where(exists, tokens, (options.eos_ids or (0,))[0])
        is_end = tf.reduce_any(tf.equal(tokens[:, tf.newaxis], self._eos_ids), -1) | tf.logical_not(exists)
        if self._prompt is not None:
            prompt_tokens, is_given = self._prompt.at(loop.step)
            tokens = tf.where(is_given, prompt_tokens, tokens)
            exists, is_end = exists | is_given, is_end & tf.logical_not(is_given)
        tokens = tf.ensure_shape(tokens, loop.tokens.shape)
        log_probs = cross_entropy.label_log_prob(tokens, logits)
        log_probs = tf.where(exists, log_probs, tf.constant(-float("inf"), dtype))
        return _Loop(
            step=loop.step + 1,
            tokens=tokens,
            finished=loop.finished | is_end,
            lengths=tf.where(loop.finished, loop.lengths, loop.step + 1),
            log_probs=tf.where(
                loop.finished, tf.cast(loop.log_probs, dtype), tf.cast(loop.log_probs, dtype) + log_probs
            ),
            token_list=self._steps.write(loop.token_list, loop.step, tokens),
            sequences=self._processor.append(loop.sequences, loop.step, tokens),
            state=state,
        )

    def _draw_from_top_k(self, logits, no_eos, uniform):
        """Draws from the top_k tokens, which the kernel of beam search finds in one pass.

        Returns tokens [B], and whether a row has any.
        """
        options = self._options
        zeros = tf.zeros([self._batch, 1], arguments.at_least_float32(logits.dtype))
        rule = tf.where(no_eos, beam_search_ops.NO_EOS, beam_search_ops.ANY_TOKEN)
        count = 1 if options.is_greedy else tf.minimum(options.top_k, tf.shape(logits)[-1])
        best = beam_search_ops.step(
            logits[:, tf.newaxis],
            zeros,
            tf.zeros_like(zeros, tf.bool),
            tf.zeros_like(zeros, tf.int32),
            eos_ids=self._eos_ids,
            eos_rule=rule,
            beam_width=count,
        )
        if options.is_greedy:
            return best.token_ids[:, 0], best.log_probs[:, 0] > -float("inf")
        index, exists = self._draw(best.log_probs, uniform)
        return beam_search_ops.gather_by_beam(best.token_ids, index[:, tf.newaxis])[:, 0], exists

    def _draw_from_all(self, logits, no_eos, uniform):
        """Draws from the whole vocabulary. Returns tokens [B], and whether a row has any."""
        logits = self._options.without_ends(logits, no_eos)
        if not self._options.has("top_p", 1):
            return self._draw(logits, uniform)
        logits, tokens = tf.math.top_k(logits, tf.shape(logits)[-1])
        index, exists = self._draw(logits, uniform)
        return beam_search_ops.gather_by_beam(tokens, index[:, tf.newaxis])[:, 0], exists

    def _draw(self, logits, uniform):
        """Draws indices [B] into logits [B, N], which are sorted if there is top_p.

        Returns indices, and whether a row has a token.
        """
        weights, exists = self._options.weights(logits)
        cumulative = tf.cumsum(weights, axis=-1)
        # Below the total. side="right" skips tokens of weight 0.
        at = uniform[:, tf.newaxis] * cumulative[:, -1:]
        return tf.searchsorted(cumulative, at, side="right")[:, 0], exists
