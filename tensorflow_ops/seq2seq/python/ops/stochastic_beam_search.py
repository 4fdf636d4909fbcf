"""The public function stochastic_beam_search: draws different sequences from a model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.type_aliases import IntLike, NumberLike, TensorLike
from tensorflow_ops.nn.python.ops import cross_entropy
from tensorflow_ops.seq2seq.python.ops import beam_search_ops, decoder
from tensorflow_ops.seq2seq.python.ops.sampling_options import SamplingOptions, row_seeds, uniform_of_step
from tensorflow_ops.seq2seq.python.ops.seq2seq_arguments import LogitsProcessor, StepFn


class StochasticBeamSearchResult(NamedTuple):
    """K different sequences for each example, in the order of drawing."""

    sequences: tf.Tensor  # int32 [B, K, T], without the start token, with the end token; then the pad_id
    lengths: tf.Tensor  # int32 [B, K], with the end token; 0 for a missing sequence
    log_probs: tf.Tensor  # [B, K], float32, for float64 logits float64: the model's, of the whole sequence
    perturbed_log_probs: tf.Tensor  # float64 [B, K], decreasing: with Gumbel noise; -inf for a missing sequence


def stochastic_beam_search(
    step_fn: StepFn,
    initial_state: Any,
    *,
    batch_size: IntLike,
    beam_width: int,
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
    logits_processor: LogitsProcessor | None = None,
    prompt: TensorLike | None = None,
    prompt_lengths: TensorLike | None = None,
    history: TensorLike | None = None,
    name: str | None = None,
) -> StochasticBeamSearchResult:
    """Draws K different sequences for each example: `sample` without replacement.

    Draws whole sequences from the model's distribution, without replacement. A beam search
    over log probabilities with Gumbel noise finds them in one pass ("Stochastic Beams and
    Where to Find Them", arXiv:1903.06059).

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> chain = tf.math.log([[0.1, 0.5, 0.4], [0.4, 0.3, 0.3], [0.9, 0.05, 0.05]])
    >>> def step_fn(tokens, state):             # a Markov chain; token 0 ends
    ...     return tf.gather(chain, tokens), state
    >>> result = tfo.seq2seq.stochastic_beam_search(
    ...     step_fn, (), batch_size=2, beam_width=3, max_length=5, bos_id=0, eos_ids=0, seed=[1, 2])
    >>> len({tuple(s) for s in result.sequences[0].numpy()})
    3

    To estimate a sum over all sequences, take the last of the K as the threshold t, and sum
    value * p / q over the others: p = e^log_prob, and q = 1 - e^(-e^(log_prob - t)) is the
    probability to exceed t (section 4.2 there).

    Args:
      step_fn: function (token_ids int32 [B * K], state) -> (logits [B * K, V], state), as for
        `beam_search`.
      initial_state: any nest of tensors [B, ...], which the search repeats K times; ()
        without a state.
      batch_size: B, an int or an int32 scalar tensor. May be 0.
      beam_width: K, at least 1, the number of sequences.
      max_length: T, an int or an int32 scalar tensor, at least 1: the maximum number of
        tokens in a sequence. Longer sequences are cut off.
      bos_id: the first token passed to step_fn, an int or int32 [B].
      eos_ids: the tokens that end a sequence, an int or a list of ints, which may be empty.
      seed: int32 [2], or [B, 2] with a seed for each example, as for `sample`.
      temperature: see `sample`; sequences are drawn from the distribution after temperature
        and filters. Not 0, for which there is `beam_search`.
      top_k: see `sample`.
      top_p: see `sample`.
      min_p: see `sample`.
      typical_p: see `sample`.
      pad_id: the token after the end. Default: the first of eos_ids, or 0.
      min_length: an int or an int32 scalar tensor: the minimum number of tokens before a
        sequence's end token.
      logits_processor: see `sample`.
      prompt: see `sample`.
      prompt_lengths: see `sample`.
      history: see `sample`.
      name: a name scope.

    Returns:
      A `StochasticBeamSearchResult`. If there are fewer than K sequences, the others are
      empty: all pad, length 0, log probabilities -inf. log_probs are the model's own, as
      for `sample`, and differentiable.

    Raises:
      ValueError: an option out of its range; a step_fn, processor or state that does not
        return as documented above.
      InvalidArgumentError: the same errors, found at run time; an id in eos_ids that is
        no token.
    """
    with tf.name_scope(name or "stochastic_beam_search"):
        return _search(
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
            num_return_sequences=arguments.static_int("beam_width", beam_width, 1),
            logits_processor=decoder.convert(logits_processor),
        )


@autograph.ordered
def _search(step_fn, initial_state, batch_size, max_length, bos_id, seed, prompt, prompt_lengths, history, **options):
    batch_size, max_length, tokens = decoder.start(batch_size, max_length, bos_id)
    seeds = row_seeds(seed, batch_size)
    options = SamplingOptions.checked(max_length=max_length, **options)
    if options.is_greedy:
        raise ValueError("temperature is 0.0, expected a number above 0: beam_search finds the likeliest sequences")
    width = options.num_return_sequences
    tokens = tf.repeat(tokens, width)
    prompt = decoder.Prompt.or_none(prompt, prompt_lengths, batch_size, options.max_length)
    history = decoder.history_or_none(history, options.logits_processor, batch_size, width)
    model = decoder.Decoder(step_fn, initial_state, batch_size, width)
    return _Search(options, model, batch_size, prompt, history).run(tokens, seeds)


class _Loop(NamedTuple):
    """The loop's variables. K beams, ended ones included, in the order of drawing."""

    step: tf.Tensor
    tokens: tf.Tensor  # int32 [B, K], the last ones
    finished: tf.Tensor  # bool [B, K]
    lengths: tf.Tensor  # int32 [B, K]
    log_probs: tf.Tensor  # [B, K], the model's
    filtered_log_probs: tf.Tensor  # float64 [B, K], after processor, temperature and filters
    perturbed: tf.Tensor  # float64 [B, K], with Gumbel noise; -inf for a missing beam
    token_list: tf.Tensor  # decoder.Steps of [B, K]
    parent_list: tf.Tensor
    sequences: Any  # int32 [B, K, T], or () without a processor
    state: list


class _Search:
    """A search: its options, its model, and constants of the loop."""

    def __init__(self, options, model, batch_size, prompt, history):
        self._options, self._model, self._batch, self._prompt = options, model, batch_size, prompt
        self._width = options.num_return_sequences
        batch = tf.get_static_value(batch_size)
        self._static_batch = None if batch is None else int(batch)
        self._beams = tf.stack([batch_size, self._width])
        self._steps = decoder.Steps(self._beams)
        self._processor = decoder.Processor(options.logits_processor, history, self._beams, options.max_length)
        self._first_rows = tf.range(batch_size)[:, tf.newaxis] * self._width

    def run(self, tokens, seeds):
        """Returns the StochasticBeamSearchResult, for first tokens [B * K] and seeds [B, 2]."""
        options, model = self._options, self._model
        # The search starts from one sequence. K equal ones would stay equal.
        start = tf.where(tf.equal(tf.range(self._width), 0), tf.zeros([], tf.float64), -float("inf"))
        start = tf.broadcast_to(start, self._beams)
        first = _Loop(
            step=tf.constant(0),
            tokens=tf.reshape(tokens, self._beams),
            finished=tf.zeros(self._beams, tf.bool),
            lengths=tf.zeros(self._beams, tf.int32),
            log_probs=tf.zeros(self._beams, arguments.at_least_float32(model.logits_dtype or tf.float32)),
            filtered_log_probs=start,
            # The maximum over all sequences is random, too: estimates depend on it.
            perturbed=start + self._noise(seeds, -1, 1)[:, :1, 0],
            token_list=self._steps.reserve(options.max_length),
            parent_list=self._steps.reserve(options.max_length),
            sequences=self._processor.first(),
            state=model.state,
        )
        beams = tf.TensorShape([self._static_batch, self._width])
        length = options.max_length if isinstance(options.max_length, int) else None
        scalar, sequences = tf.TensorShape([]), self._processor.shape(beams)
        with tf.control_dependencies(autograph.last_check()):
            (end,) = tf.while_loop(
                lambda loop: decoder.goes_on(loop.step, options.max_length, loop.finished),
                lambda loop: [self._step(loop, seeds)],
                [first],
                shape_invariants=[_Loop(scalar, *[beams] * 6, scalar, scalar, sequences, list(model.state_shapes))],
            )
        return self._result(end, beams, length)

    def _step(self, loop, seeds):
        """Extends each sequence that has not ended by one token."""
        options = self._options
        logits, state = self._model(tf.reshape(loop.tokens, [-1]), loop.state)
        logits = decoder.without_nan(logits)
        dtype = arguments.at_least_float32(logits.dtype)
        log_probs, tokens, exists = self._filter(loop, logits)
        num_candidates = tf.shape(log_probs)[1]
        # Log probabilities of a certain candidate, the first.
        certain = tf.where(tf.equal(tf.range(num_candidates), 0), tf.zeros([], tf.float64), -float("inf"))
        if self._prompt is not None:
            prompt_tokens, is_given = (tf.repeat(x, self._width) for x in self._prompt.at(loop.step))
            log_probs = tf.where(is_given[:, tf.newaxis], certain, log_probs)
            tokens = tf.where(is_given[:, tf.newaxis], prompt_tokens[:, tf.newaxis], tokens)
            exists |= is_given

        # A sequence that has ended, or has no token, is its own only candidate.
        shape = tf.concat([self._beams, [num_candidates]], 0)
        stays = loop.finished | tf.logical_not(tf.reshape(exists, self._beams))
        log_probs = tf.where(stays[..., tf.newaxis], certain, tf.reshape(log_probs, shape))
        log_probs = loop.filtered_log_probs[..., tf.newaxis] + log_probs
        noise = self._noise(seeds, loop.step, num_candidates)
        perturbed = _condition_on_max(log_probs + noise, loop.perturbed[..., tf.newaxis])
        is_dead = tf.logical_not(loop.finished) & stays
        perturbed = tf.where(is_dead[..., tf.newaxis], tf.constant(-float("inf"), tf.float64), perturbed)

        flat = tf.concat([[self._batch], [self._width * num_candidates]], 0)
        perturbed, indices = tf.math.top_k(tf.reshape(perturbed, flat), self._width)
        parents = indices // num_candidates
        alive = perturbed > -float("inf")
        new = beam_search_ops.gather_by_beam(tf.reshape(tokens, flat), indices)
        finished = beam_search_ops.gather_by_beam(loop.finished, parents)
        # Any token will do after an end: the result does not include it.
        new = tf.where(finished | tf.logical_not(alive), (options.eos_ids or (0,))[0], new)
        new = tf.ensure_shape(new, [self._static_batch, self._width])
        is_end = tf.reduce_any(tf.equal(new[..., tf.newaxis], tf.constant(options.eos_ids, tf.int32)), -1)
        if self._prompt is not None:
            is_end &= tf.logical_not(tf.reshape(is_given, self._beams))
        rows = tf.reshape(parents + self._first_rows, [-1])
        by_beam = tf.concat([self._beams, tf.shape(logits)[-1:]], 0)
        added = cross_entropy.label_log_prob(new, tf.reshape(tf.gather(logits, rows), by_beam))
        before = beam_search_ops.gather_by_beam(tf.cast(loop.log_probs, dtype), parents)
        lengths = beam_search_ops.gather_by_beam(loop.lengths, parents)
        return _Loop(
            step=loop.step + 1,
            tokens=new,
            finished=finished | is_end | tf.logical_not(alive),
            lengths=tf.where(alive, tf.where(finished, lengths, loop.step + 1), 0),
            log_probs=tf.where(alive, tf.where(finished, before, before + added), tf.constant(-float("inf"), dtype)),
            filtered_log_probs=beam_search_ops.gather_by_beam(tf.reshape(log_probs, flat), indices),
            perturbed=perturbed,
            token_list=self._steps.write(loop.token_list, loop.step, new),
            parent_list=self._steps.write(loop.parent_list, loop.step, parents),
            sequences=self._processor.append(loop.sequences, loop.step, new, parents),
            state=self._model.reordered(state, rows),
        )

    def _filter(self, loop, logits):
        """Applies processor, temperature and filters.

        Returns log probabilities float64 [B * K, N], tokens int32 of that shape, and whether
        a row has any, bool [B * K].
        """
        options = self._options
        logits = self._processor.masked(loop.sequences, loop.step, logits)
        logits = options.without_ends(logits, loop.step < options.min_length)
        count = tf.shape(logits)[-1]
        tokens = tf.broadcast_to(tf.range(count), tf.shape(logits))
        if options.top_k or options.has("top_p", 1):
            logits, tokens = tf.math.top_k(logits, tf.minimum(options.top_k, count) if options.top_k else count)
        weights, exists = options.weights(logits)
        return tf.math.log(weights / tf.reduce_sum(weights, -1, keepdims=True)), tokens, exists

    def _noise(self, seeds, step, num_candidates):
        """Returns Gumbel noise, float64 [B, K, N]: an example's depends on its seed and the step only."""
        numbers = uniform_of_step(seeds, [self._width, num_candidates], step)
        # From [0, 1) to (0, 1): log 0 is -inf.
        numbers = tf.reshape(numbers, tf.concat([self._beams, [num_candidates]], 0)) + 2.0**-54
        return -tf.math.log(-tf.math.log(numbers))

    def _result(self, end, beams, length):
        options = self._options
        # Beams are reordered after their ends, too: all are followed back from the last step.
        tree = beam_search_ops.gather_tree(
            self._steps.stack(end.token_list),
            self._steps.stack(end.parent_list),
            tf.fill(self._beams, end.step),
            pad_id=options.pad_id,
        )
        sequences = tf.transpose(tree, [1, 2, 0])
        is_token = tf.range(options.max_length) < end.lengths[..., tf.newaxis]
        return StochasticBeamSearchResult(
            tf.ensure_shape(tf.where(is_token, sequences, options.pad_id), [*beams, length]),
            tf.ensure_shape(end.lengths, beams),
            tf.ensure_shape(end.log_probs, beams),
            tf.ensure_shape(end.perturbed, beams),
        )


def _condition_on_max(perturbed, largest):
    """Conditions log probabilities with Gumbel noise, [..., N], on each row's maximum (appendix B.3 of the paper)."""
    nothing = tf.constant(-float("inf"), tf.float64)
    exists = (perturbed > nothing) & (largest > nothing)
    found = tf.reduce_max(perturbed, -1, keepdims=True)
    # Zeros for missing ones, which would give NaN.
    below = tf.where(exists, perturbed - found, tf.zeros_like(perturbed))
    v = tf.where(exists, largest - perturbed, tf.zeros_like(perturbed)) + tf.math.log(-tf.math.expm1(below))
    moved = largest - tf.maximum(v, 0.0) - tf.math.log1p(tf.exp(-tf.abs(v)))
    return tf.where(exists, moved, nothing)
