"""Feeding data: constants, generators, Python functions, tf.data.

python examples/basics/feeding_data.py
"""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

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


# NumPy inside a graph. `out` declares the result, so shapes stay static and other results
# raise an error. tf.numpy_function does neither.
@tfo.python_op("basics::reverse_rows", out=lambda x: tf.TensorSpec(x.shape, x.dtype))
def reverse_rows(x):
    """Reverses each row."""
    return np.ascontiguousarray(x[..., ::-1])


def main():
    """Runs the example."""
    data = np.stack(list(samples()))  # [10, 3]

    # An array in a tf.function becomes a constant of the graph: there is no copy per step,
    # but the graph holds the array, and another array needs another graph. For small data only.
    @tf.function
    def step_with_constant():
        return tf.reduce_sum(tf.constant(data))

    print("constant:", step_with_constant().numpy())

    # Pass tensors as arguments: each new Python number would trace a new graph.
    @tf.function
    def step(x):
        return tf.reduce_sum(x)

    for i in range(3):
        step(i)
    after_numbers = step.experimental_get_tracing_count()
    for i in range(3):
        step(tf.constant(i))
    print(
        "graphs for 3 Python numbers:",
        after_numbers,
        "and for 3 tensors:",
        step.experimental_get_tracing_count() - after_numbers,
    )

    # From memory: copies the whole array once, then yields slices.
    memory = tf.data.Dataset.from_tensor_slices(data).batch(4)
    print("tensor slices:", *summary(memory))

    # From a generator: one example at a time, at the speed of Python. The signature declares
    # shape and dtype, which TensorFlow cannot infer.
    generated = tf.data.Dataset.from_generator(samples, output_signature=tf.TensorSpec([3], tf.float32)).batch(4)
    print("generator:", *summary(generated))

    # With a Python function in the pipeline.
    reversed_rows = memory.map(reverse_rows)
    print(
        "python_op:",
        reversed_rows.element_spec.shape,
        next(iter(memory.map(lambda x: reverse_rows(x * [1, 2, 3]))))[1].numpy(),
    )

    # For training: shuffle examples (not batches), batch, transform whole batches in
    # parallel, and prefetch the next one.
    pipeline = (
        tf.data.Dataset.from_tensor_slices(data)
        .shuffle(len(data), seed=1)
        .batch(4, drop_remainder=True)
        .map(lambda x: x / 9.0, num_parallel_calls=tf.data.AUTOTUNE)
        .repeat(2)
        .prefetch(tf.data.AUTOTUNE)
    )
    print("pipeline:", [tuple(batch.shape) for batch in pipeline], pipeline.element_spec.shape)


if __name__ == "__main__":
    main()
