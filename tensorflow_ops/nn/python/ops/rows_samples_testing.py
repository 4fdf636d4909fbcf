"""Samples of functions of logits and of Gaussians."""

import functools

import numpy as np
import tensorflow as tf
from sample_testing import RNG, ROW_DTYPES, normal, sample, seed

from tensorflow_ops import nn

seed(__name__)
_sample = functools.partial(sample, ragged=True)
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
    ({"logits": tf.constant(1.0)}, "scalar|at least rank 1"),
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
    ({"labels": LABELS[:2]}, r"labels are \[2\], expected \[3\]: logits' shape without|labels must be .*logits' shape"),
    ({"labels": LABELS[:, tf.newaxis]}, r"labels are \[3,1\], expected \[3\]|labels must be .*logits' shape without"),
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


SAMPLES = {
    "nn.softmax": _sample(
        nn.softmax,
        LOGITS,
        variants=[*_EXTREME_LOGITS, {"logits": _3D, "axis": 1}, {"logits": LOGITS[0]}, {"logits": LOGITS[:, :1]}],
        edge=[{"logits": _NO_LOGITS}],
        bad=_BAD_LOGITS,
        reference=lambda x: np.exp(_log_softmax(x)),
        second_order=True,
        onnx=("Softmax", 13),
    ),
    "nn.softmax (axis 0)": _sample(nn.softmax, LOGITS, kwargs={"axis": 0}, onnx=("Softmax", 13)),
    "nn.log_prob_from_logits": _sample(
        nn.log_prob_from_logits,
        LOGITS,
        variants=[*_EXTREME_LOGITS, {"logits": _3D, "axis": 0}],
        edge=[{"logits": _NO_LOGITS}],
        bad=_BAD_LOGITS,
        second_order=True,
        onnx=("LogSoftmax", 13),
    ),
    "nn.softmax_entropy": _sample(
        nn.softmax_entropy,
        LOGITS,
        variants=[{"logits": _EXTREMES}, {"logits": _3D, "axis": 1}],
        edge=[{"logits": _NO_LOGITS}],
        bad=_BAD_LOGITS,
        output_dtype=ROW_DTYPES,
        second_order=True,
    ),
    "nn.softmax_cross_entropy": _sample(
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
    "nn.sparse_softmax_cross_entropy": _sample(
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
    "nn.label_log_prob": _sample(
        nn.label_log_prob,
        LABELS,
        LOGITS,
        variants=[{"labels": tf.tile([2], [10]), "logits": _EXTREMES}],
        edge=[{"labels": LABELS[:0], "logits": _NO_LOGITS}],
        bad=[*_BAD_LOGITS[:3], *_BAD_LABELS, *_OTHER_SHAPES],
        output_dtype=ROW_DTYPES,
        second_order=True,
    ),
    "nn.gaussian_kl": _sample(
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
    "nn.gaussian_kl (unit Gaussian)": _sample(nn.gaussian_kl, (normal(3, 5), normal(3, 5)), output_dtype=ROW_DTYPES),
}

seed("nn.linear_cross_entropy")
_LINEAR_FEATURES, _LINEAR_WEIGHT = normal(3, 6), normal(6, 5)
_LINEAR = functools.partial(
    _sample,
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
