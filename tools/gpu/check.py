"""Checks the algorithms of one device.

  --device cpu       our CPU algorithms against the definitions
  --device cuda      the CUDA kernels against our CPU algorithms, to the bit where sums have one order, and the choices
                     of beam search against the definition; memory, streams, graphs, sizes over 2^31; the same bits
                     from run to run, but where atomics were asked for
  --device emulated  the same kernels, compiled by g++ and run on the processor

All of them also against torchvision, where it is installed and its bins are the same pixels.
"""

import argparse
import sys

import bindings
import detection_check
import harness
import nn_check
import seq2seq_check
import torch


def check_zero_out(device):
    """Every element size, around a pack's and a block's number of elements, against the definition."""
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64, torch.complex128):
        for n in (0, 1, 3, 16, 17, 1000, 5000):
            for keep in sorted({k for k in (0, n // 2, n - 1) if 0 <= k < n} or {0}):
                x = (torch.arange(n) % 100 + 1).to(dtype)
                args = bindings.ZeroOutArgs(n, dtype.itemsize, keep)
                [actual] = device.call("zero_out", args, [x], [(x.shape, dtype)])
                expected = torch.zeros_like(x)
                expected[keep : keep + 1] = x[keep : keep + 1]
                device.checks.expect_same(actual, expected, f"zero_out {dtype} n={n} keep={keep}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="what build.py made")
    parser.add_argument("--device", required=True, choices=("cpu", "cuda", "emulated"))
    parser.add_argument("--quick", action="store_true", help="small sizes, one run each")
    parser.add_argument("--only_kernels", action="store_true", help="run no one else's kernels, for a memory checker")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no GPU")

    checks = harness.Checks()
    cpu = harness.Device(bindings.Ops(args.library, "cpu"), checks)
    device = cpu if args.device == "cpu" else harness.Device(bindings.Ops(args.library, args.device), checks)
    print(f"checking {args.device}; the processor's algorithms use {cpu.ops.cpu_level()}", flush=True)
    full = args.device == "cuda" and not args.quick
    check_zero_out(device)
    for family in (detection_check, nn_check, seq2seq_check):
        family.check_all(device, cpu, full, args.only_kernels)
    print(f"{args.device}: {checks.passed} checks passed, {checks.failed} failed")
    sys.exit(checks.failed != 0)


if __name__ == "__main__":
    main()
