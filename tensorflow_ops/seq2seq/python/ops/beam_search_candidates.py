"""Candidates of beam_search: the best continuations of a group in one step."""

from typing import Any, NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.seq2seq.python.ops import beam_search_ops


class Candidates(NamedTuple):
    """The best continuations of a group, best first: each [B, N]."""

    log_probs: tf.Tensor  # with the diversity penalty; -inf for a missing candidate
    tokens: tf.Tensor  # int32
    parents: tf.Tensor  # int32 in [0, K)
    ends: tf.Tensor  # bool: the token is an end token
    penalties: Any = None  # the sum of diversity penalties of all steps; None without groups


def take(candidates, indices):
    """Returns the candidates at the indices [B, M], in that order."""
    return Candidates(
        *(None if field is None else beam_search_ops.gather_by_beam(field, indices) for field in candidates)
    )


class CandidateSearch:
    """Finds the candidates of a group."""

    def __init__(self, options):
        self._options = options
        self._eos_ids = tf.constant(options.eos_ids, tf.int32)
        # Greedy search ends with its first end token, so one candidate is enough. (Not for a group of
        # width 1: the token that it takes instead of an end is penalized in later groups.)
        self._count = 1 if options.beam_width == 1 else (len(options.eos_ids) + 1) * options.group_width

    def find(self, group, step, logits, log_probs, penalties, forbidden, earlier_tokens):
        """Returns the Candidates of a group.

        Args:
          group: its index.
          step: the number of steps before this one.
          logits: [B, K, V], of all groups.
          log_probs: [B, K], of the unfinished sequences of all groups.
          penalties: [B, K], the sums of their diversity penalties; () without groups.
          forbidden: bool [B, K, V] or None.
          earlier_tokens: for each earlier group its tokens [B, W] of this step.
        """
        options, width = self._options, self._options.group_width
        beams = slice(group * width, (group + 1) * width)
        # The diversity penalty lowers at most this many candidates. With as many more, the best of the
        # others are among them.
        num_penalized = width * width * group
        log_probs = log_probs[:, beams]
        best = beam_search_ops.step(
            logits if options.num_groups == 1 else logits[:, beams],
            log_probs,
            tf.zeros_like(log_probs, tf.bool),
            tf.zeros_like(log_probs, tf.int32),
            eos_ids=self._eos_ids,
            eos_rule=self._eos_rule(step),
            beam_width=self._count + num_penalized,
            forbidden=None if forbidden is None else forbidden[:, beams],
        )
        exists = best.log_probs > -float("inf")
        candidates = Candidates(
            log_probs=best.log_probs,
            tokens=best.token_ids,
            parents=best.parent_ids + group * width,
            ends=exists & best.finished,  # the op marks missing ones as finished, too
        )
        if options.num_groups == 1:
            return candidates
        penalties = beam_search_ops.gather_by_beam(penalties, candidates.parents)
        if not earlier_tokens:
            return candidates._replace(penalties=penalties)
        return self._penalized(candidates, penalties, tf.concat(earlier_tokens, 1), tf.shape(logits)[-1])

    def _eos_rule(self, step):
        options = self._options
        rule = tf.where(step < options.min_length, beam_search_ops.NO_EOS, beam_search_ops.ANY_TOKEN)
        if options.counts_cut_off:
            return rule
        return tf.where(step + 1 >= options.max_length, beam_search_ops.ONLY_EOS, rule)

    def _penalized(self, candidates, penalties, earlier_tokens, num_tokens):
        """Returns the best candidates after the diversity penalty; of equal ones those of lower beam and token."""
        is_equal = tf.equal(candidates.tokens[..., tf.newaxis], earlier_tokens[:, tf.newaxis])
        times = tf.reduce_sum(tf.cast(is_equal, penalties.dtype), -1)
        penalty = arguments.constant_or_cast(self._options.diversity_penalty, penalties.dtype) * times
        candidates = candidates._replace(log_probs=candidates.log_probs - penalty, penalties=penalties + penalty)
        order = tf.cast(candidates.parents, tf.int64) * tf.cast(num_tokens, tf.int64)  # fits: int32
        order += tf.cast(candidates.tokens, tf.int64)  # fits: int32
        candidates = take(candidates, tf.argsort(order, stable=True))
        return take(candidates, tf.math.top_k(candidates.log_probs, self._count).indices)


class PromptStep(NamedTuple):
    """The tokens of the prompt in one step."""

    tokens: tf.Tensor  # int32 [B]
    is_given: tf.Tensor  # bool [B], whether an example has one
    log_probs: tf.Tensor  # [B, G], of the tokens, after the sequence of each group


def follow_prompt(candidates, group, log_probs, prompt_step, width):
    """Returns candidates; examples with a token of the prompt have this one only.

    Args:
      candidates: those of the group.
      group: its index.
      log_probs: [B, K], of the unfinished sequences of all groups.
      prompt_step: the PromptStep.
      width: of a group.
    """
    first_beam = group * width
    is_first = tf.equal(tf.range(tf.shape(candidates.tokens)[1]), 0)
    log_probs = (log_probs[:, first_beam] + prompt_step.log_probs[:, group])[:, tf.newaxis]
    given = Candidates(
        log_probs=tf.where(is_first, log_probs, -float("inf")),
        tokens=tf.broadcast_to(prompt_step.tokens[:, tf.newaxis], tf.shape(candidates.tokens)),
        parents=tf.fill(tf.shape(candidates.tokens), first_beam),
        ends=tf.zeros_like(candidates.ends),
        penalties=None if candidates.penalties is None else tf.zeros_like(candidates.penalties),
    )
    is_given = prompt_step.is_given[:, tf.newaxis]
    return Candidates(
        *(None if new is None else tf.where(is_given, new, old) for new, old in zip(given, candidates, strict=True))
    )
