"""The public function beam_search: a loop of steps, the hypotheses that ended, when to stop."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from tensorflow_ops.nn.python.ops import cross_entropy, softmax
from tensorflow_ops.seq2seq.python.ops import beam_search_ops, decoder
from tensorflow_ops.seq2seq.python.ops import seq2seq_arguments as arguments
from tensorflow_ops.seq2seq.python.ops.beam_search_options import Options


class BeamSearchResult(NamedTuple):
    """The best hypotheses of each example, best first: R of them."""

    sequences: tf.Tensor  # int32 [B, R, T], with the end token, without the start token; then the pad_id
    lengths: tf.Tensor  # int32 [B, R], with the end token; 0: there is no such hypothesis
    scores: tf.Tensor  # [B, R], float32, for float64 logits float64; -inf where there is none
    log_probs: tf.Tensor  # [B, R], of scores' dtype: the model's, without penalties


def beam_search(
    step_fn: Callable,
    initial_state,
    *,
    batch_size,
    beam_width: int,
    max_length,
    bos_id,
    eos_ids,
    pad_id: int | None = None,
    min_length=0,
    length_penalty: float = 0.0,
    length_normalization: Literal["gnmt", "length"] = "gnmt",
    cut_off: Literal["end", "count"] = "end",
    early_stopping: bool | Literal["never"] = True,
    num_return_sequences: int = 1,
    num_groups: int = 1,
    diversity_penalty: float = 0.0,
    logits_processor: Callable | None = None,
    process_log_probs: bool = False,
    prompt=None,
    prompt_lengths=None,
    name=None,
) -> BeamSearchResult:
    """Looks for the sequences of highest score under a model that gives one token after the other.

    Each step extends the K = beam_width best unfinished sequences of an example by each
    token. Of all candidates the (number of end tokens + 1) * K best are looked at: those
    among the first K that end are hypotheses, of which the best K are kept; the best K
    that do not end go on. A hypothesis' score is

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

    In a graph the loop is traced once for any batch_size and max_length that are tensors.

    Args:
      step_fn: function (token_ids int32 [B * K], state) -> (logits [B * K, V], state): the
        last token of each sequence, to logits of the next one. float16, bfloat16, float32
        or float64; NaN counts as -inf. The state keeps its structure and dtypes; of its
        shapes only the first dim has to stay, so a cache may grow. In a graph it is
        traced two times or more; build Keras layers before.
      initial_state: any nest of tensors [B, ...]; () if there is none. Each example's is
        repeated K times, and rows are put into the order of the sequences after each step.
        What is the same for all sequences of an example, step_fn had better close over.
      batch_size: B, an int or an int32 scalar tensor. May be 0.
      beam_width: K, at least 1. With 1 it is greedy search.
      max_length: T, an int or an int32 scalar tensor, at least 1: the most tokens of a
        sequence, the end token included; cut_off says what happens there.
      bos_id: the token that step_fn is given first, an int or int32 [B].
      eos_ids: the tokens that end a sequence, an int or a list of E ints; if it is empty,
        each sequence has max_length tokens.
      pad_id: what follows the end. Default: the first of eos_ids, or 0.
      min_length: an int or an int32 scalar tensor: a sequence has at least that many tokens
        before its end token. Others keep their log probabilities. max_length wins.
      length_penalty: a finite number or a scalar tensor; above 0 favours long hypotheses.
      length_normalization: what a log probability is divided by: "gnmt", ((5 + length) /
        6)^length_penalty; "length", length^length_penalty, as fairseq and `transformers`.
      cut_off: "end": in the last step a sequence can only end, with the end token's own log
        probability. "count": any token may follow, and sequences that max_length cuts off
        are hypotheses, as in `transformers`.
      early_stopping: when an example is done. True: with K hypotheses. False: with K
        hypotheses, none of which the best unfinished sequence would displace if it ended
        now. "never": with K hypotheses, none of which it would displace at any length.
      num_return_sequences: R, in [1, K].
      num_groups: the number of groups of K / num_groups beams that search one after the
        other in each step ("Diverse Beam Search", arXiv:1610.02424).
      diversity_penalty: above 0 with groups: taken off a token's log probability for each
        time that the sequences of earlier groups took it in this step; part of the score.
      logits_processor: function (step, sequences, logits) -> logits, or -> (logits,
        forbidden). step is an int32 scalar, 0 first; sequences int32 [B * K, step], the
        tokens so far; logits [B * K, V], of which it returns others. A logit of -inf
        forbids a token and gives its probability to the others; forbidden, bool
        [B * K, V], leaves theirs as they are.
      process_log_probs: True: the processor is given log softmax(logits), and what it
        returns are log probabilities: there is no softmax after it. So `transformers` does.
      prompt: int32 [B, P] or None: the tokens that each example's sequences begin with. They
        are part of the sequences, their lengths and log probabilities; an end token among
        them ends nothing.
      prompt_lengths: int32 [B], how many tokens of prompt each example has, in [0, P], less
        than max_length; with cut_off="count" at most max_length. Default: all P.
      name: a name scope.

    Returns:
      A `BeamSearchResult`. Where fewer than R sequences can end the others are empty: all
      pad, length 0, score -inf. No gradient; `tfo.nn.label_log_prob` scores sequences with
      one.

    Raises:
      ValueError: an option out of its range, a step_fn, processor or state that does not
        fit what is said above.
      InvalidArgumentError: the same where only the run tells; on the CPU also an id in
        eos_ids that is no token.
    """
    with tf.name_scope(name or "beam_search"):
        return _beam_search(
            decoder.converted(step_fn),
            initial_state,
            batch_size,
            bos_id,
            prompt,
            prompt_lengths,
            beam_width=beam_width,
            max_length=max_length,
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
            logits_processor=decoder.converted(logits_processor),
            process_log_probs=process_log_probs,
        )


@tf.autograph.experimental.do_not_convert
def _beam_search(step_fn, initial_state, batch_size, bos_id, prompt, prompt_lengths, **options):
    options = Options.checked(**options)
    batch_size = arguments.int_scalar("batch_size", batch_size, 0)
    tokens = tf.repeat(decoder.start_tokens(bos_id, batch_size), options.beam_width)
    # Where only an end may come last, the prompt leaves it a place.
    most = options.max_length if options.counts_cut_off else options.max_length - 1
    prompt = decoder.Prompt.of(prompt, prompt_lengths, batch_size, most)
    model = decoder.Decoder(step_fn, initial_state, batch_size, options.beam_width)
    return _Search(options, model, batch_size, prompt).run(tokens)


class _Hypotheses(NamedTuple):
    """Sequences that ended, best first: each [B, G, width of a group]."""

    scores: tf.Tensor  # -inf: none yet
    log_probs: tf.Tensor  # without penalties
    ends: tf.Tensor  # int32 [.., 3]: length, beam before the end, last token


class _Loop(NamedTuple):
    """What a step takes and gives. K beams, groups one after the other."""

    step: tf.Tensor  # steps done
    tokens: tf.Tensor  # int32 [B, K], the last ones
    log_probs: tf.Tensor  # [B, K], of unfinished sequences, with the penalty of diversity; -inf: none
    penalties: Any  # [B, K], of diversity, or () without groups
    done: tf.Tensor  # bool [B, G]
    hypotheses: _Hypotheses
    token_list: tf.Tensor  # decoder.Steps of [B, K]
    parent_list: tf.Tensor
    sequences: Any  # int32 [B, K, T], or () without a processor
    state: list


class _Candidates(NamedTuple):
    """The best continuations of a group, best first: each [B, W]."""

    log_probs: tf.Tensor
    tokens: tf.Tensor
    parents: tf.Tensor  # in [0, K)
    ends: tf.Tensor
    penalties: Any = None  # of diversity, those of earlier steps as well


class _Search:
    """A search with its options, its model, and constants of the loop."""

    def __init__(self, options, model, batch_size, prompt):
        self._options, self._model, self._batch, self._prompt = options, model, batch_size, prompt
        self._eos_ids = tf.constant(options.eos_ids, tf.int32)
        batch = tf.get_static_value(batch_size)
        self._static_batch = None if batch is None else int(batch)
        self._beams = tf.stack([batch_size, options.beam_width])
        self._steps = decoder.Steps(self._beams)
        self._first_rows = tf.range(batch_size)[:, tf.newaxis] * options.beam_width
        # Greedy search needs no second candidate: it is done where the first one ends. (What a
        # group would take instead counts for the groups after it.)
        greedy = options.beam_width == 1
        self._candidates = 1 if greedy else (len(options.eos_ids) + 1) * options.group_width

    def run(self, tokens):
        """The result, from the first tokens [B * K]."""
        start = self._start(tokens)
        (end,) = tf.while_loop(
            lambda loop: (
                (loop.step < self._options.max_length) & ((loop.step == 0) | tf.reduce_any(tf.logical_not(loop.done)))
            ),
            lambda loop: [self._step(loop)],
            [start],
            shape_invariants=[self._invariants(start)],
        )
        return self._result(end)

    def _start(self, tokens):
        options, model = self._options, self._model
        dtype = arguments.score_dtype(model.logits_dtype or tf.float32)
        width, groups = options.group_width, options.num_groups
        # One sequence in each group, or all would be the same.
        first = tf.where(tf.range(options.beam_width) % width == 0, 0.0, -float("inf"))
        pool = tf.stack([self._batch, groups, width])
        return _Loop(
            step=tf.constant(0),
            tokens=tf.reshape(tokens, self._beams),
            log_probs=tf.broadcast_to(tf.cast(first, dtype), self._beams),
            penalties=tf.zeros(self._beams, dtype) if groups > 1 else (),
            done=tf.zeros([self._batch, groups], tf.bool),
            hypotheses=_Hypotheses(
                scores=tf.fill(pool, tf.constant(-float("inf"), dtype)),
                log_probs=tf.fill(pool, tf.constant(-float("inf"), dtype)),
                ends=tf.zeros(tf.concat([pool, [3]], 0), tf.int32),
            ),
            token_list=self._steps.reserve(options.max_length),
            parent_list=self._steps.reserve(options.max_length),
            sequences=tf.fill(tf.concat([self._beams, [options.max_length]], 0), options.pad_id)
            if options.logits_processor
            else (),
            state=model.state,
        )

    def _invariants(self, start):
        """The shapes that stay, as far as they are known."""
        batch, options = self._static_batch, self._options
        beams, groups = [batch, options.beam_width], [batch, options.num_groups]
        pool = [*groups, options.group_width]
        length = options.max_length if isinstance(options.max_length, int) else None
        shapes = _Loop(
            step=[],
            tokens=beams,
            log_probs=beams,
            penalties=beams,
            done=groups,
            hypotheses=_Hypotheses(scores=pool, log_probs=pool, ends=[*pool, 3]),
            token_list=[],
            parent_list=[],
            sequences=[*beams, length],
            state=self._model.state_shapes,
        )
        return _Loop(*(_as_shapes(value, shape) for value, shape in zip(start, shapes, strict=True)))

    def _step(self, loop):
        """One token more for each sequence."""
        options = self._options
        model_logits, state = self._model(tf.reshape(loop.tokens, [-1]), loop.state)
        logits, forbidden = self._processed(loop, model_logits)
        tokens = tf.shape(logits)[-1]
        dtype = arguments.score_dtype(logits.dtype)
        # Eager loops learn only here what the logits' dtype is.
        loop = tf.nest.map_structure(lambda t: tf.cast(t, dtype) if t.dtype.is_floating else t, loop._replace(state=()))
        sums = None
        if options.process_log_probs:
            # The step divides by them, where there is nothing to normalize.
            sums = tf.reshape(tf.cast(tf.reduce_logsumexp(logits, -1), dtype), self._beams)
        logits = self._by_beam(logits, tokens)
        forbidden = None if forbidden is None else self._by_beam(forbidden, tokens)
        given = None if self._prompt is None else self._given(loop, self._by_beam(model_logits, tokens))

        groups = []
        for i in range(options.num_groups):
            earlier = [group.taken for group in groups]
            candidates = self._group_candidates(loop, i, logits, sums, forbidden, earlier)
            if given is not None:
                candidates = self._as_given(candidates, loop, i, given)
            groups.append(self._advance_group(loop, i, candidates))
        tokens, log_probs, parents = (
            tf.concat([getattr(group, name) for group in groups], 1) for name in ("tokens", "log_probs", "parents")
        )
        rows = tf.reshape(parents + self._first_rows, [-1])
        return _Loop(
            step=loop.step + 1,
            tokens=tokens,
            log_probs=log_probs,
            penalties=tf.concat([group.penalties for group in groups], 1) if options.num_groups > 1 else (),
            done=tf.stack([group.done for group in groups], 1),
            hypotheses=_Hypotheses(
                *(tf.stack(fields, 1) for fields in zip(*(group.hypotheses for group in groups), strict=True))
            ),
            token_list=self._steps.write(loop.token_list, loop.step, tokens),
            parent_list=self._steps.write(loop.parent_list, loop.step, parents),
            sequences=self._extended(loop, tokens, parents),
            state=[tf.gather(leaf, rows) for leaf in state],
        )

    def _by_beam(self, tensor, tokens):
        """[B * K, V] as [B, K, V]."""
        shape = [self._static_batch, self._options.beam_width, tensor.shape[-1]]
        return tf.ensure_shape(tf.reshape(tensor, tf.concat([self._beams, [tokens]], 0)), shape)

    def _processed(self, loop, logits):
        """What the logits_processor makes of logits, and what it forbids."""
        process = self._options.logits_processor
        if process is None:
            return logits, None
        if self._options.process_log_probs:
            logits = decoder.without_nan(tf.cast(logits, arguments.score_dtype(logits.dtype)))
            logits = softmax.log_prob_from_logits(logits)
        so_far = tf.reshape(loop.sequences[:, :, : loop.step], [self._model.rows, loop.step])
        return decoder.processed(process, loop.step, so_far, logits)

    def _extended(self, loop, tokens, parents):
        """The sequences of the processor, with a token more."""
        if self._options.logits_processor is None:
            return ()
        return decoder.extended(beam_search_ops.batch_gather(loop.sequences, parents), loop.step, tokens)

    def _given(self, loop, logits):
        """The prompt's tokens [B] in this step, who has one, bool [B], and log probabilities [B, groups]."""
        tokens, is_given = self._prompt.at(loop.step)
        # A group has one sequence: its first beam.
        logits = decoder.without_nan(logits[:, :: self._options.group_width])
        of_groups = tf.repeat(tokens[:, tf.newaxis], self._options.num_groups, 1)
        return tokens, is_given, cross_entropy.label_log_prob(of_groups, logits)

    def _as_given(self, found, loop, group, given):
        """The candidates of examples that have a token of their prompt: this one."""
        tokens, is_given, log_probs = given
        first = group * self._options.group_width
        is_first = tf.range(tf.shape(found.tokens)[1]) == 0
        log_probs = (loop.log_probs[:, first] + log_probs[:, group])[:, tf.newaxis]
        of_prompt = _Candidates(
            log_probs=tf.where(is_first, log_probs, -float("inf")),
            tokens=tf.broadcast_to(tokens[:, tf.newaxis], tf.shape(found.tokens)),
            parents=tf.fill(tf.shape(found.tokens), first),
            ends=tf.zeros_like(found.ends),
            penalties=None if found.penalties is None else tf.zeros_like(found.penalties),
        )
        return _Candidates(
            *(
                None if mine is None else tf.where(is_given[:, tf.newaxis], mine, other)
                for mine, other in zip(of_prompt, found, strict=True)
            )
        )

    def _group_candidates(self, loop, group, logits, sums, forbidden, earlier):
        options, width = self._options, self._options.group_width
        beams = slice(group * width, (group + 1) * width)
        rule = tf.where(loop.step < options.min_length, beam_search_ops.NO_EOS, beam_search_ops.ANY_TOKEN)
        if not options.counts_cut_off:
            rule = tf.where(loop.step + 1 >= options.max_length, beam_search_ops.ONLY_EOS, rule)
        # Penalties lower at most this many candidates: as many more hold the best of those that are left.
        lowered = width * width * group
        log_probs = loop.log_probs[:, beams]
        if sums is not None:
            log_probs += sums[:, beams]
        best = beam_search_ops.step(
            logits if options.num_groups == 1 else logits[:, beams],
            log_probs,
            tf.zeros_like(log_probs, tf.bool),
            tf.zeros_like(log_probs, tf.int32),
            eos_ids=self._eos_ids,
            eos_rule=rule,
            beam_width=self._candidates + lowered,
            forbidden=None if forbidden is None else forbidden[:, beams],
        )
        exists = best.log_probs > -float("inf")
        found = _Candidates(
            log_probs=best.log_probs,
            tokens=best.token_ids,
            parents=best.parent_ids + group * width,
            ends=exists & best.finished,  # empty places are called finished
        )
        if options.num_groups == 1:
            return found
        penalties = beam_search_ops.batch_gather(loop.penalties, found.parents)
        if not earlier:
            return found._replace(penalties=penalties)
        return self._penalized(found, penalties, tf.concat(earlier, 1), tf.shape(logits)[-1])

    def _penalized(self, found, penalties, earlier, vocabulary):
        """The best candidates after the penalty of diversity; of equal ones those of the lower beam and token."""
        times = tf.reduce_sum(tf.cast(found.tokens[..., tf.newaxis] == earlier[:, tf.newaxis], penalties.dtype), -1)
        penalty = arguments.of_dtype(self._options.diversity_penalty, penalties.dtype) * times
        found = found._replace(log_probs=found.log_probs - penalty, penalties=penalties + penalty)
        place = tf.cast(found.parents, tf.int64) * tf.cast(vocabulary, tf.int64) + tf.cast(found.tokens, tf.int64)
        found = _take(found, tf.argsort(place, stable=True))
        return _take(found, tf.math.top_k(found.log_probs, self._candidates).indices)

    def _advance_group(self, loop, group, found):
        """Its hypotheses, and the sequences that go on."""
        options, width = self._options, self._options.group_width
        nothing = tf.constant(-float("inf"), found.log_probs.dtype)
        length = loop.step + 1
        old = _Hypotheses(*(field[:, group] for field in loop.hypotheses))
        # Only those among the best: the others are there so that enough go on.
        first = _Candidates(*(None if field is None else field[:, :width] for field in found))
        is_hypothesis = first.ends
        if options.counts_cut_off:
            is_hypothesis |= length >= options.max_length
        scores = tf.where(is_hypothesis, self._score(first.log_probs, length), nothing)
        ends = tf.stack([tf.zeros_like(first.parents) + length, first.parents, first.tokens], -1)
        log_probs = first.log_probs if first.penalties is None else first.log_probs + first.penalties
        scores, kept = tf.math.top_k(tf.concat([old.scores, scores], 1), width)
        hypotheses = _Hypotheses(
            scores,
            beam_search_ops.batch_gather(tf.concat([old.log_probs, log_probs], 1), kept),
            beam_search_ops.batch_gather(tf.concat([old.ends, ends], 1), kept),
        )

        going_on, kept = tf.math.top_k(tf.where(found.ends, nothing, found.log_probs), width)
        found = _take(found, kept)
        worst, best = scores[:, -1], going_on[:, 0]
        if options.early_stopping is True:
            done = (worst > nothing) | (best == nothing)
        else:
            if options.early_stopping == "never":
                length = tf.where(options.length_penalty > 0, options.max_length, length)
            done = tf.logical_not(self._score(best, length) > worst)
        taken = tf.where(going_on > nothing, found.tokens, -1)
        # There is nothing to compute for a beam of probability 0.
        going_on = tf.where(done[:, tf.newaxis], nothing, going_on)
        return _Group(hypotheses, done, going_on, found.tokens, taken, found.parents, found.penalties)

    def _score(self, log_probs, length):
        if isinstance(self._options.length_penalty, float) and self._options.length_penalty == 0:
            return log_probs
        base = tf.cast(length, tf.float64)
        if self._options.length_normalization == "gnmt":
            base = (5 + base) / 6
        penalty = base ** arguments.of_dtype(self._options.length_penalty, tf.float64)
        # A penalty may be beyond the dtype.
        return tf.where(tf.math.is_inf(log_probs), log_probs, log_probs / tf.cast(penalty, log_probs.dtype))

    def _result(self, loop):
        """Puts the groups' hypotheses together, and follows the best ones back."""
        options, count = self._options, self._options.num_return_sequences
        flat = [self._batch, options.beam_width]
        scores, kept = tf.math.top_k(tf.reshape(loop.hypotheses.scores, flat), count)
        log_probs = beam_search_ops.batch_gather(tf.reshape(loop.hypotheses.log_probs, flat), kept)
        ends = beam_search_ops.batch_gather(tf.reshape(loop.hypotheses.ends, [*flat, 3]), kept)
        lengths, before, last = tf.unstack(ends, axis=-1)
        lengths = tf.where(scores > -float("inf"), lengths, 0)

        # Beside the sequences that go on, a beam for each end.
        examples = tf.broadcast_to(tf.range(self._batch)[:, tf.newaxis], tf.shape(lengths))
        at = tf.stack([tf.maximum(lengths - 1, 0), examples, tf.zeros_like(lengths) + tf.range(count)], -1)
        shape = [options.max_length, self._batch, count]

        def with_ends(handle, values):
            return tf.concat([self._steps.stack(handle), tf.scatter_nd(at, values, shape)], 2)

        tree = beam_search_ops.gather_tree(
            with_ends(loop.token_list, last),
            with_ends(loop.parent_list, before),
            tf.concat([tf.zeros(flat, tf.int32), lengths], 1),
            pad_id=options.pad_id,
        )
        sequences = tf.transpose(tree[:, :, options.beam_width :], [1, 2, 0])
        length = options.max_length if isinstance(options.max_length, int) else None
        return BeamSearchResult(
            tf.ensure_shape(sequences, [self._static_batch, count, length]),
            tf.ensure_shape(lengths, [self._static_batch, count]),
            tf.stop_gradient(scores),
            tf.stop_gradient(log_probs),
        )


class _Group(NamedTuple):
    """A group after a step."""

    hypotheses: _Hypotheses
    done: tf.Tensor
    log_probs: tf.Tensor
    tokens: tf.Tensor
    taken: tf.Tensor  # the step's tokens of its sequences, -1 where there is none
    parents: tf.Tensor
    penalties: Any


def _take(candidates, indices):
    """Those at the indices [B, M], in that order."""
    return _Candidates(
        *(None if field is None else beam_search_ops.batch_gather(field, indices) for field in candidates)
    )


def _as_shapes(value, shapes):
    """The shapes of a loop's tensor, or of the tensors in a list or tuple."""
    if isinstance(value, _Hypotheses):
        return _Hypotheses(*map(tf.TensorShape, shapes))
    if isinstance(value, list):
        return [tf.TensorShape(shape) for shape in shapes]
    return () if isinstance(value, tuple) else tf.TensorShape(shapes)
