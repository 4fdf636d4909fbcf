"""The memory that the region pooling ops take at their peak, beyond inputs and outputs.

usage: python benchmarks/detection/memory.py [OP]
with the wheel installed (benchmarks/README.md), on Linux with glibc, and gcc.

Each op, setting, dtype and layout is measured in a process of its own, in which benchmarks/malloc_peak.c counts the
bytes that malloc has given out: TensorFlow's memory and C++'s alike. What the call had at most, less what was there
before it, its inputs among that, and less its outputs, is the op's own, such as tables of taps or copies. TensorFlow
with oneDNN takes memory from malloc in large pieces and deals it out itself: oneDNN is off. A composition of two ops,
with a known temporary, checks all this in each process.
"""

import argparse
import ctypes
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
# The harness, and not the repository's root: its package would hide the wheel's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import cases
import harness
import ours
import tensorflow as tf

DTYPES = ("float32", "bfloat16", "float16")
LAYOUTS = ("NHWC", "NCHW")
MOST = 10  # percent of inputs and outputs


def build_counter(folder):
    """Compiles malloc_peak.c into the folder. Returns the library's path."""
    library = pathlib.Path(folder) / "malloc_peak.so"
    source = pathlib.Path(__file__).resolve().parent.parent / "malloc_peak.c"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    return library


def extra_bytes(call, output_bytes):
    """Runs the call and returns the most that it had beside what was there before and its output."""
    counter = ctypes.CDLL(None)
    counter.malloc_peak_reset.restype = counter.malloc_peak.restype = ctypes.c_long
    before = counter.malloc_peak_reset()
    result = call()
    peak = counter.malloc_peak()
    del result
    return peak - before - output_bytes


def check_method():
    """Raises RuntimeError unless a temporary of 32 MB is seen."""
    x = tf.ones([1 << 23])
    extra = extra_bytes(lambda: tf.exp(x) + 1, 4 << 23)
    if not 1 <= extra / (4 << 23) < 1.01:
        raise RuntimeError(f"a temporary of {4 << 23} bytes is seen as {extra}: memory cannot be measured here")


def measure(op, setting, dtype, layout):
    """Returns [case, pass, extra bytes, bytes of inputs and outputs] of an op's cases."""
    raw, attrs, results = ours.load(harness.THREADS), cases.OPS[op].settings[setting], []
    check_method()
    for name, case in cases.OPS[op].cases.items():
        candidate = ours.candidate(raw, op, attrs, cases.make_inputs(case), dtype, layout)
        for which in ("forward", "backward", "box gradient"):
            if which in candidate.passes:
                candidate.passes[which]()  # starts threads, makes kernels
                read, written = candidate.moved[which]
                extra = max(extra_bytes(candidate.passes[which], written) for _ in range(3))
                results.append([name, which, extra, read + written])
    return results


def rows(op, setting, dtype, layout, counter):
    """Yields the table's rows, one for each pass, from a process of their own: of the cases the worst."""
    command = [sys.executable, __file__, op, "--worker", setting, dtype, layout]
    environment = os.environ | {"LD_PRELOAD": str(counter)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    worst = {}
    for case, which, extra, known in json.loads(done.stdout.splitlines()[-1]):
        worst[which] = max(worst.get(which, (0, "", 0, 1)), (extra / known, case, extra, known))
    for which, (share, case, extra, known) in worst.items():
        row = {"op": op, "setting": setting, "variant": f"{dtype} {layout}", "pass": which, "worst case": case}
        row |= {"inputs and outputs, MB": f"{known / 1e6:.2f}", "beyond them, MB": f"{extra / 1e6:.2f}"}
        row["%"] = f"{100 * share:.1f}"
        row[f"under {MOST}%"] = "met" if 100 * share < MOST else "NOT met"
        yield row


def main():
    """Prints a table with a row for each op, setting, dtype, layout and pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("op", nargs="?", choices=["all", *cases.OPS], default="all")
    parser.add_argument("--worker", nargs=3, metavar=("SETTING", "DTYPE", "LAYOUT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(measure(args.op, *args.worker)))
        return
    print(f"{harness.machine()}; {harness.THREADS} threads. {cases.BOXES}\n")
    table = []
    with tempfile.TemporaryDirectory() as folder:
        counter = build_counter(folder)
        for op in cases.OPS if args.op == "all" else [args.op]:
            for setting, dtype, layout in itertools.product(cases.OPS[op].settings, DTYPES, LAYOUTS):
                print(" ".join((op, setting, dtype, layout)), file=sys.stderr, flush=True)
                table += rows(op, setting, dtype, layout, counter)
    harness.table(table, list(table[0]))


if __name__ == "__main__":
    main()
