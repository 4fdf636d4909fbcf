"""Checks and times the CUDA kernels beside torchvision's or PyTorch's, and against what their bytes take to copy.

Each time is the median of runs that alternate between the two, by CUDA events, each after the L2 cache was
overwritten. torchvision gets what suits it: contiguous NCHW features, whatever our layout is. A kernel whose results
are not its peer's makes the run fail.
"""

import argparse
import dataclasses
import itertools
import pathlib
import statistics
import sys

import boxes
import regions
import sampling
import sequences
import torch
from kernel_library import KernelLibrary

# ||ours - theirs|| / ||theirs||. Peers add in the dtype itself.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}


@dataclasses.dataclass
class Row:
    """A line of the table: a kernel on inputs of a model's size."""

    kernel: str
    case: str
    dtype: torch.dtype
    buffers: list  # tensors or None, in the kernel's order
    options: dict
    output: torch.Tensor  # the one of the buffers that is compared
    num_bytes: int  # that must move: each input element used read once, each output element written once
    peer: object = None  # returns what `output` should be
    time_peer: object = None  # what is timed, where it is less than that


class Kernels:
    """The kernels on PyTorch's tensors and stream."""

    def __init__(self, path):
        self._library = KernelLibrary(path)
        self._scratch = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def run(self, kernel, dtype, buffers, options):
        """Enqueues a kernel."""
        self._library(
            kernel,
            [None if tensor is None else tensor.data_ptr() for tensor in buffers],
            scratch=self._scratch.data_ptr(),
            scratch_bytes=self._scratch.nbytes,
            stream=torch.cuda.current_stream().cuda_stream,
            dtype=str(dtype).removeprefix("torch.") if dtype is not None else None,
            **options,
        )


class Timer:
    """Times what is enqueued on the current stream."""

    def __init__(self, runs):
        self.runs = runs
        self.l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        # Long enough for the host to enqueue the next run while it is written.
        self._flush = torch.empty(max(4 * self.l2_bytes, 512 << 20), dtype=torch.uint8, device="cuda")

    def milliseconds(self, *functions):
        """Returns each function's times, sorted; the functions take turns."""
        for function in functions:
            for _ in range(3):
                function()
        events = [[] for _ in functions]
        for _ in range(self.runs):
            for function, pairs in zip(functions, events, strict=True):
                self._flush.zero_()
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                function()
                end.record()
                pairs.append((start, end))
            torch.cuda.synchronize()
        return [sorted(start.elapsed_time(end) for start, end in pairs) for pairs in events]

    def copy_bytes_per_second(self):
        """Returns the speed of copying 1 GiB on the GPU, counting bytes read and written."""
        source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").random_()
        target = torch.empty_like(source)
        [times] = self.milliseconds(lambda: target.copy_(source))
        return 2 * source.numel() / (statistics.median(times) / 1000)


def zero_out_rows():
    x = torch.randn(64 << 20, device="cuda")
    y = torch.empty_like(x)
    mask = torch.zeros_like(x)
    mask[5] = 1
    options = {"elements": x.numel(), "bytes": 4, "keep": 5}
    # As a custom op finds it: what to write is read from the input.
    yield Row("zero_out", "64 Mi", None, [x, y], options, y, x.nbytes, lambda: x * mask)


def softmax_rows(rows, classes, dtype):
    """Yields softmax, entropy and the cross entropies of [rows, classes]."""
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(*shape, of=dtype):
        return torch.randn(shape, generator=generator, device="cuda").to(of)

    x, d, targets = draw(rows, classes), draw(rows, classes), draw(rows, classes).float().softmax(-1).to(dtype)
    d_rows = draw(rows, of=torch.float32)
    labels = torch.randint(0, classes, (rows,), generator=generator, device="cuda", dtype=torch.int32)
    y, to = torch.empty_like(x), torch.empty_like(x)
    loss, largest, rest, total = (torch.empty_like(d_rows) for _ in range(4))
    case, options, of_rows = f"[{rows}, {classes}]", {"rows": rows, "classes": classes}, 4 * rows

    def row(kernel, buffers, output, tensors, peer=None, time_peer=None, **more):
        num_bytes = tensors * x.nbytes + of_rows * sum(t is not None and t.dim() == 1 for t in buffers)
        return Row(kernel, case, dtype, buffers, options | more, output, num_bytes, peer, time_peer)

    functional, wide = torch.nn.functional, x.float()
    for log in (False, True):
        function = torch.log_softmax if log else torch.softmax
        backward = torch.ops.aten._log_softmax_backward_data if log else torch.ops.aten._softmax_backward_data
        yield row("softmax", [x, y], y, 2, lambda f=function: f(x, -1), log=log)
        yield row("softmax_grad", [d, y, to], to, 3, lambda f=backward: f(d, y, -1, dtype), log=log)

    def entropy():
        return torch.distributions.Categorical(logits=wide).entropy()

    yield row("entropy", [x, loss, largest, rest], loss, 1, entropy)
    yield row("entropy_grad", [d_rows, x, loss, largest, rest, to], to, 2)

    def losses_of(target):
        """Returns PyTorch's loss in float32, that in the dtype, and the gradient of the latter."""
        leaf = x.detach().requires_grad_()
        in_dtype = functional.cross_entropy(leaf, target, reduction="none")
        floating = target.float() if target.is_floating_point() else target
        return (
            lambda: functional.cross_entropy(wide, floating, reduction="none"),
            lambda: functional.cross_entropy(x, target, reduction="none"),
            lambda: torch.autograd.grad(in_dtype, leaf, d_rows.to(dtype), retain_graph=True)[0],
        )

    exact, timed, gradient = losses_of(labels.long())
    yield row("label_loss", [x, labels, loss, largest, rest], loss, 1, exact, timed)
    yield row("label_loss_grad", [d_rows, x, labels, largest, rest, to], to, 2, gradient)
    exact, timed, gradient = losses_of(targets)
    sums = [loss, largest, rest, total]
    yield row("cross_entropy", [targets, x, *sums], loss, 2, exact, timed)
    yield row("cross_entropy_grad", [d_rows, targets, x, *sums[1:], to, torch.empty_like(x)], to, 4, gradient)


def gaussian_rows(rows, classes, dtype):
    """Yields gaussian_kl of [rows, classes]."""
    tensors = [torch.randn((rows, classes), device="cuda").to(dtype) for _ in range(8)]
    q_mean, q_log, p_mean, p_log = (tensor.float() for tensor in tensors[:4])
    divergence, d_rows = (torch.randn(rows, device="cuda") for _ in range(2))

    def composed():
        ratio, square = torch.expm1(q_log - p_log), (q_mean - p_mean) ** 2 * torch.exp(-p_log)
        return 0.5 * (ratio - q_log + p_log + square).sum(-1)

    def composed_unit():
        return 0.5 * (torch.expm1(q_log) - q_log + q_mean**2).sum(-1)

    options, case, size = {"rows": rows, "classes": classes}, f"[{rows}, {classes}]", tensors[0].nbytes
    for kernel, inputs, peer in (("gaussian_kl", 4, composed), ("unit_gaussian_kl", 2, composed_unit)):
        of_rows = 4 * rows
        buffers = [*tensors[:inputs], divergence]
        yield Row(kernel, case, dtype, buffers, options, divergence, inputs * size + of_rows, peer)
        buffers = [d_rows, *tensors[:inputs], *tensors[4 : 4 + inputs]]
        yield Row(f"{kernel}_grad", case, dtype, buffers, options, tensors[4], 2 * inputs * size + of_rows)


def beam_rows(batch, beams, vocabulary, dtype):
    """Yields a beam search step without end tokens."""
    logits = torch.randn((batch, beams, vocabulary), device="cuda").to(dtype)
    log_probs = torch.randn((batch, beams), device="cuda") - 3
    finished = torch.zeros((batch, beams), dtype=torch.bool, device="cuda")
    lengths = torch.ones((batch, beams), dtype=torch.int32, device="cuda")
    outputs = [torch.empty_like(t) for t in (log_probs, lengths, lengths, finished, lengths)]

    def composed():
        """Leaves out what finished beams, end tokens and lengths require."""
        scores = torch.log_softmax(logits, -1, dtype=torch.float32) + log_probs[..., None]
        return scores.view(batch, -1).topk(beams)[0]

    options = {"batch": batch, "beams": beams, "vocabulary": vocabulary, "beam_width": beams}
    buffers = [logits, log_probs, finished, lengths, None, None, *outputs]
    num_bytes = sum(t.nbytes for t in buffers if t is not None)
    case = f"[{batch}, {beams}, {vocabulary}]"
    yield Row("beam_search_step", case, dtype, buffers, options, outputs[0], num_bytes, composed)


def tree_rows(time, batch, beams, dtype):
    """Yields gather_tree."""
    tokens = torch.randint(0, 1 << 30, (time, batch, beams), device="cuda", dtype=dtype)
    parents = torch.randint(0, beams, (time, batch, beams), device="cuda", dtype=dtype)
    lengths = torch.full((batch, beams), time, device="cuda", dtype=torch.int32)
    buffers = [tokens, parents, lengths, torch.empty_like(tokens)]
    name = str(dtype).removeprefix("torch.")
    options = {"time": time, "batch": batch, "beams": beams, "pad_id": -1, "ids": name}
    num_bytes = sum(tensor.nbytes for tensor in buffers)
    yield Row("gather_tree", f"[{time}, {batch}, {beams}] {name}", None, buffers, options, buffers[3], num_bytes)


def mask_rows(batch, height, width):
    """Yields the distances and components of blobs."""
    generator = torch.Generator("cuda").manual_seed(0)
    noise = torch.randn((batch, 1, height, width), generator=generator, device="cuda")
    images = (torch.nn.functional.avg_pool2d(noise, 15, 1, 7) > 0).to(torch.uint8).contiguous()
    sizes = {"batch": batch, "height": height, "width": width, "channels": 1, "bytes": 1}
    spacing = {"row_spacing": 1, "column_spacing": 1}
    distances = torch.empty_like(images, dtype=torch.float32)
    labels, counts = torch.empty_like(images, dtype=torch.int32), torch.empty(batch, dtype=torch.int32, device="cuda")
    case, num_bytes = f"[{batch}, {height}, {width}]", 5 * images.numel()
    buffers = [images, distances]
    yield Row("distance_transform", case, torch.float32, buffers, sizes | spacing, distances, num_bytes)
    buffers = [images, labels, counts]
    yield Row("connected_components", case, None, buffers, sizes | {"connectivity": 8}, labels, num_bytes)


def all_rows(kernels, quick):
    """Yields the rows; a row's memory lives until the next."""
    dtypes = (torch.float32, torch.bfloat16)
    yield from zero_out_rows()
    yield from regions.rows(kernels, Row, quick)
    shapes = ((4096, 32000), (16384, 1000), (1 << 20, 10), (1024, 128256), (1, 10_000_000))
    for (rows, classes), dtype in itertools.product(shapes[: 2 if quick else None], dtypes):
        yield from softmax_rows(rows, classes, dtype)
        yield from gaussian_rows(rows, classes, dtype)
    for sizes, dtype in itertools.product(((64, 5, 32000), (8, 5, 32000), (16, 4, 128000)), dtypes):
        yield from beam_rows(*sizes, dtype)
    yield from tree_rows(256, 64, 5, torch.int32)
    yield from tree_rows(1024, 4096, 4, torch.int64)
    yield from boxes.rows(Row, quick)
    yield from mask_rows(8, 512, 512)
    yield from mask_rows(1, 2048, 2048)
    yield from sampling.rows(Row, quick)
    yield from sequences.rows(Row, quick)


def measure(row, kernels, timer, copy_speed):
    """Returns the row's cells and whether its results are its peer's."""

    def ours():
        kernels.run(row.kernel, row.dtype, row.buffers, row.options)

    error, is_right = "-", True
    ours()
    if row.peer is not None:
        expected = row.peer().double()
        off = float((row.output.double() - expected).norm() / expected.norm().clamp(min=1e-30))
        is_right = off <= TOLERANCE[row.dtype or torch.float32]
        error = f"{off:.0e}" if is_right else f"**{off:.0e}**"
        del expected
    peer = row.time_peer or row.peer
    times, *peer_times = timer.milliseconds(*filter(None, (ours, peer)))
    ms = statistics.median(times)
    quartiles = statistics.quantiles(times, n=4)
    peer_ms = statistics.median(peer_times[0]) if peer_times else None
    name = f"log_{row.kernel}" if row.options.get("log") else row.kernel
    return [
        f"{name}, deterministic" if row.options.get("deterministic") else name,
        row.case,
        str(row.dtype or row.output.dtype).removeprefix("torch."),
        f"{ms:.3f}",
        f"{(quartiles[2] - quartiles[0]) / ms:.0%}",
        f"{peer_ms:.3f}" if peer_times else "-",
        f"{peer_ms / ms:.2f}" if peer_times else "-",
        f"{row.num_bytes / copy_speed / (ms / 1000):.0%}",
        error,
    ], is_right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, type=pathlib.Path, help="kernels.so, which build.sh makes")
    parser.add_argument("--quick", action="store_true", help="fewer cases and runs")
    parser.add_argument("--out", type=pathlib.Path, help="a file that gets the table, too")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")

    kernels, timer = Kernels(args.library), Timer(runs=9 if args.quick else 31)
    copy_speed = timer.copy_bytes_per_second()
    lines = []

    def write(line):
        lines.append(line)
        print(line, flush=True)
        if args.out:
            args.out.write_text("\n".join(lines) + "\n")

    write(
        f"{torch.cuda.get_device_name()}; torch {torch.__version__}, torchvision {regions.torchvision_version()}. "
        f"Copy bandwidth {copy_speed / 1e9:.0f} GB/s, read and written; "
        f"L2 cache of {timer.l2_bytes >> 20} MiB, overwritten before each run. "
        f"Medians of {timer.runs} runs; spread: from quartile to quartile. "
        "Boxes: sides log-uniform from 16 to 512 image pixels. "
        "Peers: torchvision for regions, boxes and deformable convolution, PyTorch's functions or compositions of them "
        "for the rest; they also allocate their results, and torchvision's backward zeros its own. "
        "Error: of ours to the peer's, as norms.\n"
    )
    write("| kernel | case | dtype | ms | spread | peer's ms | times as fast | share of copy bandwidth | error |")
    write("|---|---|---|--:|--:|--:|--:|--:|--:|")
    wrong = 0
    for row in all_rows(kernels, args.quick):
        cells, is_right = measure(row, kernels, timer, copy_speed)
        write(f"| {' | '.join(cells)} |")
        wrong += not is_right
    if wrong:
        sys.exit(f"{wrong} kernels' results are not their peers'")


if __name__ == "__main__":
    main()
