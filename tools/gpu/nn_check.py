"""Checks of the row functions of tfo.nn, for check.py."""

import math

import nn_cases
import torch

# What a result may be off by: of its own size or of its row's largest, and a number of each row in the dtype that its
# inputs have. A number of each row is float32 for 16-bit inputs, whose e^x has some ulp.
TOLERANCE = {torch.float64: 1e-13, torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
ROW_TOLERANCE = {torch.float64: 1e-13, torch.float32: 3e-6, torch.float16: 1e-5, torch.bfloat16: 1e-5}


def results(device, problem):
    """Returns all that the row functions give, by name, in host memory."""
    given = {}
    case = problem.case
    for op, args, inputs, names in nn_cases.calls(problem):
        inputs = [given[value] if isinstance(value, str) else value for value in inputs]
        kinds = [nn_cases.output_kind(problem, op)] * len(names)
        if op in nn_cases.REDUCES:  # poisoned, as outputs are, and guarded
            size = device.ops.row_scratch(args)
            kinds.append(((size,), problem.value_dtype) if size else None)
        elif op == "gaussian_kl_grad" and len(names) == 2:
            kinds += [None, None]
        outputs = call(device, op, args, inputs, kinds, case.offset)
        given |= dict(zip(names, outputs, strict=False))
    return given


def call(device, op, args, inputs, kinds, offset):
    """As device.call, where an input may be None; a number of each row lies anywhere."""
    outputs = [kind and device.output(*kind, offset if len(kind[0]) == 2 else 1) for kind in kinds]
    tensors = [t if t is None else device.put(t, offset if t.dim() == 2 else 0) for t in inputs]
    device.ops(op, args, *tensors, *(output and output[1] for output in outputs))
    return [output and device.take(output, f"{op} on {device.ops.device}") for output in outputs]


def expect_close(checks, actual, expected, tolerance, what, terms=None):
    """Expects the same NaNs and infinities, and else nearly the same: as the `terms`, if given, let it be."""
    actual, expected = actual.double(), expected.double()
    finite = expected.isfinite()
    same = torch.equal(actual.isnan(), expected.isnan())
    same = same and torch.equal(actual[expected.isinf()], expected[expected.isinf()])
    if not same:
        checks.expect(False, f"{what}: other values are NaN or infinite")
        return
    size = expected.abs().where(finite, torch.zeros(()).double())
    size = size if terms is None else torch.maximum(size, terms)
    size = torch.maximum(size, size.amax(-1, keepdim=True)) if size.dim() == 2 else size
    # A gradient may be a small difference of numbers near 1.
    smallest = 0.1 if "gradient" in what and terms is None else 1e-2 if size.dim() == 1 else 1e-30
    size = size.clamp(min=smallest)
    error = ((actual - expected).where(finite, torch.zeros(()).double()).abs() / size).nan_to_num(0)
    worst = float(error.max()) if error.numel() else 0.0
    checks.expect(worst <= tolerance, f"{what} is off by {worst:.1e}, tolerance {tolerance:.1e}")


def check(device, cpu, some_cases, repeats, dtypes=nn_cases.FLOATS):
    """Compares the device with the CPU, or the CPU with the definitions; each run gives the same bits."""
    for case in some_cases:
        for dtype in dtypes:
            name = f"{case.name} {str(dtype).removeprefix('torch.')}"
            problem = nn_cases.make_problem(case, dtype)
            actual = results(device, problem)
            expected = nn_cases.reference(problem) if device is cpu else results(cpu, problem)
            for what, value in expected.items():
                tolerance = (TOLERANCE if actual[what].dim() == 2 else ROW_TOLERANCE)[dtype]
                terms = nn_cases.terms(problem, what, expected)
                expect_close(device.checks, actual[what], value, tolerance, f"{what} of {name}", terms)
            for run in range(1, repeats):
                for what, again in results(device, problem).items():
                    device.checks.expect_same(again, actual[what], f"{what} of {name}, run {run}")


def enqueue(ops, problem, outputs):
    """Calls every row function with tensors on the device; `outputs` gets what is not there yet."""
    for op, args, inputs, names in nn_cases.calls(problem):
        shape, dtype = nn_cases.output_kind(problem, op)
        memory = problem.logits.device
        for name in names:
            if name not in outputs:
                outputs[name] = torch.full(shape, math.nan, dtype=dtype, device=memory)
        tensors = [outputs[value] if isinstance(value, str) else value for value in inputs]
        tensors += [outputs[name] for name in names]
        if op in nn_cases.REDUCES:
            size = ops.row_scratch(args)
            if op not in outputs:
                outputs[op] = torch.empty(size, dtype=problem.value_dtype, device=memory) if size else None
            tensors.append(outputs[op])
        elif op == "gaussian_kl_grad" and len(names) == 2:
            tensors += [None, None]
        ops(op, args, *tensors)


def check_graph(device):
    """A CUDA graph can be captured: nothing waits or allocates; its replays give the same bits."""
    for case in (nn_cases.RowCase(100, 10), nn_cases.RowCase(20, 1000), nn_cases.RowCase(2, 50000)):
        problem = nn_cases.make_problem(case, torch.float32, memory="cuda")
        first, replayed = {}, {}
        enqueue(device.ops, problem, first)
        enqueue(device.ops, problem, replayed)
        for tensor in filter(None.__ne__, replayed.values()):
            tensor.fill_(math.nan)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            enqueue(device.ops, problem, replayed)
        graph.replay()
        torch.cuda.synchronize()
        for name, tensor in first.items():
            if name not in nn_cases.REDUCES:
                device.checks.expect_same(replayed[name].cpu(), tensor.cpu(), f"{name} of {case.name} in a CUDA graph")


def check_large(device):
    """Over 2^31 elements: the last rows give what they give on their own; one row sums up as PyTorch's parts do."""
    case = nn_cases.RowCase((1 << 31) // 32000 + 40, 32000, wide_labels=True)
    row = nn_cases.RowCase(1, (1 << 31) + 5)
    needed = 6 * 2 * case.rows * case.classes
    if torch.cuda.mem_get_info()[0] < 1.2 * needed:
        print(f"  not run: over 2^31 logits need {needed / 1e9:.0f} GB")
        return

    def run(ops, case, x, labels):
        args = case.args()
        output, d_x = torch.empty_like(x), torch.empty_like(x)
        loss, largest, rest = (torch.empty(len(x), device="cuda") for _ in range(3))
        size = ops.row_scratch(args)
        scratch = torch.empty(size, device="cuda") if size else None
        ops("softmax", args, x, output, scratch)
        ops("label_loss", args, x, labels, loss, largest, rest, scratch)
        ops("label_loss_grad", args, x, labels, torch.ones_like(loss), largest, rest, d_x)
        return output, loss, d_x

    x = torch.empty((case.rows, case.classes), dtype=torch.bfloat16, device="cuda").normal_()
    labels = torch.arange(case.rows, device="cuda") % case.classes
    few = nn_cases.RowCase(32, case.classes, wide_labels=True)
    all_rows = [tensor[-few.rows :].cpu() for tensor in run(device.ops, case, x, labels)]
    alone = run(device.ops, few, x[-few.rows :].contiguous(), labels[-few.rows :].contiguous())
    for what, actual, expected in zip(("softmax", "loss", "gradient"), all_rows, alone, strict=True):
        device.checks.expect_same(actual, expected.cpu(), f"{what} of {case.name}")
    del x
    torch.cuda.empty_cache()
    x = torch.empty((1, row.classes), dtype=torch.bfloat16, device="cuda").normal_()
    labels = torch.tensor([row.classes - 2], dtype=torch.int64, device="cuda")
    row = nn_cases.RowCase(1, row.classes, wide_labels=True)
    output, loss, d_x = run(device.ops, row, x, labels)
    lse = torch.stack([part.double().logsumexp(0) for part in x[0].split(1 << 26)]).logsumexp(0)
    expected = (lse - x[0, -2].double()).cpu()[None]
    expect_close(device.checks, loss.cpu(), expected, 1e-5, f"loss of {row.name}")
    tail = slice(row.classes - 1000, row.classes)
    p = (x[:, tail].double() - lse).exp()
    expect_close(device.checks, output[:, tail].cpu(), p.cpu(), 1.6e-2, f"softmax of {row.name}")
    p[0, -2] -= 1
    expect_close(device.checks, d_x[:, tail].cpu(), p.cpu(), 1.6e-2, f"gradient of {row.name}")


def check_all(device, cpu, full, only_kernels):
    """Checks what the device can show."""
    check(device, cpu, nn_cases.SMALL, repeats=3 if full else 1)
    if full:
        check(device, cpu, nn_cases.REAL, repeats=2, dtypes=(torch.float32, torch.bfloat16))
        check_large(device)
    if device.ops.device == "cuda" and not only_kernels:
        check_graph(device)
