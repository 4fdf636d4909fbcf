"""What check.py's files share: a count of what holds, and calls with inputs and outputs in host memory."""

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
        """Returns (all, part, offset): a poisoned part with guards around it, and all of it."""
        n = torch.Size(shape).numel()
        poisoned = torch.full(((n + offset + 2 * GUARD) * dtype.itemsize,), POISON, dtype=torch.uint8)
        flat = poisoned.view(dtype).to(self.ops.memory)
        return flat, flat[GUARD + offset : GUARD + offset + n].view(shape), offset

    def take(self, output, what):
        """Returns the part in host memory; expects the guards unchanged."""
        flat, part, offset = output[0].cpu(), output[1], output[2]
        n = part.numel()
        edges = torch.cat([flat[: GUARD + offset], flat[GUARD + offset + n :]])
        self.checks.expect((as_bytes(edges) == POISON).all(), f"{what}: wrote outside of its output")
        return flat[GUARD + offset : GUARD + offset + n].view(part.shape)

    def call(self, name, args, inputs, outputs, offset=0):
        """Calls an op of (inputs, outputs); returns the outputs.

        An input may be a tuple of tensors, or None. An output is (shape, dtype), a list of these, or None; with a third
        item it has its own offset.
        """

        def put(value):
            if isinstance(value, tuple):
                return tuple(map(put, value))
            return value if value is None else self.put(value, offset)

        def make(value):
            if isinstance(value, list):
                return list(map(make, value))
            return value and self.output(*value[:2], *(value[2:] or [offset]))

        def part(output):
            return tuple(map(part, output)) if isinstance(output, list) else output and output[1]

        def take(output):
            if isinstance(output, list):
                return tuple(map(take, output))
            return output and self.take(output, f"{name} on {self.ops.device}")

        outputs = [make(value) for value in outputs]
        self.ops(name, args, *map(put, inputs), *map(part, outputs))
        return [take(output) for output in outputs]
