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

    @parameterized.product(name=tuple(_FUNCTIONS), order=(0, 1, 2))
    def test_equals_a_loop(self, name, order):
        function, count = _FUNCTIONS[name]
        for _ in range(order):
            function = _gradients(function)
        self._check(function, [tf.constant(_random(i)) for i in range(count)])

    @parameterized.product(
        name=[name for name, (_, count) in _FUNCTIONS.items() if count > 1], order=(0, 1), stacked=(0, 1)
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


_A, _I = tf.TensorSpec, tf.int32
_UNKNOWN = tf.TensorShape(None)


class StaticShapeTest(parameterized.TestCase, tf.test.TestCase):
    def _shapes(self, function, *specs):
        """Returns the static shapes of the result and of the gradients to float inputs."""

        def traced(*inputs):
            floats = [t for t in inputs if t.dtype.is_floating]
            with tf.GradientTape() as tape:
                tape.watch(floats)
                y = function(*inputs)
            return y, *tape.gradient(y, floats)

        outputs = tf.function(traced).get_concrete_function(*specs).outputs
        return [None if o.shape.rank is None else o.shape.as_list() for o in outputs]

    @parameterized.parameters(
        ([2, 3, 7], -1),
        ([None, 3, 7], -1),
        ([2, None, None], -1),
        ([None, None, None], 1),
        ([2, None, 7], 1),
        ([2, 3, None], 0),
        (None, -1),
    )
    def test_logits(self, shape, axis):
        rows = None if shape is None else [n for i, n in enumerate(shape) if i != axis % len(shape)]
        for function in (tfo.nn.softmax, tfo.nn.log_prob_from_logits):
            result = self._shapes(lambda x, f=function: f(x, axis=axis), _A(shape))
            self.assertEqual(result, [shape, shape])
        result = self._shapes(lambda x: tfo.nn.softmax_entropy(x, axis=axis), _A(shape))
        self.assertEqual(result, [rows, shape])
        result = self._shapes(lambda t, x: tfo.nn.softmax_cross_entropy(t, x, axis=axis), _A(shape), _A(shape))
        self.assertEqual(result, [rows, shape, shape])
        result = self._shapes(lambda m, s: tfo.nn.gaussian_kl((m, s), axis=axis), _A(shape), _A(shape))
        self.assertEqual(result, [rows, shape, shape])

    @parameterized.parameters(
        # labels, logits, loss, gradient
        ([2, 3], [2, 3, 7], [2, 3], [2, 3, 7]),
        ([None, 3], [2, None, 7], [2, 3], [2, 3, 7]),
        (None, [2, None, 7], [2, None], [2, None, 7]),
        ([2, 3], None, [2, 3], [2, 3, None]),
        ([2, 3], [None, None, None], [2, 3], [2, 3, None]),
        ([], [7], [], [7]),
        (None, None, None, None),
    )
    def test_sparse_labels(self, labels, logits, loss, gradient):
        for function in (tfo.nn.sparse_softmax_cross_entropy, tfo.nn.label_log_prob):
            self.assertEqual(self._shapes(function, _A(labels, _I), _A(logits)), [loss, gradient])

    @parameterized.parameters(
        ([2, None], [None, 7], [2, 7]),
        ([2, 1], [None, 7], [2, 7]),
        ([None, 1], [1, 7], [None, 7]),
        ([7], [None, 1], [None, 7]),
        ([None], None, None),
    )
    def test_broadcast(self, means, logs, full):
        result = self._shapes(lambda m, s: tfo.nn.gaussian_kl((m, s)), _A(means), _A(logs))
        self.assertEqual(result, [None if full is None else full[:-1], means, logs])

    @parameterized.parameters(
        ([5, 4], [4, 7], [5], [5]),
        ([None, 4], [4, None], [None], [None]),
        ([None, None], [4, 7], [5], [5]),
        ([2, None, 4], [None, 7], [None, 3], [2, 3]),
        ([None, 4], [4, 7], None, [None]),
    )
    def test_linear_cross_entropy(self, features, weight, labels, loss):
        shapes = self._shapes(
            lambda f, w, y: tfo.nn.linear_cross_entropy(f, w, y), _A(features), _A(weight), _A(labels, _I)
        )
        self.assertEqual(shapes[0], loss)
        self.assertEqual(shapes[1:], [features, weight])

    def test_op_reports_impossible_shapes(self):
        """Calls the ops directly, as a graph does once shapes become known."""
        x = tf.zeros([2, 3])
        with self.assertRaisesRegex(ValueError, "labels and logits must have the same shape"):
            tf.function(lambda: ops.tensorflow_ops_softmax_cross_entropy(tf.zeros([2, 4]), x, Tvalue=tf.float32))()
        with self.assertRaisesRegex(ValueError, "labels must have logits' shape without the classes"):
            tf.function(
                lambda: ops.tensorflow_ops_sparse_softmax_cross_entropy(x, tf.zeros([3], tf.int32), Tvalue=tf.float32)
            )()
        with self.assertRaisesRegex(ValueError, r"logits must be \[\.\.\., classes\]"):
            tf.function(lambda: ops.tensorflow_ops_softmax(tf.zeros([])))()


class TraceTest(parameterized.TestCase, tf.test.TestCase):
    def test_any_rank(self):
        @tf.function(input_signature=[tf.TensorSpec(None, tf.int64), tf.TensorSpec(None)])
        def gradient(labels, x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tfo.nn.sparse_softmax_cross_entropy(labels, x)
            return loss, tape.gradient(loss, x)

        for shape in ([4], [2, 4], [2, 3, 4], [0, 4], [1, 1, 1, 4]):
            loss, d_x = gradient(np.ones(shape[:-1], np.int64), tf.zeros(shape))
            self.assertAllClose(loss, np.full(shape[:-1], np.log(4)))
            self.assertAllClose(d_x, np.broadcast_to([0.25, -0.75, 0.25, 0.25], shape))
        self.assertEqual(gradient.experimental_get_tracing_count(), 1)

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


class EagerTest(tf.test.TestCase):
    def test_variables_and_persistent_tapes(self):
        x = tf.Variable(_random(1)[0])
        with tf.GradientTape(persistent=True) as tape:
            y = tfo.nn.softmax_entropy(x)
        self.assertAllEqual(tape.gradient(y, x), tape.gradient(y, x))


if __name__ == "__main__":
    tf.test.main()
