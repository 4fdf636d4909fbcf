"""The row functions of tfo.nn for bench.py: what runs beside what, and the bytes that must move."""

import nn_cases
import torch

DTYPES = (torch.float32, torch.bfloat16)
BYTES_OF_OPS = {  # tensors of the rows' shape that an op reads and writes
    "softmax": 2,
    "softmax_grad": 3,
    "entropy": 1,
    "entropy_grad": 2,
    "label_loss": 1,
    "label_loss_grad": 2,
    "cross_entropy": 2,
    "cross_entropy_grad": 4,
    "gaussian_kl": 4,
    "gaussian_kl_grad": 8,
}


def peers(problem):
    """Returns PyTorch's own functions, by the names of our results; gradients are autograd's from saved tensors."""
    x, labels = problem.logits, problem.labels.long()
    aten, functional = torch.ops.aten, torch.nn.functional
    y, log_y = torch.softmax(x, -1), torch.log_softmax(x, -1)
    d = problem.d_output

    def gradient(loss, to):
        d_loss = problem.d_rows.to(loss.dtype)
        return lambda: torch.autograd.grad(loss, to, d_loss, retain_graph=True)

    at = x.detach().requires_grad_()
    targets = problem.targets
    return {
        "softmax": lambda: torch.softmax(x, -1),
        "log_softmax": lambda: torch.log_softmax(x, -1),
        "softmax's gradient": lambda: aten._softmax_backward_data(d, y, -1, x.dtype),
        "log_softmax's gradient": lambda: aten._log_softmax_backward_data(d, log_y, -1, x.dtype),
        "loss": lambda: functional.cross_entropy(x, labels, reduction="none"),
        "loss's gradient": gradient(functional.cross_entropy(at, labels, reduction="none"), at),
        "cross entropy": lambda: functional.cross_entropy(x, targets, reduction="none"),
        "cross entropy's gradient": gradient(functional.cross_entropy(at, targets, reduction="none"), at),
    }


def rows(ops, make_row, some_cases):
    """Yields make_row(op, case, dtype, run, peer, bytes); a row's memory lives until the next."""
    for case in some_cases:
        for dtype in DTYPES:
            problem = nn_cases.make_problem(case, dtype, special=False, memory="cuda")
            outputs = {}
            values = case.rows * case.classes * dtype.itemsize
            row_values = case.rows * problem.value_dtype.itemsize
            theirs = peers(problem)
            for op, args, inputs, names in nn_cases.calls(problem):
                shape, out_dtype = nn_cases.output_kind(problem, op)
                for name in names:
                    outputs[name] = torch.empty(shape, dtype=out_dtype, device="cuda")
                given = [outputs[value] if isinstance(value, str) else value for value in inputs]
                per_row = sum(t is not None and t.dim() == 1 for t in [*given, *(outputs[name] for name in names)])
                large = BYTES_OF_OPS[op]
                if op.startswith("gaussian_kl") and args.unit:
                    large //= 2
                tail = [outputs[name] for name in names]
                if op in nn_cases.REDUCES:
                    size = ops.row_scratch(args)
                    tail.append(torch.empty(size, dtype=problem.value_dtype, device="cuda") if size else None)
                elif op == "gaussian_kl_grad" and args.unit:
                    tail += [None, None]
                tensors = [*given, *tail]
                yield make_row(
                    names[0],
                    case.name,
                    dtype,
                    lambda op=op, args=args, tensors=tensors: ops(op, args, *tensors),
                    theirs.get(names[0]),
                    large * values + per_row * row_values,
                )
            del problem, outputs, theirs
