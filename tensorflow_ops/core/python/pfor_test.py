"""Tests of ops under vectorized_map where an input without a batch differs between iterations."""

import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_MASKS = tf.constant([[[True, False, True], [True, True, True]]])
_BOXES = tf.constant([[[0.0, 0, 4, 4], [1, 0, 5, 4], [2, 0, 6, 4]]])
_SCORES = tf.constant([[[0.9], [0.8], [0.7]]])
_TREE = tf.constant([[[1, 2]], [[3, 4]]])
_LOGITS, _TRANSITIONS = tf.constant([[[0.5, 0.1], [0.2, 0.4]]]), tf.constant([[0.0, 1.0], [2.0, 0.0]])

_CASES = {
    "spacing": (lambda s: tfo.image.euclidean_distance_transform(_MASKS, spacing=s), [[1.0, 2.0], [3.0, 1.0]]),
    "iou_threshold": (lambda t: tfo.detection.multiclass_nms(_BOXES, _SCORES, iou_threshold=t).counts, [0.1, 0.5, 0.9]),
    "pad_id": (lambda pad: tfo.seq2seq.gather_tree(_TREE, tf.zeros_like(_TREE), [[1, 2]], pad_id=pad), [7, 8]),
    "transitions": (lambda t: tfo.nn.crf_decode(_LOGITS, t).scores, tf.stack([_TRANSITIONS, -_TRANSITIONS])),
}


class SharedInputsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(*_CASES)
    def test_that_differ_give_the_results_of_a_loop(self, name):
        function, values = _CASES[name]
        values = tf.convert_to_tensor(values)
        mapped = tf.vectorized_map(function, values, fallback_to_while_loop=False)
        self.assertNotAllEqual(mapped[0], mapped[-1])
        self.assertAllEqual(mapped, tf.stack([function(value) for value in values]))


if __name__ == "__main__":
    tf.test.main()
