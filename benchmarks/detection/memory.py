"""Measures the region pooling ops' peak memory beyond inputs and outputs.

usage: python benchmarks/detection/memory.py [OP]
with the wheel installed (benchmarks/README.md), on Linux with glibc, and gcc.

Each op, setting, dtype and layout is measured in its own process (malloc_peak.py). Memory beyond inputs and outputs is
the op's temporary memory, such as tables of taps or copies.
"""

import argparse
import itertools
import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Adds the harness's folder, not the repository's root, whose package would hide the wheel's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import cases
import harness
import malloc_peak
import ours

DTYPES = ("float32", "bfloat16", "float16")
LAYOUTS = ("NHWC", "NCHW")


def measure(op, setting, dtype, layout):
    """Returns [case, pass, extra bytes, bytes of inputs and outputs] of an op's cases."""
    raw, attrs, results = ours.load(harness.THREADS), cases.OPS[op].settings[setting], []
    malloc_peak.check_method()
    for name, case in cases.OPS[op].cases.items():
        candidate = ours.candidate(raw, op, attrs, cases.make_inputs(case), dtype, layout)
        for which in ("forward", "backward", "box gradient"):
            if which in candidate.passes:
                candidate.passes[which]()  # starts threads, creates kernels
                read, written = candidate.moved[which]
                extra = max(malloc_peak.extra_bytes(candidate.passes[which], written) for _ in range(3))
                results.append([name, which, extra, read + written])
    return results


def rows(op, setting, dtype, layout, counter):
    """Yields a table row per pass with its worst case, measured in a new process."""
    worst = {}
    for case, which, extra, known in counter.run(__file__, op, "--worker", setting, dtype, layout):
        worst[which] = max(worst.get(which, (0, "", 0, 1)), (extra / known, case, extra, known))
    for which, (share, case, extra, known) in worst.items():
        row = {"op": op, "setting": setting, "variant": f"{dtype} {layout}", "pass": which, "worst case": case}
        row |= {"inputs and outputs, MB": f"{known / 1e6:.2f}", "beyond them, MB": f"{extra / 1e6:.2f}"}
        row["%"] = f"{100 * share:.1f}"
        yield row


def main():
    """Prints a table with a row per op, setting, dtype, layout and pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("op", nargs="?", choices=["all", *cases.OPS], default="all")
    parser.add_argument("--worker", nargs=3, metavar=("SETTING", "DTYPE", "LAYOUT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(measure(args.op, *args.worker)))
        return
    print(f"{harness.machine()}; {harness.THREADS} threads. {cases.BOXES}\n")
    table = []
    with malloc_peak.counter() as counter:
        for op in cases.OPS if args.op == "all" else [args.op]:
            for setting, dtype, layout in itertools.product(cases.OPS[op].settings, DTYPES, LAYOUTS):
                print(" ".join((op, setting, dtype, layout)), file=sys.stderr, flush=True)
                table += rows(op, setting, dtype, layout, counter)
    harness.table(table, list(table[0]))


if __name__ == "__main__":
    main()
