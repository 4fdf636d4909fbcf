"""Tests of linear_sum_assignment, compared with all matchings, and with SciPy where it is installed."""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

try:
    import scipy.optimize
except ImportError:
    scipy = None

linear_sum_assignment = tfo.detection.linear_sum_assignment
_RNG = np.random.default_rng(0)
_INF, _NAN = np.inf, np.nan


def _sum(costs, columns):
    """Returns the sum of costs [rows, columns] of a matching, each row's column or -1, and its number of pairs."""
    rows = np.flatnonzero(columns >= 0)
    return costs[rows, columns[rows]].astype(np.float64).sum(), len(rows)


def _least_sum(costs):
    """Returns what `_sum` does, for the best of all matchings; costs of infinity forbid pairs."""
    rows, columns = costs.shape
    padded = np.pad(costs, [[0, 0], [0, rows]], constant_values=_INF)
    best = 0, 0.0
    for chosen in itertools.permutations(range(columns + rows), rows):
        found = padded[range(rows), chosen]
        found = found[found < _INF]
        best = min(best, (-len(found), found.sum()))
    return best[1], -best[0]


class AssignmentTest(tf.test.TestCase, parameterized.TestCase):
    def _check(self, found, costs, counts):
        """Expects the best of all matchings, in both directions."""
        columns, rows = (x.numpy() for x in found)
        for i, count in enumerate(counts):
            self.assertAllLess(columns[i], count)
            self.assertAllEqual(rows[i, count:], np.full(rows.shape[1] - count, -1))
            for q, t in enumerate(columns[i]):
                if t >= 0:
                    self.assertEqual(rows[i, t], q)
            self.assertEqual(np.sum(rows[i] >= 0), np.sum(columns[i] >= 0))
            self.assertEqual(_sum(costs[i], columns[i]), _least_sum(costs[i, :, :count]))

    @parameterized.product(forbidden=(0.0, 0.4, 0.8), maximize=(False, True))
    def test_best_of_all_matchings(self, forbidden, maximize):
        costs = np.round(_RNG.normal(size=[8, 4, 3]) * 3)
        costs[_RNG.random(costs.shape) < forbidden] = _INF
        counts = _RNG.integers(0, 4, [8])
        given = np.where(costs == _INF, _RNG.choice([_NAN, _INF], costs.shape), costs) * (-1 if maximize else 1)
        for dtype in (tf.float64, tf.float16):
            found = linear_sum_assignment(tf.constant(given, dtype), counts=counts, maximize=maximize)
            self._check(found, costs, counts)

    @parameterized.parameters("float32", "float64", "int8", "uint8", "int32", "uint64", "bfloat16")
    def test_sums_are_scipys(self, dtype):
        if scipy is None:
            self.skipTest("needs SciPy")
        for rows, columns in ((1, 1), (300, 30), (30, 300), (60, 60), (7, 5)):
            for spread in (1, 100):  # many ties, and few
                numbers = _RNG.uniform(0, spread, [2, rows, columns])
                costs = tf.cast(numbers if tf.as_dtype(dtype).is_floating else np.round(numbers), dtype)
                wide = tf.cast(costs, tf.float64).numpy()
                for maximize in (False, True):
                    found = linear_sum_assignment(costs, maximize=maximize).columns.numpy()
                    for of_example, ours in zip(wide, found, strict=True):
                        theirs = of_example[scipy.optimize.linear_sum_assignment(of_example, maximize)].sum()
                        self.assertEqual(_sum(of_example, ours), (theirs, min(rows, columns)))

    def test_huge_costs_beside_small_ones(self):
        costs = np.where(_RNG.random([5, 5]) < 0.5, 1e30, _RNG.integers(1, 9, [5, 5]).astype(np.float32))
        np.fill_diagonal(costs, 9)
        found = linear_sum_assignment(tf.constant(costs, tf.float32)).columns.numpy()
        self.assertEqual(_sum(costs, found), _least_sum(costs))

    def test_where_scipy_raises(self):
        # "cost matrix is infeasible" and "matrix contains invalid numeric entries".
        for costs in ([[_NAN, 1.0], [_NAN, 2.0]], [[_INF, 1.0], [_INF, 2.0]]):
            columns, rows = linear_sum_assignment(costs)
            self.assertAllEqual(columns, [1, -1])
            self.assertAllEqual(rows, [-1, 0])
        self.assertAllEqual(linear_sum_assignment([[-_INF, 0.0], [0.0, 1.0]]).columns, [0, 1])
        self.assertAllEqual(linear_sum_assignment([[-_INF, 0.0], [0.0, 1.0]], maximize=True).columns, [1, 0])
        self.assertAllEqual(linear_sum_assignment(tf.fill([2, 3], _NAN)).rows, [-1, -1, -1])

    def test_padding_is_not_read(self):
        costs = tf.constant([[[1.0, 2.0, _NAN], [0.0, 3.0, -9.0]]])
        for counts, columns in (([0], [-1, -1]), ([1], [-1, 0]), ([2], [1, 0])):
            self.assertAllEqual(linear_sum_assignment(costs, counts=counts).columns, [columns])
        # Batch dims of any number.
        found = linear_sum_assignment(costs[0], counts=tf.constant(1))
        self.assertAllEqual(found.rows, [1, -1, -1])
        found = linear_sum_assignment(tf.stack([[costs[0]] * 2] * 3), counts=[[0, 1]] * 3)
        self.assertAllEqual(found.columns[2], [[-1, -1], [-1, 0]])

    @parameterized.parameters(
        ([[4]], r"counts\[0,0\] is 4, expected \[0, 3\]: the columns of costs"),
        ([[0, 3], [-1, 0]], r"counts\[1,0\] is -1, expected \[0, 3\]"),
    )
    def test_counts_out_of_range(self, counts, message):
        costs = tf.zeros([*np.shape(counts), 2, 3])
        for compiled in (False, True):
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                tf.function(linear_sum_assignment, jit_compile=compiled)(costs, counts=tf.constant(counts))


if __name__ == "__main__":
    tf.test.main()
