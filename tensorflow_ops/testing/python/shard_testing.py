"""For tests: `part_of`, by which they divide a table among their shards."""

import os


def part_of(table):
    """Returns the entries of dict `table` that this shard checks: all if the test is not sharded.

    It removes Bazel's variables, or absl would leave out tests of that part.
    """
    count, index = int(os.environ.pop("TEST_TOTAL_SHARDS", "1")), int(os.environ.pop("TEST_SHARD_INDEX", "0"))
    return dict(list(table.items())[index::count])
