"""What runs when: Python at tracing, ops in a tf.function, control dependencies.

python examples/basics/order_of_execution.py
"""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import tensorflow as tf


def main():
    """Runs the example."""
    # Eagerly lines run one after the other. A tf.function runs its Python once, when it is
    # traced, and afterwards the graph alone.
    python_calls = []

    @tf.function
    def traced(x):
        python_calls.append("called")  # a Python effect: at tracing only
        tf.print("  tf.print runs each time:", x)
        return x + 1

    for i in range(3):
        traced(tf.constant(i))
    print("Python ran", len(python_calls), "time, the graph 3 times")

    # Ops without effects run when their inputs are there. Reads and writes of one variable
    # keep the order of the lines: tf.function adds the dependencies.
    counter = tf.Variable(0)

    @tf.function
    def in_order():
        counter.assign(1)
        before = counter + 0
        counter.assign_add(10)
        return before, counter + 0

    print("in the order of the lines:", [int(v) for v in in_order()])

    # In a bare graph, as old code and tf.Graph have it, nobody adds them. There, and to tie
    # ops that share no variable, one says it: what is made in the block runs after the check.
    def checked_log(x, tied):
        check = tf.debugging.assert_positive(x)
        with tf.control_dependencies([check] if tied else []):
            return tf.math.log(x)

    for tied in (False, True):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x = tf.compat.v1.placeholder(tf.float32)
            result = checked_log(x, tied)
            try:
                print("bare graph, not tied: the check does not run,", session.run(result, {x: [1.0, -1.0]}))
            except tf.errors.InvalidArgumentError:
                print("bare graph, tied: the check runs first, and fails")

    # What runs inside of the block counts, not what is used in it: a tensor that was there
    # before stays as it was. tf.identity makes one that waits.
    @tf.function
    def waits():
        old = counter.read_value()
        with tf.control_dependencies([counter.assign(100)]):
            return old, tf.identity(counter.read_value())

    counter.assign(5)
    print("read before, and in the block:", [int(v) for v in waits()])

    # A result that nobody uses is not computed; an effect (print, assign, assert) is.
    @tf.function
    def unused(x):
        tf.math.reciprocal_no_nan(x)  # pruned: no use, no effect
        tf.debugging.assert_positive(x)  # stays
        return x

    try:
        unused(tf.constant(-1.0))
    except tf.errors.InvalidArgumentError as error:
        print(
            "an unused assertion still runs:", next(line for line in error.message.splitlines() if "Condition" in line)
        )


if __name__ == "__main__":
    main()
