"""The loop of beam_search: its state, and one step."""

from typing import Any, NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.nn.python.ops import cross_entropy, softmax
from tensorflow_ops.seq2seq.python.ops import beam_search_candidates, beam_search_hypotheses, decoder
from tensorflow_ops.seq2seq.python.ops.beam_search_hypotheses import Hypotheses


class _Loop(NamedTuple):
    """The loop's variables. K beams, the groups in order."""

    step: tf.Tensor  # steps done
    tokens: tf.Tensor  # int32 [B, K], the last ones
    log_probs: tf.Tensor  # [B, K], of unfinished sequences, with the diversity penalty; -inf for a missing one
    penalties: Any  # [B, K], sums of diversity penalties, or () without groups
    done: tf.Tensor  # bool [B, G]
    hypotheses: Hypotheses
    token_list: tf.Tensor  # decoder.Steps of [B, K]
    parent_list: tf.Tensor
    sequences: Any  # int32 [B, K, T], or () without a processor
    state: list


class _Group(NamedTuple):
    """A group after a step: [B, W] each."""

    hypotheses: Hypotheses
    done: tf.Tensor  # bool [B]
    log_probs: tf.Tensor
    tokens: tf.Tensor
    taken: tf.Tensor  # tokens, -1 for a missing sequence
    parents: tf.Tensor
    penalties: Any


class BeamSearch:
    """A search: its options, its model, and constants of the loop."""

    def __init__(self, options, model, batch_size, prompt, history):
        self._options, self._model, self._batch, self._prompt = options, model, batch_size, prompt
        self._candidates = beam_search_candidates.CandidateSearch(options)
        batch = tf.get_static_value(batch_size)
        self._static_batch = None if batch is None else int(batch)
        self._beams = tf.stack([batch_size, options.beam_width])
        self._steps = decoder.Steps(self._beams)
        self._processor = decoder.Processor(options.logits_processor, history, self._beams, options.max_length)
        self._first_rows = tf.range(batch_size)[:, tf.newaxis] * options.beam_width

    def run(self, tokens):
        """Returns the fields of a BeamSearchResult, for first tokens [B * K]."""
        start = self._start(tokens)
        with tf.control_dependencies(autograph.last_check()):
            (end,) = tf.while_loop(
                lambda loop: decoder.goes_on(loop.step, self._options.max_length, loop.done),
                lambda loop: [self._step(loop)],
                [start],
                shape_invariants=[self._invariants(start)],
            )
        return beam_search_hypotheses.best_sequences(
            self._options, end.hypotheses, self._steps, end.token_list, end.parent_list, self._batch
        )

    def _start(self, tokens):
        options, model = self._options, self._model
        dtype = arguments.at_least_float32(model.logits_dtype or tf.float32)
        width, groups = options.group_width, options.num_groups
        # Each group starts from one sequence. K equal ones would stay equal.
        first = tf.where(tf.equal(tf.range(options.beam_width) % width, 0), 0.0, -float("inf"))
        return _Loop(
            step=tf.constant(0),
            tokens=tf.reshape(tokens, self._beams),
            log_probs=tf.broadcast_to(tf.cast(first, dtype), self._beams),
            penalties=tf.zeros(self._beams, dtype) if groups > 1 else (),
            done=tf.zeros([self._batch, groups], tf.bool),
            hypotheses=beam_search_hypotheses.no_hypotheses(tf.stack([self._batch, groups, width]), dtype),
            token_list=self._steps.reserve(options.max_length),
            parent_list=self._steps.reserve(options.max_length),
            sequences=self._processor.first(),
            state=model.state,
        )

    def _invariants(self, start):
        """Returns the static shapes that hold in every step."""
        batch, options = self._static_batch, self._options
        beams, groups = [batch, options.beam_width], [batch, options.num_groups]
        by_group = [*groups, options.group_width]
        shapes = _Loop(
            step=[],
            tokens=beams,
            log_probs=beams,
            penalties=beams,
            done=groups,
            hypotheses=Hypotheses(scores=by_group, log_probs=by_group, ends=[*by_group, 3]),
            token_list=[],
            parent_list=[],
            sequences=self._processor.shape(beams),
            state=self._model.state_shapes,
        )
        return _Loop(*(_as_shapes(value, shape) for value, shape in zip(start, shapes, strict=True)))

    def _step(self, loop):
        """Extends each unfinished sequence by one token."""
        options = self._options
        model_logits, state = self._model(tf.reshape(loop.tokens, [-1]), loop.state)
        logits, forbidden = self._process(loop, model_logits)
        vocabulary = tf.shape(logits)[-1]
        dtype = arguments.at_least_float32(logits.dtype)
        # An eager loop does not know the dtype of logits before its first step.
        loop = tf.nest.map_structure(lambda t: tf.cast(t, dtype) if t.dtype.is_floating else t, loop._replace(state=()))
        log_probs = loop.log_probs
        if options.process_log_probs:
            # Logits are log probabilities already. The op subtracts their log sum e^x: it is added here.
            log_probs += tf.reshape(tf.cast(tf.reduce_logsumexp(logits, -1), dtype), self._beams)
        logits = self._by_beam(logits, vocabulary)
        forbidden = None if forbidden is None else self._by_beam(forbidden, vocabulary)
        prompt_step = None
        if self._prompt is not None:
            prompt_step = self._prompt_step(loop, self._by_beam(model_logits, vocabulary))

        groups = []
        for i in range(options.num_groups):
            earlier_tokens = [group.taken for group in groups]
            candidates = self._candidates.find(
                i, loop.step, logits, log_probs, loop.penalties, forbidden, earlier_tokens
            )
            if prompt_step is not None:
                candidates = beam_search_candidates.follow_prompt(
                    candidates, i, loop.log_probs, prompt_step, options.group_width
                )
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
            hypotheses=Hypotheses(
                *(tf.stack(fields, 1) for fields in zip(*(group.hypotheses for group in groups), strict=True))
            ),
            token_list=self._steps.write(loop.token_list, loop.step, tokens),
            parent_list=self._steps.write(loop.parent_list, loop.step, parents),
            sequences=self._processor.append(loop.sequences, loop.step, tokens, parents),
            state=self._model.reordered(state, rows),
        )

    def _by_beam(self, tensor, vocabulary):
        """Reshapes [B * K, V] to [B, K, V]."""
        shape = [self._static_batch, self._options.beam_width, tensor.shape[-1]]
        return tf.ensure_shape(tf.reshape(tensor, tf.concat([self._beams, [vocabulary]], 0)), shape)

    def _process(self, loop, logits):
        """Returns the logits after the logits_processor, and the forbidden tokens or None."""
        if self._options.process_log_probs:
            logits = decoder.without_nan(tf.cast(logits, arguments.at_least_float32(logits.dtype)))
            logits = softmax.log_prob_from_logits(logits)
        return self._processor(loop.sequences, loop.step, logits)

    def _prompt_step(self, loop, logits):
        tokens, is_given = self._prompt.at(loop.step)
        # While it follows the prompt a group has one sequence, in its first beam.
        logits = decoder.without_nan(logits[:, :: self._options.group_width])
        tokens_by_group = tf.repeat(tokens[:, tf.newaxis], self._options.num_groups, 1)
        log_probs = cross_entropy.label_log_prob(tokens_by_group, logits)
        return beam_search_candidates.PromptStep(tokens, is_given, log_probs)

    def _advance_group(self, loop, group, candidates):
        """Splits a group's candidates into new hypotheses and the sequences that go on."""
        options = self._options
        length = loop.step + 1
        nothing = tf.constant(-float("inf"), candidates.log_probs.dtype)
        hypotheses = Hypotheses(*(field[:, group] for field in loop.hypotheses))
        hypotheses = beam_search_hypotheses.add_hypotheses(options, hypotheses, candidates, length)
        log_probs, kept = tf.math.top_k(tf.where(candidates.ends, nothing, candidates.log_probs), options.group_width)
        candidates = beam_search_candidates.take(candidates, kept)
        done = beam_search_hypotheses.is_done(options, hypotheses, log_probs[:, 0], length)
        return _Group(
            hypotheses=hypotheses,
            done=done,
            # At -inf a beam costs nothing: the op skips it.
            log_probs=tf.where(done[:, tf.newaxis], nothing, log_probs),
            tokens=candidates.tokens,
            taken=tf.where(log_probs > nothing, candidates.tokens, -1),
            parents=candidates.parents,
            penalties=candidates.penalties,
        )


def _as_shapes(value, shapes):
    """Returns the shapes of a loop variable: a tensor, or tensors in a list or tuple."""
    if isinstance(value, Hypotheses):
        return Hypotheses(*map(tf.TensorShape, shapes))
    if isinstance(value, list):
        return [tf.TensorShape(shape) for shape in shapes]
    return () if isinstance(value, tuple) else tf.TensorShape(shapes)
