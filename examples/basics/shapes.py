"""Static and dynamic shapes: known while a graph is traced, and only when it runs."""

import tensorflow as tf

import tensorflow_ops as tfo

# Eager tensors have values, so their shapes are fully known.
print("eager:", tf.zeros([2, 10, 32]).shape, tfo.shapes.get_shape(tf.zeros([2, 10, 32])))


# In a tf.function, the batch size is often unknown. x.shape is the static shape, a Python
# object; tf.shape(x) is an op whose result is the shape at run time, a tensor. get_shape
# returns static dims where they are known: the graph has fewer ops, and later ops have more
# static shapes.
@tf.function(input_signature=[tf.TensorSpec([None, 10, 32])])
def look(x):
    print("traced: x.shape is", x.shape, "and tf.shape(x) is", tf.shape(x))
    tf.print("run: tf.shape(x) is", tf.shape(x))
    print("traced: get_shape(x) is", tfo.shapes.get_shape(x))
    return x


look(tf.zeros([2, 10, 32]))
look(tf.zeros([5, 10, 32]))  # the same graph: Python prints nothing


# A shape made of tensors loses the static dims; tfo.shapes.reshape keeps them.
@tf.function(input_signature=[tf.TensorSpec([None, 10, 32])])
def fold(x):
    shape = tf.shape(x)
    forgotten = tf.reshape(x, [shape[0], tf.reduce_prod(shape[1:])])
    kept = tfo.shapes.reshape(x, [0, [1, 2]])
    print("traced: folded by tf.shape", forgotten.shape, "by tfo.shapes.reshape", kept.shape)
    return kept


print("run:", fold(tf.zeros([2, 10, 32])).shape)


# A dense layer needs the last dim when it is built. If TensorFlow cannot infer a shape,
# declare it: ensure_shape sets it, and checks it at run time.
@tf.function(input_signature=[tf.TensorSpec(None)])
def unknown_rank(x):
    x = tf.ensure_shape(x, [None, 3])
    print("traced: the declared shape is", x.shape)
    return tf.reduce_sum(x)


unknown_rank(tf.zeros([7, 3]))
try:
    unknown_rank(tf.zeros([7, 4]))
except tf.errors.InvalidArgumentError as error:
    print("checked:", next(line for line in error.message.splitlines() if "compatible" in line))

# Each new static shape causes a new trace. An input_signature with None needs only one.
traces = []


@tf.function
def retraced(x):
    traces.append(x.shape)
    return tf.reduce_sum(x)


for n in (2, 3, 4):
    retraced(tf.zeros([n]))
print("traces without a signature:", traces)
