"""The public class KeyValueCache: the keys and values of a decoder's earlier positions."""

from typing import Any

import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import attention, decode_attention, update_cache


class KeyValueCache(tf.experimental.ExtensionType):
    """Keys and values of a layer's earlier positions: a leaf of the state of `tfo.seq2seq.beam_search`.

    A search gives each beam rows of its own, and after each step its parents' history. Of a
    KeyValueCache it reorders only `ancestors`, 4 bytes a position, and leaves keys and values where
    they are: `attend` reads each position in the row of the beam that wrote it. The bits of its
    results are those of attention over reordered caches.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> table = tf.random.normal([10, 3, 2, 4])  # a query, a key and a value of 2 heads for each token
    >>> def step_fn(tokens, cache):
    ...     query, key, value = tf.unstack(tf.gather(table, tokens)[:, tf.newaxis], axis=2)
    ...     cache = cache.append(key, value)
    ...     return tf.reshape(cache.attend(query), [-1, 8]) @ tf.ones([8, 10]), cache
    >>> cache = tfo.seq2seq.KeyValueCache.create(batch_size=3, max_length=20, num_heads=2, depth=4)
    >>> result = tfo.seq2seq.beam_search(step_fn, cache, batch_size=3, beam_width=5, max_length=20, bos_id=1, eos_ids=0)
    >>> result.sequences.shape
    TensorShape([3, 1, 20])

    Attributes:
      keys: [R, S, K, D], R rows of at most S positions. A search has R = B * beam_width.
      values: [R, S, K, Dv].
      lengths: int32 [R], the positions that are written.
      ancestors: int32 [R, S], the beam of the same example in whose row a position lies.
      beam_width: rows of an example.
    """

    keys: tf.Tensor
    values: tf.Tensor
    lengths: tf.Tensor
    ancestors: tf.Tensor
    beam_width: int = 1

    @classmethod
    def create(
        cls,
        batch_size: TensorLike,
        max_length: TensorLike,
        num_heads: int,
        depth: int,
        *,
        value_depth: int | None = None,
        dtype: Any = tf.float32,
    ) -> "KeyValueCache":
        """Returns an empty cache, for the initial_state of a search, which repeats it for its beams.

        Args:
          batch_size: the rows.
          max_length: the positions S, those of a prompt included.
          num_heads: heads of keys and values.
          depth: of keys.
          value_depth: of values; None: depth.
          dtype: float16, bfloat16, float32 or float64.
        """
        shape = batch_size, max_length, num_heads
        return cls(
            keys=tf.zeros([*shape, depth], dtype),
            values=tf.zeros([*shape, depth if value_depth is None else value_depth], dtype),
            lengths=tf.zeros([batch_size], tf.int32),
            ancestors=tf.zeros([batch_size, max_length], tf.int32),
        )

    def append(self, key: TensorLike, value: TensorLike, *, counts: TensorLike | None = None) -> "KeyValueCache":
        """Returns the cache with T more positions: in a graph's loop without a copy of the others.

        Args:
          key: [R, T, K, D], cast to the cache's dtype.
          value: [R, T, K, Dv], cast likewise.
          counts: an int or integers [R], in [0, T]: of a prompt with padding at its end, the
            positions that count. None: T.

        Raises:
          InvalidArgumentError: positions beyond the cache's S.
        """
        key, value = (arguments.cast_tensor(name, x, self.keys.dtype) for name, x in (("key", key), ("value", value)))
        rows, count = tf.unstack(tf.shape(key)[:2])
        own = tf.broadcast_to((tf.range(rows) % self.beam_width)[:, tf.newaxis], [rows, count])
        added = count if counts is None else arguments.int_of_each("counts", counts, lambda: rows)
        return KeyValueCache(
            keys=update_cache.update_cache(self.keys, key, self.lengths),
            values=update_cache.update_cache(self.values, value, self.lengths),
            lengths=self.lengths + added,
            ancestors=update_cache.update_cache(self.ancestors, own, self.lengths),
            beam_width=self.beam_width,
        )

    def attend(self, query: TensorLike, **options: Any) -> tf.Tensor:
        """Returns the causal attention of the last T positions, [R, T, N, Dv].

        Args:
          query: [R, T, N, D], of the positions that `append` has just written.
          **options: scale, softcap, window, alibi_slopes, sinks of `tfo.nn.attention`.
        """
        if self.beam_width == 1:
            return attention.attention(query, self.keys, self.values, causal=True, key_lengths=self.lengths, **options)
        rows, length = tf.unstack(tf.shape(self.ancestors))
        ancestors = tf.reshape(self.ancestors, [rows // self.beam_width, self.beam_width, length])
        return decode_attention.decode_attention(
            query, self.keys, self.values, self.lengths, ancestors=ancestors, **options
        )

    def repeated(self, beams):
        """Returns the cache of a search with as many rows for each of this one's. Positions so far lie in beam 0."""
        if self.beam_width != 1:
            raise ValueError(f"beam_width is {self.beam_width}, expected 1: the search repeats the cache")
        keys, values, lengths = (tf.repeat(x, beams, axis=0) for x in (self.keys, self.values, self.lengths))
        ancestors = tf.zeros(tf.shape(keys)[:2], tf.int32)
        return KeyValueCache(keys, values, lengths, ancestors, beam_width=beams)
