"""Static and dynamic shapes: what a graph knows when it is traced, and what only when it runs.

python examples/basics/shapes.py
"""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import tensorflow as tf

import tensorflow_ops as tfo


def main():
    """Runs the example."""
    # Eagerly a tensor has its values, so all of its shape is known.
    print("eager:", tf.zeros([2, 10, 32]).shape, tfo.shapes.get_shape(tf.zeros([2, 10, 32])))

    # In a tf.function the batch is often unknown. x.shape is what the graph knows, and is
    # Python; tf.shape(x) is an op that says what it was, and is a tensor.
    @tf.function(input_signature=[tf.TensorSpec([None, 10, 32])])
    def look(x):
        print("traced: x.shape is", x.shape, "and tf.shape(x) is", tf.shape(x))
        tf.print("run: tf.shape(x) is", tf.shape(x))
        # get_shape takes each dim from where it is known: a graph with fewer ops, and
        # shapes that later ops can be checked against.
        print("traced: get_shape(x) is", tfo.shapes.get_shape(x))
        return x

    look(tf.zeros([2, 10, 32]))
    look(tf.zeros([5, 10, 32]))  # the same graph: nothing is printed by Python

    # From a shape of tensors alone the graph forgets what it knew; reshape keeps it.
    @tf.function(input_signature=[tf.TensorSpec([None, 10, 32])])
    def fold(x):
        shape = tf.shape(x)
        forgotten = tf.reshape(x, [shape[0], tf.reduce_prod(shape[1:])])
        kept = tfo.shapes.reshape(x, [0, [1, 2]])
        print("traced: folded by tf.shape", forgotten.shape, "by tfo.shapes.reshape", kept.shape)
        return kept

    print("run:", fold(tf.zeros([2, 10, 32])).shape)

    # A dense layer needs the last dim when it is built. Where TensorFlow cannot know a
    # shape, say it: ensure_shape also checks it when the graph runs.
    @tf.function(input_signature=[tf.TensorSpec(None)])
    def unknown_rank(x):
        x = tf.ensure_shape(x, [None, 3])
        print("traced: told that the shape is", x.shape)
        return tf.reduce_sum(x)

    unknown_rank(tf.zeros([7, 3]))
    try:
        unknown_rank(tf.zeros([7, 4]))
    except tf.errors.InvalidArgumentError as error:
        print("checked:", next(line for line in error.message.splitlines() if "compatible" in line))

    # Each new static shape is a new trace. An input_signature with None has one for all.
    traces = []

    @tf.function
    def traced_anew(x):
        traces.append(x.shape)
        return tf.reduce_sum(x)

    for n in (2, 3, 4):
        traced_anew(tf.zeros([n]))
    print("traces without a signature:", traces)


if __name__ == "__main__":
    main()
