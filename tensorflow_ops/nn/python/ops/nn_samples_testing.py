"""Samples of tfo.nn."""

import functools

import keras
import numpy as np
import tensorflow as tf
from sample_testing import RNG, ROW_DTYPES, normal, sample, seed, without_gradient

from tensorflow_ops import nn

seed(__name__)
_INF, _NAN = np.inf, np.nan
LOGITS, _NO_LOGITS = normal(3, 5), tf.zeros([0, 5])
_3D = normal(2, 3, 5)
LABELS = tf.constant([1, 0, 4])
TARGETS = tf.constant(RNG.dirichlet(np.ones(5), 3), tf.float32)
_WEIGHTS = tf.constant([0.5, 2.0, 1.0, 0.0, 3.0])
# Rows that are masked, far apart and not finite; 16-bit numbers hold the large ones.
_EXTREMES = tf.constant(
    [
        *([0.0, -_INF, 1.0], [-_INF] * 3, [_NAN, 0.0, 1.0], [0.0, _INF, 1.0], [0.0] * 3, [20.0, 0.0, 0.0]),
        *([6e4, -6e4, 6e4], [-6e4] * 3, [50.0, 0.0, -_INF], [-_INF, _NAN, -_INF]),
    ]
)
_EXTREME_LOGITS = [
    {"logits": _EXTREMES[:-1]},
    {"logits": _EXTREMES[-1:], "onnx": "ONNX Runtime's maximum misses a NaN among -inf"},
]
# Means and log variances, each with each.
_ALL_PAIRS = [tf.reshape(x, [-1, 1]) for x in tf.meshgrid(*[[0.0, 1.0, -110.0, 100.0, _INF, -_INF, _NAN]] * 4)]
_FLOAT_LOGITS = "logits are int32, expected float16"


def _log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


# Bad arguments of functions of logits, with classes on an axis.
_BAD_LOGITS = [
    ({"logits": tf.zeros([3, 0])}, "at least one class"),
    ({"logits": tf.constant(1.0)}, "scalar|at least one dim"),
    ({"logits": tf.zeros([3, 5], tf.int32)}, _FLOAT_LOGITS),
    ({"logits": tf.zeros([0, 5]), "axis": 0}, r"logits are \[0,5\], expected at least one class on axis 0"),
    ({"axis": 2}, r"axis is 2, expected \[-2, 2\): logits are \[3,5\]"),
    *(({"axis": axis}, "axis is .*expected an int") for axis in (tf.constant(0.5), None, (0, 1), True)),
]
_NUMBER_IN = r"expected a number in \[0, 1\]"
_NOT_NEGATIVE = "expected a finite number that is not negative"
_BAD_SMOOTHING = [
    ({"label_smoothing": x}, f"label_smoothing is {x!r}, {_NUMBER_IN}") for x in (1.1, -0.1, _NAN, "0.1", True)
]
# Of all cross entropies.
_BAD_OPTIONS = [
    *_BAD_SMOOTHING,
    ({"softcap": 0.0}, "softcap is 0.0, expected a number above 0"),
    ({"softcap": 1e38}, r"softcap is 1e\+38, expected a number above 0, from 1e-30 to 1e30"),
    ({"softcap": 1e-38}, "softcap is 1e-38, expected a number above 0, from 1e-30 to 1e30"),
    ({"softcap": -1.0}, "softcap is -1.0, expected a number above 0"),
    ({"softcap": _NAN}, "softcap is nan"),
    ({"class_weights": [1.0, 2.0]}, r"class_weights are \[2\], expected \[5\]"),
    ({"class_weights": 1.0}, r"class_weights are \[\], expected \[5\]"),
]
_BAD_LABELS = [
    ({"labels": tf.constant([1, 7, 4])}, r"labels\[1\] is 7, expected \[0, 5\)"),
    ({"labels": tf.constant([1, -1, -5])}, r"labels\[1\] is -1, expected \[0, 5\)"),
    ({"labels": tf.constant([1, 2**40, 4])}, r"labels\[1\] is 1099511627776, expected \[0, 5\)"),
    ({"labels": tf.constant([1.0, 0, 4])}, "labels are float32, expected int32 or int64"),
    ({"labels": tf.constant([True, False, True])}, "labels are bool, expected int32 or int64"),
    ({"labels": [1, True, 0]}, "labels are bool, expected int32"),
    ({"labels": tf.zeros([3], tf.uint64)}, "labels are uint64, expected int32 or int64"),
]
_OTHER_SHAPES = [
    ({"labels": LABELS[:2]}, r"labels are \[2\], expected \[3\]: logits' shape without|labels must have logits' shape"),
    ({"labels": LABELS[:, tf.newaxis]}, r"labels are \[3,1\], expected \[3\]|labels must have logits' shape without"),
    ({"labels": 0}, r"labels are \[\], expected \[3\]"),
]
_BAD_SPARSE = [
    *(({"z_loss": x}, f"z_loss is .*, {_NOT_NEGATIVE}") for x in (-1e-4, _INF, 1e39, None)),
    *(({"ignore_index": x}, f"ignore_index is {x!r}, expected a 64-bit int or None") for x in (0.0, True, 2**63, "a")),
    ({"labels": tf.constant([1, 7, 4]), "ignore_index": -1}, r"labels\[1\] is 7, .* or ignore_index -1"),
]
# Options of all cross entropies, which interact.
_VARIANTS = [
    {"label_smoothing": 0.0, "softcap": 2.5},
    {"label_smoothing": 1.0, "class_weights": _WEIGHTS},
    {"softcap": 1.5, "class_weights": _WEIGHTS},
    {"softcap": 1.5, "class_weights": _WEIGHTS, "return_log_sum_exp": True},
]
_SPARSE_VARIANTS = [{"ignore_index": None, "z_loss": 0.0}, {"ignore_index": 0, "z_loss": 2.0**-13}]


def _update_cache(cache, rows, positions):
    result = cache.copy()
    for of_example, new, position in zip(result, rows, positions, strict=True):
        of_example[position : position + len(new)] = new
    return result


SAMPLES = {
    "nn.softmax": sample(
        nn.softmax,
        LOGITS,
        variants=[*_EXTREME_LOGITS, {"logits": _3D, "axis": 1}, {"logits": LOGITS[0]}, {"logits": LOGITS[:, :1]}],
        edge=[{"logits": _NO_LOGITS}],
        bad=_BAD_LOGITS,
        reference=lambda x: np.exp(_log_softmax(x)),
        second_order=True,
        onnx=("Softmax", 13),
    ),
    "nn.softmax (axis 0)": sample(nn.softmax, LOGITS, kwargs={"axis": 0}, onnx=("Softmax", 13)),
    "nn.log_prob_from_logits": sample(
        nn.log_prob_from_logits,
        LOGITS,
        variants=[*_EXTREME_LOGITS, {"logits": _3D, "axis": 0}],
        edge=[{"logits": _NO_LOGITS}],
        bad=_BAD_LOGITS,
        second_order=True,
        onnx=("LogSoftmax", 13),
    ),
    "nn.softmax_entropy": sample(
        nn.softmax_entropy,
        LOGITS,
        variants=[{"logits": _EXTREMES}, {"logits": _3D, "axis": 1}],
        edge=[{"logits": _NO_LOGITS}],
        bad=_BAD_LOGITS,
        output_dtype=ROW_DTYPES,
        second_order=True,
    ),
    "nn.softmax_cross_entropy": sample(
        nn.softmax_cross_entropy,
        TARGETS,
        LOGITS,
        kwargs={"label_smoothing": 0.1},
        variants=[
            *_VARIANTS,
            *(
                {"labels": tf.tile([[label, 0.0, 0.5]], [10, 1]), "logits": _EXTREMES, "label_smoothing": smoothing}
                for label, smoothing in ((0.0, 0.0), (1.0, 2.0**-30), (-0.5, 0.0), (_NAN, 0.125))
            ),
            {"labels": TARGETS[0], "logits": _3D},
            {"labels": tf.transpose(_3D, [0, 2, 1]), "logits": tf.transpose(_3D, [0, 2, 1]), "axis": 1},
        ],
        edge=[{"labels": _NO_LOGITS, "logits": _NO_LOGITS}],
        bad=[
            ({"labels": tf.zeros([3, 0]), "logits": tf.zeros([3, 0])}, "at least one class"),
            *_BAD_LOGITS[1:],
            *_BAD_OPTIONS,
            ({"labels": TARGETS[:2]}, r"labels are \[2,5\], expected \[3,5\]: logits' shape|labels' shape"),
            ({"labels": TARGETS[:, :4]}, r"labels are \[3,4\], expected \[3,5\]|labels' shape"),
            ({"labels": [0.0, 1.0]}, r"labels are \[2\], expected \[3,5\]: logits' shape"),
            ({"labels": np.zeros([4], "f"), "axis": -2}, r"labels are \[4\], expected \[3,5\]: logits' shape"),
            ({"logits": LOGITS[:1]}, r"labels are \[3,5\], expected \[1,5\]|labels' shape"),
        ],
        output_dtype=ROW_DTYPES,
        second_order=True,
    ),
    "nn.sparse_softmax_cross_entropy": sample(
        nn.sparse_softmax_cross_entropy,
        LABELS,
        LOGITS,
        kwargs={"ignore_index": 4, "label_smoothing": 0.1, "z_loss": 0.01},
        variants=[
            *_VARIANTS,
            *_SPARSE_VARIANTS,
            *(
                {"labels": tf.tile([label], [10]), "logits": _EXTREMES, "label_smoothing": x, "ignore_index": -3}
                for label, x in ((0, 0.0), (1, 0.0), (2, 2.0**-10), (-3, 0.125))
            ),
            {"labels": tf.constant([[1, 0, 4], [2, 2, 3]], tf.int64), "logits": _3D},
            {"labels": LABELS, "logits": tf.transpose(LOGITS), "axis": 0},
        ],
        edge=[{"labels": LABELS[:0], "logits": _NO_LOGITS}],
        bad=[*_BAD_LOGITS, *_BAD_OPTIONS, *_BAD_LABELS, *_OTHER_SHAPES, *_BAD_SPARSE],
        output_dtype=ROW_DTYPES,
        second_order=True,
    ),
    "nn.label_log_prob": sample(
        nn.label_log_prob,
        LABELS,
        LOGITS,
        variants=[{"labels": tf.tile([2], [10]), "logits": _EXTREMES}],
        edge=[{"labels": LABELS[:0], "logits": _NO_LOGITS}],
        bad=[*_BAD_LOGITS[:3], *_BAD_LABELS, *_OTHER_SHAPES],
        output_dtype=ROW_DTYPES,
        second_order=True,
    ),
    "nn.gaussian_kl": sample(
        nn.gaussian_kl,
        (normal(3, 5), normal(3, 5)),
        (normal(3, 5), normal(3, 5)),
        variants=[
            {"q": tuple(_ALL_PAIRS[:2]), "p": tuple(_ALL_PAIRS[2:])},
            {"q": (_3D, _3D[0]), "p": (_3D[0, 0], _3D[:, :1]), "axis": 1},
            {"q": (tf.constant([[1e-6, -1e-3]]), tf.constant([[0.3, 39.0]])), "p": None},
        ],
        edge=[{"q": (_NO_LOGITS, _NO_LOGITS), "p": (_NO_LOGITS, _NO_LOGITS)}],
        bad=[
            ({"q": (normal(3, 5), normal(3, 4))}, "broadcast|[Ii]ncompatible"),
            ({"q": [1.0]}, r"q is 1 tensors, expected a pair \(mean, log_variance\)"),
            ({"q": tf.zeros([2, 3])}, "q is a .*Tensor, expected a pair"),
            ({"p": [1.0]}, "p is 1 tensors, expected a pair"),
            ({"q": (np.zeros(2, np.int32), [1.0])}, "q's means are int32, expected float16"),
            ({"q": (tf.zeros(5), tf.zeros(5, tf.float64))}, "q's tensors are float32 and float64, expected one dtype"),
            ({"q": (0.0, 1.0), "p": None}, "means and log variances are a scalar, expected at least one dim"),
            ({"axis": 2}, r"axis is 2, expected \[-2, 2\): means and log variances are \[3,5\]"),
            (
                {"q": (tf.zeros(5), tf.zeros(4))},
                r"q's means \[5\], q's log variances \[4\].*expected shapes that broad|Incompatible shapes",
            ),
        ],
        output_dtype=ROW_DTYPES,
        second_order=True,
    ),
    "nn.gaussian_kl (unit Gaussian)": sample(nn.gaussian_kl, (normal(3, 5), normal(3, 5)), output_dtype=ROW_DTYPES),
}

seed("nn.linear_cross_entropy")
_LINEAR_FEATURES, _LINEAR_WEIGHT = normal(3, 6), normal(6, 5)
_LINEAR = functools.partial(
    sample,
    nn.linear_cross_entropy,
    _LINEAR_FEATURES,
    _LINEAR_WEIGHT,
    LABELS,
    output_dtype=ROW_DTYPES,
)
_BIASES = "Must provide as many biases"
_LINEAR_SHAPE = "the shape of features is .*, expected the shape of labels"
SAMPLES |= {
    "nn.linear_cross_entropy": _LINEAR(
        kwargs={"bias": normal(5)},
        variants=[*_VARIANTS, *_SPARSE_VARIANTS],
        bad=[
            *_BAD_OPTIONS,
            *_BAD_SPARSE,
            *_BAD_LABELS,
            ({"features": tf.constant(1.0)}, f"features are a scalar|{_LINEAR_SHAPE}"),
            ({"features": _LINEAR_FEATURES[:, :4]}, rf"features are \[3,4\], expected \[3,6\]|{_LINEAR_SHAPE}"),
            ({"features": tf.zeros([3, 6], tf.int32)}, "features are int32, expected float16"),
            ({"labels": LABELS[:2]}, rf"labels are \[2\], expected \[3\]: features' shape without|{_LINEAR_SHAPE}"),
            ({"weight": _LINEAR_WEIGHT[:, 0]}, r"weight is \[6\], expected \[features, classes\]|slice index 1"),
            ({"weight": _LINEAR_WEIGHT[:, :0]}, rf"weight is \[6,0\], expected at least one class|{_BIASES}"),
            ({"weight": tf.zeros([6, 5], tf.int32)}, "weight are int32, expected float16"),
            ({"bias": tf.zeros([4])}, rf"bias are \[4\], expected \[5\]|{_BIASES}"),
        ],
        dtypes=("float32", "float64"),
        skip={
            "extreme_values": "TensorFlow's fused MatMul and BiasAdd of features [3, 0] aborts the process in a graph"
        },
    ),
    # 16-bit features have 16-bit logits.
    "nn.linear_cross_entropy (16 bits, no bias)": _LINEAR(dtypes=("float16", "bfloat16", "float32"), tolerance=4e-2),
}

# Label sequences. The last example has no labels, and fewer frames. Padding may be anything.

seed("nn.ctc_loss")
SEQUENCE_LABELS = tf.constant([[1, 3], [2, 2], [0, 0]])
_LABEL_LENGTHS, _LOGIT_LENGTHS = tf.constant([2, 2, 0]), tf.constant([4, 3, 2])
_NO_LENGTHS = tf.zeros([0], tf.int32)


def _label_sequences(fn, *dims, variants=(), bad=(), **options):
    logits = normal(3, *dims)
    shapes = "labels|logits|label_lengths|logit_lengths"
    return sample(
        fn,
        SEQUENCE_LABELS,
        logits,
        _LABEL_LENGTHS,
        _LOGIT_LENGTHS,
        variants=[
            {"blank_index": -1, "labels": tf.constant([[1, 0], [2, 2], [-7, -7]], tf.int64)},
            {"blank_index": 1, "labels": tf.constant([[3, 3], [2, 0], [-7, 99]])},
            *variants,
        ],
        edge=[
            {
                **{"labels": SEQUENCE_LABELS[:0], "logits": logits[:0]},
                **{"label_lengths": _NO_LENGTHS, "logit_lengths": _NO_LENGTHS},
            }
        ],
        bad=[
            ({"labels": tf.constant([[1, 9], [2, 2], [0, 0]])}, r"labels\[0, 1\] is 9, expected \[0, 4\)"),
            ({"labels": tf.constant([[-1, 1], [2, 2], [0, 0]])}, r"labels\[0, 0\] is -1, expected \[0, 4\)"),
            (
                {"labels": tf.constant([[1, 0], [2, 2], [0, 0]])},
                r"labels\[0, 1\] is 0, expected a class other than blan",
            ),
            ({"label_lengths": _LABEL_LENGTHS + 1}, r"label_lengths\[0\] is 3, expected \[0, 2\]"),
            ({"logit_lengths": _LOGIT_LENGTHS + 1}, r"logit_lengths\[0\] is 5, expected"),
            ({"logit_lengths": _LOGIT_LENGTHS - 3}, r"logit_lengths\[2\] is -1, expected|logit_lengths\[1\] is 0, exp"),
            ({"logit_lengths": _LOGIT_LENGTHS[:2]}, "logit_lengths must be"),
            ({"labels": SEQUENCE_LABELS[:2]}, shapes),
            ({"labels": tf.zeros([3, 2])}, "labels are float32, expected int32 or int64"),
            ({"logits": tf.zeros(logits.shape, tf.int32)}, _FLOAT_LOGITS),
            ({"blank_index": 4}, r"blank_index is 4, expected \[0, 4\)"),
            ({"blank_index": -2}, "blank_index is -2, expected an int"),
            *bad,
        ],
        output_dtype=ROW_DTYPES,
        second_order=False,
        **options,
    )


SAMPLES |= {
    "nn.ctc_loss": _label_sequences(
        nn.ctc_loss,
        *(4, 4),
        variants=[
            {"zero_infinity": True, "logit_lengths": tf.constant([1, 2, 2], tf.int64)},
            {"labels": SEQUENCE_LABELS[:, :0], "label_lengths": 0 * _LABEL_LENGTHS},
        ],
        bad=[({"zero_infinity": 2}, "zero_infinity is 2, expected True or False")],
    ),
    "nn.rnnt_loss": _label_sequences(
        nn.rnnt_loss,
        *(4, 3, 4),
        bad=[({"logits": tf.zeros([3, 4, 2, 4])}, r"logits must be \[batch, frames, labels \+ 1, classes\]")],
        empty=False,
    ),
}

seed("nn.crf")
TAG_LOGITS, _TRANSITIONS = normal(3, 4, 5), normal(5, 5)
_TAGS, _TAG_LENGTHS = tf.constant([[1, 3, 0, 4], [2, 2, 1, 9], [9, 9, 9, 9]]), tf.constant([4, 3, 0])


def _crf(fn, *labels, variants=(), bad=(), **options):
    return sample(
        fn,
        *labels,
        TAG_LOGITS,
        _TRANSITIONS,
        kwargs={"lengths": _TAG_LENGTHS},
        variants=[{"lengths": tf.constant([4, 1, 0], tf.int64)}, {"transitions": tf.fill([5, 5], -_INF)}, *variants],
        edge=[
            {"logits": TAG_LOGITS[:0], "lengths": _TAG_LENGTHS[:0], **({"labels": _TAGS[:0]} if labels else {})},
        ],
        bad=[
            ({"transitions": _TRANSITIONS[:4]}, r"transitions must be \[tags, tags\]"),
            ({"transitions": tf.zeros([5, 5], tf.int32)}, "transitions are int32, expected float32"),
            ({"lengths": _TAG_LENGTHS + 1}, r"lengths\[0\] is 5, expected \[0, 4\]"),
            ({"lengths": tf.zeros([3])}, "lengths are float32, expected int32 or int64"),
            ({"logits": TAG_LOGITS[..., :0], "transitions": _TRANSITIONS[:0, :0]}, "at least one tag"),
            *bad,
        ],
        output_dtype=ROW_DTYPES,
        **options,
    )


SAMPLES |= {
    "nn.crf_log_likelihood": _crf(
        nn.crf_log_likelihood,
        _TAGS,
        bad=[
            ({"lengths": tf.constant([4, 4, 0])}, r"labels\[1, 3\] is 9, expected \[0, 5\)"),
            ({"labels": _TAGS[:, :3]}, "labels must be"),
        ],
        second_order=False,
    ),
    "nn.crf_decode": _crf(
        nn.crf_decode,
        variants=[  # Many paths have the best score.
            {"logits": tf.constant(RNG.integers(0, 2, [3, 4, 5]), tf.float32), "transitions": tf.zeros([5, 5])},
            {"logits": TAG_LOGITS[..., :1], "transitions": _TRANSITIONS[:1, :1]},
        ],
    ),
    "nn.crf_marginals": _crf(without_gradient(nn.crf_marginals), non_differentiable=(0, 1)),
}


# Deformable ops. Places are away from whole pixels; 16-bit numbers hold them.

seed("nn.deform_conv2d")
_DEFORMED, _OFFSETS = normal(2, 5, 4, 4), tf.constant(RNG.uniform(0.2, 0.8, [2, 5, 4, 24]).round(2), tf.float32)
_TAP_MASK, _CONV_FILTERS, _CONV_BIAS = normal(2, 5, 4, 12), normal(3, 2, 2, 6), normal(6)
_NO_OPTIONS = {"mask": None, "bias": None}


def _offsets(height, width, scale=2.0):
    """Returns offsets in two groups, far outside of the image too."""
    return tf.constant(RNG.normal(size=[2, height, width, 24]) * scale, tf.float32)


_LEVELS = tf.constant([[3, 4], [2, 1]])
_POINTS = tf.constant(RNG.uniform(0.1, 0.9, [2, 3, 2, 2, 3, 2]), tf.float32)
_POINT_WEIGHTS = normal(2, 3, 2, 2, 3)
_POINTS_OF_LEVELS = tf.constant(RNG.uniform(-0.3, 1.3, [2, 3, 2, 5, 2]), tf.float32)
SAMPLES |= {
    "nn.deform_conv2d": sample(
        nn.deform_conv2d,
        _DEFORMED,
        _OFFSETS,
        _CONV_FILTERS,
        kwargs={"mask": _TAP_MASK, "bias": _CONV_BIAS, "padding": "SAME"},
        variants=[
            {"padding": "VALID", "offsets": _offsets(3, 3), "mask": _TAP_MASK[:, :3, :3]},
            {"padding": ((1, 0), (2, 3)), "offsets": _offsets(4, 8), **_NO_OPTIONS},
            {"padding": ((0, 3), (1, 0)), "offsets": _offsets(3, 2), "mask": None, "strides": (2, 3)},
            {"strides": (2, 3), "offsets": _offsets(3, 2), "mask": None},
            {"dilations": (2, 1), "offsets": tf.round(_offsets(5, 4)), "bias": None},
            {"dilations": (1, 2), "padding": ((0, 0), (0, 0)), "offsets": _offsets(3, 2), **_NO_OPTIONS},
            {"filters": normal(3, 2, 4, 6), "offsets": _OFFSETS[..., :12], "mask": _TAP_MASK[..., :6]},
            {"filters": normal(3, 2, 1, 8), "offsets": _offsets(5, 4, 9.0), **_NO_OPTIONS},
            {
                **{"features": tf.transpose(_DEFORMED, [0, 3, 1, 2]), "offsets": tf.transpose(_OFFSETS, [0, 3, 1, 2])},
                **{"mask": tf.transpose(_TAP_MASK, [0, 3, 1, 2]), "data_format": "NCHW"},
            },
        ],
        edge=[{"features": _DEFORMED[:0], "offsets": _OFFSETS[:0], "mask": _TAP_MASK[:0]}],
        bad=[
            ({"features": _DEFORMED[..., :3]}, "expected a multiple of 2 channels"),
            ({"filters": normal(3, 2, 2, 5)}, "filters are .*, expected a multiple of 2 output channels"),
            ({"filters": normal(3, 2, 6)}, "filters are|filters must be"),
            ({"filters": normal(3, 0, 2, 6)}, "filters must be .*all at least 1"),
            ({"offsets": _OFFSETS[..., :9]}, "offsets are .*expected"),
            ({"offsets": _OFFSETS[:, :4]}, r"offsets are \[2,4,4,24\], expected \[2,5,4,G \* 12\]"),
            ({"offsets": tf.tile(_OFFSETS[..., :12], [1, 1, 1, 3])}, "offsets are .* with G dividing the 4 channels"),
            ({"mask": _TAP_MASK[..., :6]}, r"mask is \[2,5,4,6\], expected \[2,5,4,12\]"),
            ({"bias": normal(5)}, "bias must"),
            ({"strides": 0}, r"strides is 0, expected an int in \[1, 2147483647\]"),
            ({"dilations": (1, 2, 3)}, r"dilations is \(1, 2, 3\), expected an int or"),
            ({"padding": "same"}, "padding is 'same', expected one of 'VALID', 'SAME'"),
            ({"padding": ((1, 1), (1, -1))}, r"padding is -1, expected an int in \[0, 2147483647\]"),
            ({"data_format": "NWHC"}, "data_format is 'NWHC'"),
        ],
        second_order=False,
        forward_mode=False,
        onnx=("DeformConv", 19),
    ),
    "nn.multiscale_deformable_attention": sample(
        nn.multiscale_deformable_attention,
        normal(2, 14, 2, 5),
        _LEVELS,
        _POINTS,
        _POINT_WEIGHTS,
        variants=[
            {
                "sampling_locations": _POINTS_OF_LEVELS,
                "attention_weights": _POINT_WEIGHTS[..., 0, :1] * tf.ones([5]),
                "num_points": points,
            }
            for points in ([2, 3], [5, 0])
        ]
        + [{"sampling_locations": tf.round(_POINTS * 8) / 8}, {"spatial_shapes": tf.constant([[2, 3], [4, 2]])}],
        edge=[
            {
                **{"values": normal(0, 14, 2, 5), "sampling_locations": _POINTS[:0]},
                "attention_weights": _POINT_WEIGHTS[:0],
            }
        ],
        bad=[
            ({"values": normal(2, 13, 2, 5)}, "spatial_shapes have 14 pixels, expected the 13 of values"),
            (
                {"spatial_shapes": tf.constant([[3, 4], [0, 1]])},
                r"spatial_shapes\[1\] is \(0, 1\), expected a positive",
            ),
            ({"spatial_shapes": tf.constant([[2**40, 2**40], [1, 1]])}, r"spatial_shapes\[0\] is \(1099511627776"),
            (
                {"spatial_shapes": tf.constant([[3, 4], [2**24 + 1, 1]])},
                r"spatial_shapes\[1\] is \(16777217, 1\), .* 2\^24",
            ),
            ({"spatial_shapes": tf.constant([3, 4])}, "spatial_shapes must be"),
            ({"spatial_shapes": tf.constant([[3.0, 4.0]])}, "spatial_shapes are float32, expected integers"),
            ({"num_points": (2, 2)}, "attention_weights|num_points"),
            ({"num_points": 2}, "num_points is 2, expected None"),
            ({"num_points": (3, 4, -1)}, "num_points is -1, expected an int"),
        ],
        second_order=False,
        forward_mode=False,
    ),
}


# Attention.

seed("nn.attention")
_QUERY, _KEY, _VALUE = normal(2, 3, 4, 5), normal(2, 6, 2, 5), normal(2, 6, 2, 3)
_MASK, _BIAS = tf.constant(RNG.random([2, 1, 3, 6]) < 0.7), normal(4, 3, 6)
_SINKS, _QUERY_LENGTHS, _KEY_LENGTHS = normal(4), tf.constant([3, 2]), tf.constant([4, 6])
_SLOPES = tf.constant([0.5, 0.25, 0.125, 0.0])
_ALL_OPTIONS = {
    **{"mask": _MASK, "bias": _BIAS, "softcap": 2.0, "sinks": _SINKS},
    **{"lengths": _QUERY_LENGTHS, "key_lengths": _KEY_LENGTHS},
}
_NONE = dict.fromkeys(_ALL_OPTIONS)
_BOTH = {**_NONE, "return_log_sum_exp": True}


def _attention_of_one_dtype(query, key, value, **options):
    output, log_sum_exp = nn.attention(query, key, value, **options)
    return output, keras.ops.cast(log_sum_exp, output.dtype)


SAMPLES |= {
    "nn.attention": sample(
        nn.attention,
        _QUERY,
        _KEY,
        _VALUE,
        kwargs=_ALL_OPTIONS,
        variants=[
            _BOTH,
            {**_BOTH, "causal": True, "bias": tf.where(_MASK, 0.0, -_INF), "key_lengths": _KEY_LENGTHS},
            {**_BOTH, "causal": True, "window": (None, 2), "mask": tf.constant(RNG.random([4, 3, 1]) < 0.7)},
            {**_BOTH, "causal": True, "lengths": tf.constant([1, 3]), "key_lengths": tf.constant([0, 5])},
            {**_BOTH, "window": 4, "query_offset": 1, "mask": _MASK},
            {**_BOTH, "window": (3, 1), "query_offset": tf.constant([2, -1]), "key_lengths": _KEY_LENGTHS},
            {**_BOTH, "scale": -0.7, "softcap": 1.5, "alibi_slopes": _SLOPES, "sinks": _SINKS},
            {**_BOTH, "scale": 1.0, "sinks": tf.constant([1e4, -1e4, -_INF, 8192.0]), "query": 64 * tf.sign(_QUERY)},
            {**_BOTH, "alibi_slopes": tf.random.stateless_uniform([2, 4], [1, 2]), "mask": _MASK},
            {**_BOTH, "dropout": 0.3, "seed": [7, -16], "mask": _MASK, "key_lengths": tf.constant([6, 0])},
            {**_BOTH, "dropout": 0.5, "seed": tf.constant([1, -2])},
            {**_BOTH, "query": _QUERY[:, :1], "key": _KEY[:, :, :1], "value": _VALUE[:, :, :1]},
        ],
        edge=[
            {
                **{"query": _QUERY[:0], "key": _KEY[:0], "value": _VALUE[:0], "mask": _MASK[:0]},
                **{"lengths": _QUERY_LENGTHS[:0], "key_lengths": _KEY_LENGTHS[:0]},
            },
            {"lengths": 0 * _QUERY_LENGTHS, "key_lengths": 0 * _KEY_LENGTHS},
        ],
        bad=[
            ({"query": _QUERY[0]}, r"query must be \[B, T, heads, D\]"),
            ({"query": tf.zeros([2, 3, 4, 5], tf.int64)}, "query are int64, expected float16"),
            ({"key": _KEY[..., :4]}, "key must be .*D"),
            ({"key": tf.cast(_KEY, tf.float64)}, "key is float64, expected float32"),
            ({"key": normal(2, 6, 3, 5), "value": normal(2, 6, 3, 3)}, "query has 4 heads and key 3, expected"),
            ({"value": _VALUE[:, :5]}, "value must be .*S"),
            ({"value": tf.ragged.constant([[1.0]])}, "query is dense, expected a RaggedTensor, as value is"),
            ({"mask": normal(3, 6)}, "mask are float32, expected bool"),
            ({"mask": _MASK[..., :5]}, r"mask must broadcast to \[B, heads, T, S\]"),
            ({"mask": np.ones([2, 6], bool)}, r"for padding of keys pass mask\[:, None, None\] or key_lengths"),
            ({"mask": _MASK[:, tf.newaxis]}, "mask has 5 dims, expected at most 4|mask must broadcast"),
            ({"bias": normal(3, 3, 6)}, r"bias must broadcast to \[B, heads, T, S\]"),
            ({"causal": 1}, "causal is 1, expected True or False"),
            ({"window": 0}, "window is 0, expected an int in"),
            ({"window": (1, -1)}, "window is -1, expected an int in"),
            ({"window": (1, 2, 3)}, r"window is \(1, 2, 3\), expected None, a positive int"),
            ({"query_offset": [1, 2, 3]}, r"query_offset must be \[B\]"),
            ({"query_offset": 1.5}, "query_offset cannot be int32"),
            ({"query_offset": True}, "query_offset are bool, expected int32"),
            ({"scale": _NAN}, r"scale is nan, expected a number in \[-3.4e38, 3.4e38\]"),
            ({"scale": 1e39}, r"scale is 1e\+39, expected a number in \[-3.4e38, 3.4e38\]"),
            ({"softcap": 0.0}, "softcap is 0.0, expected a number above 0"),
            ({"softcap": 1e38}, r"softcap is 1e\+38, expected a number above 0, from 1e-30 to 1e30"),
            ({"softcap": 1e-38}, "softcap is 1e-38, expected a number above 0, from 1e-30 to 1e30"),
            ({"alibi_slopes": np.zeros([3, 4], "f")}, r"alibi_slopes must be \[1, heads\] or \[B, heads\]"),
            ({"sinks": _SINKS[:3]}, r"sinks must be \[heads\]"),
            ({"lengths": [1]}, r"lengths must be \[B\]"),
            ({"lengths": [2, True]}, "lengths are bool, expected int32"),
            ({"lengths": _QUERY_LENGTHS + 1}, r"lengths\[0\] is 4, expected \[0, 3\]"),
            ({"lengths": _QUERY_LENGTHS - 4}, r"lengths\[0\] is -1, expected \[0, 3\]"),
            ({"lengths": 2**40}, "lengths is 1099511627776, expected a whole number of 32 bits"),
            ({"key_lengths": np.array([2**32 + 2] * 2)}, r"key_lengths\[0\] is 4294967298, expected a whole number"),
            ({"key_lengths": _KEY_LENGTHS + 1}, r"key_lengths\[1\] is 7, expected \[0, 6\]"),
            ({"dropout": 1.0, "seed": [1, 2]}, r"dropout is 1.0, expected a number in \[0, 1\)"),
            ({"dropout": 0.999993, "seed": [1, 2]}, r"dropout is 0.999993, expected a number .*does not round to 1"),
            ({"dropout": 0.1}, "seed is None, expected two integers"),
            ({"dropout": 0.1, "seed": [1, 2, 3]}, r"seed has shape \[3\], expected \[2\]: two integers"),
            ({"dropout": 0.1, "seed": [1.0, 2.0]}, "seed is float32, expected two integers"),
            ({"return_log_sum_exp": "yes"}, "return_log_sum_exp is 'yes', expected True or False"),
        ],
        second_order=False,
        forward_mode=False,
    ),
    "nn.update_cache": sample(
        nn.update_cache,
        normal(2, 5, 3),
        normal(2, 2, 3),
        tf.constant([3, 0]),
        variants=[
            {"positions": 1},
            {"cache": normal(2, 5, 2, 3), "rows": normal(2, 1, 2, 3)},
            {"cache": normal(2, 5), "rows": normal(2, 5), "positions": 0},
        ],
        edge=[
            {"rows": tf.zeros([2, 0, 3]), "positions": tf.constant([5, 2])},
            {"cache": tf.zeros([0, 5, 3]), "rows": tf.zeros([0, 2, 3]), "positions": tf.zeros([0], tf.int32)},
        ],
        bad=[
            ({"rows": tf.zeros([2, 2, 3], tf.float64)}, "rows are float64, expected float32: the cache's dtype"),
            ({"rows": tf.zeros([2, 6, 3])}, "rows have 6 positions, and the cache 5"),
            ({"rows": tf.zeros([2, 2, 4])}, r"rows must be \[batch, count, ...\]"),
            ({"rows": tf.zeros([3, 2, 3])}, r"rows must be \[batch, count, ...\]"),
            ({"cache": tf.zeros([5])}, r"cache must be \[batch, length, ...\]"),
            ({"positions": [1]}, r"positions must be \[batch\]"),
            ({"positions": 1.0}, "positions cannot be int32"),
            ({"positions": [0, 4]}, r"positions\[1\] is 4, expected \[0, 3\]"),
            ({"positions": -1}, r"positions\[0\] is -1, expected \[0, 3\]"),
            ({"positions": 2**40}, "positions is 1099511627776, expected a whole number of 32 bits"),
            ({"positions": tf.constant([0, 2**40])}, r"positions\[1\] is 1099511627776, expected a whole number"),
        ],
        reference=_update_cache,
        second_order=True,
    ),
    "nn.attention (by place, log-sum-exp)": sample(
        _attention_of_one_dtype,
        _QUERY,
        _KEY,
        _VALUE,
        kwargs={
            **{"window": (4, 1), "query_offset": tf.constant([3, 1]), "alibi_slopes": _SLOPES},
            **{"dropout": 0.25, "seed": [1, 2], "return_log_sum_exp": True},
        },
        non_differentiable=4,  # alibi_slopes
        second_order=False,
        forward_mode=False,
    ),
}

seed("nn.decode_attention")
_BEAM_QUERY, _CACHE, _CACHED = normal(4, 2, 4, 5), normal(4, 6, 2, 5), normal(4, 6, 2, 3)
_CACHE_LENGTHS, _ANCESTORS = tf.constant([6, 4, 3, 0]), tf.constant(RNG.integers(0, 2, [2, 2, 6]), tf.int32)

SAMPLES["nn.decode_attention"] = sample(
    without_gradient(nn.decode_attention),
    _BEAM_QUERY,
    _CACHE,
    _CACHED,
    _CACHE_LENGTHS,
    kwargs={"ancestors": _ANCESTORS},
    variants=[
        {"ancestors": None, "lengths": 5},
        {"scale": -0.7, "softcap": 1.5, "alibi_slopes": [0.5, 0.25, 0.125, 0.0], "sinks": [0.5, -1.0, 2.0, 0.0]},
        {"window": 3, "alibi_slopes": tf.random.stateless_uniform([4, 4], [1, 2])},
        {"window": (2, None), "ancestors": tf.cast(_ANCESTORS, tf.int64)},
        {"ancestors": tf.reshape(_ANCESTORS, [1, 4, 6]) + tf.constant([0, 2, 1, 0])[:, tf.newaxis]},
    ],
    edge=[{"lengths": 0 * _CACHE_LENGTHS}],
    bad=[
        ({"query": _BEAM_QUERY[0]}, r"query must be \[R, T, heads, D\]"),
        ({"keys": _CACHE[..., :4]}, "keys must be .*D"),
        ({"keys": tf.cast(_CACHE, tf.float64)}, "keys is float64, expected float32, as query is"),
        ({"keys": normal(4, 6, 3, 5), "values": normal(4, 6, 3, 3)}, "query has 4 heads and keys 3, expected"),
        ({"values": _CACHED[:, :5]}, "values must be .*S"),
        ({"lengths": [1, 2]}, r"lengths must be \[R\]"),
        ({"lengths": 7}, r"lengths\[0\] is 7, expected \[0, 6\]"),
        ({"ancestors": _ANCESTORS[0]}, r"ancestors must be \[B, W, S\]"),
        ({"ancestors": _ANCESTORS[..., :5]}, r"ancestors must be \[B, W, S\]"),
        ({"ancestors": _ANCESTORS[:1]}, r"ancestors must be \[B, W, S\] with B \* W = R"),
        ({"ancestors": _ANCESTORS + 1}, r"ancestors\[\d,\d,\d\] is 2, expected \[0, 1\]"),
        ({"ancestors": _ANCESTORS - 1}, r"ancestors\[\d,\d,\d\] is -1, expected \[0, 1\]"),
        ({"window": 0}, "window is 0, expected an int in"),
        ({"scale": _NAN}, r"scale is nan, expected a number in \[-3.4e38, 3.4e38\]"),
        ({"softcap": 0.0}, "softcap is 0.0, expected a number above 0"),
        ({"alibi_slopes": np.zeros([3, 4], "f")}, r"alibi_slopes must be \[1, heads\] or \[R, heads\]"),
        ({"sinks": _SINKS[:3]}, r"sinks must be \[heads\]"),
    ],
    non_differentiable=(0, 1, 2),
)

# Weights of 4 bits in groups of 8 along the depth, which is not a whole number of groups.
seed("nn.quantized_matmul")
_PACKED = tf.constant(RNG.integers(-128, 128, [21, 3]), tf.int8)
_GROUP_ZEROS = tf.constant(RNG.integers(-8, 8, [3, 5]), tf.int8)
_GROUP_SCALES = tf.constant(RNG.uniform(0.1, 0.5, [3, 5]), tf.float32)


def _quantized_matmul(inputs, kernel, scale, zero, *, bits=8, block_size=None):
    """The definition, of kernels [depth, columns] with a zero."""
    q = kernel.astype(int)
    if bits == 4:
        q = np.stack([(q & 15 ^ 8) - 8, (q >> 4 & 15 ^ 8) - 8], 2)
        q = q.reshape(len(q), 2 * q.shape[1])[:, : zero.shape[-1]]
    group = np.arange(len(q)) // (block_size or len(q))
    return inputs @ ((q - np.atleast_2d(zero)[group]) * np.atleast_2d(scale)[group])


SAMPLES |= {
    "nn.quantized_matmul": sample(
        nn.quantized_matmul,
        normal(2, 3, 21),
        _PACKED,
        _GROUP_SCALES,
        kwargs={"zero": _GROUP_ZEROS, "bits": 4, "block_size": 8},
        variants=[
            {"bits": 8, "scale": _GROUP_SCALES[:, :3], "zero": _GROUP_ZEROS[:, :3]},
            {"bits": 8, "block_size": None, "scale": _GROUP_SCALES[0, :3], "zero": None},
            {"block_size": None, "group_index": tf.constant(np.arange(21) * 5 % 3, tf.float32)},
            {
                "transposed": True,
                "kernel": tf.bitcast(tf.transpose(_PACKED), tf.uint8),
                "scale": tf.transpose(_GROUP_SCALES),
                "zero": tf.bitcast(tf.transpose(_GROUP_ZEROS), tf.uint8),
            },
            {
                "packed_axis": 0,
                "kernel": tf.reshape(_PACKED[:11], [11, 3]),
                "scale": _GROUP_SCALES[:, :3],
                "zero": _GROUP_ZEROS[:, :3],
            },
            {
                "packed_axis": -1,
                "transposed": True,
                "kernel": tf.transpose(_PACKED[:11]),
                "scale": tf.transpose(_GROUP_SCALES[:, :3]),
                "zero": tf.transpose(_GROUP_ZEROS[:, :3]),
            },
            {"zero": tf.constant(RNG.uniform(-20, 20, [3, 5]), tf.float32)},
            {"zero": tf.constant(RNG.uniform(-20, 20, [3, 5]), tf.float16), "activation_bits": 8},
            {"activation_bits": 8},
            {"activation_bits": 8, "block_size": None, "scale": _GROUP_SCALES[0], "zero": _GROUP_ZEROS[0]},
        ],
        edge=[
            {"inputs": tf.zeros([0, 3, 21])},
            {
                "inputs": tf.zeros([2, 3, 0]),
                "kernel": tf.zeros([0, 3], tf.int8),
                "scale": tf.zeros([0, 5]),
                "zero": tf.zeros([0, 5], tf.int8),
            },
            {"kernel": tf.zeros([21, 0], tf.int8), "scale": tf.zeros([3, 0]), "zero": tf.zeros([3, 0], tf.int8)},
        ],
        bad=[
            ({"inputs": tf.zeros([2, 20])}, r"kernel must be \[depth, pairs of columns\]"),
            ({"kernel": _PACKED[:, :2]}, r"scale must be .* with columns = 3 or 4, the kernel's: it has 5"),
            ({"group_index": [0.5] * 21, "block_size": None}, r"group_index\[0\] is 0.5, expected a whole number"),
            ({"scale": _GROUP_SCALES[:2], "zero": _GROUP_ZEROS[:2]}, "with groups = 3, of depth 21 in blocks of 8"),
            ({"zero": _GROUP_ZEROS[:2]}, "zero must have scale's shape"),
            ({"bits": 3}, "bits is 3, expected 8 or 4"),
            ({"kernel": tf.zeros([21, 3])}, "kernel is float32, expected int8 or uint8"),
        ],
        reference=_quantized_matmul,
        non_differentiable=2,
        second_order=True,
    ),
}

seed("nn.lstm")
_STEPS, _STEP_MASK = normal(3, 4, 5), tf.constant([[1, 1, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0]]) > 0
_GATE_WEIGHTS = normal(5, 8), normal(2, 8), normal(8)
_STATE = normal(3, 2), normal(3, 2)
_GRU_WEIGHTS = normal(5, 6), normal(2, 6), normal(2, 6)


def _gru_outputs(inputs, kernel, recurrent_kernel, bias=None):
    return nn.gru(inputs, kernel, recurrent_kernel, bias).outputs


def _lstm_outputs(inputs, kernel, recurrent_kernel, bias=None):
    return nn.lstm(inputs, kernel, recurrent_kernel, bias).outputs


SAMPLES |= {
    "nn.gru": sample(
        nn.gru,
        _STEPS,
        *_GRU_WEIGHTS,
        kwargs={"initial_state": _STATE[0], "mask": _STEP_MASK},
        variants=[
            {"bias": None, "initial_state": None, "mask": None},
            {"bias": normal(6), "reset_after": False},
            {"activation": "relu", "recurrent_activation": "hard_sigmoid", "mask": None},
            {"activation": "sigmoid", "recurrent_activation": "tanh", "reverse": True},
            {"bias": None, "activation": "hard_sigmoid", "recurrent_activation": "linear", "reset_after": False},
        ],
        edge=[
            {"inputs": _STEPS[:0], "initial_state": _STATE[0][:0], "mask": _STEP_MASK[:0]},
            {"inputs": _STEPS[:, :0], "mask": _STEP_MASK[:, :0]},
        ],
        bad=[
            ({"inputs": _STEPS[0]}, r"inputs .*\[4,5\].* expected .*\[\?,\?,\?\]"),
            (
                {"kernel": _GRU_WEIGHTS[0][:4]},
                r"kernel .*\[4,6\], expected .*: \[features, 3 \* units\]|size-incompatible",
            ),
            (
                {"recurrent_kernel": normal(2, 8)},
                r"recurrent_kernel .*\[2,8\], expected .*: \[units, 3 \* units\]|a tensor with 16 values, but .* 12",
            ),
            (
                {"bias": normal(6)},
                r"bias .*\[6\], expected .*: \[2, 3 \* units\]|a tensor with 6 values, but .* 12",
            ),
            (
                {"reset_after": False},
                r"bias .*\[2,6\], expected .*: \[3 \* units\] without|a tensor with 24 values, but .* 12",
            ),
            (
                {"initial_state": normal(3, 4)},
                r"initial_state .*\[3,4\], expected .*: \[B, units\]|h0 must be \[batch, units\]",
            ),
            ({"mask": _STEP_MASK[:, :3]}, r"mask .*\[3,3\], expected .*: \[B, T\]|Incompatible shapes"),
            ({"recurrent_activation": "gelu"}, "recurrent_activation is 'gelu', expected one of 'tanh', 'sigmoid', "),
            ({"reset_after": 1}, "reset_after is 1, expected True or False"),
        ],
        dtypes=("float32", "float64"),
        second_order=False,
    ),
    # The states of 16-bit inputs are float32.
    "nn.gru (16 bits)": sample(
        _gru_outputs, _STEPS, *_GRU_WEIGHTS, dtypes=("float16", "bfloat16", "float32"), second_order=False
    ),
    "nn.lstm": sample(
        nn.lstm,
        _STEPS,
        *_GATE_WEIGHTS,
        kwargs={"initial_state": _STATE, "mask": _STEP_MASK},
        variants=[
            {"bias": None, "initial_state": None, "mask": None},
            {"activation": "relu", "recurrent_activation": "hard_sigmoid"},
            {"activation": "hard_sigmoid", "recurrent_activation": "linear", "mask": None},
            {"activation": "sigmoid", "recurrent_activation": "tanh", "reverse": True},
        ],
        edge=[
            {"inputs": _STEPS[:0], "initial_state": (_STATE[0][:0], _STATE[1][:0]), "mask": _STEP_MASK[:0]},
            {"inputs": _STEPS[:, :0], "mask": _STEP_MASK[:, :0]},
        ],
        bad=[
            ({"inputs": _STEPS[0]}, r"inputs .*\[4,5\].* expected .*\[\?,\?,\?\]"),
            ({"inputs": tf.zeros([3, 4, 5], tf.int32)}, "inputs are int32, expected float16"),
            (
                {"kernel": _GATE_WEIGHTS[0][:4]},
                r"kernel .*\[4,8\], expected .*: \[features, 4 \* units\]|size-incompatible",
            ),
            (
                {"recurrent_kernel": normal(2, 6)},
                r"recurrent_kernel .*\[2,6\], expected .*: \[units, 4 \* units\]|a tensor with 12 values, but .* 16",
            ),
            ({"bias": normal(4)}, r"bias .*\[4\], expected .*: \[4 \* units\]|a tensor with 4 values, but .* 8"),
            (
                {"initial_state": (_STATE[0], normal(3, 4))},
                r"initial_state's c .*\[3,4\], expected .*: \[B, units\]|c0 must be \[batch, units\]",
            ),
            ({"initial_state": _STATE[:1]}, r"initial_state is 1 tensors, expected a pair \(h, c\)"),
            ({"mask": _STEP_MASK[:, :3]}, r"mask .*\[3,3\], expected .*: \[B, T\]|Incompatible shapes"),
            ({"mask": tf.ones([3, 4])}, "mask are float32, expected bool"),
            (
                {"activation": "selu"},
                "activation is 'selu', expected one of 'tanh', 'sigmoid', 'relu', 'linear', 'hard",
            ),
            ({"recurrent_activation": None}, "recurrent_activation is None, expected one of 'tanh'"),
            ({"reverse": 1}, "reverse is 1, expected True or False"),
        ],
        dtypes=("float32", "float64"),
        second_order=False,
    ),
    "nn.lstm (16 bits)": sample(
        _lstm_outputs, _STEPS, *_GATE_WEIGHTS, dtypes=("float16", "bfloat16", "float32"), second_order=False
    ),
}
