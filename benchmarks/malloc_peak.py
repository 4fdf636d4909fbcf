"""The memory that a call takes at its peak, counted in a process of its own.

In that process malloc_peak.c counts the bytes that malloc has given out: TensorFlow's memory and C++'s alike. What a
call had at most, less what was there before it, its inputs among that, and less its outputs, is its own. TensorFlow
with oneDNN takes memory from malloc in large pieces and deals it out itself: oneDNN is off. Needs Linux with glibc, and
gcc.
"""

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile


@dataclasses.dataclass
class Counter:
    """Runs scripts with the counter."""

    library: pathlib.Path

    def run(self, script, *arguments):
        """Returns what the script prints last, as JSON."""
        environment = os.environ | {"LD_PRELOAD": str(self.library), "TF_ENABLE_ONEDNN_OPTS": "0"}
        command = [sys.executable, script, *map(str, arguments)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def counter():
    """Compiles malloc_peak.c for as long as the context is open."""
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "malloc_peak.so"
        source = pathlib.Path(__file__).resolve().parent / "malloc_peak.c"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
        yield Counter(library)


def extra_bytes(call, output_bytes):
    """In a counted process: runs the call, returns the most that it had beside what was there before and its output."""
    functions = ctypes.CDLL(None)
    functions.malloc_peak_reset.restype = functions.malloc_peak.restype = ctypes.c_long
    before = functions.malloc_peak_reset()
    result = call()
    peak = functions.malloc_peak()
    del result
    return peak - before - output_bytes


def check_method():
    """In a counted process: raises RuntimeError unless a temporary of 32 MB is seen in a composition of two ops."""
    import tensorflow as tf

    x = tf.ones([1 << 23])
    extra = extra_bytes(lambda: tf.exp(x) + 1, 4 << 23)
    if not 1 <= extra / (4 << 23) < 1.01:
        raise RuntimeError(f"a temporary of {4 << 23} bytes is seen as {extra}: memory cannot be measured here")
