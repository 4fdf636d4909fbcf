"""Debugging: assertions, prints, NaN, and a gradient that is wrong though the loss is right.

python examples/basics/debugging.py
"""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo


def wrong_entropy(logits):
    """The entropy of softmax(logits), as one may write it to save memory. Values are right."""
    probabilities = tf.stop_gradient(tf.nn.softmax(logits))  # "only a weight"
    return -tf.reduce_sum(probabilities * tf.nn.log_softmax(logits), -1)


def entropy(logits):
    """The same without the stop."""
    return -tf.reduce_sum(tf.nn.softmax(logits) * tf.nn.log_softmax(logits), -1)


def maximise(function, logits):
    """The entropy after 200 steps up the gradient."""
    logits = tf.Variable(logits)
    for _ in range(200):
        with tf.GradientTape() as tape:
            value = function(logits)
        logits.assign_add(0.5 * tape.gradient(value, logits))
    return entropy(logits)


def main():
    """Runs the example."""

    # Say what must hold. Where TensorFlow knows when tracing, it is a ValueError there;
    # else the graph stops when it runs, with the message.
    @tf.function(input_signature=[tf.TensorSpec([None, None])])
    def normalise(x):
        total = tf.reduce_sum(x, 1, keepdims=True)
        tf.debugging.assert_positive(total, "rows must have a positive sum")
        return x / total

    print("normalised:", normalise(tf.constant([[1.0, 3.0]])).numpy())
    try:
        normalise(tf.constant([[1.0, -3.0]]))
    except tf.errors.InvalidArgumentError as error:
        print("assertion:", next(line for line in error.message.splitlines() if "positive sum" in line))

    # print shows symbols, once; tf.print shows values, each time. Its output is stderr by
    # default.
    @tf.function
    def printed(x):
        print("print:", x.shape)
        tf.print("tf.print:", x, output_stream="file://" + os.devnull)
        return x

    printed(tf.constant([1, 2]))
    # To step through a tf.function in a debugger, run it eagerly.
    tf.config.run_functions_eagerly(True)
    printed(tf.constant([1, 2, 3]))
    tf.config.run_functions_eagerly(False)

    # Where does the NaN come from? check_numerics stops at the place; without it the
    # number travels to the loss.
    try:
        tf.debugging.check_numerics(tf.math.log(tf.constant([1.0, -1.0])), "log of x")
    except tf.errors.InvalidArgumentError as error:
        print("check_numerics:", error.message.split("}} ")[-1])
    # tf.debugging.enable_check_numerics() does so for all ops, and says which one it was.

    # The entropy that trains wrongly. Values agree to the last digit; up its gradient the
    # true entropy should reach log 4 = 1.386.
    logits = tf.constant([2.0, 0.0, -1.0, 0.5])
    print(f"values: {wrong_entropy(logits):.6f} and {entropy(logits):.6f}")
    print(f"trained: {maximise(wrong_entropy, logits):.3f} and {maximise(entropy, logits):.3f}, best {np.log(4):.3f}")

    # The check that finds it: the gradient against differences of values.
    for function in (wrong_entropy, entropy, tfo.nn.softmax_entropy):
        error = tfo.testing.gradient_error(function, [tf.cast(logits, tf.float64)]).error
        print(f"gradient error of {function.__name__}: {error:.0e}")
    tfo.testing.assert_gradients(entropy, [tf.cast(logits, tf.float64)])  # in a test
    try:
        tfo.testing.assert_gradients(wrong_entropy, [tf.cast(logits, tf.float64)])
    except AssertionError as error:
        print("assert_gradients:", str(error).splitlines()[0])


if __name__ == "__main__":
    main()
