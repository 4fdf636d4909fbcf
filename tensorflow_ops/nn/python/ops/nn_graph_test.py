"""Tests of the nn functions in graphs: static shapes, traces, vectorized_map, jacobian."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo
from tensorflow_ops.core.python.library import ops

_P, _B, _C = 3, 2, 5  # iterations, rows, classes


def _random(seed, shape=(_P, _B, _C)):
    return np.random.default_rng(seed).normal(size=shape)


def _labels(shape=(_P, _B)):
    return np.random.default_rng(3).integers(0, _C, shape)


# name: (function, number of its float tensors [..., classes])
_FUNCTIONS = {
    "softmax": (tfo.nn.softmax, 1),
    "log_prob_from_logits": (tfo.nn.log_prob_from_logits, 1),
    "softmax_entropy": (tfo.nn.softmax_entropy, 1),
    "softmax_entropy of another axis": (lambda x: tfo.nn.softmax_entropy(x, axis=0), 1),
    "softmax_cross_entropy": (lambda t, x: tfo.nn.softmax_cross_entropy(t, x, label_smoothing=0.1), 2),
    "sparse_softmax_cross_entropy": (
        lambda x: tfo.nn.sparse_softmax_cross_entropy([4, -1], x, ignore_index=-1, label_smoothing=0.1, z_loss=0.1),
        1,
    ),
    "label_log_prob": (lambda x: tfo.nn.label_log_prob([4, 0], x), 1),
    "gaussian_kl": (lambda *t: tfo.nn.gaussian_kl(t[:2], t[2:]), 4),
    "gaussian_kl of the unit Gaussian": (lambda *t: tfo.nn.gaussian_kl(t), 2),
}


def _gradients(function):
    def gradients(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = function(*tensors)
            total = tf.add_n([tf.reduce_sum(r * r) for r in tf.nest.flatten(y)])
        return tape.gradient(total, tensors)

    return gradients


def _one_by_one(function, stacked, batches=_P):
    """Returns the expected result of vectorized_map over the stacked tensors."""
    results = [function(*(t[i] for t in stacked)) for i in range(batches)]
    return tf.nest.map_structure(lambda *r: tf.stack(r), *results)


def _read_ops(graph):
    """Returns the ops that the first output depends on."""
    used, todo = set(), [graph.outputs[0].op]
    while todo:
        op = todo.pop()
        if op.name not in used:
            used.add(op.name)
            todo += [t.op for t in op.inputs]
    return [graph.get_operation_by_name(name) for name in sorted(used)]


class VectorizedMapTest(parameterized.TestCase, tf.test.TestCase):
    def _check(self, function, stacked):
        # Raises if there is no converter.
        result = tf.vectorized_map(lambda t: function(*t), tuple(stacked), fallback_to_while_loop=False)
        expected = _one_by_one(function, stacked)
        for r, e in zip(tf.nest.flatten(result), tf.nest.flatten(expected), strict=True):
            self.assertEqual(r.shape, e.shape)
            self.assertAllClose(r, e, rtol=1e-12, atol=1e-13)
            self.assertGreater(np.abs(e).max(), 1e-3)

    @parameterized.product(
        name=[name for name, (_, count) in _FUNCTIONS.items() if count > 1], order=(1,), stacked=(0, 1)
    )
    def test_shared_tensors(self, name, order, stacked):
        function, count = _FUNCTIONS[name]
        for _ in range(order):
            function = _gradients(function)
        shared = [tf.constant(_random(9 + i, (_B, _C))) for i in range(count)]

        def call_one(t):
            tensors = list(shared)
            tensors[stacked] = t
            return function(*tensors)

        self._check(call_one, [tf.constant(_random(1))])

    @parameterized.product(dtype=(tf.int32, tf.int64), order=(0, 1))
    def test_labels(self, dtype, order):
        labels, x = tf.cast(_labels(), dtype), tf.constant(_random(1))
        for function in (tfo.nn.sparse_softmax_cross_entropy, tfo.nn.label_log_prob):
            # Stacks the labels, the logits, or both.
            for take_labels, take_x in ((True, False), (False, True), (True, True)):

                def call_one(t, function=function, take_labels=take_labels, take_x=take_x):
                    at, x_at = t[0] if take_labels else labels[0], t[1] if take_x else x[0]
                    loss_at = lambda x_at: function(at, x_at)  # noqa: E731
                    return (_gradients(loss_at) if order else loss_at)(x_at)

                result = tf.vectorized_map(call_one, (labels, x), fallback_to_while_loop=False)
                expected = tf.nest.map_structure(
                    lambda *r: tf.stack(r), *[call_one((labels[i], x[i])) for i in range(_P)]
                )
                for r, e in zip(tf.nest.flatten(result), tf.nest.flatten(expected), strict=True):
                    self.assertAllClose(r, e, rtol=1e-12)

    def test_converts_to_one_op_without_a_loop(self):
        @tf.function
        def mapped(x):
            return tf.vectorized_map(tfo.nn.softmax_entropy, x, fallback_to_while_loop=False)

        graph = mapped.get_concrete_function(tf.TensorSpec([None, None, None])).graph
        types = [op.type for op in _read_ops(graph)]
        self.assertEqual(types.count("TensorflowOps>SoftmaxEntropy"), 1)
        self.assertNotIn("While", types)
        self.assertNotIn("StatelessWhile", types)


class ShapeTest(parameterized.TestCase, tf.test.TestCase):
    def test_op_reports_impossible_shapes(self):
        """Calls the ops directly, as a graph does once shapes become known."""
        x = tf.zeros([2, 3])
        with self.assertRaisesRegex(ValueError, "labels and logits must have the same shape"):
            tf.function(lambda: ops.tensorflow_ops_softmax_cross_entropy(tf.zeros([2, 4]), x, Tvalue=tf.float32))()
        with self.assertRaisesRegex(ValueError, "labels must have logits' shape without the classes"):
            tf.function(
                lambda: ops.tensorflow_ops_sparse_softmax_cross_entropy(x, tf.zeros([3], tf.int32), Tvalue=tf.float32)
            )()
        with self.assertRaisesRegex(ValueError, r"logits must have at least one dim"):
            tf.function(lambda: ops.tensorflow_ops_softmax(tf.zeros([])))()


class TraceTest(parameterized.TestCase, tf.test.TestCase):
    def test_names(self):
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


if __name__ == "__main__":
    tf.test.main()
