"""Samples of CTC decoders, whose choices have no gradient."""

import keras
import numpy as np
import tensorflow as tf
from sample_testing import RNG, ROW_DTYPES, normal, sample, seed, without_gradient

from tensorflow_ops import seq2seq

seed(__name__)
_INF, _NAN = np.inf, np.nan
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
        ragged=True,
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
        ragged=True,
        output_dtype=ROW_DTYPES,
    ),
}
