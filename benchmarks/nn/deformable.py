"""Times deformable convolution and attention on the CPU, and compares them with torchvision, torch and TensorFlow.

usage: python benchmarks/nn/deformable.py [PART]...
with the wheel installed (benchmarks/README.md); default: all parts.

"convolution" is v2 with a mask, 3 x 3, padding 1, offsets of standard deviation 1, compared
with torchvision and with tf.nn.conv2d, which does the same number of products, and with
itself on NCHW tensors, which it transposes; "attention"
the decoder's 300 queries and the encoder's, of 8 heads of 32 channels and 4 points on 4
levels, compared with torch's grid_sample and TensorFlow's gathers, composed as PyTorch's and
Keras's models do; "memory" the peak memory beyond inputs and outputs. Passes are "forward"
and "with gradients" to all inputs.

"x floor" is the time divided by that of what the op cannot do without, in turns in the same
process: of the convolution its products, tf.matmul of as many multiply-adds; of attention the
sum of "call", a TensorFlow call that writes the output and the gradients to locations and
weights, and of "rows" (row_visits.py, needs gcc), which reads from as many pixels, at the same
places, and with gradients reads them again, writes zeros to the gradient to the values and
adds to its pixels.
"""

import argparse
import functools
import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Adds the harness's folder, not the repository's root, whose package would hide the wheel's.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import harness
import malloc_peak
import numpy as np
import peers
import row_visits
import tensorflow as tf

import tensorflow_ops as tfo

PASSES = ("forward", "with gradients")
CONVOLUTIONS = ((100, 152, 128), (50, 76, 256), (25, 38, 512))  # (height, width, channels)
DECODER = ((100, 134), (50, 67), (25, 34), (13, 17))
ENCODER = ((50, 67), (25, 34), (13, 17), (7, 9))
ATTENTIONS = {"decoder": (300, DECODER), "encoder": (sum(h * w for h, w in ENCODER), ENCODER)}  # (queries, levels)
HEADS, DEPTH, POINTS = 8, 32, 4
PAUSE = 0.01  # between calls of PyTorch and ours: its threads spin after a call


def convolution_inputs(height, width, channels):
    """Returns features, offsets, filters and mask."""
    generator = np.random.default_rng(0)

    def normal(*shape):
        return generator.standard_normal(shape, np.float32)

    features, filters = normal(1, height, width, channels), normal(3, 3, channels, channels)
    return features, normal(1, height, width, 18), filters, generator.random((1, height, width, 9), np.float32)


def attention_inputs(queries, levels):
    """Returns values, locations and weights."""
    generator = np.random.default_rng(0)
    pixels, shape = sum(h * w for h, w in levels), (1, queries, HEADS, len(levels), POINTS)
    # Around a reference point, as trained models sample.
    centers = generator.random((1, queries, 1, 1, 1, 2), np.float32)
    locations = centers + 0.05 * generator.standard_normal((*shape, 2), np.float32)
    weights = generator.random(shape, np.float32)
    return generator.standard_normal((1, pixels, HEADS, DEPTH), np.float32), locations, weights / weights.sum()


def in_graph(function, inputs, which):
    """Returns a call of a tf.function on the inputs, with gradients to all if `which` says so."""

    def with_gradients(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            output = function(*tensors)
        return output, *tape.gradient(output, tensors)

    compiled = tf.function(function if which == "forward" else with_gradients, autograph=False)
    tensors = [tf.constant(x) for x in inputs]
    return lambda: tf.nest.map_structure(lambda t: t.shape, compiled(*tensors))


def in_torch(torch, function, inputs, which):
    """The same of a function of torch's tensors."""
    tensors = [torch.from_numpy(x.copy()).requires_grad_(which != "forward") for x in inputs]

    def run():
        if which == "forward":
            with torch.no_grad():
                return function(*tensors)
        output = function(*tensors)
        return torch.autograd.grad(output, tensors, torch.ones_like(output))

    return run


def ours_convolution(features, offsets, filters, mask, **options):
    return tfo.nn.deform_conv2d(features, offsets, filters, mask=mask, padding=1, **options)


def products(case, which):
    """Returns a call of the matrix products of a convolution, on columns that exist already."""
    height, width, channels = case
    generator = np.random.default_rng(0)
    sizes = ((height * width, 9 * channels), (9 * channels, channels), (height * width, channels))
    inputs = [generator.standard_normal(size, np.float32) for size in sizes]

    def multiply(columns, filters, d):
        forward = tf.matmul(columns, filters)
        if which == "forward":
            return forward
        return forward, tf.matmul(columns, d, transpose_a=True), tf.matmul(d, filters, transpose_b=True)

    return in_graph(multiply, inputs, "forward")


def convolutions(case, which, torchvision):
    """Returns {name: call} of a case."""
    inputs = convolution_inputs(*case)
    first = [np.ascontiguousarray(x.transpose(0, 3, 1, 2)) for x in (inputs[0], inputs[1], inputs[3])]
    channels_first = (first[0], first[1], inputs[2], first[2])
    calls = {
        "ours": in_graph(ours_convolution, inputs, which),
        "NCHW": in_graph(functools.partial(ours_convolution, data_format="NCHW"), channels_first, which),
        "products": products(case, which),
        "conv2d": in_graph(lambda f, w: tf.nn.conv2d(f, w, 1, "SAME"), (inputs[0], inputs[2]), which),
    }
    if torchvision:
        torch, ops = torchvision
        filters = np.ascontiguousarray(inputs[2].transpose(3, 2, 0, 1))
        calls["torchvision"] = in_torch(
            torch,
            lambda f, o, w, m: ops.deform_conv2d(f, o, w, padding=1, mask=m),
            (first[0], first[1], filters, first[2]),
            which,
        )
    return calls


def torch_attention(torch, levels):
    """Deformable DETR's composition of grid_sample."""

    def run(values, locations, weights):
        parts = values.split([h * w for h, w in levels], 1)
        samples = []
        for i, (height, width) in enumerate(levels):
            image = parts[i].flatten(2).transpose(1, 2).reshape(HEADS, DEPTH, height, width)
            grid = 2 * locations[:, :, :, i].transpose(1, 2).flatten(0, 1) - 1
            samples.append(torch.nn.functional.grid_sample(image, grid, align_corners=False))
        weights = weights.transpose(1, 2).reshape(HEADS, 1, weights.shape[1], len(levels) * POINTS)
        output = (torch.stack(samples, -2).flatten(-2) * weights).sum(-1)
        return output.view(1, HEADS * DEPTH, -1).transpose(1, 2)

    return run


def tf_attention(levels):
    """Keras models' composition of gathers."""

    def run(values, locations, weights):
        parts = tf.split(values, [h * w for h, w in levels], 1)
        output = 0.0
        for i, (height, width) in enumerate(levels):
            pixels = tf.transpose(parts[i][0], [1, 0, 2])  # [heads, pixels, depth]
            place = tf.transpose(locations[0, :, :, i], [1, 0, 2, 3]) * tf.constant([width, height], tf.float32) - 0.5
            weight = tf.transpose(weights[0, :, :, i], [1, 0, 2])
            low = tf.floor(place)
            for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
                at = low + tf.constant([dx, dy], tf.float32)
                inside = tf.reduce_all((at >= 0) & (at < [float(width), float(height)]), -1)
                factor = tf.reduce_prod(1 - tf.abs(place - at), -1) * weight * tf.cast(inside, tf.float32)
                at = tf.cast(tf.clip_by_value(at, 0.0, [width - 1.0, height - 1.0]), tf.int32)
                samples = tf.gather(pixels, at[..., 1] * width + at[..., 0], batch_dims=1)
                output += tf.einsum("hqpd,hqp->qhd", samples, factor)
        return tf.reshape(output, [1, -1, HEADS * DEPTH])

    return run


def attention_call(inputs, which):
    """Returns a call that writes what attention returns, but the gradient to values."""

    def fill(values, locations, weights):
        number = weights[0, 0, 0, 0, 0]
        output = tf.fill([1, weights.shape[1], HEADS * DEPTH], number)
        if which == "forward":
            return output
        return output, *(tf.fill(tensor.shape, number) for tensor in (locations, weights))

    return in_graph(fill, inputs, "forward")


def attention_rows(case, which):
    """Returns a call that reads from the pixels that attention reads from, and adds to them.

    Of the encoder, the pixels of a head are side by side, as our op copies them; the decoder reads
    the heads of a query in turn.
    """
    queries, levels = ATTENTIONS[case]
    _, locations, _ = attention_inputs(queries, levels)
    sizes = np.array(levels)[:, None, ::-1]  # (width, height), as in locations
    first = np.cumsum([0] + [h * w for h, w in levels])
    corners = np.array([(0, 0), (1, 0), (0, 1), (1, 1)])
    at = np.floor(locations[0] * sizes - 0.5)[..., None, :] + corners  # [queries, heads, levels, points, corners, 2]
    inside = ((at >= 0) & (at < sizes[..., None, :])).all(-1)
    pixels = (first[:-1, None, None] + at[..., 1] * sizes[..., None, 0] + at[..., 0]).astype(np.int64)
    head = np.arange(HEADS).reshape(1, HEADS, 1, 1, 1)
    if case == "encoder":
        places, inside = (head * first[-1] + pixels).swapaxes(0, 1), inside.swapaxes(0, 1)
        parts = zip(np.array_split(places, harness.THREADS), np.array_split(inside, harness.THREADS), strict=True)
    else:
        places = pixels * HEADS + head
        parts = zip(np.array_split(places, harness.THREADS, 1), np.array_split(inside, harness.THREADS, 1), strict=True)
    floor = row_visits.Rows(HEADS * first[-1], DEPTH, [place[counts] for place, counts in parts])
    if which == "forward":
        return floor.read
    return lambda: (floor.read(), floor.read_and_add())


def attentions(case, which, torchvision):
    """Returns {name: call} of a case."""
    queries, levels = ATTENTIONS[case]
    inputs = attention_inputs(queries, levels)
    calls = {
        "ours": in_graph(lambda v, x, w: tfo.nn.multiscale_deformable_attention(v, levels, x, w), inputs, which),
        "call": attention_call(inputs, which),
        "rows": attention_rows(case, which),
        "tf": in_graph(tf_attention(levels), inputs, which),
    }
    if torchvision:
        calls["torch"] = in_torch(torchvision[0], torch_attention(torchvision[0], levels), inputs, which)
    return calls


def measure(case, which, calls, seconds):
    """Returns a row of the table."""
    times = harness.interleave(calls, seconds, pause=PAUSE)
    floors = [name for name in ("products", "call", "rows") if name in times]
    floor, ours = sum(times[name] for name in floors), times["ours"]
    row = {"case": case, "pass": which, "ms": f"{1e3 * ours:.3g}"}
    row |= {f"{name}, ms": f"{1e3 * times[name]:.3g}" for name in floors}
    row["x floor"] = f"{ours / floor:.2f}"
    row |= {f"{name} / ours": f"{times[name] / ours:.2f}" for name in times if name not in ("ours", *floors)}
    return row


def extra_bytes(part, case, which):
    """Returns [peak bytes beyond inputs and outputs, bytes of both]."""
    if part == "convolution":
        inputs, function = convolution_inputs(*case), ours_convolution
    else:
        queries, levels = ATTENTIONS[case]
        inputs = attention_inputs(queries, levels)
        function = lambda v, x, w: tfo.nn.multiscale_deformable_attention(v, levels, x, w)  # noqa: E731
    run = in_graph(function, inputs, which)
    malloc_peak.check_method()
    shapes = run()
    written = 4 * sum(s.num_elements() for s in tf.nest.flatten([shapes]))
    return [max(malloc_peak.extra_bytes(run, written) for _ in range(3)), written + sum(x.nbytes for x in inputs)]


def memory():
    """Returns rows of peak memory, each measured in a new process."""
    rows = []
    with malloc_peak.counter() as counter:
        for part, cases in (("convolution", list(CONVOLUTIONS)), ("attention", list(ATTENTIONS))):
            for case in cases:
                for which in PASSES:
                    extra, known = counter.run(__file__, "--worker", json.dumps([part, case, which]))
                    columns = 4 * 9 * np.prod(case) if part == "convolution" else 0
                    rows.append(
                        {
                            "case": f"{part} {case}",
                            "pass": which,
                            "inputs and outputs, MB": f"{known / 1e6:.1f}",
                            "beyond them, MB": f"{extra / 1e6:.2f}",
                            "torchvision's columns, MB": f"{columns / 1e6:.1f}" if columns else "",
                        }
                    )
    return rows


def main():
    """Prints a table per part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", choices=[[], "convolution", "attention", "memory"])
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of a measurement (default: 4)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(harness.THREADS)
    if args.worker:
        part, case, which = json.loads(args.worker)
        print(json.dumps(extra_bytes(part, tuple(case) if isinstance(case, list) else case, which)))
        return
    torchvision = peers.torchvision_ops(harness.THREADS)
    if torchvision[0] is None:
        print(torchvision[1])
        torchvision = None
    print(f"{harness.machine()}; {harness.THREADS} threads, float32.")
    for part in args.part or ["convolution", "attention", "memory"]:
        print(part, file=sys.stderr, flush=True)
        rows = []
        if part == "convolution":
            for case in CONVOLUTIONS:
                rows += [measure(str(case), p, convolutions(case, p, torchvision), args.seconds) for p in PASSES]
        elif part == "attention":
            for case in ATTENTIONS:
                rows += [measure(case, p, attentions(case, p, torchvision), args.seconds) for p in PASSES]
        else:
            rows = memory()
        print(f"\n## {part}\n")
        harness.table(rows, list(rows[0]))


if __name__ == "__main__":
    main()
