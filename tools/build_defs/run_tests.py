"""Runs test files in one process: importing TensorFlow takes longer than most tests.

usage: run_tests.py FILE...

Bazel's --test_filter picks tests by parts of the names of file, class and method, separated by dots:
softmax_test, ValueTest.test_any_axis.
"""

import gc
import os
import pathlib
import sys

import pytest
import tensorflow  # noqa: F401


class _Shard:
    """Keeps the tests of Bazel's shard."""

    empty = False

    @pytest.hookimpl(trylast=True)  # after --test_filter
    def pytest_collection_modifyitems(self, items):
        index, count = int(os.environ.get("TEST_SHARD_INDEX", 0)), int(os.environ.get("TEST_TOTAL_SHARDS", 1))
        self.empty = 0 < len(items) <= index
        items[:] = items[index::count]


def main():
    arguments = ["--quiet", "--import-mode=importlib", "-p", "no:cacheprovider", "--durations=10", *sys.argv[1:]]
    if "XML_OUTPUT_FILE" in os.environ:
        arguments.append("--junitxml=" + os.environ["XML_OUTPUT_FILE"])
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        pathlib.Path(os.environ["TEST_SHARD_STATUS_FILE"]).touch()  # tells Bazel that the tests are sharded
    if os.environ.get("TESTBRIDGE_TEST_ONLY"):
        arguments.append("-k=" + os.environ["TESTBRIDGE_TEST_ONLY"].replace(".", " and "))
    gc.freeze()  # a collection that visits all of TensorFlow's modules takes a twelfth of the time
    shard = _Shard()
    status = pytest.main(arguments, plugins=[shard])
    return 0 if shard.empty else status


if __name__ == "__main__":
    sys.exit(main())
