"""Interleaved timing: medians, ratios to peers, ratios to the memory floor.

Times on a shared machine drift. Candidates therefore run in turns in one process, and
only ratios of their medians are meaningful.
"""

import concurrent.futures
import contextlib
import dataclasses
import importlib.metadata
import os
import pathlib
import platform
import random
import re
import statistics
import time

import numpy as np

THREADS = 2


def interleave(candidates, seconds=4.0, min_rounds=7, max_seconds=60.0, pause=0.0):
    """Times callables in rounds, each in a random order.

    Args:
      candidates: {name: callable}; each callable returns after its work is done.
      seconds: duration, extended until `min_rounds` have run.
      min_rounds: minimum number of rounds.
      max_seconds: limit of that extension; three rounds run in any case.
      pause: seconds between calls; OpenMP's threads spin for milliseconds after a call.

    Returns:
      {name: median seconds}.
    """
    times = {name: [] for name in candidates}
    for call in candidates.values():  # caches, pools, traces
        call()
    order, shuffle = list(candidates.items()), random.Random(0).shuffle
    start = time.perf_counter()
    rounds = 0
    while rounds < min(min_rounds, 3) or time.perf_counter() - start < (
        max_seconds if rounds < min_rounds else seconds
    ):
        shuffle(order)  # so that no candidate always runs after the same other one
        for name, call in order:
            time.sleep(pause)
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
        rounds += 1
    return {name: statistics.median(samples) for name, samples in times.items()}


@dataclasses.dataclass
class MemoryRates:
    """This machine's memory bandwidth with THREADS threads, in bytes per second."""

    read: float
    write: float

    def __str__(self):
        return f"memory reads {self.read / 1e9:.1f} GB/s, writes {self.write / 1e9:.1f} GB/s"

    def floor(self, bytes_read, bytes_written):
        """Returns the seconds for reading and writing these bytes once."""
        return bytes_read / self.read + bytes_written / self.write


def machine():
    """Returns a line with the processor and the relevant versions."""
    info = pathlib.Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    parts = [
        f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores",
        f"Python {platform.python_version()}",
    ]
    for package in ("tensorflow_cpu", "tensorflow", "torch", "torchvision"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            parts.append(f"{package} {importlib.metadata.version(package)}")
    return ", ".join(parts)


class Reader:
    """Context manager: reads an array once with THREADS threads, the minimum work of any function of it."""

    def __init__(self, array):
        # Views the bytes as float32: NumPy reads fastest in a dot product.
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        whole = flat[: flat.size // 4 * 4].view(np.float32)
        self._parts = np.array_split(whole, THREADS)
        self._pool = concurrent.futures.ThreadPoolExecutor(THREADS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._pool.shutdown()

    def read(self):
        # NumPy releases the GIL.
        with np.errstate(all="ignore"):
            return list(self._pool.map(lambda part: part @ part, self._parts))


def memory_rates(megabytes=256):
    """Measures the bandwidth on arrays that exceed the caches."""
    array = np.ones(megabytes << 18, np.float32)
    parts = np.array_split(array, THREADS)
    with Reader(array) as reader, concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        seconds = interleave(
            {"read": reader.read, "write": lambda: list(pool.map(lambda part: part.fill(1), parts))}, seconds=2.0
        )
    return MemoryRates(read=array.nbytes / seconds["read"], write=array.nbytes / seconds["write"])


def table(rows, columns):
    """Prints dicts as rows of a Markdown table with these columns."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row.get(column, "")) for column in columns) + " |" for row in rows]
    print("\n".join(lines))
