"""Checks that a change of kernels keeps all results on the CPU bit-identical.

    TENSORFLOW_OPS_CPU=avx2 python tools/same_bits.py save before.json   # with the old wheel
    TENSORFLOW_OPS_CPU=avx2 python tools/same_bits.py save after.json    # with the new one
    python tools/same_bits.py compare before.json after.json

`save` calls every op with its options, as the tables of samples in this checkout do, and its gradients: for random but
reproducible sizes and values, some of them not finite. It writes a digest of each result. All NaNs are equal.
"""

import argparse
import hashlib
import json
import pathlib
import sys
import zlib

import numpy as np
import tensorflow as tf

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path += sorted({str(path.parent) for path in ROOT.glob("tensorflow_ops/**/*_testing.py")})

from op_samples_testing import CALLS  # noqa: E402

from tensorflow_ops.testing.python import inputs  # noqa: E402

# Of the sizes of a call, together.
_FACTORS, _MOST = (1, 1, 1, 2, 3, 7, 13, 51, 200, 1300), 1300
_MOST_NUMBERS = 30_000


def _digest(tensor):
    array = tensor.numpy()
    if array.dtype.kind not in "iubc":
        array = np.where(np.isnan(array.astype(np.float64)), np.nan, array).astype(array.dtype)
    return hashlib.sha256(str(array.shape).encode() + array.tobytes()).hexdigest()[:16]


def _grown(call, groups, rng):
    """Returns tensors of random sizes, in dims that can grow: vectors end everywhere in rows."""
    for _ in range(5):
        tensors, most = call.tensors, _MOST
        for dims in groups:
            numbers = sum(int(tf.size(tensors[i])) for i in {i for i, _ in dims})
            factor = int(rng.choice([n for n in _FACTORS if n <= most and n * numbers <= _MOST_NUMBERS] or [1]))
            tensors, most = inputs.tiled(tensors, dims, factor), most // factor
        try:
            call.call(*tensors)
            return tensors
        except inputs.REFUSALS:  # dims that grow alone only
            continue
    return call.tensors


def _randomized(tensors, rng):
    """Returns other floats, and in every third case some that are not finite."""
    result = []
    for x in tensors:
        if x.dtype.is_floating:
            array = x.numpy().astype(np.float64) * rng.uniform(0.5, 1.5, x.shape)
            if rng.integers(3) == 0:
                array = np.where(rng.random(x.shape) < 0.01, rng.choice([np.nan, np.inf, -np.inf, 1e10]), array)
            x = tf.cast(array, x.dtype)
        result.append(x)
    return result


def _results(call, tensors, rng):
    """Returns results, and gradients to all inputs for random upstream gradients."""

    def upstream(outputs):
        return [tf.cast(rng.normal(size=y.shape), y.dtype) for y in outputs]

    try:
        outputs, gradients = call.vjp(tensors, upstream)
    except LookupError:  # there are none
        return call.call(*tensors)
    return [*outputs, *(g for g in gradients if g is not None)]


def _save(path, rounds, seed):
    digests = {}
    for name, variant in CALLS.items():
        call = variant.inputs
        groups = inputs.growable(call)
        for i in range(rounds):
            for dtype in variant.dtypes:
                key = f"{name} {dtype} {i}"
                rng = np.random.default_rng([seed, zlib.crc32(key.encode())])
                tensors = call.cast(tf.as_dtype(dtype), _randomized(_grown(call, groups, rng), rng))
                try:
                    digests[key] = [_digest(x) for x in _results(call, tensors, rng)]
                except inputs.REFUSALS as error:
                    digests[key] = [type(error).__name__]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(digests, file, indent=0)
    print(f"{len(digests)} cases")


def _compare(before, after):
    """Returns the number of cases that differ."""
    results = []
    for path in (before, after):
        with open(path, encoding="utf-8") as file:
            results.append(json.load(file))
    old, new = results
    if old.keys() != new.keys():
        sys.exit("The files contain different cases.")
    different = [key for key in old if old[key] != new[key]]
    for key in different:
        print("different:", key)
    print(f"{len(old) - len(different)} of {len(old)} cases have the same bits")
    return len(different)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    save = commands.add_parser("save")
    save.add_argument("path")
    save.add_argument("--rounds", type=int, default=3)
    save.add_argument("--seed", type=int, default=0)
    compare = commands.add_parser("compare")
    compare.add_argument("before")
    compare.add_argument("after")
    args = parser.parse_args()
    if args.command == "save":
        _save(args.path, args.rounds, args.seed)
    else:
        sys.exit(_compare(args.before, args.after) > 0)


if __name__ == "__main__":
    main()
