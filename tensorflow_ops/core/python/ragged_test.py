"""Tests of RaggedTensors, SparseTensors and missing lengths as arguments of functions and losses."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_RNG = np.random.default_rng(0)
_LENGTHS = np.array([3, 0, 5, 1])
_LABELS = tf.RaggedTensor.from_row_lengths(_RNG.integers(1, 4, 9), _LENGTHS)


def _rows(*dims):
    return _LABELS.with_values(tf.constant(_RNG.normal(size=[9, *dims]), tf.float32))


_LOGITS = _rows(4)
_WEIGHT = tf.constant(_RNG.normal(size=[4, 5]), tf.float32)
_OF_ROWS = {
    "softmax": (tfo.nn.softmax, _LOGITS),
    "log_prob_from_logits": (tfo.nn.log_prob_from_logits, _LOGITS),
    "softmax_entropy": (tfo.nn.softmax_entropy, _LOGITS),
    "softmax_cross_entropy": (tfo.nn.softmax_cross_entropy, tf.nn.softmax(_rows(4).values), _LOGITS),
    "sparse_softmax_cross_entropy": (tfo.nn.sparse_softmax_cross_entropy, _LABELS, _LOGITS),
    "log_sum_exp": (
        lambda *args: tfo.nn.sparse_softmax_cross_entropy(*args, return_log_sum_exp=True)[1], _LABELS, _LOGITS
    ),
    "label_log_prob": (tfo.nn.label_log_prob, _LABELS, _LOGITS),
    "gaussian_kl": (lambda *args: tfo.nn.gaussian_kl(args[:2], args[2:]), *(_rows(3) for _ in range(4))),
    "linear_cross_entropy": (lambda x, labels: tfo.nn.linear_cross_entropy(x, _WEIGHT, labels), _LOGITS, _LABELS),
}  # fmt: skip


def _values(tensor):
    return tensor.values if isinstance(tensor, tf.RaggedTensor) else tensor


class FunctionsOfRowsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*_OF_ROWS)
    def test_results_have_the_rows_of_arguments(self, name):
        function, *args = _OF_ROWS[name]
        expected = function(*map(_values, args))
        args = [x if isinstance(x, tf.RaggedTensor) else _LABELS.with_values(x) for x in args]
        for call in (function, tf.function(function)):
            result = call(*args)
            self.assertAllEqual(result.row_lengths(), _LENGTHS)
            self.assertAllEqual(result.values, expected)

    def test_several_ragged_dims_and_gradient(self):
        deep = tf.RaggedTensor.from_row_lengths(_LOGITS, [3, 1])
        with tf.GradientTape() as tape:
            tape.watch(deep.flat_values)
            result = tfo.nn.softmax_entropy(deep)
        self.assertEqual(result.bounding_shape().numpy().tolist(), [2, 3, 5])
        with tf.GradientTape() as of_rows:
            of_rows.watch(deep.flat_values)
            entropy = tfo.nn.softmax_entropy(deep.flat_values)
        expected = of_rows.gradient(entropy, deep.flat_values)
        self.assertAllEqual(tape.gradient(result.flat_values, deep.flat_values), expected)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "axis is 0, expected -1: logits is a RaggedTensor"):
            tfo.nn.softmax(_LOGITS, axis=0)
        with self.assertRaisesRegex(ValueError, r"logits is a RaggedTensor of shape \(4, None\), expected a last dim"):
            tfo.nn.softmax(_rows())
        with self.assertRaisesRegex(ValueError, "logits has 2 ragged dims, expected 1, those of labels"):
            tfo.nn.label_log_prob(_LABELS, tf.RaggedTensor.from_row_lengths(_LOGITS, [3, 1]))
        other = tf.RaggedTensor.from_row_lengths(_LABELS.values, [3, 1, 4, 1])
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "logits and labels have rows of different lengths"):
            tfo.nn.label_log_prob(other, _LOGITS)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "logits and labels have rows of different lengths"):
            tf.function(tfo.nn.label_log_prob)(other, _LOGITS)
        with self.assertRaisesRegex(TypeError, "too many positional arguments"):
            tfo.nn.softmax(_LOGITS, -1)
        with self.assertRaisesRegex(ValueError, "boxes2 is a dense tensor, expected a RaggedTensor, as boxes1 is"):
            tfo.detection.box_iou_loss(_LOGITS, _LOGITS.to_tensor())
        weight = tf.RaggedTensor.from_tensor(_WEIGHT)
        with self.assertRaisesRegex(ValueError, "weight is a RaggedTensor, expected a dense tensor"):
            tfo.nn.linear_cross_entropy(_LOGITS, weight, _LABELS)


class SequencesTest(tf.test.TestCase, parameterized.TestCase):
    # Frames for all labels; of an example without labels, too.
    _FRAMES = np.array([6, 2, 11, 1])

    def _logits(self, *dims):
        return tf.RaggedTensor.from_row_lengths(tf.random.stateless_normal([20, *dims], [0, 0]), self._FRAMES)

    @parameterized.parameters(False, True)
    def test_ctc_loss(self, in_graph):
        loss = tf.function(tfo.nn.ctc_loss) if in_graph else tfo.nn.ctc_loss
        logits, labels = self._logits(4), _LABELS
        expected = tfo.nn.ctc_loss(labels.to_tensor(), logits.to_tensor(), _LENGTHS, self._FRAMES)
        self.assertAllEqual(loss(labels, logits), expected)
        self.assertAllEqual(loss(labels.to_tensor(-1), logits), expected)
        self.assertAllEqual(loss(labels.to_sparse(), logits), expected)
        self.assertAllEqual(loss(labels, logits.to_tensor(), logit_lengths=self._FRAMES), expected)
        all_frames = tfo.nn.ctc_loss(labels.to_tensor(), logits.to_tensor(), _LENGTHS, [11] * 4)
        self.assertAllEqual(loss(labels, logits.to_tensor()), all_frames)

    def test_rnnt_loss(self):
        logits = self._logits(6, 4)
        expected = tfo.nn.rnnt_loss(_LABELS.to_tensor(), logits.to_tensor(), _LENGTHS, self._FRAMES)
        self.assertAllEqual(tfo.nn.rnnt_loss(_LABELS, logits), expected)
        self.assertAllEqual(tfo.nn.rnnt_loss(_LABELS.to_tensor(-1), logits), expected)

    def test_ctc_decoders(self):
        logits = self._logits(4)
        for decode in (tfo.seq2seq.ctc_greedy_decode, tfo.seq2seq.ctc_beam_search_decode):
            for ours, expected in zip(decode(logits), decode(logits.to_tensor(), self._FRAMES), strict=True):
                self.assertAllEqual(ours, expected)
            for ours, expected in zip(decode(logits.to_tensor()), decode(logits.to_tensor(), [11] * 4), strict=True):
                self.assertAllEqual(ours, expected)

    def test_crf(self):
        transitions = tf.random.stateless_normal([4, 4], [1, 1])
        dense, padded = _LOGITS.to_tensor(), _LABELS.to_tensor(-1)
        expected = tfo.nn.crf_log_likelihood(_LABELS.to_tensor(), dense, transitions, lengths=_LENGTHS)
        for labels in (_LABELS, padded, _LABELS.to_sparse()):
            for logits in (_LOGITS, dense):
                self.assertAllEqual(tfo.nn.crf_log_likelihood(labels, logits, transitions), expected)
        best = tfo.nn.crf_decode(_LOGITS, transitions)
        expected = tfo.nn.crf_decode(dense, transitions, lengths=_LENGTHS)
        self.assertAllEqual(best.labels.row_lengths(), _LENGTHS)
        self.assertAllEqual(best.labels.to_tensor(), expected.labels)
        self.assertAllEqual(best.scores, expected.scores)
        marginals = tfo.nn.crf_marginals(_LOGITS, transitions)
        self.assertAllEqual(marginals.to_tensor(), tfo.nn.crf_marginals(dense, transitions, lengths=_LENGTHS))
        other = tf.RaggedTensor.from_row_lengths(_LABELS.values, [3, 1, 5, 0])
        message = "the frames of logits.* is 0, expected as many as labels"
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            tfo.nn.crf_log_likelihood(other, _LOGITS, transitions)

    def test_dense_tensors_padded_further(self):
        transitions = tf.random.stateless_normal([4, 4], [1, 1])
        logits = tf.pad(_LOGITS.to_tensor(), [[0, 0], [0, 3], [0, 0]])
        expected = tfo.nn.crf_log_likelihood(_LABELS.to_tensor(), _LOGITS.to_tensor(), transitions, lengths=_LENGTHS)
        for labels in (_LABELS, _LABELS.to_sparse()):
            self.assertAllEqual(tfo.nn.crf_log_likelihood(labels, logits, transitions), expected)
        padded = tf.pad(_LABELS.to_tensor(-1), [[0, 0], [0, 3]], constant_values=-1)
        self.assertAllEqual(tfo.nn.crf_log_likelihood(padded, _LOGITS, transitions), expected)
        layer = tfo.layers.CRF(4)
        layer.build(logits.shape)
        self.assertAllEqual(layer.log_likelihood(_LABELS, logits), layer.log_likelihood(padded, logits))
        logits = self._logits(8, 4).to_tensor()
        expected = tfo.nn.rnnt_loss(tf.pad(_LABELS.to_tensor(), [[0, 0], [0, 2]]), logits, _LENGTHS, [11] * 4)
        self.assertAllEqual(tfo.nn.rnnt_loss(_LABELS, logits), expected)
        self.assertAllEqual(tfo.losses.RNNT(reduction=None)(_LABELS, logits), expected)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, r"label_lengths are None, expected lengths, or labels of at least two"):
            tfo.nn.ctc_loss([1, 2], tf.zeros([1, 3, 4]))
        deep = tf.RaggedTensor.from_row_lengths(_LABELS, [3, 1])
        with self.assertRaisesRegex(ValueError, "labels has 2 ragged dims, expected one"):
            tfo.nn.ctc_loss(deep, tf.zeros([1, 3, 4]))


class LossesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (tfo.losses.SparseSoftmaxCrossEntropy, _LABELS, _LOGITS),
        (tfo.losses.SoftmaxCrossEntropy, _LABELS.with_values(tf.one_hot(_LABELS.values, 4)), _LOGITS),
        (tfo.losses.BoxIoU, _rows(4), _rows(4)),
    )
    def test_rows(self, loss, y_true, y_pred):
        rows = y_true.values, y_pred.values
        weights = np.float32([1, 2, 3, 4])
        of_rows = np.repeat(weights, _LENGTHS)
        for reduction in ("sum_over_batch_size", "sum", "mean_with_sample_weight"):
            ours = loss(reduction=reduction)
            for call in (ours, tf.function(ours)):
                for true, pred in ((y_true, y_pred), (y_true, y_pred.to_tensor()), (y_true.to_tensor(), y_pred)):
                    self.assertAllClose(call(true, pred), ours(*rows), 1e-6)
                    self.assertAllClose(call(true, pred, weights), ours(*rows, of_rows), 1e-6)
                self.assertAllClose(call(y_true, y_pred, y_true.with_values(of_rows)), ours(*rows, of_rows), 1e-6)
        losses = loss(reduction=None)(y_true, y_pred)
        self.assertAllEqual(losses.row_lengths(), _LENGTHS)
        self.assertAllEqual(losses.values, loss(reduction=None)(*rows))
        other = tf.RaggedTensor.from_row_lengths(y_true.values, [3, 1, 4, 1])
        for call in (loss(), tf.function(loss())):
            message = r"the number of y_pred\[1\] is 0, expected that of"
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                call(other, y_pred)
            message = "row length.* is 5, expected at most dim 1 of y_pred"
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                call(y_true, y_pred.to_tensor()[:, :4])
        with self.assertRaisesRegex(
            (ValueError, tf.errors.InvalidArgumentError), "y_pred .*expected .*the RaggedTensor's N"
        ):
            loss()(y_true, y_pred.to_tensor()[:2])
        self.assertAllClose(loss()(y_true, y_pred, weights[:, np.newaxis]), loss()(y_true, y_pred, weights))

    def test_other_axes_are_refused(self):
        with self.assertRaisesRegex(ValueError, "axis is 1, expected -1: y_true or y_pred is a RaggedTensor"):
            tfo.losses.SparseSoftmaxCrossEntropy(axis=1)(_LABELS, _LOGITS)

    @parameterized.parameters(
        (tfo.losses.SparseSoftmaxCrossEntropy, _LABELS.values),
        (tfo.losses.SoftmaxCrossEntropy, tf.ones([9, 4])),
        (tfo.losses.BoxIoU, tf.ones([9, 4])),
    )
    def test_no_rows(self, loss, values):
        y_true = tf.RaggedTensor.from_row_lengths(values[:0], [0, 0])
        spec = tf.RaggedTensorSpec([None, None, *values.shape[1:]], values.dtype, ragged_rank=1)

        def loss_and_gradient(y_true, y_pred):
            with tf.GradientTape() as tape:
                tape.watch(y_pred)
                value = reduced(y_true, y_pred)
            return value, tf.convert_to_tensor(tape.gradient(value, y_pred))

        for reduction in ("sum_over_batch_size", "sum", "mean", "mean_with_sample_weight"):
            reduced, in_graph = loss(reduction=reduction), tf.function(loss_and_gradient)
            signature = [spec, tf.TensorSpec([None, None, 4])]
            for call in (loss_and_gradient, in_graph, tf.function(loss_and_gradient, input_signature=signature)):
                value, gradient = call(y_true, tf.ones([2, 3, 4]))
                self.assertAllEqual(value, np.float32(0))
                self.assertAllEqual(gradient, tf.zeros([2, 3, 4]))
            if library.xla_error is None:
                in_graph = tf.function(loss_and_gradient, jit_compile=True)
            self.assertAllEqual(in_graph(values[:0], tf.ones([0, 4]))[0], np.float32(0))
        self.assertAllEqual(loss(reduction=None)(y_true, tf.ones([2, 3, 4])).row_lengths(), [0, 0])

    def test_crf(self):
        logits = tfo.layers.CRF(4)(_LOGITS.to_tensor())
        expected = tfo.losses.CRF()(_LABELS.to_tensor(-1), logits)
        for labels in (_LABELS, tf.cast(_LABELS, tf.float32), _LABELS.to_sparse()):
            self.assertAllEqual(tfo.losses.CRF()(labels, logits), expected)


if __name__ == "__main__":
    tf.test.main()
