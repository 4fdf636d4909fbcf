"""Tests of shard_testing."""

import os
import unittest
from unittest import mock

from shard_testing import part_of


class PartOfTest(unittest.TestCase):
    def test_each_entry_is_in_one_part(self):
        table = {"a": 1, "b": 2, "c": 3}
        self.assertEqual(part_of(table), table)
        for count in (2, 5):
            parts = []
            for index in range(count):
                shard = {"TEST_TOTAL_SHARDS": str(count), "TEST_SHARD_INDEX": str(index)}
                with mock.patch.dict(os.environ, shard):
                    parts += part_of(table).items()
                    self.assertNotIn("TEST_TOTAL_SHARDS", os.environ)
            self.assertEqual(sorted(parts), sorted(table.items()))


if __name__ == "__main__":
    unittest.main()
