"""Relations between calls, which need no reference. Each draws its values from a seed, and raises DisagreementError."""

import types

import numpy as np
import oracle
import tensorflow as tf
from calls import agree, eager, known_shapes, public_call, session
from example_calls import measured

import tensorflow_ops as tfo

_WAYS = [eager, known_shapes, session]
_TRANSITIONS = tf.constant(np.random.default_rng(0).normal(size=[4, 4]), tf.float32)
_GATES = tf.constant(np.random.default_rng(0).normal(size=[4, 16]), tf.float32)
_CRF = tfo.layers.CRF(4)
_CRF.build([None, None, 4])


def _masked(x, mask):
    """Returns x with a mask of Keras's."""
    x = tf.identity(x)
    x._keras_mask = mask
    return x


def _grid(x, labels):
    """Returns RNN-T's logits [batch, frames, labels + 1, classes]."""
    return x[:, :, tf.newaxis] * tf.cos(tf.range(tf.cast(tf.shape(labels)[1] + 1, x.dtype)))[:, tf.newaxis]


def _boxes(x):
    return tf.concat([x[..., :2], x[..., :2] + tf.exp(x[..., 2:])], -1)


# Of labels [batch, size], 1 to 3, or -1: padding; mask: what is none; x [batch, size, 4]. Of frames [batch, 9, 4] and
# pairs of labels [batch, 2], without padding.
WITH_PADDING = {
    "nn.ctc_loss": lambda of: tfo.nn.ctc_loss(of.labels, of.frames),
    "nn.rnnt_loss": lambda of: tfo.nn.rnnt_loss(of.labels, _grid(of.frames, of.labels)),
    "nn.crf_log_likelihood": lambda of: tfo.nn.crf_log_likelihood(of.labels, of.x, _TRANSITIONS),
    "nn.attention": lambda of: tfo.nn.attention(
        *(x[:, :, tf.newaxis] for x in (of.frames, of.x, of.x)), mask=of.mask[:, tf.newaxis, tf.newaxis]
    ),
    "nn.gru": lambda of: tfo.nn.gru(of.x, _GATES[:, :12], _GATES[:, :12], mask=of.mask).h,
    "nn.lstm": lambda of: tfo.nn.lstm(of.x, _GATES, _GATES, mask=of.mask).h,
    "losses.CRF": lambda of: tfo.losses.CRF(reduction=None)(of.labels, _CRF(of.x)),
    "losses.CTC": lambda of: tfo.losses.CTC(reduction=None)(of.labels, of.frames),
    "losses.CTC, mask": lambda of: tfo.losses.CTC(reduction=None)(of.pairs, _masked(of.x, of.mask)),
    "losses.RNNT": lambda of: tfo.losses.RNNT(reduction=None)(of.labels, _grid(of.frames, of.labels)),
    "losses.RNNT, mask": lambda of: tfo.losses.RNNT(reduction=None)(of.pairs, _masked(_grid(of.x, of.pairs), of.mask)),
    "losses.SparseSoftmaxCrossEntropy": lambda of: tfo.losses.SparseSoftmaxCrossEntropy(ignore_index=-1)(
        of.labels, of.x
    ),
    "losses.SparseSoftmaxCrossEntropy, mask": lambda of: tfo.losses.SparseSoftmaxCrossEntropy()(
        tf.abs(of.labels), _masked(of.x, of.mask)
    ),
    "losses.BoxIoU, mask": lambda of: tfo.losses.BoxIoU("giou")(_boxes(of.x + 1), _masked(_boxes(of.x), of.mask)),
    "metrics.EditDistance, y_true": lambda of: measured(tfo.metrics.EditDistance, {}, of.labels, of.pairs),
    "metrics.EditDistance, y_pred": lambda of: measured(tfo.metrics.EditDistance, {}, of.pairs, of.labels),
    "metrics.EditDistance, mask": lambda of: measured(
        tfo.metrics.EditDistance, {"decode": "ctc"}, of.pairs, _masked(of.x, of.mask)
    ),
    "metrics.TagAccuracy": lambda of: measured(tfo.metrics.TagAccuracy, {}, of.labels, tf.ones_like(of.labels)),
    "metrics.MeanAveragePrecision": lambda of: measured(
        tfo.metrics.MeanAveragePrecision,
        {},
        {"boxes": _boxes(of.x), "classes": of.labels},
        {"boxes": _boxes(of.frames), "classes": tf.ones_like(of.frames[..., 0]), "scores": of.frames[..., 0]},
    ),
}


def padded(name, seed):
    """Calls with padding at any place: an error, or the same as with padding at the end."""
    rng = np.random.default_rng(seed)
    batch, size = rng.integers(1, [3, 7], endpoint=True)
    mask = rng.random([batch, size]) < rng.choice([0.3, 0.7])
    mask[:, rng.integers(size)] |= rng.random() < 0.9
    items = {
        "labels": np.where(mask, rng.integers(1, 4, mask.shape), -1),
        "mask": mask,
        "x": rng.normal(size=[*mask.shape, 4]).astype(np.float32),
    }
    others = {"frames": rng.normal(size=[batch, 9, 4]).astype(np.float32), "pairs": np.tile([1, 2], [batch, 1])}
    to_front = np.argsort(~mask, 1, kind="stable")
    at_end = {
        key: np.take_along_axis(item, to_front.reshape(to_front.shape + (1,) * (item.ndim - 2)), 1)
        for key, item in items.items()
    }
    expected, actual = (
        agree(
            lambda **inputs: WITH_PADDING[name](types.SimpleNamespace(**inputs)),
            tf.nest.map_structure(tf.constant, given | others),
            ways=_WAYS,
        )
        for given in (at_end, items)
    )
    where = np.argwhere(~mask).tolist()
    oracle.check_close(expected, actual, f"padding that is not at the end changes a result, at {where}")
    return actual


def _average_precision(row):
    return measured(
        tfo.metrics.MeanAveragePrecision,
        {},
        {"boxes": row(0, "boxes"), "classes": row(1, "ones"), "area": row(2, "scores"), "is_crowd": row(3, "ones")},
        {"boxes": row(0, "boxes"), "classes": row(4, "ones"), "scores": row(5, "scores")},
    )


# Of RaggedTensors [N, (R), ...] of values by name. Those of different numbers may have other rows.
FROM_ROWS = {
    "detection.nms": lambda row: tfo.detection.nms(row(0, "boxes"), row(1, "scores"), 0.5),
    "detection.multiclass_nms": lambda row: tfo.detection.multiclass_nms(row(0, "boxes"), row(1, "x")),
    "nn.attention": lambda row: tfo.nn.attention(*(row(i, "heads") for i in (0, 0, 1))),
    "nn.crf_log_likelihood": lambda row: tfo.nn.crf_log_likelihood(row(0, "ones"), row(1, "x"), _TRANSITIONS),
    "losses.BoxIoU": lambda row: tfo.losses.BoxIoU()(row(0, "boxes"), row(1, "boxes")),
    "losses.SoftmaxCrossEntropy": lambda row: tfo.losses.SoftmaxCrossEntropy()(row(0, "x"), row(1, "x")),
    "losses.SparseSoftmaxCrossEntropy": lambda row: tfo.losses.SparseSoftmaxCrossEntropy()(row(0, "ones"), row(1, "x")),
    "metrics.MeanAveragePrecision": _average_precision,
}


def from_rows(name, seed):
    """Calls with RaggedTensors of which one may have other rows, which is an error, or which have no rows."""
    rng = np.random.default_rng(seed)
    lengths = np.tile(rng.integers(0, 4, rng.integers(1, 4)) * rng.integers(2), [6, 1])
    lengths[rng.integers(6), 0] = rng.integers(4)
    used = set()

    def function(x, lengths):
        ones = tf.ones(16, tf.int32)
        values = {"x": x, "boxes": _boxes(x), "heads": x[:, tf.newaxis], "scores": x[:, 0], "ones": ones}

        def row(i, key):
            used.add(i)
            return tf.RaggedTensor.from_row_lengths(values[key][: tf.reduce_sum(lengths[i])], lengths[i])

        return oracle.tensors(FROM_ROWS[name](row))

    inputs = {"x": tf.constant(rng.normal(size=[16, 4]), tf.float32), "lengths": tf.constant(lengths)}
    result = agree(function, inputs, ways=_WAYS)
    if len({tuple(lengths[i]) for i in used}) > 1:
        raise oracle.DisagreementError(f"a value, expected an error: the rows are {lengths[sorted(used)].tolist()}")
    return result


def accurate(name, number, options, seed):
    """Repeats an example's call with other options and floats, in float32 and float64.

    An exact algorithm's results differ as much as those of float64 with inputs that are rounded.
    """
    call = public_call(name, number, {k: lambda _, value=value: value for k, value in options.items()})
    rng = np.random.default_rng(seed)
    repeats, exponent = rng.choice([1, 1, 2, 3, 8]), rng.choice([0, 0, 1, 4, 5, 9, 15])
    largest = []

    def of(dtype, rounding=None):
        rng = np.random.default_rng(seed + 1)

        def change(x):
            if isinstance(x, float | tuple) or not (tf.is_tensor(x) or isinstance(x, np.ndarray | list)):
                return x
            x = np.array(x)
            if x.dtype.kind != "f":
                return x
            shape = (*x.shape[:-1], repeats * x.shape[-1]) if x.ndim > 1 else x.shape
            x = (rng.normal(size=shape) * 10.0**exponent).astype(np.float32).astype(np.float64)
            largest.append(np.abs(x).max(initial=1))
            if rounding is not None:
                x *= 1 + 2**-22 * np.random.default_rng(rounding).uniform(-1, 1, shape)
            return tf.constant(x, dtype)

        return oracle.bits(call(edit=lambda arguments: {k: change(v) for k, v in arguments.items()}))

    narrow = of(tf.float32)
    may_overflow = np.prod([*largest, *(v for v in options.values() if isinstance(v, float))]) > 1e36
    oracle.check_accurate(narrow, of(tf.float64), [of(tf.float64, i) for i in range(3)], may_overflow)
    return narrow


def places(fill_mode, seed):
    """Reads the nearest pixels, at places beside halves, beyond 2^23 and far outside, in float32 and float64."""
    rng = np.random.default_rng(seed)
    width = int(rng.choice([1, 2, 3, 8, 1000, 2**23 + 16]))
    at = rng.integers(-9, 10, 64) / 2 + rng.choice([0, 0, width, -width, 2.0**23, -(2.0**23), 1e9, -1e30], 64)
    at = np.nextafter(np.float32(at), np.float32(rng.choice([-np.inf, 0.25, np.inf], 64)))
    at = np.where(np.abs(at) < 1e-30, 0, at)  # denormals count as 0
    row = np.random.default_rng(0).integers(0, 2**20, [1, 1, width, 1])

    def of(dtype):
        coordinates = tf.constant(np.stack([np.zeros(64), at], -1)[np.newaxis], dtype)
        return tfo.image.map_coordinates(tf.constant(row, dtype), coordinates, order=0, fill_mode=fill_mode)

    if not np.array_equal(of(tf.float32), of(tf.float64)):
        raise oracle.DisagreementError(f"float32 reads other pixels of {width} than float64")
    return of(tf.float32)
