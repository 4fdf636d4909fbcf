"""Compositions of ops along rows: against the ops."""

import compositions_testing as testing
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

INF, NAN = float("inf"), float("nan")
SHAPES = ((7,), (4, 5), (2, 3, 6), (0, 4), (3, 1))
# Of float32, as attrs are.
SMOOTHING = ([], [0.125], [0.125, 2.0**-30], [1.0])


def _normal(shape, dtype, seed=0, scale=3.0):
    return tf.cast(np.random.default_rng(seed).normal(size=shape) * scale, dtype)


def _extremes(dtype):
    big = 6e4 if dtype == tf.float16 else 3e38
    rows = [
        [0.0, -INF, 1.0],
        [-INF, -INF, -INF],
        [NAN, 0.0, 1.0],
        [0.0, INF, 1.0],
        [-INF, NAN, -INF],
        [big, -big, big],
        [50.0, 0.0, -INF],
        [-big, -big, -big],
        [0.0, 0.0, 0.0],
    ]
    return tf.constant(rows, dtype)


def _with_meaning(outputs):
    """Returns outputs without the largest logit of rows that have a NaN."""
    outputs[1] = tf.where(tf.math.is_nan(outputs[2]), outputs[2], outputs[1])
    return outputs


class NnTest(tf.test.TestCase, parameterized.TestCase):
    def _check(self, op, inputs, **attrs):
        testing.check(self, op, inputs, attrs, _with_meaning)

    @pairwise(dtype=testing.FLOATS, shape=SHAPES, log=(False, True))
    def test_softmax(self, dtype, shape, log):
        testing.check(self, "Softmax", [_normal(shape, dtype)], {"log": log})

    @pairwise(dtype=testing.FLOATS, log=(False, True))
    def test_softmax_of_extremes(self, dtype, log):
        testing.check(self, "Softmax", [_extremes(dtype)], {"log": log})

    @pairwise(dtype=testing.FLOATS, shape=SHAPES)
    def test_softmax_entropy(self, dtype, shape):
        self._check("SoftmaxEntropy", [_normal(shape, dtype)])

    @parameterized.parameters(*testing.FLOATS)
    def test_softmax_entropy_of_extremes(self, dtype):
        self._check("SoftmaxEntropy", [_extremes(dtype)])

    @pairwise(dtype=testing.FLOATS, shape=SHAPES, smoothing=SMOOTHING)
    def test_softmax_cross_entropy(self, dtype, shape, smoothing):
        labels = tf.nn.relu(_normal(shape, dtype, 1, 1.0))
        self._check("SoftmaxCrossEntropy", [labels, _normal(shape, dtype)], label_smoothing=smoothing)

    @pairwise(dtype=testing.FLOATS, label=(0.0, 1.0, -0.5, NAN), smoothing=SMOOTHING)
    def test_softmax_cross_entropy_of_extremes(self, dtype, label, smoothing):
        labels = tf.tile(tf.constant([[label, 0.0, 0.5]], dtype), [9, 1])
        self._check("SoftmaxCrossEntropy", [labels, _extremes(dtype)], label_smoothing=smoothing)

    @pairwise(
        dtype=testing.FLOATS,
        labels_dtype=(tf.int32, tf.int64),
        shape=(*SHAPES, None),
        ignore_index=(None, -3, 2),
        smoothing=SMOOTHING,
        z_loss=([], [2.0**-13]),
        log_prob=(False, True),
    )
    def test_sparse_softmax_cross_entropy(self, dtype, labels_dtype, shape, ignore_index, smoothing, z_loss, log_prob):
        attrs = {"label_smoothing": smoothing, "z_loss": z_loss, "log_prob": log_prob}
        attrs |= {"ignores": ignore_index is not None, "ignore_index": ignore_index or 0}
        logits = _normal(shape, dtype) if shape else tf.repeat(_extremes(dtype), 3, 0)
        labels = np.resize(np.arange(logits.shape[-1]), logits.shape[:-1])
        if ignore_index == -3:
            labels.reshape(-1)[:1] = -3
        self._check("SparseSoftmaxCrossEntropy", [logits, tf.constant(labels, labels_dtype)], **attrs)

    def test_labels_out_of_range_are_nan(self):
        attrs = {"label_smoothing": [], "z_loss": [], "log_prob": False, "ignores": True, "ignore_index": 5}
        inputs = [tf.zeros([4, 3]), tf.constant([-1, 3, 5, 2])]
        loss, *_ = testing.run_composition("SparseSoftmaxCrossEntropy", inputs, attrs)
        self.assertAllClose(loss, [NAN, NAN, 0.0, np.log(3)])

    def test_confident_predictions_keep_their_loss(self):
        loss, *_ = testing.run_composition(
            "SoftmaxCrossEntropy", [tf.constant([[1.0, 0.0]]), tf.constant([[20.0, 0.0]])], {"label_smoothing": []}
        )
        self.assertAllClose(loss, [np.log1p(np.exp(-20.0))], rtol=1e-6, atol=0)

    @pairwise(dtype=testing.FLOATS, shape=(*SHAPES, (3, 0)), unit=(False, True))
    def test_gaussian_kl(self, dtype, shape, unit):
        inputs = [_normal(shape, dtype, seed, 1.0) for seed in range(4)]
        testing.check(self, "GaussianKl", [*inputs[:2], [] if unit else inputs[2:]], {})

    @parameterized.parameters(*testing.FLOATS)
    def test_gaussian_kl_of_extremes(self, dtype):
        values = [0.0, 1.0, -110.0, 100.0, INF, -INF, NAN]
        inputs = [tf.reshape(x, [-1, 1]) for x in tf.meshgrid(*[tf.constant(values, dtype)] * 4)]
        testing.check(self, "GaussianKl", [*inputs[:2], inputs[2:]], {})
        testing.check(self, "GaussianKl", [*inputs[:2], []], {})

    @parameterized.parameters(tf.float32, tf.float64)
    def test_gaussian_kl_of_near_gaussians_is_precise(self, dtype):
        d = np.array([1e-6, -1e-3, 0.3, -0.999, 0.999, 1.001, 39.0, 41.0])
        kl = testing.run_composition("GaussianKl", [tf.zeros([8, 1], dtype), tf.constant(d[:, None], dtype), []], {})[0]
        exact = np.where(np.abs(d) < 0.1, d * d / 2 * (1 + d / 3 * (1 + d / 4 * (1 + d / 5))), np.expm1(d) - d) / 2
        self.assertAllClose(kl, exact, rtol=1e-6 if dtype == tf.float32 else 1e-13, atol=0)


if __name__ == "__main__":
    tf.test.main()
