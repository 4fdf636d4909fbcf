"""Tests of decode_attention: its options, ancestors of a search, the refused gradient.

The C++ tests compare ancestors with reordered keys for all options, dtypes and sizes.
"""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import tensorflow_ops as tfo

_RNG = np.random.default_rng(0)
_QUERY, _KEYS, _VALUES = (
    tf.constant(_RNG.normal(size=size), tf.float32) for size in ([4, 2, 4, 8], [4, 9, 2, 8], [4, 9, 2, 3])
)
_LENGTHS = tf.constant([9, 5, 3, 2])
_ANCESTORS = tf.constant(_RNG.integers(0, 2, [2, 2, 9]), tf.int32)


def _reordered(cache):
    """Returns rows [4, 9, ...] in the order of _ANCESTORS."""
    by_example = tf.reshape(cache, [2, 2, *cache.shape[1:]])
    beams = np.arange(2)[:, np.newaxis, np.newaxis], _ANCESTORS.numpy(), np.arange(9)
    return tf.reshape(by_example.numpy()[beams], cache.shape)


class DecodeAttentionTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        {},
        {"scale": 0.3, "softcap": 2.0},
        {"window": 3},
        {"window": (4, None)},
        {"window": (4, 0)},
        {"alibi_slopes": [0.5, 0.25, 0.125, 0.0]},
        {"alibi_slopes": tf.reshape(tf.range(16.0) / 16, [4, 4])},
        {"sinks": [0.0, 1.0, -1.0, 2.0]},
    )
    def test_options_are_those_of_attention(self, **options):
        def expected(keys, values):
            return tfo.nn.attention(_QUERY, keys, values, causal=True, key_lengths=_LENGTHS, **options)

        ours = tfo.nn.decode_attention(_QUERY, _KEYS, _VALUES, _LENGTHS, **options)
        np.testing.assert_array_equal(ours, expected(_KEYS, _VALUES))
        ours = tfo.nn.decode_attention(_QUERY, _KEYS, _VALUES, _LENGTHS, ancestors=_ANCESTORS, **options)
        np.testing.assert_array_equal(ours, expected(_reordered(_KEYS), _reordered(_VALUES)))

    def test_keys_to_the_right_are_refused(self):
        with self.assertRaisesRegex(
            ValueError, r"window is \(1, 2\), expected None, a positive int, \(left, None\) or"
        ):
            tfo.nn.decode_attention(_QUERY, _KEYS, _VALUES, _LENGTHS, window=(1, 2))

    def test_search_that_copies_no_cache(self):
        """Each step appends a position; beams are replaced by those of their parents."""
        batch, beams, steps = 2, 3, 6
        rows = batch * beams
        cache, copied = (tf.fill([rows, steps, 1, 4], np.float32(np.nan)) for _ in range(2))
        ancestors = tf.zeros([batch, beams, steps], tf.int32)
        for step in range(steps):
            parents = tf.constant(_RNG.integers(0, beams, [batch, beams]), tf.int32)
            ancestors = tf.gather(ancestors, parents, batch_dims=1)
            by_example = tf.reshape(copied, [batch, beams, steps, 1, 4])
            copied = tf.reshape(tf.gather(by_example, parents, batch_dims=1), copied.shape)
            new, here = tf.constant(_RNG.normal(size=[rows, 1, 1, 4]), tf.float32), tf.range(steps) == step
            cache, copied = (tf.where(here[:, tf.newaxis, tf.newaxis], new, x) for x in (cache, copied))
            ancestors = tf.where(here, tf.range(beams)[:, tf.newaxis], ancestors)
            query = tf.constant(_RNG.normal(size=[rows, 1, 2, 4]), tf.float32)
            ours = tfo.nn.decode_attention(query, cache, cache, step + 1, ancestors=ancestors)
            expected = tfo.nn.decode_attention(query, copied, copied, step + 1)
            np.testing.assert_array_equal(ours, expected)
            self.assertAllEqual(tf.math.is_finite(ours), tf.ones_like(ours, tf.bool))

    def test_has_no_gradient(self):
        with tf.GradientTape() as tape:
            tape.watch(_QUERY)
            output = tfo.nn.decode_attention(_QUERY, _KEYS, _VALUES, _LENGTHS)
        with self.assertRaisesRegex(LookupError, "decode_attention has no gradient; attention has"):
            tape.gradient(output, _QUERY)

    def test_vectorized_beams(self):
        """Iterations become examples; each has ancestors of its own."""
        stacked = [tf.stack([x, x[::-1]]) for x in (_QUERY, _KEYS, _VALUES, _LENGTHS)]
        ancestors = tf.stack([_ANCESTORS, 1 - _ANCESTORS])

        def step(args):
            return tfo.nn.decode_attention(*args[:4], ancestors=args[4])

        ours = tf.vectorized_map(step, (*stacked, ancestors))
        for i in range(2):
            np.testing.assert_array_equal(ours[i], step((*(x[i] for x in stacked), ancestors[i])))


if __name__ == "__main__":
    tf.test.main()
