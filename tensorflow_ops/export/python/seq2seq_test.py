"""Compositions of beam search and CTC decoders: against the ops."""

import compositions_testing as testing
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from pairwise_testing import pairwise

INF, NAN = float("inf"), float("nan")
KINDS = ("normal", "masks", "ties", NAN, INF)


def _logits(shape, dtype, kind, seed=0):
    """Returns normal numbers, a third of them -inf, small integers, or a few NaN or inf."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, shape).astype(float) if kind == "ties" else rng.normal(size=shape) * 2
    if kind == "masks":
        x[rng.random(shape) < 0.3] = -INF
    elif not isinstance(kind, str):
        x[rng.random(shape) < 0.1] = kind
    return tf.constant(x, dtype)


def _wide(dtype):
    return tf.float64 if dtype == tf.float64 else tf.float32


class BeamSearchTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(
        dtype=testing.FLOATS,
        kind=KINDS,
        sizes=((3, 2, 5, 2), (2, 3, 1, 5), (0, 2, 3, 2), (2, 1, 40, 7), (1, 4, 3, 1)),
        eos_ids=([2], [], [0, 1]),
        length_penalty=(0.0, 0.7, -1.0),
        eos_rule=(0, 1, 2),
        has_forbidden=(False, True),
    )
    def test_beam_search_step(self, dtype, kind, sizes, eos_ids, length_penalty, eos_rule, has_forbidden):
        batch, beams, vocabulary, width = sizes
        rng = np.random.default_rng(1)
        log_probs = rng.normal(size=(batch, beams)) - 3
        log_probs[rng.random((batch, beams)) < 0.2] = -INF
        log_probs[:1, 1:2] = NAN
        inputs = [
            _logits((batch, beams, vocabulary), dtype, kind),
            tf.constant(log_probs, _wide(dtype)),
            tf.constant(rng.random((batch, beams)) < 0.3),
            tf.constant(rng.integers(0, 9, (batch, beams)), tf.int32),
            tf.constant([i for i in eos_ids if i < vocabulary], tf.int32),
            tf.constant(length_penalty, tf.float64),
            tf.constant(eos_rule),
            tf.constant(width),
            [tf.constant(rng.random((batch, beams, vocabulary)) < 0.2)] if has_forbidden else [],
        ]
        testing.check(self, "BeamSearchStep", inputs, {})

    @pairwise(dtype=(tf.int32, tf.int64), sizes=((5, 3, 4), (1, 2, 3), (0, 2, 3), (3, 0, 2), (3, 2, 0)), pad_id=(-1, 7))
    def test_gather_tree(self, dtype, sizes, pad_id):
        time, batch, beams = sizes
        rng = np.random.default_rng(0)
        inputs = [rng.integers(0, 9, sizes), rng.integers(0, max(beams, 1), sizes)]
        inputs[1][:1] = -5  # not read
        lengths = tf.constant(rng.integers(0, time + 1, (batch, beams)), tf.int32)
        inputs = [*(tf.constant(x, dtype) for x in inputs), lengths, tf.constant(pad_id, dtype)]
        testing.check(self, "GatherTree", inputs, {})

    def test_gather_tree_pads_invalid_beams(self):
        parents = tf.constant([[[0, 0, 0, 0]], [[3, 4, -1, 0]], [[0, 1, 2, 3]]])
        tokens = 10 * tf.range(1, 4)[:, tf.newaxis, tf.newaxis] + tf.zeros_like(parents)
        inputs = [tokens, parents, tf.constant([[4, 3, 3, -1]]), tf.constant(0)]
        sequences = testing.run_composition("GatherTree", inputs, {})[0]
        self.assertAllEqual(sequences[:, 0], [[0, 0, 0, 0], [0, 20, 20, 0], [0, 30, 30, 0]])


class CtcTest(tf.test.TestCase, parameterized.TestCase):
    @pairwise(
        dtype=testing.FLOATS,
        lengths_dtype=(tf.int32, tf.int64),
        kind=KINDS,
        sizes=((4, 7, 3), (3, 5, 1), (0, 3, 2), (2, 0, 2)),
        blank_index=(0, -1),
        merge_repeated=(False, True),
        pad_id=(-1, 9),
    )
    def test_greedy_decode(self, dtype, lengths_dtype, kind, sizes, **attrs):
        lengths = tf.constant(np.linspace(0, sizes[1], sizes[0]), lengths_dtype)
        testing.check(self, "CtcGreedyDecode", [_logits(sizes, dtype, kind), lengths], attrs)

    @pairwise(
        dtype=testing.FLOATS,
        lengths_dtype=(tf.int32, tf.int64),
        kind=KINDS,
        sizes=((4, 7, 3), (3, 5, 1), (2, 6, 12), (0, 3, 2), (2, 0, 2)),
        beam_width=(1, 3, 20),
        top_paths=(1, 3),
        label_bonus=(0.0, 0.5),
        blank_index=(0, -1),
        pad_id=(-1, 9),
    )
    def test_beam_search_decode(self, dtype, lengths_dtype, kind, sizes, beam_width, top_paths, label_bonus, **attrs):
        lengths = tf.constant(np.linspace(0, sizes[1], sizes[0]), lengths_dtype)
        attrs |= {"beam_width": beam_width, "top_paths": min(beam_width, top_paths)}
        inputs = [_logits(sizes, dtype, kind), lengths, tf.constant(label_bonus, tf.float64)]
        testing.check(self, "CtcBeamSearchDecode", inputs, attrs)

    def test_invalid_lengths_are_nan(self):
        inputs = [tf.zeros([3, 2, 4]), tf.constant([-1, 3, 2])]
        attrs = {"blank_index": 0, "pad_id": -1}
        _, lengths, log_probs = testing.run_composition("CtcGreedyDecode", inputs, attrs | {"merge_repeated": True})
        self.assertAllEqual(lengths, [0, 0, 0])
        self.assertAllEqual(tf.math.is_nan(log_probs), [True, True, False])
        inputs.append(tf.constant(0.0, tf.float64))
        attrs |= {"beam_width": 2, "top_paths": 1}
        labels, lengths, scores, _ = testing.run_composition("CtcBeamSearchDecode", inputs, attrs)
        self.assertAllEqual(labels[:2], tf.fill([2, 1, 2], -1))
        self.assertAllEqual(lengths[:2], [[0], [0]])
        self.assertAllEqual(tf.math.is_nan(scores), [[True], [True], [False]])

    @pairwise(
        dtype=testing.FLOATS,
        kind=KINDS,
        sizes=((3, 4, 5), (2, 1, 3), (2, 6, 1), (0, 2, 3)),
        lm_weight=(0.0, 0.5),
        label_bonus=(0.0, 0.5),
        blank_index=(0, -1),
    )
    def test_beam_search_step(self, dtype, kind, sizes, lm_weight, label_bonus, blank_index):
        batch, width, classes = sizes
        first = [[0.0, -INF, 0.0], *[[-INF, -INF, 0.0]] * (width - 1)]
        weights = tf.tile(tf.constant([first], tf.float64), [batch, 1, 1])
        prefixes = tf.tile(tf.constant([[[-1, 0, 0, 0, 0]] * width], tf.int64), [batch, 1, 1])
        beams = [[weights, prefixes], [weights, prefixes]]
        for t in range(5):
            rest = [
                _logits((batch, width, classes), _wide(dtype), "masks", 10 + t),
                *(tf.constant(x, tf.float64) for x in (lm_weight, label_bonus)),
            ]
            frame = [_logits((batch, classes), dtype, kind, t), tf.range(batch) < 6 - t]
            results = [
                run("CtcBeamSearchStep", [*frame, *beam, *rest], {"blank_index": blank_index})
                for run, beam in zip((testing.run_op, testing.run_composition), beams, strict=True)
            ]
            (expected_weights, expected_prefixes, *expected), (weights, prefixes, *actual) = results
            bound = testing.TOLERANCES[_wide(dtype)]
            self.assertAllClose(weights, expected_weights, bound, bound, f"frame {t}")
            # Other hashes, which are as different as the op's.
            self.assertAllEqual(prefixes[..., 0], expected_prefixes[..., 0])
            for x, y in ((prefixes, expected_prefixes), (prefixes[..., 3:], expected_prefixes[..., 3:])):
                self.assertAllEqual(_equalities(x), _equalities(y))
            for x, y in zip(actual, expected, strict=True):
                self.assertAllEqual(x, y, f"frame {t}")
            beams = [results[0][:2], results[1][:2]]


def _equalities(ids):
    """Returns which prefixes [batch, beams] are equal."""
    return tf.reduce_all(tf.equal(ids[:, :, tf.newaxis], ids[:, tf.newaxis]), -1)


if __name__ == "__main__":
    tf.test.main()
