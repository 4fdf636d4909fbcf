"""Reads rows at given places and adds to them, with no other work: what sampling demands of the memory.

row_visits.c does the work, with a thread for each list of places; needs gcc.
"""

import concurrent.futures
import ctypes
import pathlib
import subprocess
import tempfile

import numpy as np


def _library(channels):
    source = pathlib.Path(__file__).resolve().with_suffix(".c")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "row_visits.so"
        flags = ["-O3", "-march=native", "-shared", "-fPIC", f"-DROW_FLOATS={channels}"]
        subprocess.run(["gcc", *flags, source, "-o", path], check=True)
        library = ctypes.CDLL(str(path))
    pointer = ctypes.c_void_p
    library.visit_rows.argtypes = [pointer, pointer, pointer, ctypes.c_int64]
    return library


def _aligned(rows, channels):
    """Returns an array of ones in whole lines of the cache."""
    memory = np.ones(rows * channels + 16, np.float32)
    first = -memory.ctypes.data % 64 // 4
    return memory[first : first + rows * channels].reshape(rows, channels)


class Rows:
    """The rows of a tensor, and those of a gradient to it."""

    def __init__(self, rows, channels, places):
        """Creates both.

        Args:
          rows: their number.
          channels: the numbers in each; a multiple of 16.
          places: for each thread the rows to visit, in order.
        """
        self._library = _library(channels)
        self._values, self._sums = (_aligned(rows, channels) for _ in range(2))
        self._bands = np.array_split(self._sums, len(places))
        self._places = [np.ascontiguousarray(p, np.int32) for p in places]
        self._pool = concurrent.futures.ThreadPoolExecutor(len(places))

    def _for_each(self, function, parts):
        others = [self._pool.submit(function, part) for part in parts[1:]]
        function(parts[0])
        for other in others:
            other.result()

    def _visit(self, sums):
        def visit(places):  # releases the GIL
            self._library.visit_rows(self._values.ctypes.data, sums, places.ctypes.data, places.size)

        self._for_each(visit, self._places)

    def read(self):
        """Reads each place's row."""
        self._visit(None)

    def read_and_add(self):
        """Writes zeros to the gradient, reads each place's row, and adds to the gradient's."""
        self._for_each(lambda band: band.fill(0), self._bands)
        self._visit(self._sums.ctypes.data)
