"""Debugging: assertions, prints, NaN, and a wrong gradient of a correct loss."""

import os

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo


# Assert preconditions. If TensorFlow can check one while tracing, it raises ValueError
# there; otherwise the graph stops at run time with the message.
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


# print shows symbolic tensors, once; tf.print shows values, in every call, on stderr by
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

# To find the origin of a NaN, use check_numerics, which raises there. Without it, the NaN
# propagates to the loss. tf.debugging.enable_check_numerics() checks all ops, and reports the
# one that failed.
try:
    tf.debugging.check_numerics(tf.math.log(tf.constant([1.0, -1.0])), "log of x")
except tf.errors.InvalidArgumentError as error:
    print("check_numerics:", error.message.split("}} ")[-1])


# An entropy that trains incorrectly. The values agree to the last digit, but gradient ascent
# should reach the maximum, log 4 = 1.386.
def wrong_entropy(logits):
    probabilities = tf.stop_gradient(tf.nn.softmax(logits))  # the mistake: drops a part of the gradient
    return -tf.reduce_sum(probabilities * tf.nn.log_softmax(logits), -1)


def entropy(logits):
    return -tf.reduce_sum(tf.nn.softmax(logits) * tf.nn.log_softmax(logits), -1)


def maximise(function, logits):
    logits = tf.Variable(logits)
    for _ in range(200):
        with tf.GradientTape() as tape:
            value = function(logits)
        logits.assign_add(0.5 * tape.gradient(value, logits))
    return entropy(logits)


logits = tf.constant([2.0, 0.0, -1.0, 0.5])
print(f"values: {wrong_entropy(logits):.6f} and {entropy(logits):.6f}")
print(f"trained: {maximise(wrong_entropy, logits):.3f} and {maximise(entropy, logits):.3f}, best {np.log(4):.3f}")

# This check detects it: it compares the gradient with finite differences.
logits = tf.cast(logits, tf.float64)
for function in (wrong_entropy, entropy, tfo.nn.softmax_entropy):
    print(f"gradient error of {function.__name__}: {tfo.testing.gradient_error(function, [logits]).error:.0e}")
tfo.testing.assert_gradients(entropy, [logits])  # in a test
try:
    tfo.testing.assert_gradients(wrong_entropy, [logits])
except AssertionError as error:
    print("assert_gradients:", str(error).splitlines()[0])
