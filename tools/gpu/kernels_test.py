"""Checks that each kernel gets its options and buffers. The values themselves are tested by the families' C++ tests."""

import pathlib
import unittest

import numpy as np
from kernel_library import KernelLibrary

RUN = KernelLibrary(pathlib.Path(__file__).with_name("emulated_kernels.so"))
RANDOM = np.random.default_rng(1)

# Options.
BOXES = {"boxes": 1, "pooled_height": 1, "pooled_width": 1, "scale": 1}
MAP = {"dtype": "float32", "batch": 1, "height": 4, "width": 6, "channels": 1, **BOXES}
ROWS = {"dtype": "float32", "rows": 5, "classes": 7}
SAMPLED = {"dtype": "float32", "batch": 1, "height": 2, "width": 3, "channels": 1}
MASK = {"batch": 1, "height": 2, "width": 4, "channels": 1, "bytes": 1}


def call(kernel, *arrays, **options):
    scratch = np.full(1 << 16, np.nan)
    buffers = [None if array is None else array.ctypes.data for array in arrays]
    RUN(kernel, buffers, scratch=scratch.ctypes.data, scratch_bytes=scratch.nbytes, **options)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def like(array):
    return np.full_like(array, 99)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class RegionTest(unittest.TestCase):
    BOX = np.array([[1, 1, 3, 3]], np.float32)  # x1, y1, x2, y2
    IMAGE = np.zeros(1, np.int32)

    def setUp(self):
        y, x = np.mgrid[:4, :6]
        self.features = (10 * y + x).astype(np.float32)[None, ..., None]

    def test_zero_out(self):
        x = normal(9)
        y = like(x)
        call("zero_out", x, y, elements=9, bytes=4, keep=2)
        np.testing.assert_array_equal(y, np.where(np.arange(9) == 2, x, 0))

    def test_roi_pool(self):
        y, argmax, d = np.zeros(1, np.float32), np.zeros(1, np.int32), like(self.features)
        call("roi_pool", self.features, self.BOX, self.IMAGE, y, argmax, **MAP)
        self.assertEqual((y.item(), argmax.item()), (33, 3 * 6 + 3))
        call("roi_pool_grad", y, argmax, self.BOX, self.IMAGE, d, **MAP)
        np.testing.assert_array_equal(d, np.where(self.features == 33, 33, 0))
        second = like(y)
        call("roi_pool_grad_grad", self.features + 1, argmax, self.BOX, self.IMAGE, second, **MAP)
        self.assertEqual(second.item(), 34)

    def test_average(self):
        options = dict(MAP, ratio=2, aligned=True)
        y, d, d_box = np.zeros(1, np.float32), like(self.features), like(self.BOX)
        call("roi_average", self.BOX, self.IMAGE, y, self.features, **options)
        self.assertEqual(y.item(), 16.5)  # at (1.5, 1.5)
        for deterministic in (False, True):
            d = like(self.features)
            call("roi_average_grad", self.BOX, self.IMAGE, y, d, deterministic=deterministic, **options)
            self.assertAlmostEqual(d.sum(), 16.5, places=4)
            self.assertAlmostEqual((d * self.features).sum(), 16.5**2, places=3)
        call("roi_average_boxes_grad", self.BOX, self.IMAGE, np.ones(1, np.float32), d_box, self.features, **options)
        np.testing.assert_allclose(d_box, [[0.5, 5, 0.5, 5]])

    def test_average_options(self):
        small = self.features[:, ::2, ::2].copy()
        y = np.zeros(1, np.float32)
        # The box's side is 2: with 0.5 pixels of a map it belongs to the second.
        levels = dict(ratio=1, aligned=True, levels=2, smallest_box=0.5)
        call("roi_average", self.BOX, self.IMAGE, y, self.features, small, **MAP, **levels)
        self.assertEqual(y.item(), 0.5 * 22 + 0.5 * 0)  # at (0.5, 0.5)
        sizes = dict(MAP, channels=4, pooled_height=2, pooled_width=2)
        planes = np.broadcast_to(np.arange(4, dtype=np.float32), (1, 4, 6, 4)).copy()
        y = np.zeros(4, np.float32)
        for bins in ("pixels", "samples"):
            for order in ("channel_major", "bin_major"):
                call("roi_average", self.BOX, self.IMAGE, y, planes, bins=bins, order=order, ratio=2, **sizes)
                np.testing.assert_array_equal(y, np.arange(4))

    def test_maximum(self):
        options = dict(MAP, ratio=2, aligned=True)
        y, second, d, d_box = np.zeros(1, np.float32), np.zeros(1, np.float32), like(self.features), like(self.BOX)
        call("roi_align_max", self.features, self.BOX, self.IMAGE, y, **options)
        self.assertEqual(y.item(), 22)  # at (2, 2)
        call("roi_align_max_grad", y, self.features, self.BOX, self.IMAGE, d, **options)
        np.testing.assert_array_equal(d, np.where(self.features == 22, 22, 0))
        call("roi_align_max_grad_grad", self.features + 1, self.features, self.BOX, self.IMAGE, second, **options)
        self.assertEqual(second.item(), 23)
        call("roi_align_max_boxes_grad", np.ones(1, np.float32), self.features, self.BOX, self.IMAGE, d_box, **options)
        np.testing.assert_allclose(d_box, [[0.25, 2.5, 0.75, 7.5]])


class RowsTest(unittest.TestCase):
    def setUp(self):
        self.x, self.labels = normal(5, 7), np.array([0, 6, 3, 2, 1], np.int32)
        self.p = softmax(self.x.astype(np.float64))
        self.d = normal(5)
        self.rows = [like(self.d) for _ in range(4)]
        self.to = like(self.x)

    def near(self, actual, expected):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)

    def test_softmax(self):
        call("softmax", self.x, self.to, **ROWS)
        self.near(self.to, self.p)
        gradient, d = like(self.x), normal(5, 7)
        call("softmax_grad", d, self.to, gradient, **ROWS)
        self.near(gradient, self.p * (d - (d * self.p).sum(-1, keepdims=True)))
        call("softmax", self.x, self.to, log=True, **ROWS)
        self.near(self.to, np.log(self.p))

    def test_entropy(self):
        entropy, largest, rest, _ = self.rows
        call("entropy", self.x, entropy, largest, rest, **ROWS)
        self.near(entropy, -(self.p * np.log(self.p)).sum(-1))
        self.near(largest, self.x.max(-1))
        self.near(1 + rest, 1 / self.p.max(-1))
        call("entropy_grad", self.d, self.x, entropy, largest, rest, self.to, **ROWS)
        self.near(self.to, -self.d[:, None] * self.p * (np.log(self.p) + entropy[:, None]))

    def test_label_loss(self):
        loss, largest, rest, _ = self.rows
        one_hot = np.eye(7)[self.labels]
        for labels, name in ((self.labels, None), (self.labels.astype(np.int64), "int64")):
            call("label_loss", self.x, labels, loss, largest, rest, labels=name, **ROWS)
            self.near(loss, -np.log(self.p[np.arange(5), self.labels]))
            call("label_loss_grad", self.d, self.x, labels, largest, rest, self.to, labels=name, **ROWS)
            self.near(self.to, self.d[:, None] * (self.p - one_hot))
        options = dict(ignore_index=6, label_smoothing=0.1, z_loss=0.2, log_prob=True)
        call("label_loss", self.x, self.labels, loss, largest, rest, **options, **ROWS)
        log_sum = np.log(np.exp(self.x).sum(-1))
        smooth = -((0.9 * one_hot + 0.1 / 7) * np.log(self.p)).sum(-1) + 0.2 * log_sum**2
        self.near(loss, np.where(self.labels == 6, 0, -smooth))

    def test_cross_entropy(self):
        loss, largest, rest, total = self.rows
        targets = np.abs(normal(5, 7))
        smooth = 0.9 * targets + 0.1 / 7
        call("cross_entropy", targets, self.x, *self.rows, label_smoothing=0.1, **ROWS)
        self.near(loss, -(smooth * np.log(self.p)).sum(-1))
        to_targets = like(self.x)
        buffers = (self.d, targets, self.x, largest, rest, total, self.to, to_targets)
        call("cross_entropy_grad", *buffers, label_smoothing=0.1, **ROWS)
        self.near(self.to, self.d[:, None] * (self.p * smooth.sum(-1, keepdims=True) - smooth))
        self.near(to_targets, -self.d[:, None] * 0.9 * np.log(self.p))

    def test_gaussian_kl(self):
        q_mean, q_log, p_mean, p_log = (normal(5, 7) for _ in range(4))
        divergence = self.rows[0]
        ratio, distance = np.exp(q_log - p_log), q_mean - p_mean
        call("gaussian_kl", q_mean, q_log, p_mean, p_log, divergence, **ROWS)
        self.near(divergence, 0.5 * (ratio - 1 - q_log + p_log + distance**2 * np.exp(-p_log)).sum(-1))
        to = [like(self.x) for _ in range(4)]
        call("gaussian_kl_grad", self.d, q_mean, q_log, p_mean, p_log, *to, **ROWS)
        d_means = distance * np.exp(-p_log)
        expected = (d_means, (ratio - 1) / 2, -d_means, (1 - ratio - distance * d_means) / 2)
        for actual, of_row in zip(to, expected, strict=True):
            self.near(actual, self.d[:, None] * of_row)
        call("unit_gaussian_kl", q_mean, q_log, divergence, **ROWS)
        self.near(divergence, 0.5 * (np.exp(q_log) - 1 - q_log + q_mean**2).sum(-1))
        call("unit_gaussian_kl_grad", self.d, q_mean, q_log, *to[:2], **ROWS)
        self.near(to[0], self.d[:, None] * q_mean)
        self.near(to[1], self.d[:, None] * (np.exp(q_log) - 1) / 2)


class BeamsTest(unittest.TestCase):
    def test_step(self):
        logits, log_probs = normal(2, 3, 9), normal(2, 3)
        finished, lengths, eos = np.zeros((2, 3), bool), np.ones((2, 3), np.int32), np.array([0], np.int32)
        outputs = [np.zeros((2, 4), dtype) for dtype in (np.float32, np.int32, np.int32, bool, np.int32)]
        sizes = dict(batch=2, beams=3, vocabulary=9, beam_width=4, num_eos=1, length_penalty=0)
        call("beam_search_step", logits, log_probs, finished, lengths, eos, None, *outputs, dtype="float32", **sizes)
        scores = (np.log(softmax(logits)) + log_probs[..., None]).reshape(2, -1)
        best = np.argsort(-scores)[:, :4]
        np.testing.assert_allclose(outputs[0], np.take_along_axis(scores, best, 1), rtol=1e-5)
        np.testing.assert_array_equal(outputs[1], best % 9)
        np.testing.assert_array_equal(outputs[2], best // 9)
        np.testing.assert_array_equal(outputs[3], best % 9 == 0)

    def test_gather_tree(self):
        for dtype in (np.int32, np.int64):
            tokens = np.array([[[1, 2]], [[3, 4]], [[5, 6]]], dtype)
            parents = np.array([[[0, 0]], [[1, 0]], [[1, 1]]], dtype)
            y, lengths = like(tokens), np.array([[3, 2]], np.int32)
            options = {"time": 3, "batch": 1, "beams": 2, "pad_id": -7, "ids": np.dtype(dtype).name}
            call("gather_tree", tokens, parents, lengths, y, **options)
            np.testing.assert_array_equal(y[:, 0], [[1, 1], [4, 4], [5, -7]])


class ErrorsTest(unittest.TestCase):
    def test_wrong_calls(self):
        x = normal(1, 40000)
        for kernel, options, text in (
            ("softmin", {}, "softmin: no such kernel"),
            ("softmax", dict(dtype="float32", rows=1, classes=9, axis=1), "softmax: unknown option: axis"),
            ("softmax", dict(dtype="int32", rows=1, classes=9), "unknown dtype: int32"),
            ("softmax", dict(dtype="float32", rows="x", classes=9), "stod|not a number"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                call(kernel, x, like(x), **options)
        with self.assertRaisesRegex(ValueError, "needs .* bytes of scratch memory"):
            RUN("softmax", [x.ctypes.data, x.ctypes.data], dtype="float32", rows=1, classes=40000)


class MaskTest(unittest.TestCase):
    IMAGE = np.array([[0, 3, 3, 0], [3, 0, 0, 3]], np.uint8)

    def test_distance_transform(self):
        y = np.full((2, 4), 99, np.float32)
        spacing = dict(row_spacing=2, column_spacing=3)
        call("distance_transform", self.IMAGE, y, dtype="float32", is_float=False, **spacing, **MASK)
        np.testing.assert_array_equal(y, [[0, 2, 2, 0], [2, 0, 0, 2]])

    def test_connected_components(self):
        labels, count = np.full((2, 4), 99, np.int32), np.full(1, 99, np.int32)
        call("connected_components", self.IMAGE, labels, count, connectivity=4, **MASK)
        np.testing.assert_array_equal((count.item(), *labels.ravel()), (3, 0, 1, 1, 0, 2, 0, 0, 3))
        call("connected_components", self.IMAGE, labels, count, connectivity=8, **MASK)
        np.testing.assert_array_equal((count.item(), *labels.ravel()), (1, 0, 1, 1, 0, 1, 0, 0, 1))


class BoxesTest(unittest.TestCase):
    BOXES = np.array([[0, 0, 4, 2], [0, 0, 4, 4], [9, 9, 10, 10]], np.float32)
    SCORES = np.array([0.5, 0.25, 0.75], np.float32)

    def test_overlaps(self):
        iou, d_overlaps, grads = np.full((3, 3), 99, np.float32), np.eye(3, dtype=np.float32), np.zeros((4, 3, 4))
        pairs = {"dtype": "float32", "batch": 1, "rows": 3, "columns": 3}
        call("box_iou", self.BOXES, self.BOXES, iou, mode="iou", **pairs)
        np.testing.assert_array_equal(iou, [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])
        others = self.BOXES[[1, 0, 2]].copy()
        loss, d_loss = np.full(3, 99, np.float32), np.array([1, 2, 3], np.float32)
        boxes = {"dtype": "float32", "boxes": 3, "mode": "giou"}
        call("box_iou_loss", self.BOXES, others, loss, **boxes)
        np.testing.assert_array_equal(loss, [0.5, 0.5, 0])
        grads = grads.astype(np.float32)
        call("box_iou_loss_grad", d_loss, self.BOXES, others, grads[0], grads[1], **boxes)
        # Equal corners share the gradients of intersection and hull.
        np.testing.assert_allclose(grads[0, 0], [-0.03125, 0.0625, 0.03125, -0.25], atol=1e-6)
        call("box_iou_grad", d_overlaps * d_loss, self.BOXES, self.BOXES, grads[2], grads[3], mode="iou", **pairs)
        np.testing.assert_allclose(grads[2:], 0, atol=1e-6)

    def test_suppression(self):
        indices, count, decayed = np.full(3, 99, np.int32), np.full(1, 99, np.int32), np.zeros(3, np.float32)
        limits = {"dtype": "float32", "boxes": 3, "iou_threshold": 0.4, "max_outputs": -1}
        call("nms", self.BOXES, self.SCORES, None, indices, count, score_threshold="nan", **limits)
        np.testing.assert_array_equal([*count, *indices[:2]], [2, 2, 0])
        groups = np.array([1, 5, 1], np.int64)
        call("nms", self.BOXES, self.SCORES, groups, indices, count, score_threshold=0.3, **limits)
        np.testing.assert_array_equal([*count, *indices[:2]], [2, 2, 0])
        for method, factor in (("gaussian", np.exp(-0.25 / 0.5)), ("linear", 0.5)):
            options = {**limits, "score_threshold": 0, "sigma": 0.5, "method": method}
            call("soft_nms", self.BOXES, self.SCORES, indices, decayed, count, **options)
            np.testing.assert_array_equal([*count, *indices], [3, 2, 0, 1])
            np.testing.assert_allclose(decayed, [0.75, 0.5, 0.25 * factor], rtol=1e-6)

    def test_multiclass_suppression(self):
        scores = np.array([[0.5, 0.9], [0.25, 0], [0.75, 0]], np.float32)
        found = [np.full(4, 99, np.int32) for _ in range(3)]
        count = np.full(1, 99, np.int32)
        options = {"dtype": "float32", "batch": 1, "boxes": 3, "classes": 2, "iou_threshold": 0.4}
        options |= {"score_threshold": 0, "max_outputs": 4, "max_outputs_per_class": -1}
        call("multiclass_nms", self.BOXES, scores, *found, count, **options)
        np.testing.assert_array_equal(found, [[0, 2, 0, -1], [1, 0, 0, 0], [1, 4, 0, 0]])
        self.assertEqual(count.item(), 3)


class SamplingTest(unittest.TestCase):
    IMAGE = np.array([[1, 2, 3], [4, 5, 6]], np.float32)

    def test_grid_sample(self):
        grid, y, d = np.array([[0.5, 1], [1, 0]], np.float32), np.zeros(2, np.float32), np.array([1, 2], np.float32)
        options = dict(SAMPLED, samples=2, coordinates="pixels")
        call("grid_sample", self.IMAGE, grid, None, y, **options)
        np.testing.assert_array_equal(y, [4.5, 2])
        call("grid_sample", self.IMAGE, grid, np.ones_like(grid), y, **options)
        # Below the image is 0.
        np.testing.assert_array_equal(y, [1 - 4.5, 1 + 3])
        call("grid_sample", self.IMAGE, grid, None, y, mode="nearest", padding="border", **options)
        self.assertEqual(y[1], 2)
        d_image, d_grid = like(self.IMAGE), like(grid)
        for deterministic in (False, True):
            call("grid_sample_grad", d, grid, d_image, deterministic=deterministic, **options)
            np.testing.assert_array_equal(d_image, [[0, 2, 0], [0.5, 0.5, 0]])
        call("grid_sample_grid_grad", d, self.IMAGE, grid, d_grid, **options)
        np.testing.assert_array_equal(d_grid, [[1, -4.5], [2, 6]])
        flow, y = np.zeros((2, 3, 2), np.float32), like(self.IMAGE)
        flow[..., 1] = 1
        options |= {"samples": 6, "flow_columns": 3, "coordinates": "flow", "padding": "border"}
        call("grid_sample", self.IMAGE, flow, None, y, **options)
        np.testing.assert_array_equal(y, self.IMAGE[:, [0, 0, 1]])

    def test_correlation_cost(self):
        options = dict(SAMPLED, max_displacement=1, kernel_size=1, stride_1=1, stride_2=1, padding=1)
        ones, costs, gradient = np.ones_like(self.IMAGE), np.zeros((2, 3, 9), np.float32), like(self.IMAGE)
        call("correlation_cost", ones, self.IMAGE, costs, **options)
        np.testing.assert_array_equal(costs[0, 1], [0, 0, 0, 1, 2, 3, 4, 5, 6])
        call("correlation_cost_grad", np.ones_like(costs), self.IMAGE, gradient, to_b=False, **options)
        np.testing.assert_array_equal(gradient, [[12, 21, 16], [12, 21, 16]])
        call("correlation_cost_grad", np.ones_like(costs), ones, gradient, to_b=True, **options)
        np.testing.assert_array_equal(gradient, [[4, 6, 4], [4, 6, 4]])

    def test_deform_conv(self):
        options = dict(SAMPLED, filters=1, kernel_size=1, stride=1, padding=0, dilation=1, groups=1, offset_groups=1)
        offsets, mask = np.zeros((2, 3, 2), np.float32), np.full((2, 3), 0.5, np.float32)
        offsets[..., 1] = 0.5
        filters, bias, y = np.array([2], np.float32), np.array([1], np.float32), like(self.IMAGE)
        inputs = (self.IMAGE, offsets, filters, mask, bias)
        expected = np.array([[1.5, 2.5, 1.5], [4.5, 5.5, 3]])  # samples; outside is 0
        call("deform_conv", *inputs, y, **options)
        np.testing.assert_array_equal(y, 1 + expected)
        call("deform_conv", *inputs[:3], None, None, y, **options)
        np.testing.assert_array_equal(y, 2 * expected)
        for deterministic in (False, True):
            grads = [like(x) for x in inputs]
            call("deform_conv_grad", *inputs, np.ones_like(y), *grads, deterministic=deterministic, **options)
            np.testing.assert_array_equal(grads[0], [[0.5, 1, 1]] * 2)
            np.testing.assert_array_equal(grads[1][..., 1], [[1, 1, -3], [1, 1, -6]])
            self.assertEqual((grads[2].item(), grads[4].item()), (0.5 * expected.sum(), 6))
            np.testing.assert_array_equal(grads[3], 2 * expected)

    def test_attention(self):
        sizes = {"dtype": "float32", "batch": 1, "heads": 1, "channels": 1, "queries": 1, "levels": 2, "points": 1}
        options = sizes | {"height0": 2, "width0": 3, "height1": 1, "width1": 1}
        values = np.append(self.IMAGE, 10).astype(np.float32)
        # The middle of each level.
        inputs = (values, np.full((2, 2), 0.5, np.float32), np.array([2, 3], np.float32))
        y, d = np.zeros(1, np.float32), np.ones(1, np.float32)
        call("deformable_attention", *inputs, y, **options)
        self.assertEqual(y.item(), 2 * 3.5 + 3 * 10)
        for deterministic in (False, True):
            grads = [like(x) for x in inputs]
            call("deformable_attention_grad", d, *inputs, *grads, deterministic=deterministic, **options)
            np.testing.assert_array_equal(grads[0], [0, 1, 0, 0, 1, 0, 3])
            np.testing.assert_array_equal(grads[1][0], [3 * 2 * 1, 2 * 2 * 3])
            np.testing.assert_array_equal(grads[2], [3.5, 10])


class SequencesTest(unittest.TestCase):
    HALVES = np.zeros((1, 2, 2), np.float32)  # logits of two frames and two classes
    ONE, TWO = np.ones(1, np.int32), np.full(1, 2, np.int32)

    def near(self, actual, expected):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)

    def test_ctc_loss(self):
        options = {"dtype": "float32", "batch": 1, "frames": 2, "max_labels": 1, "classes": 2, "blank": 0}
        loss, largest, rest, d = np.zeros(1, np.float32), like(normal(2)), like(normal(2)), like(self.HALVES)
        for name, dtype in ((None, np.int32), ("int64", np.int64)):
            ints = [x.astype(dtype) for x in (self.ONE, self.ONE, self.TWO)]
            call("ctc_loss", self.HALVES, *ints, loss, largest, rest, labels=name, **options)
            self.near(loss, -np.log(0.75))  # all but two blanks
            call("ctc_loss_grad", self.HALVES, *ints, np.ones_like(loss), largest, rest, d, labels=name, **options)
            self.near(d, [[[1 / 6, -1 / 6]] * 2])

    def test_ctc_decode(self):
        logits, lengths = np.log([[[0.6, 0.4], [0.6, 0.4]]]).astype(np.float32), self.TWO
        options = {"dtype": "float32", "batch": 1, "frames": 2, "classes": 2, "blank": 0, "pad_id": -1}
        labels, count, log_prob = np.zeros((1, 2), np.int32), like(self.ONE), np.zeros(1, np.float32)
        call("ctc_greedy_decode", logits, lengths, labels, count, log_prob, merge_repeated=True, **options)
        self.assertEqual((labels.tolist(), count.item()), ([[-1, -1]], 0))
        self.near(np.exp(log_prob), 0.36)
        found = np.zeros((1, 2, 2), np.int32), np.zeros((1, 2), np.int32)
        scores = np.zeros((1, 2), np.float32), np.zeros((1, 2), np.float32)
        call("ctc_beam_search", logits, lengths, *found, *scores, beam_width=4, top_paths=2, **options)
        self.assertEqual(found[0].tolist(), [[[1, -1], [-1, -1]]])
        self.assertEqual(found[1].tolist(), [[1, 0]])
        self.near(np.exp(scores), [[[0.64, 0.36]]] * 2)

    def test_ctc_beam_search_step(self):
        logits, scores = np.log([[0.6, 0.4]]).astype(np.float32), np.full((1, 2, 2), -1, np.float32)
        weights = np.array([[[0, -np.inf, 0], [-np.inf, -np.inf, 0]]])
        prefixes = np.array([[[-1, 0, 0, 0, 0]] * 2])
        results = like(weights), like(prefixes), np.zeros((1, 2), np.int32), np.zeros((1, 2), np.int32)
        options = {"dtype": "float32", "batch": 1, "beam_width": 2, "classes": 2, "blank": 0}
        inputs = logits, np.ones(1, bool), weights, prefixes, scores
        call("ctc_beam_search_step", *inputs, *results, lm_weight=0.5, label_bonus=2, **options)
        self.assertEqual(results[3].tolist(), [[1, -1]])
        self.near(results[0][0, :, 2], [1.5, 0])
        self.near(np.exp(results[0][0, :, :2]), [[0, 0.4], [0.6, 0]])

    def test_rnnt_loss(self):
        options = {"dtype": "float32", "batch": 1, "frames": 2, "max_labels": 1, "classes": 2, "blank": 0}
        logits = np.zeros((1, 2, 2, 2), np.float32)
        ints, loss = (self.ONE, self.ONE, self.TWO), np.zeros(1, np.float32)
        largest, rest, d = like(normal(2, 2)), like(normal(2, 2)), like(logits)
        call("rnnt_loss", logits, *ints, loss, largest, rest, **options)
        self.near(loss, -np.log(2 * 0.5**3))
        call("rnnt_loss_grad", logits, *ints, np.ones_like(loss), largest, rest, d, **options)
        self.near(d, [[[[0, 0], [-0.25, 0.25]], [[0.25, -0.25], [-0.5, 0.5]]]])

    def test_crf(self):
        options = {"dtype": "float32", "batch": 1, "frames": 2, "tags": 2}
        logits, transitions = np.array([[[0, 1], [2, 0]]], np.float32), np.array([[0, 0], [0.5, 0]], np.float32)
        labels, score = np.array([[0, 1]], np.int32), np.zeros(1, np.float32)
        inputs = (logits, transitions, self.TWO)
        paths = np.exp(logits[0, 0][:, None] + transitions + logits[0, 1])
        share = paths / paths.sum()
        call("crf_log_likelihood", *inputs, labels, score, **options)
        self.near(score, np.log(share[0, 1]))
        d_logits, d_transitions, found = like(logits), like(transitions), like(labels)
        call("crf_log_likelihood_grad", *inputs, labels, np.ones_like(score), d_logits, d_transitions, **options)
        marginals = np.array([[share.sum(1), share.sum(0)]])
        self.near(d_logits, np.eye(2)[labels] - marginals)
        self.near(d_transitions, [[0, 1], [0, 0]] - share)
        call("crf_marginals", *inputs, d_logits, **options)
        self.near(d_logits, marginals)
        call("crf_decode", *inputs, found, score, **options)
        np.testing.assert_array_equal((*found[0], *score), (1, 0, 3.5))


if __name__ == "__main__":
    unittest.main()
