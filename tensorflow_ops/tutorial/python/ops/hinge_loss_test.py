"""Tests of hinge_loss: opcheck, labels' dtypes, errors, what has no derivative."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from hinge_loss_samples_testing import LABELS, LOGITS, SAMPLES, reference

import tensorflow_ops as tfo


class HingeLossTest(parameterized.TestCase, tf.test.TestCase):
    def test_opcheck(self):
        samples = {name: tfo.testing.OpSample(*sample.of_opcheck()) for name, sample in SAMPLES.items()}
        tfo.testing.opcheck_samples(samples)

    @parameterized.product(dtype=["int32", "int64"], ignore_index=[-1, 0, 4])
    def test_equals_the_definition(self, dtype, ignore_index):
        labels = np.array([0, 4, 2, ignore_index], dtype)
        logits = np.random.default_rng(0).normal(size=[4, 5])
        loss, rank = tfo.tutorial.hinge_loss(labels, logits, ignore_index=ignore_index)
        expected_loss, expected_rank = reference(labels, logits, ignore_index)
        self.assertAllClose(loss, expected_loss, 1e-12, 1e-12)
        self.assertAllEqual(rank, expected_rank)

    @parameterized.parameters(True, 0.5, 2**31)
    def test_ignore_index_is_an_int(self, ignore_index):
        with self.assertRaisesRegex(ValueError, "ignore_index is .*, expected an int in"):
            tfo.tutorial.hinge_loss(LABELS, LOGITS, ignore_index=ignore_index)

    def test_has_no_second_derivative(self):
        with tf.GradientTape() as outer, tf.GradientTape() as inner:
            outer.watch(LOGITS)
            inner.watch(LOGITS)
            loss = tfo.tutorial.hinge_loss(LABELS, LOGITS).loss
            slopes = inner.gradient(loss, LOGITS)
        with self.assertRaisesRegex(LookupError, "hinge_loss has no second derivative"):
            outer.gradient(slopes, LOGITS)


if __name__ == "__main__":
    tf.test.main()
