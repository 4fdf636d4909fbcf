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


def _regions(**changed):
    return {**_REGIONS, "box_indices": np.zeros([2], np.int32), "output_size": np.int32([2, 2]), **changed}


# Of each way to check shapes: a function, arguments that do not fit, and the error. Samples have all functions' errors.
_BAD_SHAPES = {
    "roi_pool": (tfo.detection.roi_pool, _regions(features=_zeros(4, 4, 4)), r"features must be.*, got \[4,4,4\]"),
    "ps_roi_align": (tfo.detection.ps_roi_align, _regions(output_size=_zeros(3, dtype=np.int32)), "output_size"),
    "sparse_softmax_cross_entropy": (
        tfo.nn.sparse_softmax_cross_entropy,
        {"labels": _zeros(3, dtype=np.int32), "logits": _LOGITS},
        "labels (are|must)",
    ),
    "gather_tree": (
        lambda **arguments: tfo.seq2seq.gather_tree(**arguments, pad_id=0),
        {
            "token_ids": _zeros(5, 2, 3, dtype=np.int32),
            "parent_ids": _zeros(5, 2, 3, dtype=np.int32),
            "lengths": _zeros(2, dtype=np.int32),
        },
        "lengths (are|must)",
    ),
    "RoIAlign": (
        lambda features, boxes: tfo.layers.RoIAlign(2)(features, boxes),
        {"features": _zeros(2, 4, 4, 3), "boxes": _zeros(3, 5, 4)},
        "boxes are",
    ),
    "BoxIoU": (
        lambda boxes1, boxes2: tfo.losses.BoxIoU()(boxes1, boxes2),
        {"boxes1": _zeros(3, 4), "boxes2": _zeros(2, 4)},
        "leading dims",
    ),
}


class PublicFunctionsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_BAD_SHAPES)
    def test_mismatched_known_shape_is_a_value_error(self, name):
        function, arguments, message = _BAD_SHAPES[name]
        tensors = {key: tf.constant(value) for key, value in arguments.items()}
        for call in (lambda: function(**tensors), tf.function(lambda: function(**tensors))):
            with self.assertRaisesRegex(ValueError, message) as caught:
                call()
            for added in ("{{", "[Op:", "input shapes"):
                self.assertNotIn(added, str(caught.exception))

    @parameterized.parameters("roi_pool", "ps_roi_align", "sparse_softmax_cross_entropy", "gather_tree")
    def test_mismatch_found_at_run_time_is_an_invalid_argument_error(self, name):
        function, arguments, message = _BAD_SHAPES[name]
        unknown = [tf.TensorSpec(None, value.dtype) for value in arguments.values()]
        graph = tf.function(lambda *values: function(**dict(zip(arguments, values, strict=True))), unknown)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, message) as caught:
            graph(*arguments.values())
        self.assertNotIn("input shapes", str(caught.exception))


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


if __name__ == "__main__":
    tf.test.main()
