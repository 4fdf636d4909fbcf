"""Samples of tfo.seq2seq for opcheck. Choices have no gradient."""

import keras
import tensorflow as tf
from sample_testing import ROW_DTYPES, bind, normal, sample

from tensorflow_ops import seq2seq

_TOKENS = tf.constant([[[1, 2, 3], [3, 4, 0]], [[3, 4, 1], [0, 1, 2]], [[5, 6, 7], [2, 2, 2]], [[1, 1, 3], [4, 0, 4]]])
_PARENTS = tf.constant([[[0, 0, 0], [0, 0, 0]], [[1, 0, 2], [2, 1, 0]], [[0, 0, 1], [1, 2, 1]], [[2, 1, 0], [0, 2, 1]]])
_LENGTHS = tf.constant([[4, 2, 3], [1, 0, 4]])
_CTC_LOGITS, _CTC_LENGTHS = normal(2, 5, 4), tf.constant([5, 3])
_CTC_LABEL_SCORES = normal(4, 4)


def _ctc_decode(fn):
    # Its gradient is an error, by design.
    return sample(
        lambda logits, lengths: fn(keras.ops.stop_gradient(logits), lengths),
        _CTC_LOGITS,
        _CTC_LENGTHS,
        non_differentiable=0,
        output_dtype=ROW_DTYPES,
        edge_args=[(_CTC_LOGITS[:0], _CTC_LENGTHS[:0]), (_CTC_LOGITS[:, :0], tf.zeros([2], tf.int32))],
        bad_args=[
            ((_CTC_LOGITS, _CTC_LENGTHS + 1), r"logit_lengths\[0\] is 6, expected \[0, 5\]"),
            ((_CTC_LOGITS[0], _CTC_LENGTHS), "logits must be"),
        ],
    )


SAMPLES = {
    "seq2seq.beam_search_step": sample(
        bind(seq2seq.beam_search_step, eos_ids=[3], length_penalty=0.6),
        normal(2, 3, 5),
        normal(2, 3),
        tf.constant([[False, True, False], [False, False, False]]),
        tf.constant([[2, 1, 2], [2, 2, 2]]),
        non_differentiable=(0, 1),
        output_dtype=ROW_DTYPES,
    ),
    "seq2seq.ctc_greedy_decode": _ctc_decode(seq2seq.ctc_greedy_decode),
    "seq2seq.ctc_beam_search_decode": _ctc_decode(
        bind(seq2seq.ctc_beam_search_decode, beam_width=4, top_paths=2, label_bonus=0.5)
    ),
    # The greatest length is the number of steps, so vectorized_map over lengths is an error.
    "seq2seq.ctc_beam_search_decode (language model)": sample(
        lambda logits: seq2seq.ctc_beam_search_decode(
            keras.ops.stop_gradient(logits),
            tf.fill(tf.shape(logits)[:1], tf.shape(logits)[1]),
            beam_width=4,
            top_paths=2,
            step_fn=lambda labels, state: (tf.gather(_CTC_LABEL_SCORES, labels), state),
        ),
        _CTC_LOGITS,
        non_differentiable=0,
        output_dtype=ROW_DTYPES,
        bad_args=[((_CTC_LOGITS[:, :, :3],), r"label_scores must be \[batch, beam_width, classes\]")],
    ),
    "seq2seq.gather_tree": sample(
        bind(seq2seq.gather_tree, pad_id=9),
        _TOKENS,
        _PARENTS,
        _LENGTHS,
        bad_args=[((_TOKENS, _PARENTS, _LENGTHS + 1), r"lengths\[0, 0\] is 5, expected \[0, 4\]")],
    ),
    "seq2seq.batch_gather": sample(
        seq2seq.batch_gather,
        normal(2, 4, 3),
        tf.constant([[3, 0, 0, 1, 2], [1, 1, 2, 0, 3]]),
        second_order=True,
        bad_args=[
            ((normal(2, 4, 3), tf.constant([[3, 0, 0, 1, 7], [1, 1, 2, 0, 3]])), r"indices\[0,4\] is 7, expected")
        ],
    ),
}
