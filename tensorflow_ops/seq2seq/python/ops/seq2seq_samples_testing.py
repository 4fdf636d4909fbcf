"""Samples of tfo.seq2seq. Choices have no gradient."""

import keras
import numpy as np
import tensorflow as tf
from sample_testing import RNG, ROW_DTYPES, normal, sample, seed, without_gradient

from tensorflow_ops import seq2seq

seed(__name__)
_INF, _NAN = np.inf, np.nan
_TOKENS = tf.constant([[[1, 2, 3], [3, 4, 0]], [[3, 4, 1], [0, 1, 2]], [[5, 6, 7], [2, 2, 2]], [[1, 1, 3], [4, 0, 4]]])
_PARENTS = tf.constant([[[0, 0, 0], [0, 0, 0]], [[1, 0, 2], [2, 1, 0]], [[0, 0, 1], [1, 2, 1]], [[2, 1, 0], [0, 2, 1]]])
_LENGTHS = tf.constant([[4, 2, 3], [1, 0, 4]])
_STEP_LOGITS, _LOG_PROBS = normal(2, 3, 5), normal(2, 3)
_FINISHED, _STEP_LENGTHS = tf.constant([[False, True, False], [False] * 3]), tf.constant([[2, 1, 9], [9, 1, 2]])
# Small integers: many candidates have the same score.
_TIES = tf.constant(RNG.integers(0, 3, [2, 5, 4]), tf.float32)
# The best path of each example repeats a label.
_CTC_LOGITS = normal(2, 5, 4) + 3 * tf.one_hot([[1, 1, 2, 0, 2], [2, 2, 1, 0, 1]], 4)
_CTC_LENGTHS = tf.constant([5, 3])
_CTC_LABEL_SCORES = normal(4, 4).numpy()  # for graphs of TensorFlow 1, too
_CLASS = r"expected \[0, 4\)"


def _ctc_decode(fn, variants, bad, **options):
    return sample(
        without_gradient(fn),
        _CTC_LOGITS,
        _CTC_LENGTHS,
        variants=[
            {"logits": _TIES, "blank_index": -1, "logit_lengths": tf.constant([0, 5], tf.int64)},
            {"logits": tf.where(_TIES > 0, _TIES, -_INF), "pad_id": 9},
            {"logits": _CTC_LOGITS[..., :1]},
            *variants,
        ],
        edge=[
            {"logits": _CTC_LOGITS[:0], "logit_lengths": _CTC_LENGTHS[:0]},
            {"logits": _CTC_LOGITS[:, :0], "logit_lengths": tf.zeros([2], tf.int32)},
        ],
        bad=[
            ({"logit_lengths": _CTC_LENGTHS + 1}, r"logit_lengths\[0\] is 6, expected \[0, 5\]"),
            ({"logit_lengths": _CTC_LENGTHS - 4}, r"logit_lengths\[1\] is -1, expected \[0, 5\]"),
            ({"logit_lengths": _CTC_LENGTHS[:1]}, "logit_lengths must be"),
            ({"logit_lengths": tf.zeros([2])}, "logit_lengths are float32"),
            ({"logits": _CTC_LOGITS[0]}, "logits must be"),
            ({"logits": tf.zeros([2, 5, 4], tf.int32)}, "logits are int32"),
            ({"blank_index": 4}, rf"blank_index is 4, {_CLASS}, or -1"),
            ({"blank_index": -2}, "blank_index is -2, expected an int"),
            ({"pad_id": None}, "pad_id is None, expected a 32-bit int"),
            *bad,
        ],
        non_differentiable=0,
        output_dtype=ROW_DTYPES,
        **options,
    )


def _label_scores(labels, state):
    return tf.gather(_CTC_LABEL_SCORES, labels), state


def _only_likely_labels(labels, state):
    scores, state = _label_scores(labels, state)
    return tf.where(scores > 0.8, scores, -_INF), state


def _decode_with_a_model(logits, logit_lengths=None, *, step_fn=_label_scores, **options):
    # The greatest length is the number of steps, so vectorized_map over lengths is an error.
    if logit_lengths is None:
        logit_lengths = tf.fill(tf.shape(logits)[:1], tf.shape(logits)[1])
    return seq2seq.ctc_beam_search_decode(
        keras.ops.stop_gradient(logits), logit_lengths, beam_width=4, top_paths=2, step_fn=step_fn, **options
    )


SAMPLES = {
    "seq2seq.beam_search_step": sample(
        seq2seq.beam_search_step,
        _STEP_LOGITS,
        _LOG_PROBS,
        _FINISHED,
        _STEP_LENGTHS,
        kwargs={"eos_ids": [3], "length_penalty": 0.6},
        variants=[
            {"beam_width": 7, "eos_ids": [], "length_penalty": 0.0},
            {"beam_width": 1, "eos_ids": [0, 1], "length_penalty": -1.0},
            {"forbidden": tf.constant(RNG.random([2, 3, 5]) < 0.3), "log_probs": tf.constant([[-_INF, 0, -1]] * 2)},
            {"logits": tf.round(_STEP_LOGITS), "log_probs": tf.round(_LOG_PROBS), "beam_width": 4},
            {
                **{"logits": normal(2, 1, 40), "log_probs": _LOG_PROBS[:, :1], "finished": _FINISHED[:, :1]},
                **{"lengths": _STEP_LENGTHS[:, :1], "beam_width": 5},
            },
        ],
        bad=[
            (
                {"logits": _STEP_LOGITS[0]},
                r"logits are \[3,5\], expected \[\?,\?,\?\]: \[batch, beams, tokens\]|logits must be \[batch, beams",
            ),
            (
                {"logits": _STEP_LOGITS[..., :0]},
                r"logits are \[2,3,0\], expected at least one token|at least one beam and one token",
            ),
            ({"logits": tf.zeros([2, 3, 5], tf.int32)}, "logits are int32, expected float16, bfloat16, float32 or"),
            (
                {"log_probs": normal(2, 4)},
                r"log_probs are \[2,4\], expected \[2,3\]: logits' batch and beams|log_probs must be",
            ),
            ({"log_probs": tf.zeros([2, 3], tf.int32)}, "log_probs are int32, expected float32"),
            ({"lengths": tf.fill([2, 3], -1), "eos_ids": [5]}, r"lengths\[0, 0\] is -1, expected \[0, 2147483647\)"),
            ({"finished": [[0, 1]]}, "finished cannot be bool"),
            ({"finished": tf.zeros([2, 3])}, "finished are float32, expected bool"),
            ({"lengths": tf.zeros([2, 3])}, "lengths are float32, expected int32"),
            ({"lengths": _STEP_LENGTHS[0]}, r"lengths are \[3\], expected \[2,3\]|lengths must be \[batch, beams\]"),
            ({"forbidden": tf.zeros([2, 3, 4], tf.bool)}, r"forbidden are \[2,3,4\], expected \[2,3,5\]"),
            ({"beam_width": 0}, r"beam_width is 0, expected an int in \[1, 2147483647\]"),
            ({"length_penalty": 10**400}, "length_penalty is 10+, expected a finite number"),
            ({"length_penalty": _NAN}, "length_penalty is nan, expected a finite number"),
            ({"eos_ids": [5]}, r"eos_ids\[0\] is 5, expected \[0, 5\)"),
            ({"eos_ids": [0, -1]}, r"eos_ids\[1\] is -1, expected \[0, 5\)"),
        ],
        non_differentiable=(0, 1),
        output_dtype=ROW_DTYPES,
    ),
    "seq2seq.ctc_greedy_decode": _ctc_decode(
        seq2seq.ctc_greedy_decode,
        [{"merge_repeated": False}],
        [({"merge_repeated": 2}, "merge_repeated is 2, expected True or False")],
    ),
    "seq2seq.ctc_beam_search_decode": _ctc_decode(
        seq2seq.ctc_beam_search_decode,
        [{"beam_width": 1, "top_paths": 1}, {"beam_width": 20, "top_paths": 3, "label_bonus": 0.0}],
        [
            ({"beam_width": 0}, "beam_width is 0, expected an int"),
            ({"top_paths": 5}, r"top_paths is 5, expected \[1, 4\]: beam_width is 4"),
            ({"label_bonus": _NAN}, "label_bonus is nan, expected a finite number"),
            ({"step_fn": 3}, "step_fn is 3, expected a function"),
            ({"blank_index": 4, "step_fn": _label_scores}, f"blank_index is 4, {_CLASS}"),
            (
                {"logit_lengths": _CTC_LENGTHS + 1, "step_fn": _label_scores},
                r"logit_lengths\[0\] is 6, expected \[0, 5",
            ),
            ({"initial_state": tf.zeros([1])}, "initial_state is given, but no step_fn"),
        ],
        kwargs={"beam_width": 4, "top_paths": 2, "label_bonus": 0.5},
    ),
    "seq2seq.ctc_beam_search_decode (language model)": sample(
        _decode_with_a_model,
        _CTC_LOGITS,
        variants=[
            {"lm_weight": 0.5, "label_bonus": 0.5, "blank_index": -1},
            {"lm_weight": 0.0, "logit_lengths": tf.constant([2, 5], tf.int64)},
            {"step_fn": _only_likely_labels, "logit_lengths": tf.constant([4, 0]), "label_bonus": 0.5, "pad_id": 9},
        ],
        bad=[({"logits": _CTC_LOGITS[:, :, :3]}, r"label_scores must be \[batch, beam_width, classes\]")],
        non_differentiable=0,
        output_dtype=ROW_DTYPES,
    ),
    "seq2seq.gather_tree": sample(
        seq2seq.gather_tree,
        _TOKENS,
        _PARENTS,
        _LENGTHS,
        kwargs={"pad_id": 9},
        variants=[
            {"token_ids": tf.cast(_TOKENS, tf.int64), "parent_ids": tf.cast(_PARENTS, tf.int64), "pad_id": -1},
            # The parents of the first step are not read.
            {"parent_ids": tf.concat([_PARENTS[:1] - 5, _PARENTS[1:]], 0)},
        ],
        bad=[
            ({"token_ids": tf.zeros([4, 2, 3])}, "token_ids are float32, expected int32 or int64"),
            (
                {"token_ids": _TOKENS[0]},
                r"token_ids are \[2,3\], expected \[\?,\?,\?\]|token_ids must be \[time, batch, beams\]",
            ),
            (
                {"parent_ids": _PARENTS[1:]},
                r"parent_ids are \[3,2,3\], expected \[4,2,3\]: token_ids' shape|parent_ids must be",
            ),
            ({"lengths": _LENGTHS[:1]}, r"lengths are \[1,3\], expected \[2,3\]|lengths must be \[batch, beams\]"),
            ({"pad_id": [0]}, r"pad_id are \[1\], expected \[\]: a scalar"),
            ({"lengths": _LENGTHS + 1}, r"lengths\[0, 0\] is 5, expected \[0, 4\]"),
            ({"lengths": _LENGTHS - 1}, r"lengths\[1, 1\] is -1, expected \[0, 4\]"),
            ({"parent_ids": _PARENTS + 1}, r"parent 3 in parent_ids\[\d, \d\], expected \[0, 3\)"),
            ({"parent_ids": _PARENTS - 1}, r"parent -1 in parent_ids\[\d, \d\], expected \[0, 3\)"),
        ],
    ),
    "seq2seq.batch_gather": sample(
        seq2seq.batch_gather,
        normal(2, 4, 3),
        tf.constant([[3, 0, 0, 1, 2], [1, 1, 2, 0, 3]]),
        variants=[{"params": normal(2, 4), "indices": tf.constant([[3], [1]], tf.int64)}],
        bad=[
            (
                {"indices": tf.constant([[3, 0, 0, 1, 7], [1] * 5])},
                r"indices\[0,4\] is 7, expected \[0, (4|params' size)\)",
            ),
            (
                {"indices": tf.constant([[3, 0, 0, 1, 0], [1, -1, 1, 1, 1]])},
                r"indices\[1,1\] is -1, expected \[0, (4|params' size)\)",
            ),
            ({"indices": tf.constant(0)}, "indices are a scalar|the shape of indices is .*expected at least one dim"),
            ({"indices": tf.zeros([2, 5])}, "indices are float32, expected int32 or int64"),
            ({"indices": tf.zeros([1, 5], tf.int32)}, "the same batch dims|expected the batch dims"),
            ({"params": normal(2)}, r"params are \[2\], expected at least 2 dims|expected at least (2|as many) dims"),
        ],
        second_order=True,
    ),
}
