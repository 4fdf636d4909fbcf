"""Tests of the graphs of the nn functions: which ops they have, their names and shapes."""

import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo


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
    def test_converts_to_one_op_without_a_loop(self):
        @tf.function
        def mapped(x):
            return tf.vectorized_map(tfo.nn.softmax_entropy, x, fallback_to_while_loop=False)

        graph = mapped.get_concrete_function(tf.TensorSpec([None, None, None])).graph
        types = [op.type for op in _read_ops(graph)]
        self.assertEqual(types.count("TensorflowOps>SoftmaxEntropy"), 1)
        self.assertNotIn("While", types)
        self.assertNotIn("StatelessWhile", types)


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
