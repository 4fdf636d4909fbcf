"""Checks of the region ops of tfo.detection, for check.py: against definitions, the processor, torchvision."""

import dataclasses
import itertools
from collections.abc import Callable

import bindings
import cases
import reference
import torch

SUMS = "d_features of any d_output"  # roi_pool's one result whose bits depend on the order of adding up


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


FAST = "d_features with atomics"  # the one result that may be another from run to run


def roi_average_results(device, problem):
    """Returns all that roi_average and its gradients give, by name."""
    case, args = problem.case, problem.args
    dtype = problem.features[0].dtype
    boxes = [problem.boxes, problem.box_indices]
    maps = [(features.shape, dtype) for features in problem.features]
    results = {}
    [results["output"]] = device.call(
        "roi_average", args, [problem.features, *boxes], [(problem.output_shape, dtype)], case.offset
    )
    for what, name in (("d_features", "roi_average_grad"), (FAST, "roi_average_fast_grad")):
        [gradients] = device.call(name, args, [problem.d_output, *boxes], [maps], case.offset)
        results |= {f"{what} {i}": gradient for i, gradient in enumerate(gradients)}
    if case.bins == "samples":
        [results["d_boxes"]] = device.call(
            "roi_average_boxes_grad",
            args,
            [problem.d_output, problem.features, *boxes],
            [(problem.boxes.shape, problem.boxes.dtype)],
            case.offset,
        )
    return results


def roi_average_reference(problem):
    """Returns the same from the definition."""
    results = {"output": reference.roi_average(problem)}
    for i, gradient in enumerate(reference.roi_average_grad(problem)):
        results |= {f"d_features {i}": gradient, f"{FAST} {i}": gradient}
    if problem.case.bins == "samples":
        results["d_boxes"] = reference.roi_average_boxes_grad(problem)
    return results


def values_of(problem):
    """Returns what roi_align_max is asked for in the place of features: its gradient's gradient."""
    return problem.features[0].roll(1, 0).roll(7, -1)


def roi_align_max_results(device, problem):
    """Returns all that roi_align_max and its gradients give, by name."""
    dtype, offset = problem.features[0].dtype, problem.case.offset
    [features], boxes = problem.features, [problem.boxes, problem.box_indices]
    output_of = (problem.output_shape, dtype)
    results = {}
    # The forward op's values are its features: one tensor, given twice.
    inputs = [device.put(tensor, offset) for tensor in (features, *boxes)]
    output = device.output(*output_of, offset)
    device.ops("roi_align_max", problem.args, inputs[0], *inputs, output[1])
    results["output"] = device.take(output, f"roi_align_max on {device.ops.device}")
    [results["output of values"]] = device.call(
        "roi_align_max", problem.args, [features, values_of(problem), *boxes], [output_of], offset
    )
    [results["d_features"]] = device.call(
        "roi_align_max_grad", problem.args, [problem.d_output, features, *boxes], [(features.shape, dtype)], offset
    )
    [results["d_boxes"]] = device.call(
        "roi_align_max_boxes_grad",
        problem.args,
        [problem.d_output, features, values_of(problem), *boxes],
        [(problem.boxes.shape, problem.boxes.dtype)],
        offset,
    )
    return results


def roi_align_max_reference(problem):
    """Returns the same from the definition."""
    return dict(
        zip(
            ("output", "output of values", "d_features", "d_boxes"),
            reference.roi_align_max(problem, values_of(problem)),
            strict=True,
        )
    )


@dataclasses.dataclass(frozen=True)
class Op:
    """What check_op needs of an op."""

    name: str
    small: tuple  # cases
    real: tuple
    make: Callable  # problem of a case, dtype and layout
    results: Callable  # of a device and a problem: tensors by name
    reference: Callable  # of a problem
    near: Callable  # of a result's name: are its sums in an order of their own? Else bits are compared


OPS = (
    Op(
        "roi_pool",
        cases.SMALL,
        cases.REAL,
        cases.make_problem,
        roi_pool_results,
        roi_pool_reference,
        lambda what: what == SUMS,
    ),
    Op(
        "roi_average",
        cases.SMALL_AVERAGE,
        cases.REAL_AVERAGE,
        cases.make_average_problem,
        roi_average_results,
        roi_average_reference,
        lambda what: True,
    ),
    Op(
        "roi_align_max",
        tuple(filter(cases.has_maximum, cases.SMALL_AVERAGE)),
        tuple(filter(cases.has_maximum, cases.REAL_AVERAGE)),
        cases.make_average_problem,
        roi_align_max_results,
        roi_align_max_reference,
        lambda what: True,
    ),
)


def variants(name, make, some_cases):
    """Yields a problem and its name for every case, dtype and layout."""
    for case, dtype, layout in itertools.product(some_cases, cases.FLOATS, cases.LAYOUTS):
        yield make(case, dtype, layout), f"{name} {case.name} {str(dtype).removeprefix('torch.')} {layout}"


def check_op(op, device, cpu, some_cases, repeats):
    """Compares the device with the CPU, or the CPU with the definition; each run gives the same bits."""
    for problem, name in variants(op.name, op.make, some_cases):
        expected = op.reference(problem) if device is cpu else op.results(cpu, problem)
        results = op.results(device, problem)
        for what, actual in results.items():
            if op.near(what):
                device.checks.expect_near(actual, expected[what], f"{name}, {what}")
            else:
                device.checks.expect_same(actual, expected[what], f"{name}, {what}", nan_bits=device is not cpu)
        for run in range(1, repeats):
            for what, again in op.results(device, problem).items():
                if what.startswith(FAST):
                    device.checks.expect_near(again, results[what], f"{name}, {what}, run {run}")
                else:
                    device.checks.expect_same(again, results[what], f"{name}, {what}, run {run}")


def from_nchw(problem, tensor):
    """Returns torchvision's result in the problem's layout, in host memory."""
    return tensor.cpu() if problem.layout == "NCHW" else tensor.cpu().permute(0, 2, 3, 1)


def check_torchvision_pool(device, some_cases):
    """Compares roi_pool with torchvision's, on the boxes where its bins in floating point are the exact ones."""
    compared = boxes = 0
    some_cases = [case.with_boxes("whole_pixels") for case in some_cases if cases.has_torchvision_twin(case)]
    for problem, name in variants("roi_pool", cases.make_problem, some_cases):
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
            expect = device.checks.expect_near if what == SUMS else device.checks.expect_same
            expect(ours[what], from_nchw(problem, tensor), f"{name}, {what} against torchvision")
    print(f"  torchvision's bins are exact for {compared} of {boxes} boxes, which were compared")


def check_torchvision_align(device, some_cases):
    """Compares roi_align and ps_roi_align with torchvision's; not in float16, in which it also computes positions."""
    some_cases = [case for case in some_cases if cases.TorchvisionAlign.takes(case)]
    for problem, name in variants("roi_average", cases.make_average_problem, some_cases):
        if problem.features[0].dtype not in (torch.float32, torch.float64):
            continue
        ours = roi_average_results(device, problem)
        peer = cases.TorchvisionAlign(problem, device.ops.memory)
        output, mapping = peer.forward()
        d_features = peer.backward(mapping)
        for what, tensor in (("output", output), ("d_features 0", d_features), (FAST + " 0", d_features)):
            device.checks.expect_near(ours[what], from_nchw(problem, tensor), f"{name}, {what} against torchvision")


def check_stream(device, cpu):
    """The caller's stream is used, and nothing that a CUDA graph forbids: other streams, waiting, allocating."""
    pool = cases.make_problem(cases.SMALL[0], torch.float32, "NHWC")
    average = cases.make_average_problem(cases.SMALL_AVERAGE[0], torch.float32, "NHWC")
    calls = []  # op, args, inputs, expected outputs; in host memory

    def kind(tensor):
        return tensor.shape, tensor.dtype

    def add(name, problem, inputs, outputs):
        boxes = [problem.boxes, problem.box_indices]
        kinds = [list(map(kind, out)) if isinstance(out, tuple) else kind(out) for out in outputs]
        calls.append((name, problem.args, [*inputs, *boxes], cpu.call(name, problem.args, [*inputs, *boxes], kinds)))
        return calls[-1][-1]

    _, argmax = add("roi_pool", pool, [pool.features], [pool.d_output, pool.d_output.int()])
    add("roi_pool_grad", pool, [pool.d_output, argmax], [pool.features])
    add("roi_average", average, [average.features], [average.d_output])
    for name in ("roi_average_grad", "roi_average_fast_grad"):
        add(name, average, [average.d_output], [average.features])
    add("roi_average_boxes_grad", average, [average.d_output, average.features], [average.boxes])
    add("roi_align_max_grad", average, [average.d_output, average.features[0]], [average.features[0]])
    maps = [average.features[0], values_of(average)]
    add("roi_align_max_boxes_grad", average, [average.d_output, *maps], [average.boxes])

    def each(function, values):
        return [tuple(map(function, value)) if isinstance(value, tuple) else function(value) for value in values]

    sources = [each(torch.Tensor.cuda, inputs) for _, _, inputs, _ in calls]
    inputs = [each(torch.zeros_like, source) for source in sources]
    outputs = [each(lambda tensor: torch.full_like(tensor, 9).cuda(), expected) for *_, expected in calls]

    def enqueue():
        for (name, args, *_), given, written in zip(calls, inputs, outputs, strict=True):
            device.ops(name, args, *given, *written)

    def expect(what):
        torch.cuda.synchronize()
        for (name, _, _, expected), written in zip(calls, outputs, strict=True):
            for actual, value in zip(bindings.flatten(written), bindings.flatten(expected), strict=True):
                compare = device.checks.expect_near if value.is_floating_point() else device.checks.expect_same
                compare(actual.cpu(), value, f"{name} {what}")
                actual.fill_(9)

    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(200_000_000)  # a launch on another stream would come before the inputs
        for given, source in zip(inputs, sources, strict=True):
            for to, tensor in zip(bindings.flatten(given), bindings.flatten(source), strict=True):
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
            what = f"over 2^31 {name} {layout}"
            outputs = case.num_boxes * case.pooled[0] * case.pooled[1] * case.channels
            image = case.height * case.width * case.channels
            needed = 2 * (2 * case.batch * image + outputs) + 4 * outputs + 5 * 2 * image
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
                average_args = bindings.RoiAverageArgs(
                    args, bindings.BINS["samples"], 2, True, bindings.ORDERS["all"], 1
                )
                average_args.levels[0] = bindings.RoiLevel(case.height, case.width, case.scale, 0)
                output = torch.empty((k, *out_shape[1:]), dtype=x.dtype, device="cuda")
                argmax = torch.empty(output.shape, dtype=torch.int32, device="cuda")
                d_features = torch.empty_like(x)
                parts = {}

                def keep(name, tensor, count, parts=parts):
                    parts[name] = tensor[-count:].cpu()

                device.ops("roi_pool", args, x, b, i, output, argmax)
                device.ops("roi_pool_grad", args, output, argmax, b, i, d_features)
                keep("roi_pool's output", output, last)
                keep("roi_pool's argmax", argmax, last)
                keep("roi_pool's d_features", d_features, 1)
                device.ops("roi_average", average_args, (x,), b, i, output)
                keep("roi_average's output", output, last)
                device.ops("roi_average_grad", average_args, output, b, i, (d_features,))
                keep("roi_average's d_features", d_features, 1)
                d_boxes = torch.empty_like(b)
                device.ops("roi_average_boxes_grad", average_args, output, (x,), b, i, d_boxes)
                keep("roi_average's d_boxes", d_boxes, last)
                device.ops("roi_align_max", average_args, x, x, b, i, output)
                keep("roi_align_max's output", output, last)
                device.ops("roi_align_max_boxes_grad", average_args, output, x, x, b, i, d_boxes)
                keep("roi_align_max's d_boxes", d_boxes, last)
                results.append(parts)
                del x, output, argmax, d_features
            for part, actual in results[0].items():
                device.checks.expect_same(actual, results[1][part], f"{part} of {what}")
            del features
            torch.cuda.empty_cache()


def check_all(device, cpu, full, only_kernels):
    """Checks what the device can show."""
    for op in OPS:
        check_op(op, device, cpu, op.small, repeats=3 if full else 1)
        if full:
            check_op(op, device, cpu, op.real, repeats=2)
    if full:
        check_large(device)
    if device.ops.device == "cuda" and not only_kernels:
        check_stream(device, cpu)
    peer, version = (None, "--only_kernels") if only_kernels else cases.torchvision_ops()
    if peer is None:
        print(f"  not compared with torchvision: {version}")
        return
    print(f"  torchvision {version}")
    for pool, average in ((cases.SMALL, cases.SMALL_AVERAGE), (cases.REAL, cases.REAL_AVERAGE))[: 1 + full]:
        check_torchvision_pool(device, pool)
        check_torchvision_align(device, average)
