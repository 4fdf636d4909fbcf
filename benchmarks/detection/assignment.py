"""linear_sum_assignment, beside SciPy, which is serial and takes one matrix, and SciPy in a graph. 1 min."""

import numpy as np
import tensorflow as tf
from harness import Case, in_graph, table

import tensorflow_ops as tfo

try:
    import scipy.optimize
except ImportError:
    scipy = None


def scipys(costs):
    """Returns the row of each column, int32 [N, T], for N matrices [Q, T] with Q >= T."""
    rows = np.empty(costs.shape[::2], np.int32)
    for of_columns, matrix in zip(rows, costs, strict=True):
        matched, columns = scipy.optimize.linear_sum_assignment(matrix)
        of_columns[columns] = matched
    return rows


def sums(costs):
    """Returns a function of the row of each column: the sums of costs."""
    return lambda rows: np.take_along_axis(costs, np.array(rows)[:, None], 1).astype(np.float64).sum((1, 2))


@table()
def cases():
    for batch, rows, columns in ((8, 300, 30), (8, 900, 100), (1, 1000, 1000)):
        costs = np.random.default_rng(0).random((batch, rows, columns), np.float32)
        inputs = (tf.constant(costs),)
        peers = {
            "SciPy": lambda c=costs: scipys(c),
            "numpy_function": in_graph(lambda c: tf.numpy_function(scipys, [c], tf.int32), inputs),
        }
        yield Case(
            {"batch": batch, "rows": rows, "columns": columns},
            in_graph(lambda c: tfo.detection.linear_sum_assignment(c).rows, inputs),
            peers if scipy else {},
            inputs=inputs,
            arrays=dict.fromkeys(("ours", *peers), sums(costs)),
        )
