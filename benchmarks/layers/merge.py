"""Compares tfo.layers.Merge with Dense over tiled and concatenated inputs: time and peak memory on the CPU.

usage: python benchmarks/layers/merge.py [--seconds SECONDS]
with the wheel installed (benchmarks/README.md), on Linux with glibc, and gcc.

Both are graphs with static shapes and the same weights. "forward+backward" is the gradient to all inputs and weights.
Memory is the peak during a call minus the memory in use before it. benchmarks/malloc_peak.c counts it in a new process
without oneDNN, which has an allocator of its own.
"""

import argparse
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if "--worker" in sys.argv:
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
# Adds the harness's folder, not the repository's root, whose package would hide the wheel's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import harness
import keras
import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

# (shapes of inputs, units)
CASES = {
    "speech: frames and a speaker": ([[8, 1000, 80], [8, 1, 512]], 512),
    "text: tokens and a topic": ([[16, 256, 512], [16, 1, 512]], 512),
    "attention: queries and keys": ([[4, 128, 1, 256], [4, 1, 128, 256]], 128),
    "image: pixels and two codes": ([[8, 64, 64, 32], [8, 1, 1, 128], [128]], 64),
    "equal shapes": ([[8192, 256], [8192, 256]], 256),
}


def tile_and_concatenate(inputs):
    """Returns the input of Dense."""
    leading = np.broadcast_shapes(*[tuple(x.shape[:-1]) for x in inputs])
    return tf.concat([tf.broadcast_to(x, [*leading, x.shape[-1]]) for x in inputs], -1)


def passes(function, weights, inputs):
    """Returns {pass: callable that returns tensors}."""

    @tf.function
    def forward(*x):
        return function(list(x))

    @tf.function
    def both(*x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = function(list(x))
        return result, tape.gradient(result, [*x, *weights])

    return {"forward": lambda: forward(*inputs), "forward+backward": lambda: both(*inputs)}


def candidates(case):
    """Returns {(name, pass): callable that returns tensors} for both layers with the same weights."""
    shapes, units = CASES[case]
    random = np.random.default_rng(0)
    inputs = [tf.constant(random.normal(size=shape), tf.float32) for shape in shapes]
    merge, dense = tfo.layers.Merge(units), keras.layers.Dense(units)
    merge.build(shapes)
    dense.build([None, sum(shape[-1] for shape in shapes)])
    dense.set_weights(merge.get_weights())
    calls = {
        "Merge": passes(merge, [w.value for w in merge.weights], inputs),
        "Dense": passes(lambda x: dense(tile_and_concatenate(x)), [w.value for w in dense.weights], inputs),
    }
    return {(name, which): call for name, of in calls.items() for which, call in of.items()}


def difference(calls):
    """Returns the largest difference of results and gradients, relative to the largest value."""
    ours, theirs = (tf.nest.flatten(calls[name, "forward+backward"]()) for name in ("Merge", "Dense"))
    return max(
        float(tf.reduce_max(tf.abs(a - b)) / tf.reduce_max(tf.abs(b))) for a, b in zip(ours, theirs, strict=True)
    )


def peaks(case):
    """Returns [name, pass, bytes]; the process must have loaded malloc_peak.c."""
    counter = ctypes.CDLL(None)
    counter.malloc_peak_reset.restype = counter.malloc_peak.restype = ctypes.c_long
    results = []
    for (name, which), call in candidates(case).items():
        call()  # traces, starts threads
        most = 0
        for _ in range(3):
            before = counter.malloc_peak_reset()
            result = call()
            most = max(most, counter.malloc_peak() - before)
            del result
        results.append([name, which, most])
    return results


def measure_peaks(case, counter):
    """Returns {(name, pass): bytes}."""
    command = [sys.executable, __file__, "--worker", case]
    environment = os.environ | {"LD_PRELOAD": str(counter)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return {(name, which): most for name, which, most in json.loads(done.stdout.splitlines()[-1])}


def main():
    """Prints a table with a row per case and pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of a case's measurement (default: 4)")
    parser.add_argument("--worker", metavar="CASE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(harness.THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if args.worker:
        print(json.dumps(peaks(args.worker)))
        return
    print(f"{harness.machine()}; {harness.THREADS} threads\n")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        counter = pathlib.Path(folder) / "malloc_peak.so"
        source = pathlib.Path(__file__).resolve().parent.parent / "malloc_peak.c"
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", source, "-o", counter], check=True)
        for case, (shapes, units) in CASES.items():
            calls = candidates(case)
            apart = difference(calls)
            seconds = harness.interleave(calls, args.seconds)
            most = measure_peaks(case, counter)
            for which in ("forward", "forward+backward"):
                ours, theirs = ("Merge", which), ("Dense", which)
                row = {"case": case, "inputs": " ".join(map(str, shapes)), "units": units, "pass": which}
                row |= {"Merge ms": f"{1e3 * seconds[ours]:.1f}", "Dense ms": f"{1e3 * seconds[theirs]:.1f}"}
                row["time, Dense / Merge"] = f"{seconds[theirs] / seconds[ours]:.1f}"
                row |= {"Merge MB": f"{most[ours] / 1e6:.1f}", "Dense MB": f"{most[theirs] / 1e6:.1f}"}
                row["memory, Dense / Merge"] = f"{most[theirs] / most[ours]:.1f}"
                rows.append(row | {"apart": f"{apart:.0e}"})
    harness.table(rows, list(rows[0]))


if __name__ == "__main__":
    main()
