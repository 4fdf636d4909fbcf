"""Feeding data: constants, generators, Python functions, tf.data."""

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo


def summary(batches):
    """Returns the shapes and the sum of a dataset's elements."""
    batches = list(batches)
    return [tuple(batch.shape) for batch in batches], float(sum(tf.reduce_sum(batch) for batch in batches))


def samples():
    """Yields ten examples one by one, as from files, a socket or a simulation."""
    for i in range(10):
        yield np.full([3], i, np.float32)


data = np.stack(list(samples()))  # [10, 3]


# An array in a tf.function becomes a constant of the graph: there is no copy per step, but
# the graph holds the array, and another array needs another graph. For small data only.
@tf.function
def step_with_constant():
    return tf.reduce_sum(tf.constant(data))


print("constant:", step_with_constant().numpy())


# Pass tensors as arguments: each new Python number would trace a new graph.
@tf.function
def step(x):
    return tf.reduce_sum(x)


graphs = []
for convert in (int, tf.constant):
    before = step.experimental_get_tracing_count()
    for i in range(3):
        step(convert(i))
    graphs.append(step.experimental_get_tracing_count() - before)
print("graphs for 3 Python numbers:", graphs[0], "and for 3 tensors:", graphs[1])

# From memory: copies the whole array once, then yields slices.
memory = tf.data.Dataset.from_tensor_slices(data).batch(4)
print("tensor slices:", *summary(memory))

# From a generator: one example at a time, at the speed of Python. The signature declares
# shape and dtype, which TensorFlow cannot infer.
generated = tf.data.Dataset.from_generator(samples, output_signature=tf.TensorSpec([3], tf.float32)).batch(4)
print("generator:", *summary(generated))


# NumPy in the pipeline, or in any graph. `out` declares the result, so shapes stay static and
# other results raise an error. tf.numpy_function does neither.
@tfo.python_op("basics::reverse_rows", out=lambda x: tf.TensorSpec(x.shape, x.dtype))
def reverse_rows(x):
    return np.ascontiguousarray(x[..., ::-1])


reversed_rows = memory.map(lambda x: reverse_rows(x * [1, 2, 3]))
print("python_op:", reversed_rows.element_spec.shape, next(iter(reversed_rows))[1].numpy())

# For training: shuffle examples (not batches), batch, transform whole batches in parallel,
# and prefetch the next one.
pipeline = tf.data.Dataset.from_tensor_slices(data).shuffle(len(data), seed=1).batch(4, drop_remainder=True)
pipeline = pipeline.map(lambda x: x / 9.0, num_parallel_calls=tf.data.AUTOTUNE).repeat(2).prefetch(tf.data.AUTOTUNE)
print("pipeline:", [tuple(batch.shape) for batch in pipeline], pipeline.element_spec.shape)
