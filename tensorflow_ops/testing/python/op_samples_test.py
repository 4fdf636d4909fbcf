"""Runs opcheck on every public op of the package, from one table of samples.

A new op needs an entry in its family's table below, or test_every_public_op_has_a_sample
fails. Choose arguments with dims of different sizes and values away from kinks, and the
options that match its documentation. An op that tools/new_op writes is in _OWN_TESTS instead.
One table, and therefore longer than 450 lines.
"""

import inspect
import types

import keras
import numpy as np
import shard_testing
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)


def _normal(*shape):
    return tf.constant(_RNG.normal(size=shape), tf.float32)


def _sample(fn, *args, imports=("tensorflow_ops",), **options):
    return tfo.testing.OpSample(fn, args, None, {"imports": imports, **options})


def _with(fn, **attributes):
    return lambda *args: fn(*args, **attributes)


# tfo.zero_out and tfo.zero_out_with_index.

_ZERO_OUT = {
    "zero_out": _sample(tfo.zero_out, _normal(2, 3), second_order=True, vectorize=False),
    "zero_out_with_index": _sample(
        _with(tfo.zero_out_with_index, preserve_index=4),
        _normal(2, 3),
        bad_args=[((tf.zeros([1, 3]),), r"preserve_index is 4, expected \[0, 3\)")],
        # preserve_index must exist.
        empty=False,
        vectorize=False,
    ),
}

# Forward mode to boxes is slow to trace, so only one sample per op tests it.
_IN_ANOTHER_SAMPLE = {"forward_mode": "another sample of the op has this test"}

# tfo.detection. Feature values differ by at least 1/8, so that small steps change no maximum.


def _features(*shape):
    size = int(np.prod(shape))
    return tf.constant((_RNG.permutation(size) - size // 2).reshape(shape) / 8, tf.float32)


# Random boxes: corners, bins and samples are away from pixels' edges and centres, where gradients have kinks.
_CORNERS = _RNG.uniform(0.1, 2.4, [7, 2])
_BOXES = tf.constant(np.concatenate([_CORNERS, _CORNERS + _RNG.uniform(1.1, 2.9, [7, 2])], 1), tf.float32)
_BOX_INDICES = tf.constant([0, 1, 1, 0, 1, 0, 1])
_NO_BOXES = (tf.zeros([0, 4]), tf.zeros([0], tf.int32))


def _pool(fn, features, output_size=2, **options):
    bad_index = tf.constant([0, 1, 1, 9, 1, 0, 1])
    return _sample(
        fn,
        features,
        _BOXES,
        _BOX_INDICES,
        output_size,
        edge_args=[(features, *_NO_BOXES, output_size)],
        bad_args=[
            (
                (features, _BOXES, bad_index, output_size),
                r"box_indices\[3\] is 9, expected \[0, 2\): features has 2 images",
            ),
            ((features, _BOXES[:, :3], _BOX_INDICES, output_size), "boxes must be"),
            ((features, _BOXES, _BOX_INDICES, 0), "output_size is 0"),
        ],
        **options,
    )


_MAP, _BIN_MAP = _features(2, 5, 6, 3), _features(2, 5, 6, 12)
_DETECTION = {
    "detection.roi_pool": _pool(tfo.detection.roi_pool, _MAP, non_differentiable=1, second_order=True),
    "detection.roi_pool_with_argmax": _pool(tfo.detection.roi_pool_with_argmax, _MAP, non_differentiable=1),
    "detection.roi_align": _pool(tfo.detection.roi_align, _MAP),
    "detection.roi_align (2 samples)": _pool(
        _with(tfo.detection.roi_align, sampling_ratio=2, aligned=False), _MAP, skip=_IN_ANOTHER_SAMPLE
    ),
    "detection.roi_align (maximum)": _pool(_with(tfo.detection.roi_align, mode="max"), _MAP),
    "detection.roi_align (NCHW)": _pool(
        _with(tfo.detection.roi_align, data_format="NCHW", box_format="yxyx"),
        tf.transpose(_MAP, [0, 3, 1, 2]),
        skip=_IN_ANOTHER_SAMPLE,
    ),
    "detection.ps_roi_pool": _pool(tfo.detection.ps_roi_pool, _BIN_MAP, non_differentiable=1, second_order=True),
    "detection.ps_roi_align": _pool(tfo.detection.ps_roi_align, _BIN_MAP),
    "detection.multiscale_roi_align": _pool(
        _with(tfo.detection.multiscale_roi_align, strides=(1, 2), canonical_box_size=40.0),
        [_features(2, 8, 9, 3), _features(2, 4, 5, 3)],
    ),
}

# Overlaps are float32 for 16-bit boxes. Corners differ by at least 1/16, so that small steps leave their order; 16-bit
# numbers hold them.
_BOX_DTYPES = {"float16": "float32", "bfloat16": "float32"}
_SOME_BOXES = tf.constant([[1, 2, 6, 5], [3, 0, 8, 7], [0.5, 3, 2.5, 9]], tf.float32)
_MORE_BOXES = tf.constant([[2, 1, 7, 6], [1.5, 4, 9, 8], [4, 2.5, 5, 3.5]], tf.float32)
# Twice as wide as high: the gradient of CIoU keeps its weight of aspect ratios constant, which a numeric one cannot.
_WIDE_BOXES = tf.constant([[1, 2, 6, 4.5], [3, 0, 8, 2.5], [0.5, 3.125, 2.5, 4.125]], tf.float32)
_MORE_WIDE_BOXES = tf.constant([[2, 1, 7, 3.5], [1.5, 4, 9.5, 8], [4, 2.25, 5, 2.75]], tf.float32)
_ROTATED = tf.constant([[2, 3, 4, 2, 30], [1, 2, 3, 5, -70]], tf.float32)


def _overlap(fn, mode):
    boxes = (_WIDE_BOXES, _MORE_WIDE_BOXES) if mode == "ciou" else (_SOME_BOXES, _MORE_BOXES)
    return _sample(
        _with(fn, mode=mode),
        *boxes,
        output_dtype=_BOX_DTYPES,
        edge_args=[(_SOME_BOXES[:0], _MORE_BOXES[:0])],
        bad_args=[((_SOME_BOXES, _MORE_BOXES[:, :3]), r"boxes2 must be \[.*4\]")],
    )


def _rotated_iou(boxes1, boxes2):
    # Its gradient is an error, by design.
    return tfo.detection.box_iou(tf.stop_gradient(boxes1), tf.stop_gradient(boxes2), box_format="cxcywhr")


_DETECTION |= {
    **{
        f"detection.{fn.__name__} ({mode})": _overlap(fn, mode)
        for fn in (tfo.detection.box_iou, tfo.detection.box_iou_loss)
        for mode in ("iou", "giou", "diou", "ciou")
    },
    "detection.box_iou (rotated)": _sample(
        _rotated_iou,
        _ROTATED,
        _ROTATED[:1] + 1,
        output_dtype=_BOX_DTYPES,
        non_differentiable=(0, 1),
    ),
}

# Suppression: 16-bit numbers hold these boxes and scores, and no IoU is near a threshold.

_RIVALS = tf.constant([[0, 0, 8, 8], [1, 0, 9, 8], [16, 16, 24, 24], [0, 1, 8, 8], [17, 17, 25, 26]], tf.float32)
_RIVAL_SCORES = tf.constant([0.5, 0.75, 0.25, 0.625, 0.375])
_GROUPS = tf.constant([3, -1, 3, 3, -1])
_SUPPRESSION = {"vectorize": False, "xla": False, "data_dependent_shapes": True}
_DETECTION |= {
    "detection.nms": _sample(
        _with(tfo.detection.nms, iou_threshold=0.4),
        _RIVALS,
        _RIVAL_SCORES,
        non_differentiable=(0, 1),
        edge_args=[(_RIVALS[:0], _RIVAL_SCORES[:0])],
        bad_args=[((_RIVALS[:, :3], _RIVAL_SCORES), "boxes must be"), ((_RIVALS, _RIVAL_SCORES[:2]), "scores must be")],
        **_SUPPRESSION,
    ),
    "detection.batched_nms": _sample(
        _with(tfo.detection.batched_nms, iou_threshold=0.4),
        _RIVALS,
        _RIVAL_SCORES,
        _GROUPS,
        non_differentiable=(0, 1),
        edge_args=[(_RIVALS[:0], _RIVAL_SCORES[:0], _GROUPS[:0])],
        bad_args=[((_RIVALS, _RIVAL_SCORES, _GROUPS[:2]), "group_ids must be")],
        **_SUPPRESSION,
    ),
    "detection.soft_nms": _sample(
        tfo.detection.soft_nms,
        _RIVALS,
        _RIVAL_SCORES,
        output_dtype=_BOX_DTYPES,
        non_differentiable=(0, 1),
        edge_args=[(_RIVALS[:0], _RIVAL_SCORES[:0])],
        bad_args=[((_RIVALS, _RIVAL_SCORES[:2]), "scores must be")],
        **_SUPPRESSION,
    ),
    "detection.multiclass_nms": _sample(
        _with(tfo.detection.multiclass_nms, iou_threshold=0.4, max_outputs=7),
        tf.stack([_RIVALS, _RIVALS[::-1]]),
        tf.constant(_RNG.permutation(30).reshape(2, 5, 3) / 32, tf.float32),
        second_order=True,
        unknown_rank=False,
        edge_args=[(tf.zeros([0, 5, 4]), tf.zeros([0, 5, 3])), (tf.zeros([2, 0, 4]), tf.zeros([2, 0, 3]))],
        bad_args=[((tf.zeros([2, 5, 3]), tf.zeros([2, 5, 3])), "boxes must be")],
    ),
}

# tfo.nn. Per-row losses are float32 for 16-bit logits.

_ROW_DTYPES = {"float16": "float32", "bfloat16": "float32"}
_LOGITS, _NO_LOGITS = _normal(3, 5), tf.zeros([0, 5])
_LABELS = tf.constant([1, 0, 4])
_TARGETS = tf.constant(_RNG.dirichlet(np.ones(5), 3), tf.float32)
_BAD_LABELS = ((tf.constant([1, 7, 4]), _LOGITS), r"labels\[1\] is 7, expected \[0, 5\)")


def _linear_cross_entropy(*bias, **options):
    features, weight = _normal(3, 6), _normal(6, 5)

    def fn(features, weight, labels, bias=None):
        return tfo.nn.linear_cross_entropy(features, weight, labels, bias=bias)

    return _sample(
        fn,
        features,
        weight,
        _LABELS,
        *bias,
        output_dtype=_ROW_DTYPES,
        bad_args=[((features, weight, tf.constant([1, 7, 4]), *bias), r"labels\[1\] is 7")],
        **options,
    )


_NN = {
    "nn.softmax": _sample(
        tfo.nn.softmax,
        _LOGITS,
        reference=lambda x: np.exp(_log_softmax(x)),
        second_order=True,
        edge_args=[(_NO_LOGITS,)],
        bad_args=[((tf.zeros([3, 0]),), "at least one class"), ((tf.constant(1.0),), "scalar|at least one dim")],
    ),
    "nn.softmax (axis 0)": _sample(_with(tfo.nn.softmax, axis=0), _LOGITS),
    "nn.log_prob_from_logits": _sample(
        tfo.nn.log_prob_from_logits, _LOGITS, second_order=True, edge_args=[(_NO_LOGITS,)]
    ),
    "nn.softmax_entropy": _sample(
        tfo.nn.softmax_entropy, _LOGITS, output_dtype=_ROW_DTYPES, second_order=True, edge_args=[(_NO_LOGITS,)]
    ),
    "nn.softmax_cross_entropy": _sample(
        _with(tfo.nn.softmax_cross_entropy, label_smoothing=0.1),
        _TARGETS,
        _LOGITS,
        output_dtype=_ROW_DTYPES,
        second_order=True,
        edge_args=[(_NO_LOGITS, _NO_LOGITS)],
        bad_args=[((_TARGETS[:2], _LOGITS), "labels")],
    ),
    "nn.sparse_softmax_cross_entropy": _sample(
        _with(tfo.nn.sparse_softmax_cross_entropy, ignore_index=4, label_smoothing=0.1, z_loss=0.01),
        _LABELS,
        _LOGITS,
        output_dtype=_ROW_DTYPES,
        second_order=True,
        edge_args=[(_LABELS[:0], _NO_LOGITS)],
        bad_args=[_BAD_LABELS, ((_LABELS[:2], _LOGITS), "labels")],
    ),
    "nn.label_log_prob": _sample(
        tfo.nn.label_log_prob,
        _LABELS,
        _LOGITS,
        output_dtype=_ROW_DTYPES,
        second_order=True,
        edge_args=[(_LABELS[:0], _NO_LOGITS)],
        bad_args=[_BAD_LABELS],
    ),
    "nn.gaussian_kl": _sample(
        tfo.nn.gaussian_kl,
        (_normal(3, 5), _normal(3, 5)),
        (_normal(3, 5), _normal(3, 5)),
        output_dtype=_ROW_DTYPES,
        second_order=True,
        edge_args=[((_NO_LOGITS, _NO_LOGITS), (_NO_LOGITS, _NO_LOGITS))],
        bad_args=[(((_normal(3, 5), _normal(3, 4)), (_normal(3, 5), _normal(3, 5))), "broadcast|[Ii]ncompatible")],
    ),
    "nn.gaussian_kl (unit Gaussian)": _sample(
        tfo.nn.gaussian_kl, (_normal(3, 5), _normal(3, 5)), output_dtype=_ROW_DTYPES
    ),
    "nn.linear_cross_entropy": _linear_cross_entropy(
        _normal(5),
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

_SEQUENCE_LABELS = tf.constant([[1, 3], [2, 2], [0, 0]])
_LABEL_LENGTHS, _LOGIT_LENGTHS = tf.constant([2, 2, 0]), tf.constant([4, 3, 2])
_NO_EXAMPLES = (tf.zeros([0, 2], tf.int32), tf.zeros([0], tf.int32))


def _label_sequences(fn, *dims, **options):
    labels, lengths = _SEQUENCE_LABELS, (_LABEL_LENGTHS, _LOGIT_LENGTHS)
    logits = _normal(3, *dims)
    no_labels, no_lengths = _NO_EXAMPLES
    bad = tf.constant([[1, 9], [2, 2], [0, 0]])
    return _sample(
        fn,
        labels,
        logits,
        *lengths,
        output_dtype=_ROW_DTYPES,
        edge_args=[(no_labels, logits[:0], no_lengths, no_lengths)],
        bad_args=[
            ((bad, logits, *lengths), r"labels\[0, 1\] is 9, expected \[0, 4\)"),
            ((labels, logits, _LABEL_LENGTHS + 1, _LOGIT_LENGTHS), r"label_lengths\[0\] is 3, expected \[0, 2\]"),
            ((labels, logits, _LABEL_LENGTHS, _LOGIT_LENGTHS + 1), r"logit_lengths\[0\] is 5, expected"),
            ((labels[:2], logits, *lengths), "labels|logits"),
        ],
        **options,
    )


_NN |= {
    "nn.ctc_loss": _label_sequences(tfo.nn.ctc_loss, 4, 4),
    "nn.rnnt_loss": _label_sequences(tfo.nn.rnnt_loss, 4, 3, 4, empty=False),
}

_TAG_LOGITS, _TRANSITIONS = _normal(3, 4, 5), _normal(5, 5)
_TAGS, _TAG_LENGTHS = tf.constant([[1, 3, 0, 4], [2, 2, 1, 9], [9, 9, 9, 9]]), tf.constant([4, 3, 0])
_CRF_BAD = [
    ((_TAG_LOGITS, _TRANSITIONS[:4]), "transitions"),
    ((_TAG_LOGITS, _TRANSITIONS, _TAG_LENGTHS + 1), r"lengths\[0\] is 5, expected \[0, 4\]"),
]


def _crf(fn, **options):
    return _sample(
        lambda logits, transitions, lengths=None: fn(logits, transitions, lengths=lengths),
        _TAG_LOGITS,
        _TRANSITIONS,
        _TAG_LENGTHS,
        edge_args=[(_TAG_LOGITS[:0], _TRANSITIONS, _TAG_LENGTHS[:0])],
        bad_args=_CRF_BAD,
        **options,
    )


_NN |= {
    "nn.crf_log_likelihood": _sample(
        lambda labels, *scores: tfo.nn.crf_log_likelihood(labels, *scores[:2], lengths=scores[2]),
        _TAGS,
        _TAG_LOGITS,
        _TRANSITIONS,
        _TAG_LENGTHS,
        output_dtype=_ROW_DTYPES,
        edge_args=[(_TAGS[:0], _TAG_LOGITS[:0], _TRANSITIONS, _TAG_LENGTHS[:0])],
        bad_args=[
            ((_TAGS, _TAG_LOGITS, _TRANSITIONS, _TAG_LENGTHS + 1), r"lengths\[0\] is 5, expected \[0, 4\]"),
            ((_TAGS, _TAG_LOGITS, _TRANSITIONS, tf.constant([4, 4, 0])), r"labels\[1, 3\] is 9, expected \[0, 5\)"),
        ],
    ),
    "nn.crf_decode": _crf(tfo.nn.crf_decode, output_dtype=_ROW_DTYPES),
    "nn.crf_marginals": _crf(
        lambda logits, transitions, lengths: tfo.nn.crf_marginals(
            # Its gradient is an error, by design.
            tf.stop_gradient(logits),
            tf.stop_gradient(transitions),
            lengths=lengths,
        ),
        output_dtype=_ROW_DTYPES,
        non_differentiable=(0, 1),
    ),
}


# tfo.nn: deformable ops. Places are away from whole pixels; 16-bit numbers hold them.

_DEFORMED, _OFFSETS = _normal(2, 5, 4, 4), tf.constant(_RNG.uniform(0.2, 0.8, [2, 5, 4, 24]).round(2), tf.float32)
_TAP_MASK, _CONV_FILTERS = _normal(2, 5, 4, 12), _normal(3, 2, 2, 6)
_LEVELS = tf.constant([[3, 4], [2, 1]])
_POINTS = tf.constant(_RNG.uniform(0.1, 0.9, [2, 3, 2, 2, 3, 2]), tf.float32)
_NN |= {
    "nn.deform_conv2d": _sample(
        lambda features, offsets, filters, mask, bias: tfo.nn.deform_conv2d(
            features, offsets, filters, mask=mask, bias=bias, padding="SAME"
        ),
        _DEFORMED,
        _OFFSETS,
        _CONV_FILTERS,
        _TAP_MASK,
        _normal(6),
        edge_args=[(_DEFORMED[:0], _OFFSETS[:0], _CONV_FILTERS, _TAP_MASK[:0], _normal(6))],
        bad_args=[((_DEFORMED, _OFFSETS[..., :9], _CONV_FILTERS, _TAP_MASK, _normal(6)), "offsets are .*expected")],
        second_order=False,
        forward_mode=False,
    ),
    "nn.multiscale_deformable_attention": _sample(
        tfo.nn.multiscale_deformable_attention,
        _normal(2, 14, 2, 5),
        _LEVELS,
        _POINTS,
        _normal(2, 3, 2, 2, 3),
        edge_args=[(_normal(0, 14, 2, 5), _LEVELS, _POINTS[:0], _normal(0, 3, 2, 2, 3))],
        bad_args=[((_normal(2, 13, 2, 5), _LEVELS, _POINTS, _normal(2, 3, 2, 2, 3)), "spatial_shapes have 14 pixels")],
        second_order=False,
        forward_mode=False,
    ),
}


def _log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


# tfo.losses and tfo.layers. Results have Keras's default dtype, and Keras's reductions need known ranks.

_LOSSES = {
    "losses.BoxIoU": _sample(tfo.losses.BoxIoU(), _SOME_BOXES, _MORE_BOXES, dtypes=("float32",), unknown_rank=False),
    "losses.SparseSoftmaxCrossEntropy": _sample(
        tfo.losses.SparseSoftmaxCrossEntropy(label_smoothing=0.1),
        _LABELS,
        _LOGITS,
        dtypes=("float16", "bfloat16", "float32"),
        output_dtype="float32",
        unknown_rank=False,
    ),
    "losses.SoftmaxCrossEntropy": _sample(
        tfo.losses.SoftmaxCrossEntropy(),
        _TARGETS,
        _LOGITS,
        dtypes=("float32",),
        unknown_rank=False,
    ),
}

for _name, _loss, _dims in (("CTC", tfo.losses.CTC(), (4, 4)), ("RNNT", tfo.losses.RNNT(), (4, 3, 4))):
    _LOSSES[f"losses.{_name}"] = _sample(
        _loss,
        _SEQUENCE_LABELS,
        _normal(3, *_dims),
        dtypes=("float16", "bfloat16", "float32"),
        output_dtype="float32",
        unknown_rank=False,
        empty=False,
    )


def _roi_layer(layer, features, **options):
    """Returns a sample of a float64 layer: the steps of numeric gradients in float32 would cross pixels."""
    return _sample(layer, features, _BOXES, _BOX_INDICES, dtypes=("float64",), output_dtype="float64", **options)


_LAYERS = {
    "layers.RoIPool": _roi_layer(tfo.layers.RoIPool(2, dtype="float64"), _MAP, non_differentiable=1),
    "layers.RoIAlign": _roi_layer(tfo.layers.RoIAlign(2, dtype="float64"), _MAP, skip=_IN_ANOTHER_SAMPLE),
    "layers.PSRoIPool": _roi_layer(tfo.layers.PSRoIPool(2, dtype="float64"), _BIN_MAP, non_differentiable=1),
    "layers.PSRoIAlign": _roi_layer(tfo.layers.PSRoIAlign(2, dtype="float64"), _BIN_MAP, skip=_IN_ANOTHER_SAMPLE),
    "layers.MultiScaleRoIAlign": _roi_layer(
        tfo.layers.MultiScaleRoIAlign(2, strides=(1, 2), canonical_box_size=40.0, dtype="float64"),
        [_features(2, 8, 9, 3), _features(2, 4, 5, 3)],
        skip=_IN_ANOTHER_SAMPLE,
    ),
}


# Its call only copies: losses and decoding are methods.
_CRF_LAYER = tfo.layers.CRF(5, dtype="float64")
_CRF_LAYER.build([None, None, 5])
_LAYERS["layers.CRF"] = _sample(
    _CRF_LAYER, _TAG_LOGITS, dtypes=("float64",), output_dtype="float64", unknown_rank=False
)

# tfo.shapes: a composition of TensorFlow's ops.

_SHAPES = {
    "shapes.reshape": _sample(lambda x: tfo.shapes.reshape(x, [0, [1, 2]]), _normal(2, 3, 5)),
}

# tfo.seq2seq. Choices have no gradient.

_TOKENS = tf.constant([[[1, 2, 3], [3, 4, 0]], [[3, 4, 1], [0, 1, 2]], [[5, 6, 7], [2, 2, 2]], [[1, 1, 3], [4, 0, 4]]])
_PARENTS = tf.constant([[[0, 0, 0], [0, 0, 0]], [[1, 0, 2], [2, 1, 0]], [[0, 0, 1], [1, 2, 1]], [[2, 1, 0], [0, 2, 1]]])
_LENGTHS = tf.constant([[4, 2, 3], [1, 0, 4]])
_CTC_LOGITS, _CTC_LENGTHS = _normal(2, 5, 4), tf.constant([5, 3])
_CTC_LABEL_SCORES = _normal(4, 4)


def _ctc_decode(fn):
    # Its gradient is an error, by design.
    return _sample(
        lambda logits, lengths: fn(tf.stop_gradient(logits), lengths),
        _CTC_LOGITS,
        _CTC_LENGTHS,
        non_differentiable=0,
        output_dtype=_ROW_DTYPES,
        edge_args=[(_CTC_LOGITS[:0], _CTC_LENGTHS[:0]), (_CTC_LOGITS[:, :0], tf.zeros([2], tf.int32))],
        bad_args=[
            ((_CTC_LOGITS, _CTC_LENGTHS + 1), r"logit_lengths\[0\] is 6, expected \[0, 5\]"),
            ((_CTC_LOGITS[0], _CTC_LENGTHS), "logits must be"),
        ],
    )


_SEQ2SEQ = {
    "seq2seq.beam_search_step": _sample(
        _with(tfo.seq2seq.beam_search_step, eos_ids=[3], length_penalty=0.6),
        _normal(2, 3, 5),
        _normal(2, 3),
        tf.constant([[False, True, False], [False, False, False]]),
        tf.constant([[2, 1, 2], [2, 2, 2]]),
        non_differentiable=(0, 1),
        output_dtype=_ROW_DTYPES,
    ),
    "seq2seq.ctc_greedy_decode": _ctc_decode(tfo.seq2seq.ctc_greedy_decode),
    "seq2seq.ctc_beam_search_decode": _ctc_decode(
        _with(tfo.seq2seq.ctc_beam_search_decode, beam_width=4, top_paths=2, label_bonus=0.5)
    ),
    # The greatest length is the number of steps, so vectorized_map over lengths is an error.
    "seq2seq.ctc_beam_search_decode (language model)": _sample(
        lambda logits: tfo.seq2seq.ctc_beam_search_decode(
            tf.stop_gradient(logits),
            tf.fill(tf.shape(logits)[:1], tf.shape(logits)[1]),
            beam_width=4,
            top_paths=2,
            step_fn=lambda labels, state: (tf.gather(_CTC_LABEL_SCORES, labels), state),
        ),
        _CTC_LOGITS,
        non_differentiable=0,
        output_dtype=_ROW_DTYPES,
        bad_args=[((_CTC_LOGITS[:, :, :3],), r"label_scores must be \[2, 4, 3\]")],
    ),
    "seq2seq.gather_tree": _sample(
        _with(tfo.seq2seq.gather_tree, pad_id=9),
        _TOKENS,
        _PARENTS,
        _LENGTHS,
        bad_args=[((_TOKENS, _PARENTS, _LENGTHS + 1), r"lengths\[0, 0\] is 5, expected \[0, 4\]")],
    ),
    "seq2seq.batch_gather": _sample(
        tfo.seq2seq.batch_gather,
        _normal(2, 4, 3),
        tf.constant([[3, 0, 0, 1, 2], [1, 1, 2, 0, 3]]),
        second_order=True,
        bad_args=[
            ((_normal(2, 4, 3), tf.constant([[3, 0, 0, 1, 7], [1, 1, 2, 0, 3]])), r"indices\[0,4\] is 7, expected")
        ],
    ),
}

# tfo.image: masks. Nothing has a gradient.

_MASK = tf.constant(_RNG.random([2, 5, 7, 3]) < 0.7)
_VALUES = tf.constant(_RNG.integers(0, 3, [2, 5, 7]), tf.int32)
_IMAGE = {
    "image.euclidean_distance_transform": _sample(
        _with(tfo.image.euclidean_distance_transform, spacing=(0.5, 2.0)),
        tf.cast(_MASK, tf.float32) * _normal(2, 5, 7, 3),
        non_differentiable=0,
        output_dtype="float32",
        bad_args=[((tf.zeros([3]),), r"images (are|must be) .*\[N, H, W\]")],
    ),
    "image.euclidean_distance_transform (bool)": _sample(tfo.image.euclidean_distance_transform, _MASK),
    "image.connected_components": _sample(
        tfo.image.connected_components,
        _VALUES,
        bad_args=[((tf.zeros([5, 7]),), "images are float32, expected bool or an integer")],
    ),
    "image.connected_components (8 neighbors)": _sample(_with(tfo.image.connected_components, connectivity=8), _MASK),
}

# Sampling. Places, in pixels, are away from whole ones, where gradients have kinks.
_PLACES = tf.constant(_RNG.integers(-1, 5, [2, 3, 2]) + _RNG.uniform(0.25, 0.75, [2, 3, 2]), tf.float32)


def _grid_sample(features, **options):
    return _sample(
        _with(tfo.image.grid_sample, normalized=False, **options),
        features,
        _PLACES,
        # 16 bits round places.
        fixed_dtype=1,
        bad_args=[
            ((features, tf.tile(_PLACES, [2, 1, 1])), "grid must be"),
            ((features[0], _PLACES), "features must be 4-D"),
        ],
    )


_IMAGE |= {
    "image.grid_sample": _grid_sample(_normal(2, 4, 5, 3)),
    "image.grid_sample (bicubic)": _grid_sample(_normal(2, 4, 5, 3), mode="bicubic", padding_mode="reflection"),
    "image.dense_image_warp": _sample(
        tfo.image.dense_image_warp,
        _normal(2, 4, 5, 3),
        tf.constant(_RNG.integers(-2, 2, [2, 4, 5, 2]) + _RNG.uniform(0.25, 0.75, [2, 4, 5, 2]), tf.float32),
        fixed_dtype=1,
        bad_args=[((tf.zeros([2, 4, 5, 3]), tf.zeros([2, 4, 5, 3])), r"flow must be \[N, H, W, 2\]")],
    ),
    "image.correlation_cost": _sample(
        _with(tfo.image.correlation_cost, max_displacement=2, padding=2),
        _normal(2, 4, 5, 3),
        _normal(2, 4, 5, 3),
        second_order=True,
        bad_args=[((tf.zeros([2, 4, 5, 3]), tf.zeros([2, 4, 5, 4])), "features_b must have features_a's shape")],
    ),
    "image.correlation_cost (NCHW, windows, strides)": _sample(
        _with(
            tfo.image.correlation_cost,
            max_displacement=3,
            kernel_size=3,
            stride_1=2,
            stride_2=2,
            padding=4,
            data_format="NCHW",
        ),
        _normal(2, 3, 4, 5),
        _normal(2, 3, 4, 5),
        skip=_IN_ANOTHER_SAMPLE,
    ),
}
_LAYERS["layers.CorrelationCost"] = _sample(
    tfo.layers.CorrelationCost(2, padding=2, dtype="float64"),
    _normal(2, 4, 5, 3),
    _normal(2, 4, 5, 3),
    dtypes=("float64",),
    output_dtype="float64",
    skip=_IN_ANOTHER_SAMPLE,
)

# Add a new family's table here and to _SAMPLES.

_SAMPLES = {**_ZERO_OUT, **_DETECTION, **_NN, **_LOSSES, **_LAYERS, **_SHAPES, **_SEQ2SEQ, **_IMAGE}

_CHECKED = shard_testing.part_of(_SAMPLES)

# Ops whose own tests call opcheck.
_OWN_TESTS = []

# tf.stop_gradient of the sample, or Keras, refuses None before the op does.
_REFUSE_NONE = (
    "detection.box_iou (rotated)",
    "layers.CRF",
    "nn.crf_marginals",
    "seq2seq.ctc_beam_search_decode",
    "seq2seq.ctc_beam_search_decode (language model)",
    "seq2seq.ctc_greedy_decode",
)

# Public names that opcheck cannot check, with the reasons.
_NO_OPS = {
    "show_versions": "prints",
    "layers.DeformConv2D": "has variables whose sizes depend on its inputs; calls deform_conv2d",
    "layers.Merge": "has variables whose sizes depend on its inputs; Keras and matmul define gradients and dtypes",
    "distribute.make_parallel": "takes and returns functions",
    "seq2seq.beam_search": "a loop over the caller's function, composed of beam_search_step and gather_tree",
    "seq2seq.sample": "a loop over the caller's function that draws random numbers",
    "seq2seq.stochastic_beam_search": "a loop over the caller's function that draws random numbers",
    "shapes.get_shape": "returns Python numbers",
    "testing": "checks ops",
    "python_op": "makes ops; its own tests run opcheck on them",
    "summary": "writes files",
}


def _public_names():
    """Yields the names of public functions, layers and losses, such as "nn.softmax"."""
    for name in tfo.__all__:
        member = getattr(tfo, name)
        if isinstance(member, types.ModuleType):
            yield from (f"{name}.{inner}" for inner in member.__all__ if _is_callable(getattr(member, inner)))
        elif _is_callable(member):
            yield name


def _is_callable(member):
    """Returns whether a member is a function, layer or loss, not a named tuple or a number."""
    if inspect.isclass(member):
        return issubclass(member, keras.layers.Layer | keras.losses.Loss)
    return callable(member)


def _parameters(name):
    """Returns the names of the arguments of a sample's function, layer or loss, and whether None is a value."""
    member = tfo
    for part in name.partition(" ")[0].split("."):
        member = getattr(member, part)
    function = member.call if inspect.isclass(member) else member
    parameters = inspect.signature(function).parameters.values()
    return [(p.name, p.default is None) for p in parameters if p.name != "self"]


def _not_dense(tensor, also_none):
    """Yields values that are no dense tensors, and what an error says of them."""
    rank = tensor.shape.rank
    ragged = tf.RaggedTensor.from_tensor(tensor if rank > 1 else tensor[tf.newaxis])
    yield ragged, r"a RaggedTensor, expected a dense tensor: pass .*\.to_tensor\(\.\.\.\)"
    yield tf.sparse.from_dense(tensor), r"a SparseTensor, expected a dense tensor: pass tf\.sparse\.to_dense\("
    if also_none:
        yield None, "None, expected a tensor"


class OpSamplesTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.results = tfo.testing.opcheck_samples(_CHECKED, raise_on_failure=False)

    @parameterized.parameters(*_CHECKED)
    def test_passes(self, name):
        self.assertEmpty(self.results[name].failures, f"\n{self.results[name]}")

    def test_every_public_op_has_a_sample(self):
        sampled = {name.partition(" ")[0] for name in _SAMPLES} | {*_OWN_TESTS}
        for name in _public_names():
            if name not in _NO_OPS and name.partition(".")[0] not in _NO_OPS:
                self.assertIn(name, sampled, f"tfo.{name} needs a sample in {__file__}")

    def test_every_sample_names_a_public_op(self):
        self.assertContainsSubset({*_OWN_TESTS} | {name.partition(" ")[0] for name in _SAMPLES}, set(_public_names()))


class ArgumentsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*_CHECKED)
    def test_names_the_argument_that_is_no_dense_tensor(self, name):
        sample = _CHECKED[name]
        for position, (parameter, is_optional) in enumerate(_parameters(name)[: len(sample.args)]):
            leaves = tf.nest.flatten(sample.args[position])
            if not tf.is_tensor(leaves[0]):
                continue
            for other, text in _not_dense(leaves[0], not is_optional and name not in _REFUSE_NONE):
                args = list(sample.args)
                args[position] = tf.nest.pack_sequence_as(args[position], [other, *leaves[1:]])
                # A name such as "features", or "q's means" of the argument q.
                with self.subTest(parameter), self.assertRaisesRegex(ValueError, rf"{parameter}\b.* is {text}"):
                    sample.fn(*args)


if __name__ == "__main__":
    tf.test.main()
