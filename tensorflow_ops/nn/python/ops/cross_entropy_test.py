"""Tests of the cross entropies and label_log_prob: options, axes, dtypes of labels, broadcast labels, each gradient.

The reference is NumPy in float64; gradients are numeric. nn_grad_test.py tests higher orders, nn_memory_test.py memory.
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


def _dense(t, x, *, smoothing=0.0, weights=None, softcap=None):
    """Returns (losses, log-sum-exps)."""
    x = x if softcap is None else softcap * np.tanh(x / softcap)
    largest = x.max(-1, keepdims=True)
    lse = (largest + np.log(np.exp(x - largest).sum(-1, keepdims=True)))[..., 0]
    t = (1 - smoothing) * np.broadcast_to(t, x.shape) + smoothing / x.shape[-1]
    t = t if weights is None else weights * t
    return (t * (lse[..., np.newaxis] - x)).sum(-1), lse


def _sparse(labels, x, *, ignore_index, z_loss, weights=None, **options):
    safe = np.maximum(labels, 0)
    loss, lse = _dense(np.eye(x.shape[-1])[safe], x, **options)
    loss = (loss + z_loss * lse**2) * (1 if weights is None else weights[safe])
    return np.where(labels == ignore_index, 0, loss), lse


_OPTIONS = {"weights": (None, _WEIGHTS), "softcap": (None, 2.5), "smoothing": (0.0, 0.1)}


def _to_arguments(weights, softcap, smoothing):
    return {"class_weights": weights, "softcap": softcap, "label_smoothing": smoothing}


def _logits(shape=(2, 3, 5), dtype=tf.float64, seed=0):
    return tf.cast(np.random.default_rng(seed).normal(size=shape) * 3, dtype)


_LABELS = np.array([[0, 4, -1], [1, 2, 3]])


def _read_ops(graph):
    """Returns the ops that the first output depends on."""
    used, todo = set(), [graph.outputs[0].op]
    while todo:
        op = todo.pop()
        if op.name not in used:
            used.add(op.name)
            todo += [t.op for t in op.inputs]
    return [graph.get_operation_by_name(name) for name in sorted(used)]


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

    def test_ignored_rows_have_no_loss_and_no_gradient(self):
        """Also where logits and upstream gradients are NaN."""
        x = tf.constant([[1.0, 2.0, 4.0], [np.nan] * 3, [-np.inf] * 3])
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tfo.nn.sparse_softmax_cross_entropy(
                np.array([0, 2**40, 2**40]), x, ignore_index=2**40, label_smoothing=0.1, z_loss=0.1
            )
        d = tape.gradient(loss, x, output_gradients=tf.constant([1.0, np.nan, np.inf]))
        self.assertAllEqual(loss[1:], [0, 0])
        self.assertAllEqual(d[1:], np.zeros([2, 3]))
        self.assertAllGreater(np.abs([*d[0], loss[0]]), 0)

    def test_ignore_index_is_not_truncated_to_32_bits(self):
        labels = np.array([0, 1], np.int32)
        options = {"ignore_index": 2**32}  # 0 if truncated to 32 bits
        self.assertAllGreater(tfo.nn.sparse_softmax_cross_entropy(labels, tf.zeros([2, 3]), **options), 1)

    @parameterized.parameters(np.int8, np.uint8, np.int16, np.uint16, np.uint32)
    def test_labels_of_other_integer_dtypes_are_cast(self, dtype):
        labels = np.array([0, 100, 127], dtype)
        expected = tfo.nn.label_log_prob(labels.astype(np.int32), _logits([3, 130]))
        self.assertAllEqual(tfo.nn.label_log_prob(labels, _logits([3, 130])), expected)

    def test_options_keep_64_bits(self):
        x = np.array([[1.0, 2.0, 4.0]])
        lse = 4 + np.log1p(np.exp(-3) + np.exp(-2))
        e, z = 0.1, 1 / 3
        expected = (1 - e) * (lse - 2) + e * (lse - 7 / 3) + z * lse**2
        loss = tfo.nn.sparse_softmax_cross_entropy([1], x, label_smoothing=e, z_loss=z)
        self.assertAllClose(loss, [expected], rtol=1e-15, atol=0)
        for tiny in (1e-300, 2.0**-150, 5e-324):
            self.assertAllClose(tfo.nn.sparse_softmax_cross_entropy([1], x, z_loss=tiny), [lse - 2], rtol=1e-15)


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

    @pairwise(graph=(False, True), to_labels=(False, True), traced=(False, True))
    def test_each_gradient_alone(self, graph, to_labels, traced):
        """Eager tapes, tapes in a graph and tapes around a tf.function take different paths."""
        labels, x = (tf.constant(np.random.default_rng(i).random([3, 5])) for i in (1, 2))
        loss = tf.function(tfo.nn.softmax_cross_entropy) if traced else tfo.nn.softmax_cross_entropy

        def gradient(labels, x):
            with tf.GradientTape() as tape:
                tape.watch(labels if to_labels else x)
                y = loss(labels, x)
            return tape.gradient(y, labels if to_labels else x)

        result = (tf.function(gradient) if graph else gradient)(labels, x)
        nats, total = -tf.math.log_softmax(x), tf.reduce_sum(labels, -1, keepdims=True)
        expected = nats if to_labels else total * tf.exp(-nats) - labels
        self.assertAllClose(result, expected, rtol=1e-12, atol=1e-14)

    def test_labels_are_cast(self):
        x = _logits([4, 3], tf.float16)
        expected = tfo.nn.softmax_cross_entropy(tf.one_hot([0, 1, 2, 0], 3, dtype=tf.float16), x)
        for dtype in (tf.float32, tf.float64, tf.int32, tf.bool):
            self.assertAllEqual(tfo.nn.softmax_cross_entropy(tf.cast(tf.one_hot([0, 1, 2, 0], 3), dtype), x), expected)

    @parameterized.parameters(0, -2)
    def test_any_axis(self, axis):
        labels, x = (_logits([3, 4, 5], seed=i).numpy() for i in (1, 2))
        expected = tfo.nn.softmax_cross_entropy(np.moveaxis(labels, axis, -1), np.moveaxis(x, axis, -1))
        self.assertAllEqual(tfo.nn.softmax_cross_entropy(labels, x, axis=axis), expected)
        any_rank = tf.function(
            lambda labels, x: tfo.nn.softmax_cross_entropy(labels, x, axis=axis),
            input_signature=[tf.TensorSpec(None, tf.float64)] * 2,
        )
        self.assertAllEqual(any_rank(labels, x), expected)

    def test_unused_gradient_to_labels_is_not_computed(self):
        """Each input has a gradient op of its own, and TensorFlow prunes ops that nothing reads."""

        @tf.function
        def gradient(labels, x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tfo.nn.softmax_cross_entropy(labels, x)
            return tape.gradient(loss, x)

        graph = gradient.get_concrete_function(*[tf.TensorSpec([2, 3])] * 2).graph
        grads = [op for op in _read_ops(graph) if op.type == "TensorflowOps>SoftmaxCrossEntropyGrad"]
        self.assertEqual([op.get_attr("to_labels") for op in grads], [False])


class NamesTest(tf.test.TestCase):
    def test_each_function_takes_a_name(self):
        @tf.function
        def named(x):
            return (
                tfo.nn.softmax(x, name="a"),
                tfo.nn.log_prob_from_logits(x, name="b"),
                tfo.nn.softmax_entropy(x, name="c"),
                tfo.nn.softmax_cross_entropy(x, x, name="d"),
                tfo.nn.sparse_softmax_cross_entropy([0, 0], x, name="e"),
                tfo.nn.label_log_prob([0, 0], x, name="f"),
                tfo.nn.gaussian_kl((x, x), name="g"),
                tfo.nn.linear_cross_entropy(x, x, [0, 0], name="h"),
            )

        names = {
            op.name.split("/")[0] for op in named.get_concrete_function(tf.TensorSpec([2, 2])).graph.get_operations()
        }
        self.assertContainsSubset(set("abcdefgh"), names)


if __name__ == "__main__":
    tf.test.main()
