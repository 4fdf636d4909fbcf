"""Tests that of several checks that fail in a call, the first one raises its error, in every mode."""

import itertools
import re
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library


def _rows(*shape):
    return tf.reshape(tf.range(tf.reduce_prod(shape), dtype=tf.float32), shape) / 10


def _ragged(*shape):
    return tf.RaggedTensor.from_row_lengths(_rows(3, *shape), [1, 2])


def _step(tokens, state):
    return tf.one_hot(tokens, 5) + state[:, :5], state


def _search(function, static, **options):
    """Returns an entry for a search. `options` are in the signature's order; those of `static` are no tensors."""

    def call(state, *values):
        arguments = dict(zip((*_REQUIRED, *options, *_PROMPTED), values, strict=True))
        return function(_step, state, **arguments, **static, eos_ids=[])

    values = [*_REQUIRED.values(), *options.values(), *_PROMPTED.values()]
    names = ["batch_size", "max_length", "the shape of bos_id"]
    names += [*(["the shape of seed"] if "seed" in static else []), *options, "the shape of prompt"]
    names += ["the shape of prompt_lengths", "prompt_lengths", "prompt_lengths", "the shape of initial_state"]
    names += ["the shape of logits", "the shape of step_fn's state"]
    return call, [_rows(2, 6), *values], names


_REQUIRED = {"batch_size": tf.constant(2), "max_length": tf.constant(4), "bos_id": tf.constant([1, 1])}
_PROMPTED = {"prompt": tf.ones([2, 3], tf.int32), "prompt_lengths": tf.constant([1, 2])}
_HALF = tf.constant(0.5)
_SEED = np.array([[1, 2], [3, 4]])
_SAMPLING = {"temperature": _HALF, "top_p": _HALF, "min_p": _HALF, "typical_p": _HALF, "min_length": tf.constant(1)}


_EDITS, _PRECISION = tfo.metrics.EditDistance(), tfo.metrics.MeanAveragePrecision()


def _boxes(boxes, classes, scores=None):
    return {"boxes": boxes, "classes": classes} | ({} if scores is None else {"scores": scores})


_PREDICTED = ["the shape of y_pred['boxes']", "y_pred['classes']", "the shape of y_pred['classes']"]
_LENGTHS = ["the shape of y_pred's lengths", "y_pred's lengths"]
_BOXES = [_rows(2, 3, 4), tf.zeros([2, 3])]
_RECURRENT = ["the shape of recurrent_kernel", "the shape of recurrent_kernel", "the shape of kernel"]

# A function, its arguments, of which a graph knows neither ranks nor values, and its checks: in the signature's order,
# but an argument comes after those whose sizes it must fit.
_CALLS = {
    "nn.attention": (
        lambda query, key, value, seed: tfo.nn.attention(query, key, value, dropout=0.5, seed=seed),
        [_ragged(1, 2), _ragged(1, 2), _ragged(1, 2), tf.constant([1, 2])],
        ["value.row_splits", "the shape of seed"],
    ),
    "nn.gru": (
        lambda inputs, kernel, recurrent, bias, state, mask: tfo.nn.gru(
            inputs, kernel, recurrent, bias, initial_state=state, mask=mask
        ),
        [_rows(2, 3, 4), _rows(4, 6), _rows(2, 6), _rows(2, 6), _rows(2, 2), tf.ones([2, 3], tf.bool)],
        [
            *("the shape of inputs", *_RECURRENT, "the shape of bias"),
            *("the shape of initial_state", "the shape of mask"),
        ],
    ),
    "nn.lstm": (
        lambda inputs, kernel, recurrent, bias, h, c, mask: tfo.nn.lstm(
            inputs, kernel, recurrent, bias, initial_state=(h, c), mask=mask
        ),
        [_rows(2, 3, 4), _rows(4, 8), _rows(2, 8), _rows(8), _rows(2, 2), _rows(2, 2), tf.ones([2, 3], tf.bool)],
        [
            *("the shape of inputs", *_RECURRENT, "the shape of bias"),
            *("the shape of initial_state's h", "the shape of initial_state's c", "the shape of mask"),
        ],
    ),
    "nn.linear_cross_entropy": (
        lambda features, weight, labels, class_weights: tfo.nn.linear_cross_entropy(
            features, weight, labels, class_weights=class_weights
        ),
        [_rows(2, 3), _rows(3, 4), tf.constant([1, 2]), _rows(4)],
        ["the shape of features", "the shape of class_weights"],
    ),
    "nn.softmax_cross_entropy": (
        lambda labels, logits, class_weights: tfo.nn.softmax_cross_entropy(
            labels, logits, axis=0, class_weights=class_weights
        ),
        [_rows(2, 3), _rows(2, 3), _rows(2)],
        ["axis", "axis", "the shape of class_weights"],
    ),
    "detection.nms": (
        lambda boxes, scores, iou, score, count: tfo.detection.nms(
            boxes, scores, iou, score_threshold=score, max_outputs=count
        ),
        [_rows(3, 4), _rows(3), _HALF, _HALF, tf.constant(2)],
        ["iou_threshold", "score_threshold", "max_outputs"],
    ),
    "image.elastic_transform": (
        lambda images, seed, alpha, sigma: tfo.image.elastic_transform(images, seed=seed, alpha=alpha, sigma=sigma),
        [_rows(2, 3, 4, 1), tf.constant([1, 2]), _HALF, _HALF],
        ["the shape of seed", "alpha", "sigma"],
    ),
    "seq2seq.batch_gather": (
        tfo.seq2seq.batch_gather,
        [_rows(2, 3), tf.constant([[0, 1], [2, 0]])],
        ["the shape of indices", "the shape of params", "the shape of params", "indices"],
    ),
    "seq2seq.ctc_beam_search_decode": (
        lambda logits, lengths, state, weight, bonus: tfo.seq2seq.ctc_beam_search_decode(
            logits, lengths, beam_width=2, step_fn=_step, initial_state=state, lm_weight=weight, label_bonus=bonus
        ),
        [_rows(2, 3, 5), tf.constant([3, 2]), _rows(2, 6), _HALF, _HALF],
        [
            *("the shape of logit_lengths", "logit_lengths", "the shape of initial_state", "lm_weight", "label_bonus"),
            *("the shape of logits", "the shape of step_fn's state"),
        ],
    ),
    "seq2seq.KeyValueCache.create": (
        lambda *sizes: tfo.seq2seq.KeyValueCache.create(*sizes, 1, 3).keys,
        [tf.constant(2), tf.constant(5)],
        ["batch_size", "max_length"],
    ),
    "seq2seq.KeyValueCache.append": (
        lambda key, value, counts: tfo.seq2seq.KeyValueCache.create(2, 5, 1, 3).append(key, value, counts=counts).keys,
        [_rows(2, 4, 1, 3), _rows(2, 4, 1, 3), tf.constant([3, 4])],
        ["the shape of key", "the shape of value", "the shape of counts", "counts", "lengths"],
    ),
    "seq2seq.beam_search": _search(
        tfo.seq2seq.beam_search, {"beam_width": 2}, min_length=tf.constant(1), length_penalty=_HALF
    ),
    "seq2seq.sample": _search(tfo.seq2seq.sample, {"seed": _SEED}, **_SAMPLING),
    "seq2seq.stochastic_beam_search": _search(
        tfo.seq2seq.stochastic_beam_search, {"beam_width": 2, "seed": _SEED}, **_SAMPLING
    ),
    "losses.CTC": (
        tfo.losses.CTC(),
        [tf.constant([[1.0, 2.0]]), _rows(1, 3, 4), _rows(1, 1)],
        ["y_true", "the shape of y_true", "the shape of sample_weight"],
    ),
    "losses.SparseSoftmaxCrossEntropy": (
        tfo.losses.SparseSoftmaxCrossEntropy(),
        [tf.constant([[0, 1], [2, 1]]), _ragged(4), _rows(2)],
        ["the shape of y_true", "the RaggedTensor's row length", "the shape of sample_weight"],
    ),
}
_METRICS = {
    "metrics.EditDistance": (
        lambda truth, ids, lengths: _EDITS.update_state(truth, (ids, lengths)),
        [tf.zeros([2, 3]), tf.zeros([2, 3]), tf.constant([1, 2])],
        [
            *("the shape of y_true", "y_true", "the shape of y_pred", *_LENGTHS),
            *("y_pred", "the shape of y_pred"),
        ],
    ),
    "metrics.EditDistance of logits": (
        tfo.metrics.EditDistance(decode="ctc").update_state,
        [tf.zeros([2, 3]), _rows(2, 3, 4)],
        ["the shape of y_true", "y_true", "the shape of y_pred", *_LENGTHS, "the shape of y_pred"],
    ),
    "metrics.TagAccuracy": (
        tfo.metrics.TagAccuracy().update_state,
        [tf.zeros([2, 3]), tf.zeros([2, 3])],
        # y_true must fit y_pred.
        ["the shape of y_pred", "y_true", "the shape of y_true", "y_pred"],
    ),
    "metrics.MeanAveragePrecision": (
        lambda *args: _PRECISION.update_state(_boxes(*args[:2]), _boxes(*args[2:])),
        [*_BOXES, *_BOXES, _rows(2, 3)],
        [
            *(name.replace("y_pred", "y_true") for name in _PREDICTED),
            *(*_PREDICTED, "the shape of y_pred['scores']"),
        ],
    ),
}


_FLAGS = np.zeros([20], bool)
# 9 is no class, which a step finds.
_STEPS = {"step_fn": _step, "initial_state": _rows(2, 6), "batch_size": 2, "max_length": 3, "bos_id": 0, "eos_ids": [9]}


class _Faults:
    """Makes checks of a call fail.

    Attributes:
      found: the names of the checks of the last call.
    """

    def __init__(self, slowly):
        """`slowly`: the earlier a check, the later its condition is known."""
        self.found, self._slowly = [], slowly

    def call(self, function, flags, args):
        """Calls a function. flags: bool [20], whether each check fails."""
        self.found = []
        check = library.ops.tensorflow_ops_check_values

        def faulty(values, valid, *options):
            number = len(self.found)
            self.found.append(options[1])
            fails = flags[number]
            if self._slowly:
                size = 24 * (len(_FLAGS) - number)
                matrix = tf.fill([size, size], tf.cast(fails, tf.float32))
                fails = tf.reduce_max(tf.matmul(matrix, matrix)) > 0
            return check(values, valid & ~fails, *options)

        with mock.patch.object(library.ops, "tensorflow_ops_check_values", faulty):
            return function(*args)

    def names(self, function, args):
        """Returns the names of a call's checks."""
        self.call(function, _FLAGS, args)
        return self.found


def _flags(*numbers):
    return np.isin(np.arange(len(_FLAGS)), numbers)


_OF_KNOWN_RANK = ("image.elastic_transform", "losses.SparseSoftmaxCrossEntropy")
# XLA needs sizes, which checks of searches decide.
_NOT_COMPILED = ("detection.nms", *(name for name in _CALLS if name.startswith("seq2seq") and "gather" not in name))


def _unknown(value, has_rank):
    spec = tf.type_spec_from_value(value)
    if not isinstance(spec, tf.TensorSpec):
        return spec
    return tf.TensorSpec([None] * spec.shape.rank if has_rank or not spec.shape.rank else None, spec.dtype)


class CheckOrderTest(parameterized.TestCase, tf.test.TestCase):
    def _test(self, call, names, expected):
        """Tests call(flags), whose checks have these names, with each pair of faults."""

        def error(*numbers):
            try:
                call(_flags(*numbers))
            except tf.errors.InvalidArgumentError as error:
                return re.search(r"(?m)^(?:.*\}\} )?(.*?)(?:\[[\d,]*\])? is .*, expected ", str(error))[1]
            return None

        self.assertIsNone(error())
        # Others are in functions that are traced, but not called.
        running = [number for number in range(len(names)) if error(number)]
        found = [names[number] for number in running]
        self.assertEqual(found, [name for name in expected if name in found])
        for first, second in itertools.pairwise(running):
            self.assertEqual(error(first, second), names[first], f"before {names[second]}")
        return found

    @parameterized.parameters(*_CALLS, *_METRICS)
    def test_eager(self, name):
        function, args, names = (_CALLS | _METRICS)[name]
        faults = _Faults(slowly=False)
        self._test(lambda flags: faults.call(function, flags, args), faults.names(function, args), names)

    @parameterized.parameters(*_CALLS, *_METRICS)
    def test_graph(self, name):
        function, args, names = (_CALLS | _METRICS)[name]
        faults = _Faults(slowly=True)
        traced = tf.function(
            lambda flags, *args: faults.call(function, flags, args),
            input_signature=[
                tf.TensorSpec([len(_FLAGS)], tf.bool),
                *(_unknown(x, name in _OF_KNOWN_RANK) for x in args),
            ],
            autograph=False,
        ).get_concrete_function()
        found = self._test(lambda flags: traced(flags, *args), faults.found, names)
        self.assertEqual(found, names)

    @parameterized.parameters(
        ("temperature", lambda value: tfo.seq2seq.sample(**_STEPS, seed=[1, 2], temperature=value)),
        ("length_penalty", lambda value: tfo.seq2seq.beam_search(**_STEPS, beam_width=2, length_penalty=value)),
        (
            "top_p",
            lambda value: tfo.seq2seq.stochastic_beam_search(**_STEPS, beam_width=2, seed=[1, 2], top_p=value),
        ),
    )
    def test_a_loop_waits_for_checks_before_it(self, name, search):
        traced = tf.function(search, [tf.TensorSpec([])], autograph=False)
        for _ in range(20):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, f"{name} is nan"):
                traced(float("nan"))

    def test_an_op_waits_for_checks_of_what_it_does_not_read(self):
        faults = _Faults(slowly=True)

        @tf.function(
            autograph=False, input_signature=[tf.TensorSpec(None, t) for t in (tf.bool, tf.int32, *[tf.float32] * 2)]
        )
        def loss(flags, labels, logits, class_weights):
            def call():
                return tfo.nn.sparse_softmax_cross_entropy(labels, logits, class_weights=class_weights)

            return faults.call(call, flags, [])

        args = tf.constant([1, 9]), _rows(2, 3), _rows(3)
        for numbers, text in ([], "labels.* is 9"), ([0], "the shape of class_weights is"):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, text):
                loss(_flags(*numbers), *args)

    @parameterized.parameters(name for name in _CALLS if name not in _OF_KNOWN_RANK)
    def test_session(self, name):
        function, args, names = _CALLS[name]
        faults = _Faults(slowly=True)
        values = [tensor.numpy() for tensor in tf.nest.flatten(args, expand_composites=True)]
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            flags, *tensors = (
                tf.compat.v1.placeholder_with_default(x, None if np.ndim(x) else []) for x in (_FLAGS, *values)
            )
            result = faults.call(function, flags, tf.nest.pack_sequence_as(args, tensors, expand_composites=True))
            call = session.make_callable(tf.nest.flatten(result, expand_composites=True), [flags])
            self._test(lambda flags: call(flags), faults.found, names)

    @parameterized.parameters(name for name in _CALLS if name not in (*_OF_KNOWN_RANK, *_NOT_COMPILED))
    def test_xla(self, name):
        if library.xla_error:
            self.skipTest(library.xla_error)
        function, args, names = _CALLS[name]
        faults = _Faults(slowly=True)
        compiled = tf.function(
            lambda flags, *args: faults.call(function, flags, args), jit_compile=True, autograph=False
        )
        compiled(_FLAGS, *args)
        self._test(lambda flags: compiled(flags, *args), faults.found, names)


if __name__ == "__main__":
    tf.test.main()
