"""Tests of beam_search_step, gather_tree and batch_gather: values, bad input, vectorized_map."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

import tensorflow_ops as tfo

_INF, _NAN = math.inf, math.nan


class BeamSearchStepTest(parameterized.TestCase, tf.test.TestCase):
    def test_finished_beam_has_one_continuation(self):
        step = tfo.seq2seq.beam_search_step(
            tf.fill([1, 2, 3], 0.0), [[-1.0, -2.0]], [[True, False]], [[4, 4]], eos_ids=[2, 1], beam_width=4
        )
        third = -2 - math.log(3)
        self.assertAllClose(step.log_probs, [[-1, third, third, third]])
        self.assertAllEqual(step.token_ids, [[2, 0, 1, 2]])
        self.assertAllEqual(step.parent_ids, [[0, 1, 1, 1]])
        self.assertAllEqual(step.finished, [[True, False, True, True]])
        self.assertAllEqual(step.lengths, [[4, 5, 5, 5]])

    @parameterized.parameters(True, False)
    def test_more_beams_than_tokens_and_candidates(self, is_static):
        width = 50 if is_static else tf.constant(50)
        step = tfo.seq2seq.beam_search_step(
            tf.zeros([1, 9, 2]), [np.arange(9) * -1.0], [[False] * 9], [[0] * 9], eos_ids=1, beam_width=width
        )
        self.assertEqual(step.log_probs.shape, [1, 50])
        self.assertAllEqual(step.parent_ids[0, :18], np.arange(18) // 2)
        self.assertAllEqual(step.log_probs[0, 18:], [-_INF] * 32)
        self.assertAllEqual(step.token_ids[0, 18:], [1] * 32)

    def test_lists_and_other_dtypes(self):
        step = tfo.seq2seq.beam_search_step(
            np.zeros([1, 1, 2]),
            np.zeros([1, 1], np.float32),
            [[False]],
            np.zeros([1, 1], np.int64),
            eos_ids=np.int64(0),
        )
        self.assertEqual(step.log_probs.dtype, tf.float64)
        self.assertAllClose(step.log_probs, [[-math.log(2)]], rtol=1e-15)

    def test_length_penalty_has_64_bits(self):
        """With a penalty of 0.7 in float32, the two candidates would swap."""
        lengths, log_probs = [[1, 7]], np.array([[-1.0, -((12 / 6) ** 0.7) * (1 + 1e-9)]]) + math.log(1)
        step = tfo.seq2seq.beam_search_step(
            np.zeros([1, 2, 1]), log_probs, [[True, True]], lengths, eos_ids=0, length_penalty=0.7, beam_width=1
        )
        self.assertAllEqual(step.parent_ids, [[0]])


class GatherTreeTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(tf.int32, tf.int64)
    def test_equals_a_loop(self, dtype):
        rng = np.random.default_rng(0)
        steps, batch, beams = 9, 4, 5
        tokens = rng.integers(0, 100, [steps, batch, beams])
        parents = rng.integers(0, beams, [steps, batch, beams])
        lengths = rng.integers(0, steps + 1, [batch, beams])
        expected = np.full(tokens.shape, -1)
        for b in range(batch):
            for k in range(beams):
                beam = k
                for t in reversed(range(lengths[b, k])):
                    expected[t, b, k] = tokens[t, b, beam]
                    beam = parents[t, b, beam]
        result = tfo.seq2seq.gather_tree(tf.cast(tokens, dtype), tf.cast(parents, dtype), lengths, pad_id=-1)
        self.assertEqual(result.dtype, dtype)
        self.assertAllEqual(result, expected)


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
