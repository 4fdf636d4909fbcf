"""Slicing versus reductions: the same sum computed in four ways, with their times.

python examples/basics/slicing.py
"""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # read when TensorFlow is imported

import statistics
import time

import numpy as np
import tensorflow as tf

ROWS, COLUMNS = 500, 10


def slices(x):
    """One op per slice and one per addition."""
    total = tf.zeros([COLUMNS])
    for i in range(ROWS):
        total = total + x[i]
    return total


def unstack(x):
    """One op for all slices, and one per addition."""
    total = tf.zeros([COLUMNS])
    for row in tf.unstack(x):
        total = total + row
    return total


def loop(x):
    """AutoGraph converts this to a tf.while_loop: a small graph that runs row by row."""
    total = tf.zeros([COLUMNS])
    for i in tf.range(ROWS):
        total = total + x[i]
    return total


def reduction(x):
    """One op, one pass over the memory."""
    return tf.reduce_sum(x, 0)


def milliseconds(call, x, times=7):
    """Returns the median time of a call, after a first call that traces."""
    call(x).numpy()
    samples = []
    for _ in range(times):
        start = time.perf_counter()
        call(x).numpy()
        samples.append(1e3 * (time.perf_counter() - start))
    return statistics.median(samples)


def main():
    """Runs the example."""
    x = tf.constant(np.random.default_rng(0).normal(size=[ROWS, COLUMNS]), tf.float32)
    expected = reduction(x)
    print(f"the sum of {ROWS} rows of {COLUMNS} numbers\n")
    print(f"{'':10}{'eager ms':>10}{'graph ms':>10}{'ops in the graph':>18}")
    times = {}
    for function in (slices, unstack, loop, reduction):
        graph = tf.function(function)
        np.testing.assert_allclose(graph(x), expected, rtol=1e-4, atol=1e-4)
        times[function] = milliseconds(function, x), milliseconds(graph, x)
        operations = len(graph.get_concrete_function(x).graph.get_operations())
        print(f"{function.__name__:10}{times[function][0]:10.3f}{times[function][1]:10.3f}{operations:18}")
    eagerly, as_graph = (slow / fast for slow, fast in zip(times[slices], times[reduction], strict=True))
    print(f"\nslices / reduction: {eagerly:.0f} eagerly, {as_graph:.0f} as a graph")

    # Starting any op costs some microseconds. To be fast, do more work per op: reductions,
    # tf.gather for rows by index, tf.einsum, and tf.scan only if each step needs the result
    # of the previous one.
    index = tf.constant([4, 0, 4])
    print("rows by index in one op:", np.array_equal(tf.gather(x, index), tf.stack([x[4], x[0], x[4]])))


if __name__ == "__main__":
    main()
