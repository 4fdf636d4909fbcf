"""Tests of beam_search_step's arguments and of batch_gather. C++ tests prove beam_search_step and gather_tree."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo


class BeamSearchStepTest(tf.test.TestCase):
    def test_lists_and_other_dtypes_and_a_beam_width_that_is_a_tensor(self):
        step = tfo.seq2seq.beam_search_step(
            np.zeros([1, 1, 2]),
            np.zeros([1, 1], np.float32),
            [[False]],
            np.zeros([1, 1], np.int64),
            eos_ids=np.int64(0),
            beam_width=tf.constant(3),
        )
        self.assertEqual(step.log_probs.dtype, tf.float64)
        self.assertAllClose(step.log_probs, [[-math.log(2), -math.log(2), -math.inf]], rtol=1e-15)

    def test_length_penalty_has_64_bits(self):
        """With a penalty of 0.7 in float32, the two candidates would swap."""
        lengths, log_probs = [[1, 7]], np.array([[-1.0, -((12 / 6) ** 0.7) * (1 + 1e-9)]]) + math.log(1)
        step = tfo.seq2seq.beam_search_step(
            np.zeros([1, 2, 1]), log_probs, [[True, True]], lengths, eos_ids=0, length_penalty=0.7, beam_width=1
        )
        self.assertAllEqual(step.parent_ids, [[0]])


class BatchGatherTest(parameterized.TestCase, tf.test.TestCase):
    @pairwise(
        shapes=(
            ([5], [3]),
            ([2, 5], [2, 3]),
            ([2, 5, 4], [2, 3]),
            ([2, 3, 5, 2], [2, 3, 4]),
            ([0, 5], [0, 3]),
            ([2, 5], [2, 0]),
        ),
        index=(tf.int32, tf.int64, tf.int16),
        known=(True, False),
    )
    def test_equals_take_along_axis(self, shapes, index, known):
        rng = np.random.default_rng(0)
        params, indices = rng.normal(size=shapes[0]), rng.integers(0, 5, shapes[1])
        rest = len(shapes[0]) - len(shapes[1])
        expected = np.take_along_axis(params, indices.reshape([*indices.shape, *[1] * rest]), len(shapes[1]) - 1)
        function = tfo.seq2seq.batch_gather
        if not known:
            function = tf.function(
                function, input_signature=[tf.TensorSpec(None, tf.float64), tf.TensorSpec(None, index)]
            )
        result = function(tf.constant(params), tf.cast(indices, index))
        self.assertAllEqual(result, expected)


if __name__ == "__main__":
    tf.test.main()
