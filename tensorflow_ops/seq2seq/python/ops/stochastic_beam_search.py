"""The public function stochastic_beam_search: different sequences drawn from a model."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tensorflow_ops.nn.python.ops import cross_entropy
from tensorflow_ops.seq2seq.python.ops import beam_search_ops, decoder
from tensorflow_ops.seq2seq.python.ops import seq2seq_arguments as arguments
from tensorflow_ops.seq2seq.python.ops.sampling_options import SamplingOptions, row_seeds, uniform_of_step


class StochasticBeamSearchResult(NamedTuple):
    """Different sequences for each example, in the order in which they were drawn: K of them."""

    sequences: tf.Tensor  # int32 [B, K, T], with the end token, without the start token; then the pad_id
    lengths: tf.Tensor  # int32 [B, K], with the end token; 0: there is no such sequence
    log_probs: tf.Tensor  # [B, K], float32, for float64 logits float64: the model's, of the whole sequence
    perturbed_log_probs: tf.Tensor  # float64 [B, K], falling: with Gumbel noise; -inf where there is none


def stochastic_beam_search(
    step_fn: Callable,
    initial_state,
    *,
    batch_size,
    beam_width: int,
    max_length,
    bos_id,
    eos_ids,
    seed,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    typical_p: float = 1.0,
    pad_id: int | None = None,
    min_length=0,
    logits_processor: Callable | None = None,
    prompt=None,
    prompt_lengths=None,
    name=None,
) -> StochasticBeamSearchResult:
    """Draws K different sequences for each example: `sample` without replacement.

    The sequences are those that come first when whole sequences are drawn one after the
    other from the model's distribution and none is put back; a beam search over log
    probabilities with Gumbel noise finds them in one pass ("Stochastic Beams and Where to
    Find Them", arXiv:1903.06059).

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> chain = tf.math.log([[0.1, 0.5, 0.4], [0.4, 0.3, 0.3], [0.9, 0.05, 0.05]])
    >>> def step_fn(tokens, state):             # a Markov chain; token 0 ends
    ...     return tf.gather(chain, tokens), state
    >>> result = tfo.seq2seq.stochastic_beam_search(
    ...     step_fn, (), batch_size=2, beam_width=3, max_length=5, bos_id=0, eos_ids=0, seed=[1, 2])
    >>> len({tuple(s) for s in result.sequences[0].numpy()})
    3

    For an estimate of a sum over all sequences, the last of the K has done its work as a
    threshold t: each of the others counts as value * p / q, where p = e^log_prob and
    q = 1 - e^(-e^(log_prob - t)) is the probability to exceed it (section 4.2 there).

    Args:
      step_fn: function (token_ids int32 [B * K], state) -> (logits [B * K, V], state), as of
        `beam_search`.
      initial_state: any nest of tensors [B, ...]; () if there is none; repeated K times.
      batch_size: B, an int or an int32 scalar tensor. May be 0.
      beam_width: K, at least 1, how many sequences.
      max_length: T, an int or an int32 scalar tensor, at least 1: the most tokens of a
        sequence. One that has not ended by then is cut off.
      bos_id: the token that step_fn is given first, an int or int32 [B].
      eos_ids: the tokens that end a sequence, an int or a list of ints, which may be empty.
      seed: int32 [2], or [B, 2] with a seed for each example, as of `sample`.
      temperature: see `sample`; with it, and with filters, sequences are drawn from what
        they make of the model. It is not 0: that is `beam_search`.
      top_k: see `sample`.
      top_p: see `sample`.
      min_p: see `sample`.
      typical_p: see `sample`.
      pad_id: what follows the end. Default: the first of eos_ids, or 0.
      min_length: an int or an int32 scalar tensor: a sequence has at least that many tokens
        before its end token.
      logits_processor: see `sample`.
      prompt: see `sample`.
      prompt_lengths: see `sample`.
      name: a name scope.

    Returns:
      A `StochasticBeamSearchResult`. Where there are fewer than K sequences the others are
      empty: all pad, length 0, log probabilities -inf. log_probs are the model's own, as
      of `sample`, and differentiable.

    Raises:
      ValueError: an option out of its range, a step_fn, processor or state that does not
        fit what is said above.
      InvalidArgumentError: the same where only the run tells; on the CPU also an id in
        eos_ids that is no token.
    """
    with tf.name_scope(name or "stochastic_beam_search"):
        return _search(
            decoder.converted(step_fn),
            initial_state,
            batch_size,
            bos_id,
            seed,
            prompt,
            prompt_lengths,
            max_length=max_length,
            eos_ids=eos_ids,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            pad_id=pad_id,
            min_length=min_length,
            num_return_sequences=arguments.static_int("beam_width", beam_width, 1),
            logits_processor=decoder.converted(logits_processor),
        )


@tf.autograph.experimental.do_not_convert
def _search(step_fn, initial_state, batch_size, bos_id, seed, prompt, prompt_lengths, **options):
    options = SamplingOptions.checked(**options)
    if options.is_greedy:
        raise ValueError("temperature is 0.0, expected a number above 0: beam_search finds the likeliest sequences")
    batch_size = arguments.int_scalar("batch_size", batch_size, 0)
    width = options.num_return_sequences
    tokens = tf.repeat(decoder.start_tokens(bos_id, batch_size), width)
    prompt = decoder.Prompt.of(prompt, prompt_lengths, batch_size, options.max_length)
    model = decoder.Decoder(step_fn, initial_state, batch_size, width)
    return _Search(options, model, batch_size, prompt).run(tokens, row_seeds(seed, batch_size))


class _Loop(NamedTuple):
    """What a step takes and gives. K beams, also those that have ended, those drawn first first."""

    step: tf.Tensor
    tokens: tf.Tensor  # int32 [B, K], the last ones
    finished: tf.Tensor  # bool [B, K]
    lengths: tf.Tensor  # int32 [B, K]
    log_probs: tf.Tensor  # [B, K], the model's
    drawn_log_probs: tf.Tensor  # float64 [B, K], of what is drawn from
    perturbed: tf.Tensor  # float64 [B, K]; -inf: there is no such beam
    token_list: tf.Tensor  # decoder.Steps of [B, K]
    parent_list: tf.Tensor
    sequences: Any  # int32 [B, K, T], or () without a processor
    state: list


class _Search:
    """A search with its options, its model, and constants of the loop."""

    def __init__(self, options, model, batch_size, prompt):
        self._options, self._model, self._batch, self._prompt = options, model, batch_size, prompt
        self._width = options.num_return_sequences
        batch = tf.get_static_value(batch_size)
        self._static_batch = None if batch is None else int(batch)
        self._beams = tf.stack([batch_size, self._width])
        self._steps = decoder.Steps(self._beams)
        self._first_rows = tf.range(batch_size)[:, tf.newaxis] * self._width

    def run(self, tokens, seeds):
        """The result, from the first tokens [B * K] and seeds [B, 2]."""
        options, model = self._options, self._model
        # One sequence, or all would be the same.
        start = tf.where(tf.range(self._width) == 0, tf.zeros([], tf.float64), -float("inf"))
        start = tf.broadcast_to(start, self._beams)
        first = _Loop(
            step=tf.constant(0),
            tokens=tf.reshape(tokens, self._beams),
            finished=tf.zeros(self._beams, tf.bool),
            lengths=tf.zeros(self._beams, tf.int32),
            log_probs=tf.zeros(self._beams, arguments.score_dtype(model.logits_dtype or tf.float32)),
            drawn_log_probs=start,
            # The largest of all sequences, which estimates need to be random, too.
            perturbed=start + self._noise(seeds, -1, 1)[:, :1, 0],
            token_list=self._steps.reserve(options.max_length),
            parent_list=self._steps.reserve(options.max_length),
            sequences=tf.fill(tf.concat([self._beams, [options.max_length]], 0), options.pad_id)
            if options.logits_processor
            else (),
            state=model.state,
        )
        beams = tf.TensorShape([self._static_batch, self._width])
        length = options.max_length if isinstance(options.max_length, int) else None
        scalar, sequences = tf.TensorShape([]), tf.TensorShape([*beams, length]) if options.logits_processor else ()
        (end,) = tf.while_loop(
            lambda loop: (
                (loop.step < options.max_length) & ((loop.step == 0) | tf.reduce_any(tf.logical_not(loop.finished)))
            ),
            lambda loop: [self._step(loop, seeds)],
            [first],
            shape_invariants=[_Loop(scalar, *[beams] * 6, scalar, scalar, sequences, list(model.state_shapes))],
        )
        return self._result(end, beams, length)

    def _step(self, loop, seeds):
        """One token more for each sequence that has not ended."""
        options = self._options
        logits, state = self._model(tf.reshape(loop.tokens, [-1]), loop.state)
        logits = decoder.without_nan(logits)
        dtype = arguments.score_dtype(logits.dtype)
        log_probs, tokens, exists = self._log_probs(loop, logits)
        if self._prompt is not None:
            of_prompt, is_given = (tf.repeat(x, self._width) for x in self._prompt.at(loop.step))
            # Drawn for certain, as if it were the first of the candidates.
            certain = tf.where(tf.range(tf.shape(log_probs)[1]) == 0, tf.zeros([], tf.float64), -float("inf"))
            log_probs = tf.where(is_given[:, tf.newaxis], certain, log_probs)
            tokens = tf.where(is_given[:, tf.newaxis], of_prompt[:, tf.newaxis], tokens)
            exists |= is_given

        # A sequence that has ended, or has no token, is its own only candidate.
        candidates = tf.shape(log_probs)[1]
        shape = tf.concat([self._beams, [candidates]], 0)
        stays = loop.finished | tf.logical_not(tf.reshape(exists, self._beams))
        itself = tf.where(tf.range(candidates) == 0, tf.zeros([], tf.float64), -float("inf"))
        log_probs = tf.where(stays[..., tf.newaxis], itself, tf.reshape(log_probs, shape))
        drawn = loop.drawn_log_probs[..., tf.newaxis] + log_probs
        perturbed = _given_largest(drawn + self._noise(seeds, loop.step, candidates), loop.perturbed[..., tf.newaxis])
        is_dead = tf.logical_not(loop.finished) & stays
        perturbed = tf.where(is_dead[..., tf.newaxis], tf.constant(-float("inf"), tf.float64), perturbed)

        flat = tf.concat([[self._batch], [self._width * candidates]], 0)
        perturbed, places = tf.math.top_k(tf.reshape(perturbed, flat), self._width)
        parents = places // candidates
        alive = perturbed > -float("inf")
        new = beam_search_ops.batch_gather(tf.reshape(tokens, flat), places)
        finished = beam_search_ops.batch_gather(loop.finished, parents)
        # What follows an end is not read.
        new = tf.where(finished | tf.logical_not(alive), (options.eos_ids or (0,))[0], new)
        new = tf.ensure_shape(new, [self._static_batch, self._width])
        is_end = tf.reduce_any(new[..., tf.newaxis] == tf.constant(options.eos_ids, tf.int32), -1)
        if self._prompt is not None:
            is_end &= tf.logical_not(tf.reshape(is_given, self._beams))
        rows = tf.reshape(parents + self._first_rows, [-1])
        by_beam = tf.concat([self._beams, tf.shape(logits)[-1:]], 0)
        added = cross_entropy.label_log_prob(new, tf.reshape(tf.gather(logits, rows), by_beam))
        before = beam_search_ops.batch_gather(tf.cast(loop.log_probs, dtype), parents)
        lengths = beam_search_ops.batch_gather(loop.lengths, parents)
        return _Loop(
            step=loop.step + 1,
            tokens=new,
            finished=finished | is_end | tf.logical_not(alive),
            lengths=tf.where(alive, tf.where(finished, lengths, loop.step + 1), 0),
            log_probs=tf.where(alive, tf.where(finished, before, before + added), tf.constant(-float("inf"), dtype)),
            drawn_log_probs=beam_search_ops.batch_gather(tf.reshape(drawn, flat), places),
            perturbed=perturbed,
            token_list=self._steps.write(loop.token_list, loop.step, new),
            parent_list=self._steps.write(loop.parent_list, loop.step, parents),
            sequences=self._extended(loop, new, parents),
            state=[tf.gather(leaf, rows) for leaf in state],
        )

    def _log_probs(self, loop, logits):
        """What is drawn from, float64 [B * K, N]; the tokens, int32 of that shape; and whether there are any."""
        options = self._options
        if options.logits_processor is not None:
            so_far = tf.reshape(loop.sequences[:, :, : loop.step], [self._model.rows, loop.step])
            logits = decoder.allowed(options.logits_processor, loop.step, so_far, logits)
        logits = options.without_ends(logits, loop.step < options.min_length)
        count = tf.shape(logits)[-1]
        tokens = tf.broadcast_to(tf.range(count), tf.shape(logits))
        if options.top_k or options.has("top_p", 1):
            logits, tokens = tf.math.top_k(logits, tf.minimum(options.top_k, count) if options.top_k else count)
        weights, exists = options.weights(logits)
        return tf.math.log(weights / tf.reduce_sum(weights, -1, keepdims=True)), tokens, exists

    def _noise(self, seeds, step, candidates):
        """Gumbel noise, float64 [B, K, N]: an example's depends on its seed and the step alone."""
        numbers = uniform_of_step(seeds, [self._width, candidates], step)
        # Of [0, 1), but not 0.
        numbers = tf.reshape(numbers, tf.concat([self._beams, [candidates]], 0)) + 2.0**-54
        return -tf.math.log(-tf.math.log(numbers))

    def _extended(self, loop, tokens, parents):
        """The sequences of the processor, with a token more."""
        if self._options.logits_processor is None:
            return ()
        return decoder.extended(beam_search_ops.batch_gather(loop.sequences, parents), loop.step, tokens)

    def _result(self, end, beams, length):
        options = self._options
        # Beams change places after their ends, so they are followed back from the last step.
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


def _given_largest(perturbed, largest):
    """Log probabilities with Gumbel noise [..., N], given the largest of each row (the paper's appendix B.3)."""
    nothing = tf.constant(-float("inf"), tf.float64)
    exists = (perturbed > nothing) & (largest > nothing)
    found = tf.reduce_max(perturbed, -1, keepdims=True)
    # Where there is none, computed on zeros.
    below = tf.where(exists, perturbed - found, tf.zeros_like(perturbed))
    v = tf.where(exists, largest - perturbed, tf.zeros_like(perturbed)) + tf.math.log(-tf.math.expm1(below))
    moved = largest - tf.maximum(v, 0.0) - tf.math.log1p(tf.exp(-tf.abs(v)))
    return tf.where(exists, moved, nothing)
