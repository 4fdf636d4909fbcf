"""The row functions of tfo.nn: sizes, inputs, how the C interface is called, and their definitions in float64."""

import dataclasses
import math

import bindings
import torch

FLOATS = tuple(bindings.DTYPES)
IGNORED = -100


@dataclasses.dataclass(frozen=True)
class RowCase:
    """Sizes of a problem, and the options of its losses."""

    rows: int
    classes: int
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    ignores: bool = False
    log_prob: bool = False
    wide_labels: bool = False
    offset: int = 0  # elements by which tensors miss their 16-byte alignment

    @property
    def name(self):
        options = [f"{f.name}={getattr(self, f.name)}" for f in dataclasses.fields(self)[2:] if getattr(self, f.name)]
        return " ".join([f"[{self.rows}, {self.classes}]", *options])

    def args(self, **options):
        args = bindings.RowArgs(rows=self.rows, classes=self.classes, ignore_index=IGNORED, **options)
        for name in ("label_smoothing", "z_loss", "ignores", "log_prob", "wide_labels"):
            setattr(args, name, getattr(self, name))
        return args


# Each way in which a GPU shares out rows, on a host that emulates it, too; odd sizes, and all options.
SMALL = (
    RowCase(0, 3),
    RowCase(1, 1),
    RowCase(300, 2, ignores=True),
    RowCase(257, 10, z_loss=0.01),
    RowCase(70, 17, offset=1, wide_labels=True),
    RowCase(33, 63, label_smoothing=0.1, ignores=True, wide_labels=True),
    RowCase(40, 66),
    RowCase(21, 1000, label_smoothing=0.1, z_loss=0.01, log_prob=True),
    RowCase(9, 1001, offset=3),
    RowCase(3, 9001, wide_labels=True),
    RowCase(1, 33001),
    RowCase(1, 40000, label_smoothing=0.2),
)

# Sizes of models, and one long row.
REAL = (
    RowCase(4096, 32000),
    RowCase(16384, 1000),
    RowCase(1 << 20, 10),
    RowCase(1024, 128256, wide_labels=True),
    RowCase(1, 10_000_000),
)


@dataclasses.dataclass
class RowProblem:
    """A case's inputs, in one place."""

    case: RowCase
    logits: torch.Tensor
    labels: torch.Tensor
    targets: torch.Tensor
    gaussians: tuple  # q's mean and log variance, p's
    d_rows: torch.Tensor  # what comes in to the gradient of a number of each row
    d_output: torch.Tensor

    @property
    def value_dtype(self):
        """Returns the dtype of a number of each row."""
        return torch.float64 if self.logits.dtype == torch.float64 else torch.float32


def make_problem(case, dtype, special=True, memory="cpu", seed=0):
    """Draws a case's inputs; `special` rows have masks, no class, a NaN, an infinity, ties, no label."""
    generator = torch.Generator(memory).manual_seed(seed)

    def normal(*shape, of=torch.float32):
        return torch.randn(shape, generator=generator, dtype=of, device=memory)

    rows, classes = case.rows, case.classes
    logits = normal(rows, classes)
    labels = torch.randint(0, classes, (rows,), generator=generator, device=memory)
    if special and rows > 1:
        logits[1::9] *= 30
        logits[2::9, 1::3] = -math.inf
        logits[3::9, classes // 2] += 18
        logits[4::9] = -math.inf
        logits[5::9, classes - 1] = math.nan
        logits[6::9, classes // 3] = math.inf
        logits[7::9] = 1
        labels[::3] = logits[::3].nan_to_num(-math.inf).argmax(-1)
        if case.ignores:
            labels[8::16] = IGNORED
        for i, label in enumerate((classes, -1, 2**31 - 1, -(2**31), 2**32 if case.wide_labels else classes)):
            labels[11 + i :: 16] = label
    value_dtype = torch.float64 if dtype == torch.float64 else torch.float32
    return RowProblem(
        case,
        logits.to(dtype),
        labels.to(torch.int64 if case.wide_labels else torch.int32),
        (normal(rows, classes).abs() / classes).to(dtype),
        tuple(normal(rows, classes).to(dtype) for _ in range(4)),
        normal(rows, of=value_dtype),
        normal(rows, classes).to(dtype),
    )


def calls(problem):
    """Yields (op, args, inputs, names of outputs) in an order in which outputs can be inputs of what follows.

    An input that is a string is that output. Inputs that are None are null pointers.
    """
    case, x = problem.case, problem.logits
    q_mean, q_log, p_mean, p_log = problem.gaussians
    for log in (False, True):
        name = "log_softmax" if log else "softmax"
        args = case.args(log=log)
        yield "softmax", args, [x], [name]
        yield "softmax_grad", args, [problem.d_output, name], [f"{name}'s gradient"]
    args = case.args()
    yield "entropy", args, [x], ["entropy", "entropy's largest", "entropy's rest"]
    sums = ["entropy's largest", "entropy's rest"]
    yield "entropy_grad", args, [x, problem.d_rows, "entropy", *sums], ["entropy's gradient"]
    sums = ["loss's largest", "loss's rest"]
    yield "label_loss", args, [x, problem.labels], ["loss", *sums]
    yield "label_loss_grad", args, [x, problem.labels, problem.d_rows, *sums], ["loss's gradient"]
    sums = ["cross entropy's largest", "cross entropy's rest", "sum of targets"]
    yield "cross_entropy", args, [x, problem.targets], ["cross entropy", *sums]
    gradients = ["cross entropy's gradient", "gradient to targets"]
    yield "cross_entropy_grad", args, [x, problem.targets, problem.d_rows, *sums], gradients
    for unit in (False, True):
        args = case.args(unit=unit)
        name = "KL from the unit Gaussian" if unit else "KL"
        inputs = [q_mean, q_log, *((None, None) if unit else (p_mean, p_log))]
        yield "gaussian_kl", args, inputs, [name]
        gradients = [f"{name}'s gradient {i}" for i in range(2 if unit else 4)]
        yield "gaussian_kl_grad", args, [*inputs, problem.d_rows], gradients


REDUCES = ("softmax", "softmax_grad", "entropy", "label_loss", "cross_entropy", "gaussian_kl")  # take scratch memory
ROW_SHAPED = ("entropy", "label_loss", "cross_entropy", "gaussian_kl")  # return a number of each row


def output_kind(problem, op):
    """Returns the shape and dtype of an op's outputs."""
    if op in ROW_SHAPED:
        return problem.d_rows.shape, problem.value_dtype
    return problem.logits.shape, problem.logits.dtype


def _masked(product, *factors):
    """Returns 0 where a factor is 0, whatever the other is."""
    zero = torch.zeros((), dtype=product.dtype)
    for factor in factors:
        product = torch.where(factor == 0, zero, product)
    return product


def terms(problem, what, expected):
    """Returns how large the numbers are whose difference is the result, None where 0.1 will do.

    y (d - sum(d y)) of a y near 1 may be 1e-6 where d is 3, whose last bit is 2e-7.
    """
    if what != "softmax's gradient":
        return None
    y, d = expected["softmax"].double().nan_to_num(0), problem.d_output.double().abs()
    return y * (d + (d * y).sum(-1, keepdim=True))


def reference(problem):
    """Returns the same results, by name, from the definitions: of rows without special values, autograd's gradients."""
    case = problem.case
    x = problem.logits.double()
    nan_rows = (x.isnan() | (x == math.inf)).any(-1)
    none = (x == -math.inf).all(-1) & ~nan_rows
    largest = torch.where(nan_rows | none, 0.0, x.nan_to_num(-math.inf, math.inf, -math.inf).amax(-1))
    below = x - largest[:, None]
    e = below.exp()
    sums = e.sum(-1)
    rest = e.sort(-1).values[:, :-1].sum(-1)
    log = torch.where(none, 0.0, torch.log1p(rest))
    p = torch.where(none[:, None], 0.0, e / torch.where(none, 1.0, sums)[:, None])
    log_p = below - log[:, None]
    d_rows, d_output = problem.d_rows.double(), problem.d_output.double()
    of_row = d_rows[:, None]

    results = {"softmax": p, "log_softmax": log_p}
    for name, y in (("softmax", p), ("log_softmax", log_p)):
        y = y.to(problem.logits.dtype).double()  # the gradient takes the rounded output
        if name == "softmax":
            results["softmax's gradient"] = _masked(y * (d_output - _masked(d_output * y, y).sum(-1)[:, None]), y)
        else:
            results["log_softmax's gradient"] = d_output - y.exp() * d_output.sum(-1)[:, None]
    entropy = -_masked(p * log_p, p).sum(-1)
    results["entropy"] = entropy
    results["entropy's gradient"] = _masked(-of_row * p * (log_p + entropy[:, None]), p)

    labels, s = problem.labels.long(), case.label_smoothing
    is_class = (labels >= 0) & (labels < case.classes)
    ignored = (labels == IGNORED) & case.ignores
    bad = ~is_class & ~ignored
    at = torch.where(is_class, labels, 0)[:, None]
    one_hot = torch.zeros_like(x).scatter_(1, at, 1.0)
    t = (1 - s) * one_hot + s / case.classes
    lse = largest + log
    loss = -_masked(t * log_p, t).sum(-1)
    if case.z_loss:
        loss = loss + case.z_loss * lse**2
    loss = torch.where(nan_rows | bad, math.nan, loss)
    sign = -1.0 if case.log_prob else 1.0
    results["loss"] = sign * torch.where(ignored, 0.0, loss)
    # p - 1 of the largest without cancellation.
    p_less_t = torch.where((one_hot == 1) & (below == 0), -(rest / sums)[:, None] - (t - 1), p - t)
    d_x = of_row * (p_less_t + 2 * case.z_loss * lse[:, None] * p)
    d_x = torch.where((nan_rows | bad)[:, None], math.nan, d_x)
    results["loss's gradient"] = sign * torch.where((ignored | none)[:, None], 0.0, d_x)

    t = (1 - s) * problem.targets.double() + s / case.classes
    results["cross entropy"] = torch.where(nan_rows, math.nan, -_masked(t * log_p, t).sum(-1))
    results["sum of targets"] = t.sum(-1)
    d_x = of_row * (p * t.sum(-1)[:, None] - t)
    results["cross entropy's gradient"] = torch.where(none[:, None], 0.0, d_x)
    to_t = -of_row * (1 - s) * log_p
    results["gradient to targets"] = torch.where((x == -math.inf) & (t == 0), 0.0, to_t)
    for key in (
        "softmax",
        "log_softmax",
        "softmax's gradient",
        "log_softmax's gradient",
        "entropy's gradient",
        "cross entropy's gradient",
        "gradient to targets",
    ):
        results[key] = torch.where(nan_rows[:, None], math.nan, results[key])
    results["entropy"] = torch.where(nan_rows, math.nan, entropy)

    for unit in (False, True):
        name = "KL from the unit Gaussian" if unit else "KL"
        q_mean, q_log, p_mean, p_log = (tensor.double() for tensor in problem.gaussians)
        if unit:
            p_mean, p_log = torch.zeros_like(q_mean), torch.zeros_like(q_log)
        inverse = torch.exp(-p_log)
        square = (q_mean - p_mean) ** 2 * inverse
        ratio = torch.expm1(q_log - p_log)
        results[name] = 0.5 * (ratio - (q_log - p_log) + square).sum(-1)
        d_mean = of_row * (q_mean - p_mean) * inverse
        gradients = (d_mean, of_row / 2 * ratio, -d_mean, -of_row / 2 * (ratio + square))
        for i in range(2 if unit else 4):
            results[f"{name}'s gradient {i}"] = gradients[i]
    return results
