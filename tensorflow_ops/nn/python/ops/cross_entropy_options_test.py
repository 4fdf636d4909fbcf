"""Tests of class weights, softcap, axis, log-sum-exp and broadcast labels of the cross entropies.

The reference is NumPy in float64; gradients are numeric.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo
from tensorflow_ops.core.python import library

_DTYPES = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_RTOL = {tf.float16: 4e-3, tf.bfloat16: 3e-2, tf.float32: 1e-6, tf.float64: 1e-12}
_WEIGHTS = np.array([0.5, 2.0, 1.0, 0.0, 3.0])


def _capped(x, softcap):
    return x if softcap is None else softcap * np.tanh(x / softcap)


def _log_sum_exp(x):
    largest = x.max(-1, keepdims=True)
    return (largest + np.log(np.exp(x - largest).sum(-1, keepdims=True)))[..., 0]


def _sparse(labels, x, *, ignore_index=None, smoothing=0.0, z_loss=0.0, weights=None, softcap=None):
    """Returns (losses, log-sum-exps)."""
    x = _capped(x, softcap)
    lse = _log_sum_exp(x)
    is_class = (labels >= 0) & (labels < x.shape[-1])
    safe = np.where(is_class, labels, 0)
    t = (1 - smoothing) * np.eye(x.shape[-1])[safe] + smoothing / x.shape[-1]
    loss = (t * (lse[..., np.newaxis] - x)).sum(-1) + z_loss * lse**2
    if weights is not None:
        loss = loss * weights[safe]
    return np.where(labels == ignore_index, 0, loss), lse


def _dense(t, x, *, smoothing=0.0, weights=None, softcap=None):
    x = _capped(x, softcap)
    lse = _log_sum_exp(x)
    t = (1 - smoothing) * np.broadcast_to(t, x.shape) + smoothing / x.shape[-1]
    t = t if weights is None else weights * t
    return (t * (lse[..., np.newaxis] - x)).sum(-1), lse


_OPTIONS = {"weights": (None, _WEIGHTS), "softcap": (None, 2.5), "smoothing": (0.0, 0.1)}


def _to_arguments(weights, softcap, smoothing):
    return {"class_weights": weights, "softcap": softcap, "label_smoothing": smoothing}


def _logits(shape=(2, 3, 5), dtype=tf.float64, seed=0):
    return tf.cast(np.random.default_rng(seed).normal(size=shape) * 3, dtype)


_LABELS = np.array([[0, 4, -1], [1, 2, 3]])


class SparseTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(dtype=_DTYPES, **_OPTIONS)
    def test_equals_the_definition(self, dtype, **options):
        x = _logits(dtype=dtype)
        for run in (lambda f: f(), lambda f: tf.function(f)()):
            loss, lse = run(
                lambda: tfo.nn.sparse_softmax_cross_entropy(
                    _LABELS, x, ignore_index=-1, z_loss=0.01, return_log_sum_exp=True, **_to_arguments(**options)
                )
            )
            expected, expected_lse = _sparse(_LABELS, x.numpy().astype(float), ignore_index=-1, z_loss=0.01, **options)
            self.assertEqual(loss.dtype, tf.float64 if dtype == tf.float64 else tf.float32)
            # Capped logits are rounded to their dtype.
            rtol = _RTOL[dtype] if options["softcap"] or dtype == tf.float64 else 1e-6
            self.assertAllClose(loss, expected, rtol=rtol, atol=rtol)
            self.assertAllClose(lse, expected_lse, rtol=rtol, atol=rtol)

    @pairwise(**_OPTIONS)
    def test_gradients(self, **options):
        def function(x):
            return tfo.nn.sparse_softmax_cross_entropy(
                _LABELS, x, ignore_index=-1, z_loss=0.01, return_log_sum_exp=True, **_to_arguments(**options)
            )

        tfo.testing.assert_gradients(function, [_logits()])

        def first_gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return tape.gradient(y, x, [tf.constant([[1.0, 2, 3], [4, 5, 6]], tf.float64)] * 2)

        tfo.testing.assert_gradients(first_gradient, [_logits()])

    def test_gradient_to_class_weights(self):
        tfo.testing.assert_gradients(
            lambda w: tfo.nn.sparse_softmax_cross_entropy(_LABELS, _logits(), ignore_index=-1, class_weights=w),
            [tf.constant(_WEIGHTS)],
        )

    @parameterized.product(sizes=([5], [4], [5, 5], []), compiled=(False, True))
    def test_class_weights_of_unknown_rank(self, sizes, compiled):
        if compiled and library.xla_error:
            self.skipTest(library.xla_error)

        def loss(weights, logits):
            return tfo.nn.softmax_cross_entropy(tf.ones([5]) / 5, logits, class_weights=weights)

        unknown = tf.TensorSpec(None)
        graph = tf.function(loss, input_signature=[unknown, tf.TensorSpec([None, None])], jit_compile=compiled)
        logits = tf.random.stateless_normal([3, 5], [1, 2])
        weights = tf.ones(sizes)
        if sizes == [5]:
            self.assertAllClose(graph(weights, logits), loss(weights, logits))
            return
        message = r"the shape of class_weights is \[.*, expected \[.*\]: one for each class"
        if compiled:  # XLA, which knows all shapes, may refuse an op after the check first
            message += "|Shape of tensor .*/class_weights .* is not compatible with expected shape|Incompatible shapes"
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
            graph(weights, logits)

    @parameterized.parameters((0,), (-2,), (tf.constant(1),), (np.int64(0),))
    def test_axis(self, axis):
        x = _logits()
        moved = tf.experimental.numpy.moveaxis(x, -1, int(axis))
        expected = tfo.nn.sparse_softmax_cross_entropy(_LABELS, x, ignore_index=-1)
        for tensor in (moved, tf.function(lambda t: t)(moved)):
            self.assertAllEqual(
                tfo.nn.sparse_softmax_cross_entropy(_LABELS, tensor, axis=axis, ignore_index=-1), expected
            )

    def test_axis_tensor_without_a_static_value(self):
        with self.assertRaisesRegex(ValueError, "axis is a tensor without a known value"):
            tf.function(lambda axis: tfo.nn.softmax(_logits(), axis=axis))(tf.constant(0))

    def test_axis_may_be_a_tensor(self):
        for function in (tfo.nn.softmax, tfo.nn.log_prob_from_logits, tfo.nn.softmax_entropy):
            self.assertAllEqual(function(_logits(), axis=tf.constant(1)), function(_logits(), axis=1))

    def test_log_sum_exp_of_masks(self):
        inf = float("inf")
        _, lse = tfo.nn.sparse_softmax_cross_entropy([0, 0], [[0.0, -inf], [-inf, -inf]], return_log_sum_exp=True)
        self.assertAllEqual(lse, [0, -inf])


class DenseTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(dtype=_DTYPES, **_OPTIONS)
    def test_equals_the_definition(self, dtype, **options):
        x, t = _logits(dtype=dtype), tf.cast(np.random.default_rng(1).random([2, 3, 5]), dtype)
        loss, lse = tfo.nn.softmax_cross_entropy(t, x, return_log_sum_exp=True, **_to_arguments(**options))
        expected, expected_lse = _dense(t.numpy().astype(float), x.numpy().astype(float), **options)
        # Capped logits and weighted labels are rounded to their dtype.
        exact = options["softcap"] is None and options["weights"] is None
        rtol = 1e-6 if exact and dtype != tf.float64 else _RTOL[dtype]
        self.assertAllClose(loss, expected, rtol=rtol, atol=rtol)
        self.assertAllClose(lse, expected_lse, rtol=rtol, atol=rtol)

    @pairwise(**_OPTIONS)
    def test_gradients(self, **options):
        def function(t, x):
            return tfo.nn.softmax_cross_entropy(t, x, return_log_sum_exp=True, **_to_arguments(**options))

        tfo.testing.assert_gradients(function, [_logits(seed=2), _logits()])

    @parameterized.parameters(([5],), ([3, 1],), ([2, 1, 5],), ([],))
    def test_labels_are_broadcast(self, shape):
        x, t = _logits(), tf.constant(np.random.default_rng(1).random(shape))
        expected, _ = _dense(t.numpy(), x.numpy())
        self.assertAllClose(tfo.nn.softmax_cross_entropy(t, x), expected, rtol=1e-12)
        tfo.testing.assert_gradients(tfo.nn.softmax_cross_entropy, [t, x])
        # In a graph with an unknown batch dim.
        spec = [tf.TensorSpec(shape, tf.float64), tf.TensorSpec([None, 3, 5], tf.float64)]
        self.assertAllClose(tf.function(tfo.nn.softmax_cross_entropy, spec)(t, x), expected, rtol=1e-12)

    def test_labels_of_one_row(self):
        """Labels of a lower rank broadcast to logits of one row."""
        x = _logits([1, 5])
        self.assertAllEqual(
            tfo.nn.softmax_cross_entropy(tf.ones([5]), x), tfo.nn.softmax_cross_entropy(tf.ones([1, 5]), x)
        )


class LinearTest(parameterized.TestCase, tf.test.TestCase):
    def _arguments(self, dtype=tf.float64, rows=4):
        rng = np.random.default_rng(0)
        features, weight, bias = (tf.cast(rng.normal(size=s), dtype) for s in ([rows, 3], [3, 5], [5]))
        return features, weight, bias, rng.integers(0, 5, rows)

    @pairwise(dtype=_DTYPES, **_OPTIONS)
    def test_equals_the_definition(self, dtype, **options):
        features, weight, bias, labels = self._arguments(dtype, rows=700)
        loss, lse = tfo.nn.linear_cross_entropy(
            features, weight, labels, bias=bias, return_log_sum_exp=True, **_to_arguments(**options)
        )
        logits = (features @ weight + bias).numpy().astype(float)
        expected, expected_lse = _sparse(labels, logits, **options)
        rtol = _RTOL[dtype] if options["softcap"] or dtype == tf.float64 else 1e-5
        self.assertAllClose(loss, expected, rtol=rtol, atol=rtol)
        self.assertAllClose(lse, expected_lse, rtol=rtol, atol=rtol)

    @pairwise(**_OPTIONS)
    def test_gradients(self, **options):
        features, weight, bias, labels = self._arguments()

        def function(features, weight, bias):
            return tfo.nn.linear_cross_entropy(
                features, weight, labels, bias=bias, return_log_sum_exp=True, z_loss=0.01, **_to_arguments(**options)
            )

        tfo.testing.assert_gradients(function, [features, weight, bias])

    @parameterized.parameters(tf.float16, tf.bfloat16)
    def test_softcap_derivative_is_not_rounded(self, dtype):
        """1 - tanh^2 of logits rounded to 16 bits would have no correct digit where it is small."""
        features, weight = tf.constant([[1.0]], dtype), tf.constant([[6.0, -6.0]], dtype)
        with tf.GradientTape() as tape:
            tape.watch(weight)
            loss = tfo.nn.linear_cross_entropy(features, weight, [1], softcap=1.5)
        p = 1 / (1 + np.exp(-2 * 1.5 * np.tanh(4.0)))
        slope = 1 - np.tanh(4.0) ** 2
        self.assertAllClose(tape.gradient(loss, weight), [[p * slope, -p * slope]], rtol=1e-2, atol=0)

    def test_gradients_of_many_chunks(self):
        features, _, _, labels = self._arguments(rows=1000)
        wide = tf.constant(np.random.default_rng(3).normal(size=[3, 20000]))
        options = {"softcap": 2.0, "class_weights": np.linspace(0, 2, 20000)}

        def gradients(loss_of):
            with tf.GradientTape() as tape:
                tape.watch([features, wide])
                loss, lse = loss_of()
                total = tf.reduce_sum(loss) + tf.reduce_sum(lse * tf.range(1000.0, dtype=tf.float64))
            return tape.gradient(total, [features, wide])

        chunked = gradients(
            lambda: tfo.nn.linear_cross_entropy(features, wide, labels, return_log_sum_exp=True, **options)
        )
        whole = gradients(
            lambda: tfo.nn.sparse_softmax_cross_entropy(labels, features @ wide, return_log_sum_exp=True, **options)
        )
        self.assertAllClose(chunked, whole, rtol=1e-9, atol=1e-9)


if __name__ == "__main__":
    tf.test.main()
