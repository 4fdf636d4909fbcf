"""Slicing versus reductions: the same sum computed in four ways, with their times."""

import timeit

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


x = tf.constant(np.random.default_rng(0).normal(size=[ROWS, COLUMNS]), tf.float32)
print(f"the sum of {ROWS} rows of {COLUMNS} numbers\n")
print(f"{'':10}{'eager ms':>10}{'graph ms':>10}{'ops in the graph':>18}")
times = {}
for function in (slices, unstack, loop, reduction):
    graph = tf.function(function)
    np.testing.assert_allclose(graph(x), reduction(x), rtol=1e-4, atol=1e-4)  # also traces
    times[function] = [
        1e3 * np.median(timeit.repeat(lambda call=call: call(x).numpy(), number=1, repeat=7))
        for call in (function, graph)
    ]
    operations = len(graph.get_concrete_function(x).graph.get_operations())
    print(f"{function.__name__:10}{times[function][0]:10.3f}{times[function][1]:10.3f}{operations:18}")
eagerly, as_graph = np.divide(times[slices], times[reduction])
print(f"\nslices / reduction: {eagerly:.0f} eagerly, {as_graph:.0f} as a graph")

# Starting any op costs some microseconds. To be fast, do more work per op: reductions,
# tf.gather for rows by index, tf.einsum, and tf.scan only if each step needs the result of
# the previous one.
print("rows by index in one op:", np.array_equal(tf.gather(x, [4, 0, 4]), tf.stack([x[4], x[0], x[4]])))
