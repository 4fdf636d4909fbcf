"""Times the CUDA kernels beside torchvision's or PyTorch's, and against what their bytes take at the GPU's copy speed.

Each time is the median of runs that alternate between the two, by CUDA events, each after the L2 cache was
overwritten. torchvision gets what suits it: NCHW features, in one piece, whatever our layout is.
"""

import argparse
import dataclasses
import itertools
import pathlib
import shutil
import statistics
import subprocess
import sys

import bindings
import cases
import nn_bench
import nn_cases
import numpy as np
import reference
import seq2seq_bench
import seq2seq_cases
import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclasses.dataclass
class Row:
    """One line of the table."""

    op: str
    case: str
    dtype: torch.dtype
    run: object  # enqueues the op
    peer: object  # enqueues torchvision's or PyTorch's, or None
    num_bytes: int  # that must move: each input element used read once, each output element written once


class Timer:
    """Times what is enqueued on the current stream."""

    def __init__(self, runs):
        self.runs = runs
        self.l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        # Long enough for the host to enqueue the next run while it is written.
        self._flush = torch.empty(max(4 * self.l2_bytes, 512 << 20), dtype=torch.uint8, device="cuda")

    def milliseconds(self, *functions):
        """Returns, for each function, the times of its runs, sorted; the functions take turns."""
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


def zero_out_rows(ops):
    """Yields the rows of zero_out."""
    x = torch.randn(64 << 20, device="cuda")
    output = torch.empty_like(x)
    args = bindings.ZeroOutArgs(x.numel(), x.itemsize, 5)
    yield Row("zero_out", "64 Mi", x.dtype, lambda: ops("zero_out", args, x, output), None, 4 * x.numel())


def roi_pool_rows(ops, some_cases):
    """Yields the rows of roi_pool and its gradient; a row's memory lives until the next."""
    has_peer = cases.torchvision_ops()[0] is not None
    for case in some_cases:
        for dtype in DTYPES:
            for layout in cases.LAYOUTS:
                problem = cases.make_problem(case, dtype, layout)
                tensors = (problem.features, problem.boxes, problem.box_indices, problem.d_output)
                features, boxes, box_indices, d_output = (tensor.cuda() for tensor in tensors)
                output = torch.empty_like(d_output)
                argmax = torch.empty_like(d_output, dtype=torch.int32)
                d_features = torch.empty_like(features)
                forward = ("roi_pool", problem.args, features, boxes, box_indices, output, argmax)
                backward = ("roi_pool_grad", problem.args, d_output, argmax, boxes, box_indices, d_features)
                ops(*forward)
                peer_forward = peer_backward = None
                if has_peer and dtype in cases.TorchvisionRoiPool.dtypes:
                    peer = cases.TorchvisionRoiPool(problem, "cuda")
                    peer_argmax = peer.forward()[1]
                    peer_forward = peer.forward
                    peer_backward = lambda peer=peer, at=peer_argmax: peer.backward(at)  # noqa: E731
                pooled = output.numel() * (dtype.itemsize + 4) + boxes.numel() * 4 + box_indices.numel() * 4
                read = cases.covered_pixels(problem) * case.channels * dtype.itemsize
                written = features.numel() * dtype.itemsize
                name = f"{case.name}, {layout}"
                yield Row("roi_pool", name, dtype, lambda f=forward: ops(*f), peer_forward, pooled + read)
                yield Row("roi_pool gradient", name, dtype, lambda b=backward: ops(*b), peer_backward, pooled + written)


def touched_bytes(problem):
    """Returns how many bytes of the features some bin's taps lie on: those that must be read."""
    case = problem.case
    bins = case.pooled[0] * case.pooled[1] if case.order != "all" else 1
    touched = {}  # (bin of its own channels, level, image) -> pixels
    for _, level, image, on_y, on_x in reference.averaged_boxes(problem):
        height, width = case.maps()[level][:2]
        rows, columns = (on_y[0] != 0, on_x[0] != 0)
        for i in range(bins):
            pixels = touched.setdefault((i, level, image), np.zeros((height, width), bool))
            if bins == 1:
                pixels |= rows.any(0)[:, None] & columns.any(0)
            else:
                pixels |= rows[i // case.pooled[1]][:, None] & columns[i % case.pooled[1]]
    pixels = sum(int(one.sum()) for one in touched.values())
    return pixels * case.pooled_channels * problem.features[0].dtype.itemsize


def roi_average_rows(ops, some_cases):
    """Yields the rows of roi_average, its gradients and roi_align_max; a row's memory lives until the next."""
    has_peer = cases.torchvision_ops()[0] is not None
    for case, dtype, layout in itertools.product(some_cases, DTYPES, cases.LAYOUTS):
        problem = cases.make_average_problem(case, dtype, layout)
        args = problem.args
        features = tuple(tensor.cuda() for tensor in problem.features)
        boxes, box_indices, d_output = (
            tensor.cuda() for tensor in (problem.boxes, problem.box_indices, problem.d_output)
        )
        output, d_boxes = torch.empty_like(d_output), torch.empty_like(boxes)
        d_features = tuple(map(torch.empty_like, features))
        peer_forward = peer_backward = None
        if has_peer and cases.TorchvisionAlign.takes(case) and dtype in cases.TorchvisionAlign.dtypes:
            peer = cases.TorchvisionAlign(problem, "cuda")
            mapping = peer.forward()[1]
            peer_forward = peer.forward
            peer_backward = lambda peer=peer, at=mapping: peer.backward(at)  # noqa: E731
        pooled = output.numel() * dtype.itemsize + boxes.numel() * 4 + box_indices.numel() * 4
        read = touched_bytes(problem)
        written = sum(tensor.numel() for tensor in features) * dtype.itemsize
        name = f"{case.name}, {layout}"

        def row(op, num_bytes, *call, peer=None, name=name, dtype=dtype):
            return Row(op, name, dtype, lambda: ops(*call), peer, num_bytes)

        yield row(
            "average", pooled + read, "roi_average", args, features, boxes, box_indices, output, peer=peer_forward
        )
        backward = (args, d_output, boxes, box_indices, d_features)
        if dtype == torch.float32:
            yield row("gradient", pooled + written, "roi_average_fast_grad", *backward, peer=peer_backward)
        yield row("repeatable gradient", pooled + written, "roi_average_grad", *backward, peer=peer_backward)
        if case.bins == "samples":
            boxes_grad = (args, d_output, features, boxes, box_indices, d_boxes)
            yield row("gradient to boxes", pooled + read, "roi_average_boxes_grad", *boxes_grad)
        if cases.has_maximum(case):
            forward = (args, features[0], features[0], boxes, box_indices, output)
            yield row("maximum", pooled + read, "roi_align_max", *forward)
            backward = (args, d_output, features[0], boxes, box_indices, d_features[0])
            yield row("gradient of the maximum", pooled + read + written, "roi_align_max_grad", *backward)
            boxes_grad = (args, d_output, features[0], features[0], boxes, box_indices, d_boxes)
            yield row("gradient of the maximum to boxes", pooled + read, "roi_align_max_boxes_grad", *boxes_grad)


def table(rows, timer, copy_speed):
    """Yields the table's lines."""
    yield "| op | case | dtype | ms | spread | peer's ms | times as fast | share of copy bandwidth |"
    yield "|---|---|---|--:|--:|--:|--:|--:|"
    for row in rows:
        ours, *theirs = timer.milliseconds(*filter(None, (row.run, row.peer)))
        ms = statistics.median(ours)
        quartiles = statistics.quantiles(ours, n=4)
        spread = (quartiles[2] - quartiles[0]) / ms
        peer_ms = statistics.median(theirs[0]) if theirs else None
        against = f"{peer_ms:.3f} | {peer_ms / ms:.2f}" if theirs else "- | -"
        share = row.num_bytes / copy_speed / (ms / 1000)
        dtype = str(row.dtype).removeprefix("torch.")
        yield f"| {row.op} | {row.case} | {dtype} | {ms:.3f} | {spread:.0%} | {against} | {share:.0%} |"


def header(library, timer, copy_speed):
    """Returns what was measured on what."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    known = shutil.which(query[0])
    driver = subprocess.run(query, capture_output=True, text=True).stdout.strip() if known else "unknown"
    built = library.with_name("build.txt").read_text().strip()
    peer, version = cases.torchvision_ops()
    return (
        f"{torch.cuda.get_device_name()}, driver {driver}; {built}; torch {torch.__version__}, "
        f"torchvision {version if peer is not None else f'missing ({version})'}. "
        f"Copy bandwidth {copy_speed / 1e9:.0f} GB/s, read and written; "
        f"L2 cache of {timer.l2_bytes >> 20} MiB, overwritten before each run. "
        f"Medians of {timer.runs} runs; spread: from quartile to quartile. "
        "Boxes: sides log-uniform from 16 to 512 image pixels. "
        "Peers: torchvision for regions, PyTorch for rows and beams; they also allocate their results, and "
        "torchvision's backward zeros its own.\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, type=pathlib.Path, help="what build.py made")
    parser.add_argument("--quick", action="store_true", help="two cases, fewer runs")
    parser.add_argument("--out", type=pathlib.Path, help="a file that gets the table, too")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")

    ops = bindings.Ops(args.library, "cuda")
    timer = Timer(runs=9 if args.quick else 31)
    copy_speed = timer.copy_bytes_per_second()
    lines = [header(args.library, timer, copy_speed)]
    print(lines[0], flush=True)
    some = 2 if args.quick else None
    for rows in (
        zero_out_rows(ops),
        roi_pool_rows(ops, cases.REAL[:some]),
        roi_average_rows(ops, cases.REAL_AVERAGE[:some]),
        nn_bench.rows(ops, Row, nn_cases.REAL[:some]),
        seq2seq_bench.rows(ops, Row, seq2seq_cases.REAL[:some], seq2seq_cases.REAL_TREES[:some]),
    ):
        for line in table(rows, timer, copy_speed):
            if line not in lines:  # the table's head
                lines.append(line)
                print(line, flush=True)
            if args.out:
                args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
