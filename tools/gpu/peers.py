"""Times PyTorch's, torchvision's or CuPy's kernels for the sizes of our kernels' benchmarks; prints both in one table.

usage: peers.py TIMES...
TIMES are files with the lines that tests print with --benchmark, such as {"name": "softmax [8, 8]", "ms": 1, "bytes":
512}, or with an "error". A peer's time is, like the kernel's, the median of runs by CUDA events, each after the L2
cache was overwritten. torchvision gets contiguous NCHW features. Peers also allocate their results. Values are not
compared: the tests compare the kernels with the definitions, of which torchvision's roi_pool has another.
"""

import contextlib
import functools
import importlib
import itertools
import json
import math
import pathlib
import re
import statistics
import sys

import torch
from torch.nn import functional

DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Timer:
    """Times what is enqueued on the current stream."""

    def __init__(self):
        # As TimeOnGpu: while it is overwritten, the host enqueues what is timed.
        size = min(2 << 30, torch.cuda.mem_get_info()[0] // 8)
        self._flush = torch.empty(size, dtype=torch.uint8, device="cuda")

    def milliseconds(self, function):
        times = []
        for _ in range(3 + 31):
            self._flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        return statistics.median(times[3:])

    def copy_bytes_per_ms(self):
        source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        return 2 * source.numel() / self.milliseconds(lambda: target.copy_(source))


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape, device="cuda").to(dtype)


def labels_of(*shape, classes):
    return torch.randint(1, classes, shape, device="cuda")


def boxes_of(count, image=1000.0):
    low, sides = image * torch.rand((count, 2), device="cuda"), 16 * 10 ** torch.rand((count, 2), device="cuda")
    return torch.cat([low, low + sides], 1)


def vision(name):
    return getattr(importlib.import_module("torchvision").ops, name)


def of_rows(function, count=1):
    """Returns the peer that is a function of `count` tensors [rows, classes]."""
    return lambda dtype, *sizes: (function, *(normal(*sizes, dtype=dtype) for _ in range(count)))


def gaussian_kl(q, q_log, p, p_log):
    return 0.5 * (torch.expm1(q_log - p_log) - q_log + p_log + (q - p) ** 2 * torch.exp(-p_log)).sum(-1)


# Kernel -> function(dtype, the numbers of the benchmark's name) returning a peer and its inputs. The kernel NAME_grad
# is compared with the peer's gradients to all of these. A kernel without an entry has no peer.
PEERS = {
    "softmax": of_rows(lambda x: torch.softmax(x, -1)),
    "log_softmax": of_rows(lambda x: torch.log_softmax(x, -1)),
    "entropy": of_rows(lambda x: torch.distributions.Categorical(logits=x.float()).entropy()),
    "gaussian_kl": of_rows(gaussian_kl, 4),
    "unit_gaussian_kl": of_rows(lambda q, q_log: 0.5 * (torch.expm1(q_log) - q_log + q**2).sum(-1), 2),
}


def peer(make):
    PEERS[make.__name__] = make
    return make


@peer
def label_loss(dtype, rows, classes):
    labels = labels_of(rows, classes=classes)
    return lambda x: functional.cross_entropy(x, labels, reduction="none"), normal(rows, classes, dtype=dtype)


@peer
def cross_entropy(dtype, rows, classes):
    targets = torch.softmax(normal(rows, classes), -1).to(dtype)
    return lambda x: functional.cross_entropy(x, targets, reduction="none"), normal(rows, classes, dtype=dtype)


@peer
def beam_search_step(dtype, batch, beams, vocabulary):
    """Leaves out what finished beams, end tokens and lengths require."""

    def step(logits, log_probs):
        scores = torch.log_softmax(logits, -1, dtype=torch.float32) + log_probs[..., None]
        return scores.view(batch, -1).topk(beams)

    return step, normal(batch, beams, vocabulary, dtype=dtype), normal(batch, beams)


@peer
def ctc_greedy_decode(dtype, *sizes):
    return lambda x: torch.log_softmax(x, -1, dtype=torch.float32).max(-1), normal(*sizes, dtype=dtype)


@peer
def ctc_loss(dtype, batch, frames, classes, max_labels):
    labels = labels_of(batch, max_labels, classes=classes)
    frame_counts, lengths = ([n] * batch for n in (frames, max_labels))

    def loss(x):
        log_probs = torch.log_softmax(x, -1, dtype=torch.float32).transpose(0, 1)
        return functional.ctc_loss(log_probs, labels, frame_counts, lengths, reduction="none")

    return loss, normal(batch, frames, classes, dtype=dtype)


@peer
def rnnt_loss(dtype, batch, frames, classes, max_labels):
    import torchaudio

    labels = labels_of(batch, max_labels, classes=classes).int()
    frame_counts, lengths = (torch.full((batch,), n, device="cuda").int() for n in (frames, max_labels))
    loss = functools.partial(torchaudio.functional.rnnt_loss, blank=0, reduction="none")
    logits = normal(batch, frames, max_labels + 1, classes, dtype=dtype)
    return lambda x: loss(x, labels, frame_counts, lengths), logits


@peer
def crf_log_likelihood(dtype, batch, frames, tags):
    """A loop over frames, as Python's packages have it: the scores of all label sequences."""

    def total(logits, transitions):
        scores = logits[:, 0]
        for t in range(1, frames):
            scores = torch.logsumexp(scores[:, :, None] + transitions, 1) + logits[:, t]
        return torch.logsumexp(scores, -1)

    return total, normal(batch, frames, tags, dtype=dtype), normal(tags, tags)


@peer
def nms(_, count, groups):
    boxes, scores = boxes_of(count, 1000.0 * (count / 1000) ** 0.5), torch.rand(count, device="cuda")
    if not groups:
        return vision("nms"), boxes, scores, 0.5
    return vision("batched_nms"), boxes, scores, torch.randint(0, groups, (count,), device="cuda"), 0.5


def box_peers(name):
    """Returns the peers of pairs of boxes, and of a loss."""

    def losses(_, count):
        boxes = boxes_of(count)
        return vision(f"{name}_loss"), boxes, boxes + 4 * torch.rand_like(boxes)

    return lambda _, rows, columns: (vision(name), boxes_of(rows), boxes_of(columns)), losses


for mode, kind in {"iou": "", "giou": "generalized_", "diou": "distance_", "ciou": "complete_"}.items():
    PEERS[f"box_iou {mode}"], PEERS[f"box_iou_loss {mode}"] = box_peers(f"{kind}box_iou")


def region_pooling(name, *options):
    """Returns the peer of a kernel of regions: NCHW features, and boxes at stride 16 as torchvision takes them."""

    def make(dtype, batch, height, width, channels, count, bins, _, stride):
        rois = torch.cat([torch.randint(0, batch, (count, 1), device="cuda"), boxes_of(count, 800.0)], 1).to(dtype)
        pool = vision(name)
        return lambda x: pool(x, rois, bins, 1 / stride, *options), normal(batch, channels, height, width, dtype=dtype)

    return make


PEERS |= {"roi_align": region_pooling("roi_align", 2, True), "roi_pool": region_pooling("roi_pool")}


@peer
def grid_sample(dtype, batch, height, width, channels):
    y, x = torch.meshgrid(*(torch.linspace(-0.9, 0.9, n, device="cuda") for n in (height, width)), indexing="ij")
    grid = torch.stack([x, y], -1).expand(batch, -1, -1, -1).to(dtype)
    sample = functools.partial(functional.grid_sample, align_corners=True)
    return sample, normal(batch, channels, height, width, dtype=dtype), grid


@peer
def correlation_cost(dtype, batch, height, width, channels, radius):
    def costs(a, b):
        padded = functional.pad(b, (0, 0, *[radius] * 4))
        steps = itertools.product(range(2 * radius + 1), repeat=2)
        return torch.stack([(a * padded[:, y : y + height, x : x + width]).mean(-1) for y, x in steps], -1)

    return costs, *(normal(batch, height, width, channels, dtype=dtype) for _ in range(2))


@peer
def deform_conv(dtype, batch, height, width, channels):
    shapes = ((batch, channels), (batch, 18), (batch, 9))
    features, offsets, mask = (normal(*shape, height, width, dtype=dtype) for shape in shapes)
    convolve = vision("deform_conv2d")
    filters = normal(channels, channels, 3, 3, dtype=dtype)
    return lambda x, o, w, m: convolve(x, o, w, padding=1, mask=m), features, offsets, filters, mask


@peer
def deformable_attention(dtype, queries, heads, depth, points, *levels):
    """Deformable DETR's composition of grid_sample."""
    sizes = list(zip(levels[::2], levels[1::2], strict=True))

    def attend(values, grids, weights):
        samples = []
        parts = values.split([h * w for h, w in sizes], -1)
        for part, grid, size in zip(parts, grids.unbind(2), sizes, strict=True):
            samples.append(functional.grid_sample(part.unflatten(-1, size), grid, align_corners=False))
        return (torch.stack(samples, -2) * weights).sum((-1, -2))

    values = normal(heads, depth, sum(h * w for h, w in sizes), dtype=dtype)
    grids = normal(heads, queries, len(sizes), points, 2, dtype=dtype) / 2
    return attend, values, grids, normal(heads, 1, queries, len(sizes), points, dtype=dtype)


def masks_of(images, height, width):
    """Returns the masks of our benchmarks (masks_testing.h), and CuPy's functions of images."""
    import cupy

    y, x = cupy.arange(images * height)[:, None], cupy.arange(width)
    masks = cupy.sin(0.21 * x + 0.05 * y) + cupy.sin(0.17 * y) > 0
    return masks.reshape(images, height, width), importlib.import_module("cupyx.scipy.ndimage")


@peer
def distance_transform(_, *sizes):
    masks, ndimage = masks_of(*sizes)
    distances = functools.partial(ndimage.distance_transform_edt, float64_distances=False)
    return lambda images: [distances(image) for image in images], masks


@peer
def connected_components(_, *sizes):
    masks, ndimage = masks_of(*sizes)
    structure = [[[0] * 3] * 3, [[1] * 3] * 3, [[0] * 3] * 3]  # all neighbors, of the same image
    return ndimage.label, masks, structure


def key_lengths_of(batch, keys):
    """Returns the lengths of our benchmarks (attention_testing.h)."""
    return [keys * (b + 1) // (b + 2) for b in range(batch)]


@peer
def attention(dtype, batch, queries, heads, depth, keys=None, key_heads=None, *, causal, key_lengths):
    keys, key_heads = keys or queries, key_heads or heads
    options = {"is_causal": causal} | ({"enable_gqa": True} if key_heads != heads else {})
    if key_lengths:
        lengths = torch.tensor(key_lengths_of(batch, keys), device="cuda")
        options["attn_mask"] = torch.arange(keys, device="cuda") < lengths[:, None, None, None]
    attend = functools.partial(functional.scaled_dot_product_attention, **options)
    return (
        attend,
        normal(batch, heads, queries, depth, dtype=dtype),
        *(normal(batch, key_heads, keys, depth, dtype=dtype) for _ in range(2)),
    )


@peer
def decode_attention(dtype, batch, beams, heads, depth, keys, key_heads):
    """Gathers the beams' caches by their ancestors, then attends to them."""
    caches = [normal(batch, beams, keys, key_heads, depth, dtype=dtype) for _ in range(2)]
    ancestors = torch.randint(0, beams, (batch, beams, keys), device="cuda")
    rows, positions = (torch.arange(n, device="cuda") for n in (batch, keys))

    def attend(query, *caches):
        gathered = [cache[rows[:, None, None], ancestors, positions].flatten(0, 1).transpose(1, 2) for cache in caches]
        options = {"enable_gqa": True} if key_heads != heads else {}
        return functional.scaled_dot_product_attention(query, *gathered, **options)

    return attend, normal(batch * beams, heads, 1, depth, dtype=dtype), *caches


@peer
def update_cache(_, batch, length, size, *, in_place):
    """A tensor [batch, length, size bytes] of float32, one position of each row."""
    cache, rows = normal(batch * length, size // 4), normal(batch, size // 4)
    index = torch.arange(batch, device="cuda") * length + 7
    return cache.index_copy_ if in_place else cache.index_copy, 0, index, rows


@peer
def quantized_matmul(dtype, rows, depth, columns, *_, alternative="mm"):
    """The product with weights that are not quantized, or with those of 4 bits in groups of 128, in bfloat16."""
    if alternative == "mm":
        weights = normal(depth, columns, dtype=dtype)
        return lambda x: x @ weights, normal(rows, depth, dtype=dtype)
    weights = torch.randint(0, 256, (columns, depth // 2), device="cuda").to(torch.uint8)
    packed = torch._convert_weight_to_int4pack(weights, 8)
    scales = normal(depth // 128, columns, 2, dtype=torch.bfloat16)
    product = functools.partial(torch._weight_int4pack_mm, mat2=packed, qGroupSize=128, qScaleAndZeros=scales)
    return product, normal(rows, depth, dtype=torch.bfloat16)


def recurrent(name):
    """Returns the peer of a layer's steps, with inputs of one number: our kernels get inputs times their weights."""

    def make(dtype, batch, steps, units):
        layer = getattr(torch.nn, name)(1, units, batch_first=True, device="cuda", dtype=dtype)
        return layer, normal(batch, steps, 1, dtype=dtype)

    return make


PEERS |= {"lstm": recurrent("LSTM"), "gru": recurrent("GRU")}  # reset_after is PyTorch's GRU


@peer
def layer_norm(dtype, rows, channels):
    normalize = functools.partial(functional.layer_norm, normalized_shape=(channels,))
    x, scale, offset = (normal(*shape, dtype=dtype) for shape in ((rows, channels), (channels,), (channels,)))
    return lambda x, scale, offset: normalize(x, weight=scale, bias=offset), x, scale, offset


@peer
def group_norm(dtype, batch, height, width, channels, groups):
    shapes = (batch, channels, height, width), (channels,), (channels,)
    return (
        lambda x, scale, offset: functional.group_norm(x, groups, scale, offset),
        *(normal(*shape, dtype=dtype) for shape in shapes),
    )


@peer
def gelu(dtype, rows, channels):
    """Of features plus a bias."""
    return (
        lambda x, bias: functional.gelu(x + bias),
        normal(rows, channels, dtype=dtype),
        normal(channels, dtype=dtype),
    )


@peer
def dropout(dtype, size):
    return lambda x: functional.dropout(x, 0.2), normal(size, dtype=dtype)


@peer
def depthwise_conv2d(dtype, batch, height, width, channels, taps):
    convolve = functools.partial(functional.conv2d, padding=taps // 2, groups=channels)
    return (
        lambda x, filters: convolve(x, filters),
        normal(batch, channels, height, width, dtype=dtype),
        normal(channels, 1, taps, taps, dtype=dtype),
    )


# Several peers of a kernel; each is a row.
ALTERNATIVES = {
    "attention": ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"),
    "attention_grad": ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"),
    "quantized_matmul": ("mm", "_weight_int4pack_mm"),
}


def alternatives_of(name):
    _, kernel, rest, _ = parts_of(name)
    return [peer for peer in ALTERNATIVES.get(kernel, (None,)) if peer != "_weight_int4pack_mm" or "int4" in rest]


def context_of(alternative):
    """Returns a context in which PyTorch's attention has a backend."""
    if alternative not in ALTERNATIVES["attention"]:
        return contextlib.nullcontext()
    attention = importlib.import_module("torch.nn.attention")
    return attention.sdpa_kernel(getattr(attention.SDPBackend, alternative))


def gradient_of(function, *inputs):
    """Returns a call that computes the gradients of function(*inputs), without its forward pass.

    A layer's are those of its weights, too, and of its first output.
    """
    leaves = [x.detach().requires_grad_() for x in inputs]
    output = function(*leaves)
    output = output[0] if isinstance(output, tuple) else output
    leaves += getattr(function, "parameters", list)()
    d = torch.randn_like(output)
    return lambda: torch.autograd.grad(output, leaves, d, retain_graph=True)


def parts_of(name):
    """Returns a name's parts, such as those of "float32 box_iou [8, 8] giou": dtype, kernel, the rest, its numbers."""
    parts = re.match(r"((?:int|b?float)\d+ )?(\w+) *((?:int|b?float)\d+ )?(.*)", name).groups()
    dtype, kernel, rest = (parts[0] or parts[2] or "").strip(), parts[1], parts[3]
    return dtype, kernel, rest, [int(n) for n in re.findall(r"\d+", rest)]


OPTIONS = {"attention": ("causal", "key_lengths"), "update_cache": ("in_place",)}


def options_of(kernel, rest):
    return {name: f" {name.replace('_', ' ')}" in rest for name in OPTIONS.get(kernel, ())}


def call_of(name, alternative=None):
    """Returns the peer's call for a benchmark, or None."""
    dtype, kernel, rest, numbers = parts_of(name)
    forward, variant = kernel.removesuffix("_grad"), re.search(r"[a-z]+$", rest)
    make = PEERS.get(forward) or (PEERS.get(f"{forward} {variant[0]}") if variant else None)
    if not make:
        return None
    options = options_of(forward, rest)
    if forward == "quantized_matmul" and alternative:
        options["alternative"] = alternative
    function, *inputs = make(DTYPES.get(dtype, torch.float32), *numbers, **options)
    return (
        gradient_of(function, *inputs) if forward != kernel else functools.partial(torch.no_grad()(function), *inputs)
    )


def attention_operations(batch, queries, heads, depth, keys=None, _=None, *, causal, key_lengths):
    keys = keys or queries
    of_batch = sum(key_lengths_of(batch, keys)) if key_lengths else batch * keys
    # As publications count causal attention: half of all pairs.
    return 4 * of_batch * heads * queries * depth / (2 if causal else 1)


def operations_of(name):
    """Returns the multiplications and additions of a kernel, or None for one that is no product."""
    _, kernel, rest, numbers = parts_of(name)
    forward = kernel.removesuffix("_grad")
    if forward == "attention":
        # Gradients need the scores anew, and have four products for the forward pass's two.
        return attention_operations(*numbers, **options_of(forward, rest)) * (2.5 if forward != kernel else 1)
    if forward == "deform_conv":
        pairs = math.prod(numbers) * 9 * numbers[-1]
    elif forward == "correlation_cost":
        pairs = math.prod(numbers[:4]) * (2 * numbers[4] + 1) ** 2
    elif forward == "quantized_matmul":
        return 2 * math.prod(numbers[:3])  # as many in its gradient, to the rows alone
    else:
        return None
    return 2 * pairs * (2 if forward != kernel else 1)


def row_of(row, timer, speed):
    """Returns a line of the table. An error of a program or a peer is a row, too: the others count."""
    name, alternative = row["name"], row.get("alternative")
    if "error" in row:
        return f"| {name} | {row['error']} | - | - | - | - |"
    ours, theirs, ratio = row["ms"], "-", "-"
    operations = operations_of(name)
    try:
        with context_of(alternative):
            call = call_of(name, alternative)
            ms = timer.milliseconds(call) if call else None
        if call:
            theirs, ratio = f"{ms:.3f}", f"{ms / ours:.2f}"
        del call
        torch.cuda.empty_cache()
    except Exception as error:  # a missing dtype, memory or package
        theirs = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:60]}"
    teraflops = f"{operations / ours / 1e9:.1f}" if operations else "-"
    name += f", {alternative}" if alternative else ""
    return f"| {name} | {ours:.3f} | {theirs} | {ratio} | {row['bytes'] / speed / ours:.0%} | {teraflops} |"


def main():
    timer = Timer()
    speed = timer.copy_bytes_per_ms()
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}; copies {speed / 1e6:.0f} GB/s, read and written\n"
    )
    print("| kernel | ms | peer's ms | times as fast | share of copy bandwidth | TFLOP/s |\n|---|--:|--:|--:|--:|--:|")
    for times in sys.argv[1:]:
        for line in pathlib.Path(times).read_text().splitlines():
            try:
                row = json.loads(line) if line.startswith("{") else {}
            except json.JSONDecodeError:  # a line of a program that was ended
                continue
            if "error" in row:
                print(row_of(row, timer, speed), flush=True)
            elif row.get("device") == "cuda":
                for alternative in alternatives_of(row["name"]):
                    print(row_of(row | {"alternative": alternative}, timer, speed), flush=True)


if __name__ == "__main__":
    main()
