"""Interleaved timing: medians, a ratio to a peer, a ratio to the memory floor.

Times on a shared machine drift, so candidates run in turns, in one process, and
only ratios of their medians are worth reporting.
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


def interleave(candidates, seconds=4.0, least=7, most_seconds=60.0):
    """Times callables in turns, each round in an order of its own.

    Args:
      candidates: {name: callable}; each callable returns when its work is done.
      seconds: how long to go on, at most, after the first rounds.
      least: rounds to run at least,
      most_seconds: but no more than three where they take longer than this.

    Returns:
      {name: median seconds}.
    """
    times = {name: [] for name in candidates}
    for call in candidates.values():  # caches, pools, traces
        call()
    order, shuffle = list(candidates.items()), random.Random(0).shuffle
    start = time.perf_counter()
    rounds = 0
    while rounds < min(least, 3) or time.perf_counter() - start < (most_seconds if rounds < least else seconds):
        shuffle(order)  # so that nobody always finds the caches that the same one left
        for name, call in order:
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
        rounds += 1
    return {name: statistics.median(samples) for name, samples in times.items()}


@dataclasses.dataclass
class MemoryRates:
    """What this machine's memory moves with THREADS threads, in bytes a second."""

    read: float
    write: float

    def __str__(self):
        return f"memory reads {self.read / 1e9:.1f} GB/s, writes {self.write / 1e9:.1f} GB/s"

    def floor(self, bytes_read, bytes_written):
        """Returns the seconds that moving this much takes, once each way."""
        return bytes_read / self.read + bytes_written / self.write


def machine():
    """Returns the processor and the versions that matter, in a line."""
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
    """Reads an array once, with THREADS threads: the least that a function of it takes. A context."""

    def __init__(self, array):
        # As float32 of the same bytes: a product is what NumPy reads fastest.
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        whole = flat[: flat.size // 4 * 4].view(np.float32)
        self._parts = np.array_split(whole, THREADS)
        self._pool = concurrent.futures.ThreadPoolExecutor(THREADS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._pool.shutdown()

    def read(self):
        # NumPy lets go of the interpreter lock.
        with np.errstate(all="ignore"):
            return list(self._pool.map(lambda part: part @ part, self._parts))


def memory_rates(megabytes=256):
    """Measures the rates on arrays that no cache holds."""
    array = np.ones(megabytes << 18, np.float32)
    parts = np.array_split(array, THREADS)
    with Reader(array) as reader, concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        seconds = interleave(
            {"read": reader.read, "write": lambda: list(pool.map(lambda part: part.fill(1), parts))}, seconds=2.0
        )
    return MemoryRates(read=array.nbytes / seconds["read"], write=array.nbytes / seconds["write"])


def table(rows, columns):
    """Prints rows, dicts, as a Markdown table of these columns."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row.get(column, "")) for column in columns) + " |" for row in rows]
    print("\n".join(lines))
