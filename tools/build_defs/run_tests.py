"""Runs test files in one process: importing TensorFlow takes longer than most tests.

usage: run_tests.py FILE...

Bazel's --test_filter picks what has all of its parts, separated by dots, in the names of file, class or method.
"""

import os
import sys

import pytest


class _Shard:
    """Keeps the tests of Bazel's shard."""

    def pytest_collection_modifyitems(self, items):
        index, count = int(os.environ.get("TEST_SHARD_INDEX", 0)), int(os.environ.get("TEST_TOTAL_SHARDS", 1))
        items[:] = items[index::count]


def main():
    arguments = ["--quiet", "--import-mode=importlib", "-p", "no:cacheprovider", "--durations=10", *sys.argv[1:]]
    if "XML_OUTPUT_FILE" in os.environ:
        arguments.append("--junitxml=" + os.environ["XML_OUTPUT_FILE"])
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        open(os.environ["TEST_SHARD_STATUS_FILE"], "w").close()  # tells Bazel that tests are sharded
    if os.environ.get("TESTBRIDGE_TEST_ONLY"):
        arguments.append("-k=" + os.environ["TESTBRIDGE_TEST_ONLY"].replace(".", " and "))
    return pytest.main(arguments, plugins=[_Shard()])


if __name__ == "__main__":
    sys.exit(main())
