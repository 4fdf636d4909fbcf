"""Tests of error types: ValueError for mismatched known shapes, InvalidArgumentError for those found at run time."""

from concurrent import futures

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_REGIONS = {"features": np.zeros([1, 4, 4, 4], np.float32), "boxes": np.zeros([2, 4], np.float32)}
_LOGITS = np.zeros([2, 3], np.float32)


def _zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def _pool(function, **options):
    def call(features, boxes, box_indices, output_size):
        return function(features, boxes, box_indices, output_size, **options)

    return call


def _pyramid(features, coarse, boxes, box_indices, output_size):
    return tfo.detection.multiscale_roi_align([features, coarse], boxes, box_indices, output_size, strides=(4, 8))


def _regions(**changed):
    return {**_REGIONS, "box_indices": np.zeros([2], np.int32), "output_size": np.int32([2, 2]), **changed}


# For each name: a function, arguments with mismatched shapes, and the expected message.
_BAD_SHAPES = {
    "roi_pool": (tfo.detection.roi_pool, _regions(features=_zeros(4, 4, 4)), "features must be"),
    "roi_pool_with_argmax": (tfo.detection.roi_pool_with_argmax, _regions(boxes=_zeros(2, 5)), "boxes must be"),
    "roi_align": (tfo.detection.roi_align, _regions(boxes=_zeros(2)), "boxes must be"),
    "roi_align_max": (
        _pool(tfo.detection.roi_align, sampling_ratio=2, mode="max"),
        _regions(box_indices=_zeros(3, dtype=np.int32)),
        "box_indices must be",
    ),
    "ps_roi_pool": (
        _pool(tfo.detection.ps_roi_pool, data_format="NCHW"),
        _regions(features=_zeros(1, 5, 4, 4)),
        "multiple of",
    ),
    "ps_roi_align": (tfo.detection.ps_roi_align, _regions(output_size=_zeros(3, dtype=np.int32)), "output_size"),
    "multiscale_roi_align": (_pyramid, {**_regions(), "coarse": _zeros(1, 2, 2, 5)}, "the same batch size and"),
    "nms": (tfo.detection.nms, {"boxes": _zeros(2, 4), "scores": _zeros(3), "iou_threshold": 0.5}, "scores must be"),
    "batched_nms": (
        tfo.detection.batched_nms,
        {"boxes": _zeros(2, 5), "scores": _zeros(2), "group_ids": _zeros(2, dtype=np.int32), "iou_threshold": 0.5},
        "boxes must be",
    ),
    "multiclass_nms": (
        tfo.detection.multiclass_nms,
        {"boxes": _zeros(1, 2, 4), "scores": _zeros(1, 3, 2)},
        "boxes must be",
    ),
    "soft_nms": (tfo.detection.soft_nms, {"boxes": _zeros(2, 4), "scores": _zeros(3)}, "scores must be"),
    "softmax": (tfo.nn.softmax, {"logits": _zeros(2, 0)}, "at least one class"),
    "log_prob_from_logits": (tfo.nn.log_prob_from_logits, {"logits": _zeros()}, "at least one dim"),
    "softmax_entropy": (tfo.nn.softmax_entropy, {"logits": _zeros(0, 0)}, "at least one class"),
    "softmax_cross_entropy": (tfo.nn.softmax_cross_entropy, {"labels": _zeros(2, 4), "logits": _LOGITS}, "labels are"),
    "sparse_softmax_cross_entropy": (
        tfo.nn.sparse_softmax_cross_entropy,
        {"labels": _zeros(3, dtype=np.int32), "logits": _LOGITS},
        "labels are",
    ),
    "label_log_prob": (
        tfo.nn.label_log_prob,
        {"labels": _zeros(2, 1, dtype=np.int32), "logits": _LOGITS},
        "labels are",
    ),
    "linear_cross_entropy": (
        tfo.nn.linear_cross_entropy,
        {"features": _zeros(2, 3), "weight": _zeros(4, 5), "labels": _zeros(2, dtype=np.int32)},
        "weight|features",
    ),
    "gaussian_kl": (
        lambda mean, log_variance: tfo.nn.gaussian_kl((mean, log_variance)),
        {
            "mean": _zeros(2, 3),
            "log_variance": _zeros(2, 4),
        },
        "broadcast",
    ),
    "box_iou": (
        tfo.detection.box_iou,
        {"boxes1": _zeros(2, 3, 4), "boxes2": _zeros(3, 3, 4)},
        "boxes2 must have boxes1's leading dims",
    ),
    "box_iou_loss": (
        tfo.detection.box_iou_loss,
        {"boxes1": _zeros(3, 4), "boxes2": _zeros(3, 5)},
        "boxes2 must be",
    ),
    "BoxIoU": (
        lambda boxes1, boxes2: tfo.losses.BoxIoU()(boxes1, boxes2),
        {"boxes1": _zeros(3, 4), "boxes2": _zeros(2, 4)},
        "leading dims",
    ),
    "SparseSoftmaxCrossEntropy": (
        lambda labels, logits: tfo.losses.SparseSoftmaxCrossEntropy()(labels, logits),
        {"labels": _zeros(3, dtype=np.int32), "logits": _LOGITS},
        "labels",
    ),
    "SoftmaxCrossEntropy": (
        lambda labels, logits: tfo.losses.SoftmaxCrossEntropy()(labels, logits),
        {"labels": _zeros(2, 4), "logits": _LOGITS},
        "labels",
    ),
    "crf_log_likelihood": (
        tfo.nn.crf_log_likelihood,
        {"labels": _zeros(2, 3, dtype=np.int32), "logits": _zeros(2, 4, 5), "transitions": _zeros(5, 5)},
        "labels must be",
    ),
    "crf_decode": (
        tfo.nn.crf_decode,
        {"logits": _zeros(2, 4, 5), "transitions": _zeros(5, 4)},
        "transitions must be",
    ),
    "crf_marginals": (
        tfo.nn.crf_marginals,
        {"logits": _zeros(2, 4, 0), "transitions": _zeros(0, 0)},
        "at least one tag",
    ),
    "ctc_loss": (
        tfo.nn.ctc_loss,
        {
            "labels": _zeros(2, 3, dtype=np.int32),
            "logits": _zeros(2, 5, 4),
            "label_lengths": _zeros(2, dtype=np.int32),
            "logit_lengths": _zeros(3, dtype=np.int32),
        },
        "logit_lengths must be",
    ),
    "rnnt_loss": (
        tfo.nn.rnnt_loss,
        {
            "labels": _zeros(2, 3, dtype=np.int32),
            "logits": _zeros(2, 5, 3, 4),
            "label_lengths": _zeros(2, dtype=np.int32),
            "logit_lengths": _zeros(2, dtype=np.int32),
        },
        "logits must be",
    ),
    "beam_search_step": (
        lambda **arguments: tfo.seq2seq.beam_search_step(**arguments, eos_ids=0),
        {
            "logits": _zeros(2, 3, 7),
            "log_probs": _zeros(2, 3),
            "finished": _zeros(2, 3, dtype=bool),
            "lengths": _zeros(2, 4, dtype=np.int32),
        },
        "lengths are",
    ),
    "gather_tree": (
        lambda **arguments: tfo.seq2seq.gather_tree(**arguments, pad_id=0),
        {
            "token_ids": _zeros(5, 2, 3, dtype=np.int32),
            "parent_ids": _zeros(5, 2, 3, dtype=np.int32),
            "lengths": _zeros(2, dtype=np.int32),
        },
        "lengths are",
    ),
    "batch_gather": (
        tfo.seq2seq.batch_gather,
        {"params": _zeros(2, 3), "indices": _zeros(3, 1, dtype=np.int32)},
        "same batch dims",
    ),
    "reshape": (lambda tensor: tfo.shapes.reshape(tensor, [0, 1]), {"tensor": _zeros(2, 3, 4)}, "dims is"),
    "RoIAlign": (
        lambda features, boxes: tfo.layers.RoIAlign(2)(features, boxes),
        {"features": _zeros(2, 4, 4, 3), "boxes": _zeros(3, 5, 4)},
        "boxes are",
    ),
    "Merge": (
        lambda first, second: tfo.layers.Merge(2)([first, second]),
        {"first": _zeros(2, 3), "second": _zeros(4, 3)},
        "broadcast",
    ),
}


class PublicFunctionsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_BAD_SHAPES)
    def test_mismatched_known_shape_is_a_value_error(self, name):
        function, arguments, message = _BAD_SHAPES[name]
        tensors = {key: tf.constant(value) for key, value in arguments.items()}
        with self.assertRaisesRegex(ValueError, message) as caught:
            function(**tensors)
        self.assertNotIn("{{", str(caught.exception))
        self.assertNotIn("[Op:", str(caught.exception))
        with self.assertRaisesRegex(ValueError, message):
            tf.function(lambda: function(**tensors))()

    @parameterized.parameters("roi_pool", "ps_roi_align", "sparse_softmax_cross_entropy", "gather_tree")
    def test_mismatch_found_at_run_time_is_an_invalid_argument_error(self, name):
        function, arguments, _ = _BAD_SHAPES[name]
        unknown = [tf.TensorSpec(None, value.dtype) for value in arguments.values()]
        graph = tf.function(lambda *values: function(**dict(zip(arguments, values, strict=True))), unknown)
        with self.assertRaises(tf.errors.InvalidArgumentError):
            graph(*arguments.values())

    def test_wrong_value_is_an_invalid_argument_error(self):
        regions = _regions(box_indices=np.int32([0, 1]))
        for call, message in (
            (lambda: tfo.detection.roi_align(**regions), r"box_indices\[1\] is 1, expected \[0, 1\)"),
            (lambda: tfo.nn.label_log_prob([3, 0], _LOGITS), r"labels\[0\] is 3, expected \[0, 3\)"),
            (lambda: tfo.zero_out_with_index(_LOGITS, preserve_index=6), r"preserve_index is 6, expected \[0, 6\)"),
        ):
            for function in (call, tf.function(call)):
                with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message):
                    function()


class ShapeCheckTest(tf.test.TestCase):
    """Kernels run the shape function, unless they remember its result for equal shapes."""

    def test_shapes_may_change_from_call_to_call(self):
        for _ in range(2):
            for size in (*range(7), 3):
                self.assertAllEqual(tfo.zero_out(np.ones(size, np.int32)), [1, *[0] * (size - 1)][:size])
                self.assertAllEqual(tfo.zero_out(np.ones([size, 0])), np.ones([size, 0]))
                self.assertEqual(tfo.zero_out(np.int32(size)), size)

    def test_wrong_shapes_are_refused_after_the_same_right_ones(self):
        right = {"boxes": _zeros(2, 4), "scores": _zeros(2), "iou_threshold": 0.5}
        for _ in range(2):
            self.assertAllEqual(tfo.detection.nms(**right), [0, 1])
            with self.assertRaisesRegex(ValueError, "scores must be"):
                tfo.detection.nms(**{**right, "scores": _zeros(3)})

    def test_values_of_sizes_may_change_from_call_to_call(self):
        for _ in range(2):
            for most in (2, 3, 1, 2):
                kept = tfo.detection.multiclass_nms(_zeros(1, 5, 4), _zeros(1, 5, 2), max_outputs=tf.constant(most))
                self.assertEqual(kept.indices.shape, [1, most])

    def test_shapes_may_change_in_a_function_that_does_not_know_them(self):
        function = tf.function(
            lambda *arguments: tfo.detection.roi_pool(*arguments),
            [tf.TensorSpec(None, dtype) for dtype in (tf.float32, tf.float32, tf.int32, tf.int32)],
        )
        for count, size in ((2, [2, 2]), (3, [2, 2]), (3, [4, 1]), (2, [2, 2])):
            regions = _regions(boxes=_zeros(count, 4), box_indices=_zeros(count, dtype=np.int32), output_size=size)
            self.assertEqual(function(*regions.values()).shape, [count, *size, 4])
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "box_indices must be"):
                function(*{**regions, "boxes": _zeros(count + 1, 4)}.values())

    def test_concurrent_calls_with_other_shapes(self):
        """The kernel checks many lengths before it allocates outputs."""
        sizes = range(10**6, 10**6 + 6)
        calls = {n: (tf.zeros([n, 0, 1]), tf.zeros([n], tf.int32)) for n in sizes}

        def call(thread):
            for i in range(10):
                n = sizes[(thread + i) % len(sizes)]
                self.assertEqual(tfo.seq2seq.ctc_greedy_decode(*calls[n]).lengths.shape, [n])
                with self.assertRaisesRegex(ValueError, "logit_lengths must be"):
                    tfo.seq2seq.ctc_greedy_decode(calls[n][0], calls[n][1][1:])

        with futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(call, range(8)))


class GeneratedFunctionsTest(tf.test.TestCase):
    def test_autograph_does_not_warn(self):
        with self.assertNoLogs("tensorflow", "WARNING"):
            self.assertAllEqual(tf.function(lambda x: tfo.zero_out(x))(tf.constant([3, 4])), [3, 0])


if __name__ == "__main__":
    tf.test.main()
