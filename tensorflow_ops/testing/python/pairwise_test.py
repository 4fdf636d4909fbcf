"""Tests of pairwise_testing."""

import itertools
import unittest

from pairwise_testing import pairs_of


class PairsOfTest(unittest.TestCase):
    def test_each_pair_occurs_in_few_cases(self):
        values = ("abcd", (1, 2), (True, False), "wxyz")
        cases = pairs_of(*values)
        for i, j in itertools.combinations(range(4), 2):
            self.assertEqual({(case[i], case[j]) for case in cases}, {*itertools.product(values[i], values[j])})
        self.assertLessEqual(len(cases), 20)  # of 64


if __name__ == "__main__":
    unittest.main()
