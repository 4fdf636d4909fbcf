"""Times the region pooling ops and their peers on the CPU, for the sizes of real detectors.

usage: python benchmarks/detection/speed.py [--case CASE] [OP]...
with the wheel installed (benchmarks/README.md); default: all ops.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Adds the harness's folder, not the repository's root, whose package would hide the wheel's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import cases
import harness
import numpy as np
import ours
import peers
import theirs

# Peers support float32 only, torchvision in NCHW, tf.image in NHWC. Every variant is compared with them.
VARIANTS = (("float32", "NHWC"), ("bfloat16", "NHWC"), ("float16", "NHWC"), ("float32", "NCHW"))
# Tolerance for rounding: relative for values above 1, else absolute.
ROUNDING = {"float32": 1e-4, "bfloat16": 1e-2, "float16": 2e-3}


def difference(results, expected, dtype):
    """Returns the largest difference of two lists of arrays, and the share of values that differ beyond rounding."""
    largest, off, count = 0.0, 0, 0
    for a, b in zip(results, expected, strict=True):
        apart = np.abs(a - b)
        largest = max(largest, float(apart.max()))
        off += np.count_nonzero(~(apart <= ROUNDING[dtype] * np.maximum(np.abs(b), 1)))  # counts NaN
        count += apart.size
    return f"{largest:.1e}" + (f" ({100 * off / count:.2g}% off)" if off else "")


def differences(candidate, peer, dtype):
    """Returns {pass: difference} for the results that both compute."""
    result = {"forward": difference([candidate.output()], [peer.output()], dtype)}
    if peer.d_features is not None:
        result["backward"] = difference(candidate.d_features(), peer.d_features(), dtype)
    return result


def measure(raw, torchvision, op, setting, case_name, rates, seconds):
    """Returns (rows, names of peers) for a setting and case, with a row per variant and pass."""
    attrs, inputs = cases.OPS[op].settings[setting], cases.make_inputs(cases.OPS[op].cases[case_name])
    rivals = {
        "torchvision": torchvision and theirs.torchvision(*torchvision, op, attrs, inputs),
        "crop_and_resize": theirs.crop_and_resize(op, attrs, inputs),
        "composed": theirs.composed(raw, op, attrs, inputs),
    }
    rivals = {name: rival for name, rival in rivals.items() if rival is not None}
    variants = {variant: ours.candidate(raw, op, attrs, inputs, *variant) for variant in VARIANTS}
    times = harness.interleave(
        {(name, which): call for name, it in (variants | rivals).items() for which, call in it.passes.items()}, seconds
    )
    rows = []
    for variant, candidate in variants.items():
        apart = {name: differences(candidate, rival, variant[0]) for name, rival in rivals.items()}
        for which, (read, written) in candidate.moved.items():
            mine = times[variant, which]
            row = {"case": case_name, "setting": setting, "variant": " ".join(variant), "pass": which}
            row["ms"] = f"{1e3 * mine:.1f}"
            row["x floor"] = f"{mine / rates.floor(read, written):.1f}"
            for name in rivals:
                # Peers have no infer pass; their forward pass is the closest.
                theirs_too = times.get((name, "forward" if which == "infer" else which))
                if theirs_too is not None:
                    row[f"{name} ms"] = f"{1e3 * theirs_too:.0f}"
                    row[f"{name} / ours"] = f"{theirs_too / mine:.1f}"
                row[f"off {name}"] = apart[name].get(which, "")
            rows.append(row)
    return rows, list(rivals)


def main():
    """Prints a table per op, with a row per case, setting, variant and pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("op", nargs="?", choices=["all", *cases.OPS], default="all")
    parser.add_argument("--case", help="one of the op's cases (default: all)")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="duration of a measurement, at least 7 rounds (default: 4)"
    )
    args = parser.parse_args()
    names = list(cases.OPS) if args.op == "all" else [args.op]
    if args.case and not all(args.case in cases.OPS[name].cases for name in names):
        parser.error(f"{args.case!r} is no case of {args.op}: {', '.join(cases.OPS[names[0]].cases)}")
    raw, torchvision = ours.load(harness.THREADS), peers.torchvision_ops(harness.THREADS)
    if torchvision[0] is None:
        print(torchvision[1])
        torchvision = None
    rates = harness.memory_rates()
    print(f"{harness.machine()}; {harness.THREADS} threads; {rates}. {cases.BOXES}")
    for name in names:
        op, rows, rivals = cases.OPS[name], [], []
        for case in [args.case] if args.case else op.cases:
            for setting in op.settings:
                print(" ".join((name, case, setting)), file=sys.stderr, flush=True)
                some_rows, some_rivals = measure(raw, torchvision, name, setting, case, rates, args.seconds)
                rows += some_rows
                rivals += [rival for rival in some_rivals if rival not in rivals]
        columns = ["case", "setting", "variant", "pass", "ms", "x floor"]
        for rival in rivals:
            columns += [f"{rival} ms", f"{rival} / ours", f"off {rival}"]
        print(f"\n## {name}\n")
        harness.table(rows, columns)


if __name__ == "__main__":
    main()
