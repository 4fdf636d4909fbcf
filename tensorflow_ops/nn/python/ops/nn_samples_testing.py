"""Samples of tfo.nn for opcheck."""

import inspect

import keras
import numpy as np
import tensorflow as tf
from sample_testing import RNG, ROW_DTYPES, bind, normal, sample

from tensorflow_ops import nn

LOGITS, _NO_LOGITS = normal(3, 5), tf.zeros([0, 5])
LABELS = tf.constant([1, 0, 4])
TARGETS = tf.constant(RNG.dirichlet(np.ones(5), 3), tf.float32)
_BAD_LABELS = ((tf.constant([1, 7, 4]), LOGITS), r"labels\[1\] is 7, expected \[0, 5\)")


def _log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _linear_cross_entropy(*bias, **options):
    features, weight = normal(3, 6), normal(6, 5)

    def fn(features, weight, labels, bias=None):
        return nn.linear_cross_entropy(features, weight, labels, bias=bias)

    return sample(
        fn,
        features,
        weight,
        LABELS,
        *bias,
        output_dtype=ROW_DTYPES,
        bad_args=[((features, weight, tf.constant([1, 7, 4]), *bias), r"labels\[1\] is 7")],
        **options,
    )


SAMPLES = {
    "nn.softmax": sample(
        nn.softmax,
        LOGITS,
        reference=lambda x: np.exp(_log_softmax(x)),
        second_order=True,
        edge_args=[(_NO_LOGITS,)],
        bad_args=[((tf.zeros([3, 0]),), "at least one class"), ((tf.constant(1.0),), "scalar|at least one dim")],
    ),
    "nn.softmax (axis 0)": sample(bind(nn.softmax, axis=0), LOGITS),
    "nn.log_prob_from_logits": sample(nn.log_prob_from_logits, LOGITS, second_order=True, edge_args=[(_NO_LOGITS,)]),
    "nn.softmax_entropy": sample(
        nn.softmax_entropy, LOGITS, output_dtype=ROW_DTYPES, second_order=True, edge_args=[(_NO_LOGITS,)]
    ),
    "nn.softmax_cross_entropy": sample(
        bind(nn.softmax_cross_entropy, label_smoothing=0.1),
        TARGETS,
        LOGITS,
        output_dtype=ROW_DTYPES,
        second_order=True,
        edge_args=[(_NO_LOGITS, _NO_LOGITS)],
        bad_args=[((TARGETS[:2], LOGITS), "labels")],
    ),
    "nn.sparse_softmax_cross_entropy": sample(
        bind(nn.sparse_softmax_cross_entropy, ignore_index=4, label_smoothing=0.1, z_loss=0.01),
        LABELS,
        LOGITS,
        output_dtype=ROW_DTYPES,
        second_order=True,
        edge_args=[(LABELS[:0], _NO_LOGITS)],
        bad_args=[_BAD_LABELS, ((LABELS[:2], LOGITS), "labels")],
    ),
    "nn.label_log_prob": sample(
        nn.label_log_prob,
        LABELS,
        LOGITS,
        output_dtype=ROW_DTYPES,
        second_order=True,
        edge_args=[(LABELS[:0], _NO_LOGITS)],
        bad_args=[_BAD_LABELS],
    ),
    "nn.gaussian_kl": sample(
        nn.gaussian_kl,
        (normal(3, 5), normal(3, 5)),
        (normal(3, 5), normal(3, 5)),
        output_dtype=ROW_DTYPES,
        second_order=True,
        edge_args=[((_NO_LOGITS, _NO_LOGITS), (_NO_LOGITS, _NO_LOGITS))],
        bad_args=[(((normal(3, 5), normal(3, 4)), (normal(3, 5), normal(3, 5))), "broadcast|[Ii]ncompatible")],
    ),
    "nn.gaussian_kl (unit Gaussian)": sample(nn.gaussian_kl, (normal(3, 5), normal(3, 5)), output_dtype=ROW_DTYPES),
    "nn.linear_cross_entropy": _linear_cross_entropy(
        normal(5),
        dtypes=("float32", "float64"),
        skip={
            "extreme_values": "TensorFlow's fused MatMul and BiasAdd of features [3, 0] aborts the process in a graph"
        },
    ),
    # 16-bit features have 16-bit logits.
    "nn.linear_cross_entropy (16 bits, no bias)": _linear_cross_entropy(
        dtypes=("float16", "bfloat16", "float32"), tolerance=4e-2
    ),
}

# Label sequences. The last example has no labels, and fewer frames.

SEQUENCE_LABELS = tf.constant([[1, 3], [2, 2], [0, 0]])
_LABEL_LENGTHS, _LOGIT_LENGTHS = tf.constant([2, 2, 0]), tf.constant([4, 3, 2])
_NO_EXAMPLES = (tf.zeros([0, 2], tf.int32), tf.zeros([0], tf.int32))


def _label_sequences(fn, *dims, **options):
    labels, lengths = SEQUENCE_LABELS, (_LABEL_LENGTHS, _LOGIT_LENGTHS)
    logits = normal(3, *dims)
    no_labels, no_lengths = _NO_EXAMPLES
    bad = tf.constant([[1, 9], [2, 2], [0, 0]])
    return sample(
        fn,
        labels,
        logits,
        *lengths,
        output_dtype=ROW_DTYPES,
        edge_args=[(no_labels, logits[:0], no_lengths, no_lengths)],
        bad_args=[
            ((bad, logits, *lengths), r"labels\[0, 1\] is 9, expected \[0, 4\)"),
            ((labels, logits, _LABEL_LENGTHS + 1, _LOGIT_LENGTHS), r"label_lengths\[0\] is 3, expected \[0, 2\]"),
            ((labels, logits, _LABEL_LENGTHS, _LOGIT_LENGTHS + 1), r"logit_lengths\[0\] is 5, expected"),
            ((labels[:2], logits, *lengths), "labels|logits"),
        ],
        **options,
    )


SAMPLES |= {
    "nn.ctc_loss": _label_sequences(nn.ctc_loss, 4, 4),
    "nn.rnnt_loss": _label_sequences(nn.rnnt_loss, 4, 3, 4, empty=False),
}

TAG_LOGITS, _TRANSITIONS = normal(3, 4, 5), normal(5, 5)
_TAGS, _TAG_LENGTHS = tf.constant([[1, 3, 0, 4], [2, 2, 1, 9], [9, 9, 9, 9]]), tf.constant([4, 3, 0])
_CRF_BAD = [
    ((TAG_LOGITS, _TRANSITIONS[:4]), "transitions"),
    ((TAG_LOGITS, _TRANSITIONS, _TAG_LENGTHS + 1), r"lengths\[0\] is 5, expected \[0, 4\]"),
]


def _crf(fn, **options):
    return sample(
        lambda logits, transitions, lengths=None: fn(logits, transitions, lengths=lengths),
        TAG_LOGITS,
        _TRANSITIONS,
        _TAG_LENGTHS,
        edge_args=[(TAG_LOGITS[:0], _TRANSITIONS, _TAG_LENGTHS[:0])],
        bad_args=_CRF_BAD,
        **options,
    )


SAMPLES |= {
    "nn.crf_log_likelihood": sample(
        lambda labels, *scores: nn.crf_log_likelihood(labels, *scores[:2], lengths=scores[2]),
        _TAGS,
        TAG_LOGITS,
        _TRANSITIONS,
        _TAG_LENGTHS,
        output_dtype=ROW_DTYPES,
        edge_args=[(_TAGS[:0], TAG_LOGITS[:0], _TRANSITIONS, _TAG_LENGTHS[:0])],
        bad_args=[
            ((_TAGS, TAG_LOGITS, _TRANSITIONS, _TAG_LENGTHS + 1), r"lengths\[0\] is 5, expected \[0, 4\]"),
            ((_TAGS, TAG_LOGITS, _TRANSITIONS, tf.constant([4, 4, 0])), r"labels\[1, 3\] is 9, expected \[0, 5\)"),
        ],
    ),
    "nn.crf_decode": _crf(nn.crf_decode, output_dtype=ROW_DTYPES),
    "nn.crf_marginals": _crf(
        lambda logits, transitions, lengths: nn.crf_marginals(
            # Its gradient is an error, by design.
            keras.ops.stop_gradient(logits),
            keras.ops.stop_gradient(transitions),
            lengths=lengths,
        ),
        output_dtype=ROW_DTYPES,
        non_differentiable=(0, 1),
    ),
}


# Deformable ops. Places are away from whole pixels; 16-bit numbers hold them.

_DEFORMED, _OFFSETS = normal(2, 5, 4, 4), tf.constant(RNG.uniform(0.2, 0.8, [2, 5, 4, 24]).round(2), tf.float32)
_TAP_MASK, _CONV_FILTERS = normal(2, 5, 4, 12), normal(3, 2, 2, 6)
_LEVELS = tf.constant([[3, 4], [2, 1]])
_POINTS = tf.constant(RNG.uniform(0.1, 0.9, [2, 3, 2, 2, 3, 2]), tf.float32)
SAMPLES |= {
    "nn.deform_conv2d": sample(
        lambda features, offsets, filters, mask, bias: nn.deform_conv2d(
            features, offsets, filters, mask=mask, bias=bias, padding="SAME"
        ),
        _DEFORMED,
        _OFFSETS,
        _CONV_FILTERS,
        _TAP_MASK,
        normal(6),
        edge_args=[(_DEFORMED[:0], _OFFSETS[:0], _CONV_FILTERS, _TAP_MASK[:0], normal(6))],
        bad_args=[((_DEFORMED, _OFFSETS[..., :9], _CONV_FILTERS, _TAP_MASK, normal(6)), "offsets are .*expected")],
        second_order=False,
        forward_mode=False,
    ),
    "nn.multiscale_deformable_attention": sample(
        nn.multiscale_deformable_attention,
        normal(2, 14, 2, 5),
        _LEVELS,
        _POINTS,
        normal(2, 3, 2, 2, 3),
        edge_args=[(normal(0, 14, 2, 5), _LEVELS, _POINTS[:0], normal(0, 3, 2, 2, 3))],
        bad_args=[((normal(2, 13, 2, 5), _LEVELS, _POINTS, normal(2, 3, 2, 2, 3)), "spatial_shapes have 14 pixels")],
        second_order=False,
        forward_mode=False,
    ),
}


# Attention. The arguments after value, by name, are in the order of its signature.

_QUERY, _KEY, _VALUE = normal(2, 3, 4, 5), normal(2, 6, 2, 5), normal(2, 6, 2, 3)
_PAIRS = tf.constant(RNG.random([2, 1, 3, 6]) < 0.7), normal(4, 3, 6)
_SINKS, _QUERY_LENGTHS, _KEY_LENGTHS = normal(4), tf.constant([3, 2]), tf.constant([4, 6])
_OPTIONS = list(inspect.signature(nn.attention).parameters)[3:]


def _attention(query, key, value, *options):
    results = nn.attention(query, key, value, **dict(zip(_OPTIONS, options, strict=False)))
    if isinstance(results, tuple):
        results = results[0], keras.ops.cast(results[1], results[0].dtype)
    return results


def _padded_attention(tensors, pairs, sinks, lengths):
    """Returns arguments with a mask, a bias, softcap, sinks, lengths and key_lengths."""
    return *tensors, *pairs, False, None, None, None, 2.0, None, sinks, *lengths


_TENSORS, _LENGTHS = (_QUERY, _KEY, _VALUE), (_QUERY_LENGTHS, _KEY_LENGTHS)
SAMPLES |= {
    "nn.attention": sample(
        _attention,
        *_padded_attention(_TENSORS, _PAIRS, _SINKS, _LENGTHS),
        edge_args=[
            _padded_attention([x[:0] for x in _TENSORS], [_PAIRS[0][:0], _PAIRS[1]], _SINKS, [n[:0] for n in _LENGTHS]),
            _padded_attention(_TENSORS, _PAIRS, _SINKS, [0 * n for n in _LENGTHS]),
        ],
        bad_args=[
            (
                _padded_attention(_TENSORS, _PAIRS, _SINKS, [_QUERY_LENGTHS + 1, _KEY_LENGTHS]),
                r"lengths\[0\] is 4, expected \[0, 3\]",
            ),
            (_padded_attention(_TENSORS, _PAIRS, _SINKS[:3], _LENGTHS), "sinks must be"),
        ],
        second_order=False,
        forward_mode=False,
    ),
    "nn.attention (by place, log-sum-exp)": sample(
        _attention,
        *_TENSORS,
        *(None, None, False, (4, 1), tf.constant([3, 1]), None, None),
        *(tf.constant([0.5, 0.25, 0.125, 0.0]), None, None, None, 0.25, [1, 2], True),
        non_differentiable=10,
        second_order=False,
        forward_mode=False,
    ),
}
