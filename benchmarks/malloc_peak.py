"""Measures a call's peak memory in a new process.

malloc_peak.c counts the bytes that malloc has allocated, for TensorFlow and for C++. The memory of a call is its peak,
minus the memory in use before it (including inputs), minus its outputs. oneDNN is off, because it allocates large
blocks and distributes them itself. Needs Linux with glibc, and gcc.
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
        """Returns the last line that the script prints, parsed as JSON."""
        environment = os.environ | {"LD_PRELOAD": str(self.library), "TF_ENABLE_ONEDNN_OPTS": "0"}
        command = [sys.executable, script, *map(str, arguments)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def counter():
    """Context manager: compiles malloc_peak.c and deletes it on exit."""
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "malloc_peak.so"
        source = pathlib.Path(__file__).resolve().parent / "malloc_peak.c"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
        yield Counter(library)


def extra_bytes(call, output_bytes):
    """Runs a call in a counted process; returns its peak memory beyond prior memory and its output."""
    functions = ctypes.CDLL(None)
    functions.malloc_peak_reset.restype = functions.malloc_peak.restype = ctypes.c_long
    before = functions.malloc_peak_reset()
    result = call()
    peak = functions.malloc_peak()
    del result
    return peak - before - output_bytes


def check_method():
    """In a counted process, raises RuntimeError unless the 32 MB temporary of two composed ops is counted."""
    import tensorflow as tf

    x = tf.ones([1 << 23])
    extra = extra_bytes(lambda: tf.exp(x) + 1, 4 << 23)
    if not 1 <= extra / (4 << 23) < 1.01:
        raise RuntimeError(f"a temporary of {4 << 23} bytes is seen as {extra}: memory cannot be measured here")
