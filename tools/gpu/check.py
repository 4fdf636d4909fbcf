"""Checks the algorithms of one device.

  --device cpu       our CPU algorithms against the definitions in reference.py
  --device cuda      the CUDA kernels against our CPU algorithms, to the bit; memory, streams, graphs, sizes over 2^31
  --device emulated  the same kernels, compiled by g++ and run on the processor

All of them also against torchvision, where it is installed and its bins are the same pixels.
"""

import argparse
import itertools
import sys

import bindings
import cases
import reference
import torch

# ||actual - expected|| / ||expected|| of sums in another order. torchvision sums in the features' own dtype.
SUM_TOLERANCE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 5e-3, torch.bfloat16: 5e-3}
GUARD = 64  # elements before and after each output that must stay as they were
POISON = 0xA5


class Checks:
    """Counts what holds, prints what does not."""

    def __init__(self):
        self.passed = self.failed = 0

    def expect(self, condition, what):
        self.passed += bool(condition)
        self.failed += not condition
        if not condition:
            print(f"FAILED {what}", flush=True)

    def expect_same(self, actual, expected, what, nan_bits=True):
        """Expects equal bits; without nan_bits any NaN equals any other."""
        if not nan_bits and actual.is_floating_point():
            actual, expected = (torch.where(t.isnan(), torch.nan, t) for t in (actual, expected))
        same = actual.shape == expected.shape and actual.dtype == expected.dtype
        same = same and torch.equal(as_bytes(actual), as_bytes(expected))
        self.expect(same, same or f"{what}: {difference(actual, expected)}")

    def expect_near(self, actual, expected, what):
        """Expects the same sums, added up in any order."""
        error = (actual.double() - expected.double()).norm() / expected.double().norm().clamp(min=1e-30)
        self.expect(error <= SUM_TOLERANCE[actual.dtype], f"{what} is off by {float(error):.1e} of its norm")


def as_bytes(tensor):
    return tensor.contiguous().flatten().view(torch.uint8)


def difference(actual, expected):
    """Says where two tensors differ first."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.dtype} {tuple(actual.shape)}, expected {expected.dtype} {tuple(expected.shape)}"
    unequal = (actual != expected) & ~(actual.isnan() & expected.isnan())
    if not unequal.any():
        return "equal values, other bits"
    at = tuple(unequal.nonzero()[0].tolist())
    return (
        f"{int(unequal.sum())} of {unequal.numel()} values differ, first {list(at)}: {actual[at].item()}, "
        f"expected {expected[at].item()}"
    )


class Device:
    """Calls an algorithm with inputs from host memory, and brings its outputs there.

    Nothing but copies and the algorithm runs on a GPU, so that a memory checker sees only it.
    """

    def __init__(self, ops, checks):
        self.ops = ops
        self.checks = checks

    def put(self, tensor, offset=0):
        """Returns a copy in the device's memory, `offset` elements behind an aligned address."""
        flat = torch.cat([tensor.new_zeros(offset), tensor.flatten()]).to(self.ops.memory)
        return flat[offset:].view(tensor.shape)

    def output(self, shape, dtype, offset=0):
        """Returns (all, part): a poisoned part with guards around it, and all of it."""
        n = torch.Size(shape).numel()
        poisoned = torch.full(((n + offset + 2 * GUARD) * dtype.itemsize,), POISON, dtype=torch.uint8)
        flat = poisoned.view(dtype).to(self.ops.memory)
        return flat, flat[GUARD + offset : GUARD + offset + n].view(shape)

    def take(self, output, offset, what):
        """Returns the part in host memory; expects the guards unchanged."""
        flat = output[0].cpu()
        n = output[1].numel()
        edges = torch.cat([flat[: GUARD + offset], flat[GUARD + offset + n :]])
        self.checks.expect((as_bytes(edges) == POISON).all(), f"{what}: wrote outside of its output")
        return flat[GUARD + offset : GUARD + offset + n].view(output[1].shape)

    def call(self, name, args, inputs, outputs, offset=0):
        """Calls an op of (inputs, outputs); outputs are (shape, dtype) or None. Returns the outputs."""
        inputs = [self.put(tensor, offset) for tensor in inputs]
        outputs = [output and self.output(*output, offset) for output in outputs]
        self.ops(name, args, *inputs, *(output and output[1] for output in outputs))
        return [output and self.take(output, offset, f"{name} on {self.ops.device}") for output in outputs]


SUMS = "d_features of any d_output"  # the one result whose bits depend on the order of adding up


def roi_pool_results(device, problem):
    """Returns all that roi_pool and its gradients give, by name."""
    offset = problem.case.offset
    dtype, features_shape = problem.features.dtype, problem.features.shape
    boxes = [problem.boxes, problem.box_indices]
    output_of = (problem.output_shape, dtype)
    inputs = [problem.features, *boxes]
    results = {}
    results["output"], argmax = device.call(
        "roi_pool", problem.args, inputs, [output_of, (problem.output_shape, torch.int32)], offset
    )
    results["argmax"] = argmax
    results["output alone"], _ = device.call("roi_pool", problem.args, inputs, [output_of, None], offset)

    wild = torch.tensor([-1, -(2**31), 2**31 - 1, problem.case.height * problem.case.width], dtype=torch.int32)
    wild = wild.repeat(argmax.numel() // 4 + 1)[: argmax.numel()].view(argmax.shape)
    whole = problem.whole_d_output()
    for name, d_output, at in (
        ("d_features", whole, argmax),
        ("d_features of wild argmax", whole, wild),
        (SUMS, problem.d_output, argmax),
    ):
        [results[name]] = device.call(
            "roi_pool_grad", problem.args, [d_output, at, *boxes], [(features_shape, dtype)], offset
        )
    for name, at in (("dd_output", argmax), ("dd_output of wild argmax", wild)):
        [results[name]] = device.call(
            "roi_pool_grad_grad", problem.args, [problem.features, at, *boxes], [output_of], offset
        )
    return results


def roi_pool_reference(problem):
    """Returns the same from the definition."""
    output, argmax = reference.roi_pool(problem)
    return {
        "output": output,
        "argmax": argmax,
        "output alone": output,
        "d_features": reference.roi_pool_grad(problem, problem.whole_d_output(), argmax),
        SUMS: reference.roi_pool_grad(problem, problem.d_output, argmax),
        "dd_output": reference.roi_pool_grad_grad(problem, argmax),
        "d_features of wild argmax": torch.zeros_like(problem.features),
        "dd_output of wild argmax": torch.zeros_like(problem.d_output),
    }


def variants(some_cases):
    """Yields a problem and its name for every case, dtype and layout."""
    for case, dtype, layout in itertools.product(some_cases, cases.FLOATS, cases.LAYOUTS):
        name = f"roi_pool {case.name} {str(dtype).removeprefix('torch.')} {layout}"
        yield cases.make_problem(case, dtype, layout), name


def check_roi_pool(device, cpu, some_cases, repeats):
    """Compares the device with the CPU, or the CPU with the definition; each run gives the same bits."""
    for problem, name in variants(some_cases):
        expected = roi_pool_reference(problem) if device is cpu else roi_pool_results(cpu, problem)
        results = roi_pool_results(device, problem)
        for what, actual in results.items():
            if what == SUMS:
                device.checks.expect_near(actual, expected[what], f"{name}, {what}")
            else:
                device.checks.expect_same(actual, expected[what], f"{name}, {what}", nan_bits=device is not cpu)
        for run in range(1, repeats):
            for what, again in roi_pool_results(device, problem).items():
                device.checks.expect_same(again, results[what], f"{name}, {what}, run {run}")


def check_torchvision(device, some_cases):
    """Compares with torchvision, on the boxes where its bins in floating point are the exact ones."""
    compared = boxes = 0
    for problem, name in variants([case.with_boxes("whole_pixels") for case in some_cases]):
        dtype = problem.features.dtype
        if dtype not in cases.TorchvisionRoiPool.dtypes:
            continue
        agrees = cases.torchvision_agrees(problem)
        compared, boxes = compared + int(agrees.sum()), boxes + len(agrees)
        problem = cases.select_boxes(problem, agrees)
        ours = roi_pool_results(device, problem)
        peer = cases.TorchvisionRoiPool(problem, device.ops.memory)
        output, argmax = peer.forward()
        theirs = {"output": output, "argmax": argmax, SUMS: peer.backward(argmax)}
        for what, tensor in theirs.items():
            tensor = tensor.cpu() if problem.layout == "NCHW" else tensor.cpu().permute(0, 2, 3, 1)
            expect = device.checks.expect_near if what == SUMS else device.checks.expect_same
            expect(ours[what], tensor, f"{name}, {what} against torchvision")
    print(f"  torchvision's bins are exact for {compared} of {boxes} boxes, which were compared")


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


def check_stream(device, cpu):
    """The caller's stream is used, and nothing that a CUDA graph forbids: other streams, waiting, allocating."""
    problem = cases.make_problem(cases.SMALL[0], torch.float32, "NHWC")
    expected = roi_pool_results(cpu, problem)
    tensors = (problem.features, problem.boxes, problem.box_indices, problem.whole_d_output())
    inputs = [tensor.cuda() for tensor in tensors]
    features, boxes, box_indices, d_output = [torch.zeros_like(tensor) for tensor in inputs]
    output = torch.full_like(d_output, 9)
    argmax = torch.full_like(d_output, 9, dtype=torch.int32)
    d_features = torch.full_like(features, 9)

    def enqueue():
        device.ops("roi_pool", problem.args, features, boxes, box_indices, output, argmax)
        device.ops("roi_pool_grad", problem.args, d_output, argmax, boxes, box_indices, d_features)

    def expect(what):
        torch.cuda.synchronize()
        for name, tensor in (("output", output), ("argmax", argmax), ("d_features", d_features)):
            device.checks.expect_same(tensor.cpu(), expected[name], f"roi_pool {what}, {name}")
            tensor.fill_(9)

    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(200_000_000)  # a launch on another stream would come before the inputs
        for to, tensor in zip((features, boxes, box_indices, d_output), inputs, strict=True):
            to.copy_(tensor)
        enqueue()
    expect("on a stream of its own")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        enqueue()
    for replay in range(2):
        graph.replay()
        expect(f"in a CUDA graph, replay {replay}")


def check_large(device):
    """Over 2^31 elements: a case's last image and last boxes give what they give on their own."""
    for name, case in (
        ("features", cases.RoiCase("large features", 5, 1024, 1024, 512, 64, (7, 7), 0.25)),
        ("output", cases.RoiCase("large output", 2, 16, 16, 1024, 45000, (7, 7), 0.25)),
    ):
        for layout in cases.LAYOUTS:
            what = f"roi_pool of over 2^31 {name} {layout}"
            outputs = case.num_boxes * case.pooled[0] * case.pooled[1] * case.channels
            image = case.height * case.width * case.channels
            needed = 2 * (2 * case.batch * image + outputs) + 4 * outputs + 3 * 2 * image
            free = torch.cuda.mem_get_info()[0]
            if free < 1.1 * needed:
                print(f"  not run: {what} needs {needed / 1e9:.0f} GB, {free / 1e9:.0f} GB are free")
                continue
            last = 64  # boxes, all on the last image
            generator = torch.Generator().manual_seed(0)
            boxes, box_indices = cases.proposals(case, False, generator)
            box_indices[-last:] = case.batch - 1
            box_indices[:-last] %= max(case.batch - 1, 1)
            boxes, box_indices = boxes.float().cuda(), box_indices.int().cuda()
            shape = cases.in_layout(layout, case.batch, case.height, case.width, case.channels)
            out_shape = cases.in_layout(layout, case.num_boxes, *case.pooled, case.channels)
            features = torch.empty(shape, dtype=torch.float16, device="cuda").normal_()
            results = []
            for batch, k in ((case.batch, case.num_boxes), (1, last)):
                x, b = features[-batch:].contiguous(), boxes[-k:].contiguous()
                i = (box_indices[-k:] - (case.batch - batch)).contiguous()
                sizes = (batch, case.height, case.width, case.channels, k)
                args = bindings.RoiArgs(*sizes, *case.pooled, case.scale, layout == "NCHW", False)
                output = torch.empty((k, *out_shape[1:]), dtype=x.dtype, device="cuda")
                argmax = torch.empty(output.shape, dtype=torch.int32, device="cuda")
                d_features = torch.empty_like(x)
                device.ops("roi_pool", args, x, b, i, output, argmax)
                device.ops("roi_pool_grad", args, output, argmax, b, i, d_features)
                results.append([t.cpu() for t in (output[-last:], argmax[-last:], d_features[-1:])])
                del x, output, argmax, d_features
            for part, actual, expected in zip(("output", "argmax", "d_features"), *results, strict=True):
                device.checks.expect_same(actual, expected, f"{what}, {part}")
            del features
            torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="what build.py made")
    parser.add_argument("--device", required=True, choices=("cpu", "cuda", "emulated"))
    parser.add_argument("--quick", action="store_true", help="small sizes, one run each")
    parser.add_argument("--only_kernels", action="store_true", help="run no one else's kernels, for a memory checker")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no GPU")

    checks = Checks()
    cpu = Device(bindings.Ops(args.library, "cpu"), checks)
    device = cpu if args.device == "cpu" else Device(bindings.Ops(args.library, args.device), checks)
    print(f"checking {args.device}; the processor's algorithms use {cpu.ops.cpu_level()}", flush=True)
    full = args.device == "cuda" and not args.quick
    check_zero_out(device)
    check_roi_pool(device, cpu, cases.SMALL, repeats=3 if full else 1)
    if full:
        check_roi_pool(device, cpu, cases.REAL, repeats=2)
        check_large(device)
    if args.device == "cuda" and not args.only_kernels:
        check_stream(device, cpu)
    peer, version = (None, "--only_kernels") if args.only_kernels else cases.torchvision_ops()
    if peer is None:
        print(f"  not compared with torchvision: {version}")
    else:
        print(f"  torchvision {version}")
        check_torchvision(device, [case for case in cases.SMALL if cases.has_torchvision_twin(case)])
        if full:
            check_torchvision(device, cases.REAL)
    print(f"{args.device}: {checks.passed} checks passed, {checks.failed} failed")
    sys.exit(checks.failed != 0)


if __name__ == "__main__":
    main()
