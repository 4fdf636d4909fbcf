"""Checks that a change of kernels keeps all results on the CPU bit-identical.

    TENSORFLOW_OPS_CPU=avx2 python tools/same_bits.py save before.json   # with the old wheel
    TENSORFLOW_OPS_CPU=avx2 python tools/same_bits.py save after.json    # with the new one
    python tools/same_bits.py compare before.json after.json

`save` computes every op and its gradients for random but reproducible shapes, dtypes, options and special values,
and writes a digest of each result. All NaNs are equal.
"""

import argparse
import hashlib
import json
import sys

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

_DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16)


def _digest(tensor):
    array = tensor.numpy()
    if array.dtype.kind not in "iub":
        array = np.where(np.isnan(array.astype(np.float32)), np.nan, array).astype(array.dtype)
    return hashlib.sha256(str(array.shape).encode() + array.tobytes()).hexdigest()[:16]


class _Cases:
    """Random cases: pairs of a name and a nest of result tensors."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)

    def _normal(self, shape, dtype, scale=1.0):
        return tf.cast(self._rng.normal(scale=scale, size=shape), dtype)

    def _pick(self, *values):
        return values[self._rng.integers(len(values))]

    def _logits(self, dtype):
        """Draws logits: rows of any length and number, with masks, NaN and infinities."""
        classes = int(self._pick(1, 2, 3, 10, 16, 17, 33, 100, 128, 257, 1000, 1001, 4097, 33001, 70000))
        rows = int(self._rng.integers(1, max(2, min(300, 200_000 // classes))))
        x = self._rng.normal(scale=self._pick(1, 1, 30), size=(rows, classes))
        kind = self._rng.integers(0, 12, size=rows)
        x[kind == 2, ::3] = -np.inf
        x[kind == 3] = -np.inf
        x[kind == 4, -1] = np.nan
        x[kind == 5, classes // 2] = np.inf
        x[kind == 6] = 1
        x[kind == 7, classes // 2] += 50
        return tf.cast(x, dtype)

    def _with_gradients(self, fn, *inputs):
        """Returns results, and gradients to all inputs for random upstream gradients."""
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            results = [r for r in tf.nest.flatten(fn(*inputs)) if r.dtype.is_floating]
        directions = [self._normal(r.shape, r.dtype) for r in results]
        return results, tape.gradient(results, inputs, directions)

    def nn(self, dtype):
        """Yields cases of functions of logits and Gaussians."""
        x = self._logits(dtype)
        rows, classes = x.shape
        labels = self._rng.integers(0, classes, size=rows)
        ignore_index = self._pick(None, -1, 0)
        if ignore_index == -1:
            labels[::3] = -1
        labels = tf.constant(labels, self._pick(tf.int32, tf.int64))
        options = {"label_smoothing": self._pick(0.0, 0.1), "z_loss": self._pick(0.0, 0.01)}
        targets = tf.nn.softmax(self._normal(x.shape, dtype))
        smoothing = self._pick(0.0, 0.2)
        nn = tfo.nn
        run = self._with_gradients
        yield "softmax", run(nn.softmax, x)
        yield "log_softmax", run(nn.log_prob_from_logits, x)
        yield "entropy", run(nn.softmax_entropy, x)
        yield (
            "label_loss",
            run(lambda x: nn.sparse_softmax_cross_entropy(labels, x, ignore_index=ignore_index, **options), x),
        )
        yield "label_log_prob", run(lambda x: nn.label_log_prob(tf.maximum(labels, 0), x), x)
        yield (
            "cross_entropy",
            run(lambda t, x: nn.softmax_cross_entropy(t, x, label_smoothing=smoothing), targets, x),
        )
        yield (
            "cross_entropy_of_logits",
            run(lambda x: nn.softmax_cross_entropy(targets, x, label_smoothing=smoothing), x),
        )
        q, p = ([self._normal(x.shape, dtype, s) for s in (1, self._pick(0.001, 1, 8))] for _ in range(2))
        yield "gaussian_kl", run(lambda *a: nn.gaussian_kl(a[:2], a[2:]), *q, *p)
        yield "unit_gaussian_kl", run(lambda *a: nn.gaussian_kl(a), *q)

    def seq2seq(self, dtype):
        """Yields cases of beam_search_step and gather_tree."""
        batch, beams = (int(self._rng.integers(1, 6)) for _ in range(2))
        vocabulary = int(self._pick(1, 5, 33, 300, 4097, 32000, 70001))
        logits = self._normal([batch, beams, vocabulary], dtype)
        if self._pick(True, False):
            logits = tf.where(self._rng.random(logits.shape) < 0.01, tf.cast(self._pick(np.nan, np.inf), dtype), logits)
        value = tf.float64 if dtype == tf.float64 else tf.float32
        log_probs = -tf.abs(self._normal([batch, beams], value))
        finished = tf.constant(self._rng.random((batch, beams)) < 0.2)
        lengths = tf.constant(self._rng.integers(0, 20, size=(batch, beams)), tf.int32)
        forbidden = tf.constant(self._rng.random(logits.shape) < 0.1) if self._pick(True, False) else None
        yield (
            "beam_search_step",
            tfo.seq2seq.beam_search_step(
                logits,
                log_probs,
                finished,
                lengths,
                eos_ids=int(self._rng.integers(vocabulary)),
                beam_width=int(self._rng.integers(1, 12)),
                length_penalty=self._pick(0.0, 0.6, -0.5),
                forbidden=forbidden,
            ),
        )
        time = int(self._rng.integers(1, 30))
        tokens, parents = (
            tf.constant(self._rng.integers(0, n, size=(time, batch, beams)), tf.int32) for n in (vocabulary, beams)
        )
        yield "gather_tree", tfo.seq2seq.gather_tree(tokens, parents, tf.minimum(lengths, time), pad_id=-1)

    def _boxes(self, count, height, width, stride, dtype):
        corner = self._rng.uniform(-0.2, 1, size=(count, 2)) * (width * stride, height * stride)
        size = self._rng.uniform(0, 1.2, size=(count, 2)) * (width * stride, height * stride)
        boxes = np.concatenate([corner, corner + size], axis=1)
        boxes[:1, 2:] = boxes[:1, :2]
        return tf.constant(boxes, tf.float64 if dtype == tf.float64 else tf.float32)

    def detection(self, dtype):
        """Yields cases of region pooling with gradients to features and boxes."""
        data_format = self._pick("NHWC", "NCHW")
        bins = int(self._pick(1, 2, 3, 7))
        batch, height, width = (int(n) for n in self._rng.integers(1, 40, size=3) // (10, 1, 1) + (1, 0, 0))
        channels = bins * bins * int(self._pick(1, 2, 3, 8, 17))
        shape = (batch, height, width, channels) if data_format == "NHWC" else (batch, channels, height, width)
        features = self._normal(shape, dtype)
        count, scale = int(self._rng.integers(0, 20)), self._pick(1.0, 0.25)
        boxes = self._boxes(count, height, width, 1 / scale, dtype)
        indices = tf.constant(self._rng.integers(0, batch, size=count), tf.int32)
        common = {"spatial_scale": scale, "data_format": data_format, "box_format": self._pick("xyxy", "yxyx")}
        sampling = {**common, "sampling_ratio": int(self._pick(0, 1, 2))}
        det, run = tfo.detection, self._with_gradients

        def pool(fn, **options):
            return run(lambda f, b: fn(f, b, indices, bins, **options), features, boxes)

        yield "roi_pool", pool(det.roi_pool, **common)
        aligned = self._pick(True, False)
        yield "roi_align_avg", pool(det.roi_align, **sampling, aligned=aligned)
        fixed = {**sampling, "sampling_ratio": sampling["sampling_ratio"] or 1}
        yield "roi_align_max", pool(det.roi_align, **fixed, mode="max", aligned=aligned)
        order = self._pick("channel_major", "bin_major")
        yield "ps_roi_pool", pool(det.ps_roi_pool, **common, channel_order=order)
        yield "ps_roi_align", pool(det.ps_roi_align, **sampling, channel_order=order)
        levels = [features, features[:, ::2, ::2] if data_format == "NHWC" else features[:, :, ::2, ::2]]
        yield (
            "multiscale_roi_align",
            run(
                lambda *a: det.multiscale_roi_align(
                    a[:2],
                    a[2],
                    indices,
                    bins,
                    strides=[4, 8],
                    data_format=data_format,
                    canonical_box_size=30.0,
                    canonical_stride=4,
                ),
                *levels,
                boxes,
            ),
        )
        yield "zero_out", run(tfo.zero_out, features)

    def masks(self, dtype):
        """Yields cases of distances and components."""
        shape = [int(n) for n in self._rng.integers(1, 200, size=4) // (60, 1, 1, 60) + (1, 0, 0, 1)]
        images = tf.constant(self._rng.integers(0, 3, shape) * (self._rng.random(shape) < self._pick(0.5, 0.999)))
        spacing = self._pick((1.0, 1.0), (0.5, 2.0), (0.3, 0.7))
        yield (
            "euclidean_distance_transform",
            tfo.image.euclidean_distance_transform(images, spacing=spacing, dtype=dtype),
        )
        yield "connected_components", tfo.image.connected_components(images, connectivity=self._pick(4, 8))

    def sampling(self, dtype):
        """Yields cases of sampling, correlation and deformable ops, NHWC."""
        batch, height, width = (int(n) for n in self._rng.integers(1, 60, size=3) // (15, 1, 1) + (1, 0, 0))
        channels = int(self._pick(1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 33, 64))
        images = self._normal([batch, height, width, channels], dtype)
        value = tf.float64 if dtype == tf.float64 else tf.float32
        wild = tf.cast(self._pick(np.nan, np.inf, 1e10, 0), value)

        def places(shape, scale):
            return tf.where(self._rng.random(shape) < 0.01, wild, self._normal(shape, value, scale))

        run = self._with_gradients
        options = {
            "padding_mode": self._pick("zeros", "border", "reflection"),
            "align_corners": self._pick(True, False),
        }
        grid = places([batch, int(self._rng.integers(1, 3000)), 2], self._pick(0.3, 1.0))
        for mode in ("bilinear", "nearest", "bicubic"):
            yield (
                f"grid_sample_{mode}",
                run(lambda f, g, mode=mode: tfo.image.grid_sample(f, g, mode=mode, **options), images, grid),
            )
        flow = places([batch, height, width, 2], 3.0)
        yield "dense_image_warp", run(tfo.image.dense_image_warp, images, flow)
        reach, kernel = int(self._rng.integers(0, 5)), int(self._pick(1, 1, 3))
        strides = {"stride_1": int(self._pick(1, 1, 2, 3)), "stride_2": int(self._pick(1, 2))}
        other = tf.where(
            self._rng.random(images.shape) < 0.001, tf.cast(wild, dtype), self._normal(images.shape, dtype)
        )
        yield (
            "correlation_cost",
            run(
                lambda a, b: tfo.image.correlation_cost(
                    a, b, max_displacement=reach, kernel_size=kernel, padding=reach + kernel // 2, **strides
                ),
                images,
                other,
            ),
        )
        offset_groups = self._pick(1, channels)
        offsets = places([batch, height, width, offset_groups * 9 * 2], 2.0)
        filters = self._normal([3, 3, channels, int(self._pick(1, 8, 20))], dtype)
        yield "deform_conv2d", run(lambda *a: tfo.nn.deform_conv2d(*a, padding=1), images, offsets, filters)
        heads, points, queries = (int(n) for n in self._rng.integers(1, 9, size=3))
        values = self._normal([batch, height * width + 1, heads, channels], dtype)
        weights = self._normal([batch, queries, heads, 2, points], value)
        locations = places([*weights.shape, 2], 1.0)
        yield (
            "multiscale_deformable_attention",
            run(
                lambda *a: tfo.nn.multiscale_deformable_attention(a[0], [[height, width], [1, 1]], *a[1:]),
                values,
                locations,
                weights,
            ),
        )

    def sequence(self, dtype):
        """Yields cases of the sequence losses and of conditional random fields."""
        batch, frames = int(self._rng.integers(1, 20)), int(self._rng.integers(1, 90))
        size = int(self._pick(2, 5, 20, 33, 130, 700))
        scale = self._pick(1.0, 30.0, 1e4)
        logits = self._normal([batch, frames, size], dtype, scale)
        if self._pick(True, False):
            bad = tf.cast(self._pick(-np.inf, np.nan), dtype)
            logits = tf.where(self._rng.random(logits.shape) < 0.01, bad, logits)
        longest = int(self._rng.integers(0, 30))
        labels = tf.constant(self._rng.integers(1, size, size=(batch, longest)), tf.int32)
        label_lengths = tf.constant(self._rng.integers(0, longest + 1, size=batch), tf.int32)
        lengths = tf.constant(self._rng.integers(1, frames + 1, size=batch), tf.int32)
        nn, run = tfo.nn, self._with_gradients
        yield "ctc_loss", run(lambda x: nn.ctc_loss(labels, x, label_lengths, lengths), logits)
        nodes = self._normal([2, min(frames, 20), longest + 1, min(size, 130)], dtype, scale)
        of_nodes = labels[:1] % (nodes.shape[3] - 1) + 1, [longest], [nodes.shape[1]]
        yield "rnnt_loss", run(lambda x: nn.rnnt_loss(of_nodes[0], x[:1], *of_nodes[1:]), nodes)
        tags = logits[:, :, : min(size, 130)]
        value = tf.float64 if dtype == tf.float64 else tf.float32
        transitions = self._normal([tags.shape[2]] * 2, value, scale)
        path = tf.constant(self._rng.integers(0, tags.shape[2], size=(batch, frames)), tf.int32)
        options = {"lengths": lengths}
        yield (
            "crf_log_likelihood",
            run(lambda x, a: nn.crf_log_likelihood(path, x, a, **options), tags, transitions),
        )
        yield "crf_marginals", nn.crf_marginals(tags, transitions, **options)
        yield "crf_decode", nn.crf_decode(tags, transitions, **options)


def _save(path, rounds, seed):
    cases, digests = _Cases(seed), {}
    for i in range(rounds):
        for dtype in _DTYPES:
            for family in (cases.nn, cases.seq2seq, cases.detection, cases.masks, cases.sampling, cases.sequence):
                for name, results in family(dtype):
                    key = f"{name} {dtype.name} {i}"
                    digests[key] = [_digest(r) for r in tf.nest.flatten(results) if r is not None]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(digests, file, indent=0)
    print(f"{len(digests)} cases")


def _compare(before, after):
    """Returns the number of cases that differ."""
    results = []
    for path in (before, after):
        with open(path, encoding="utf-8") as file:
            results.append(json.load(file))
    old, new = results
    if old.keys() != new.keys():
        sys.exit("The files contain different cases.")
    different = [key for key in old if old[key] != new[key]]
    for key in different:
        print("different:", key)
    print(f"{len(old) - len(different)} of {len(old)} cases have the same bits")
    return len(different)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    save = commands.add_parser("save")
    save.add_argument("path")
    save.add_argument("--rounds", type=int, default=20)
    save.add_argument("--seed", type=int, default=0)
    compare = commands.add_parser("compare")
    compare.add_argument("before")
    compare.add_argument("after")
    args = parser.parse_args()
    if args.command == "save":
        _save(args.path, args.rounds, args.seed)
    else:
        sys.exit(_compare(args.before, args.after) > 0)


if __name__ == "__main__":
    main()
