"""The public class KeyValueCache: the keys and values of a decoder's earlier positions."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.type_aliases import DTypeLike, TensorLike
from tensorflow_ops.nn.python.ops import attention, decode_attention, update_cache


def _size(tensor, axis):
    """Returns an int, or an int32 scalar tensor."""
    known = tensor.shape[axis]
    return tf.shape(tensor)[axis] if known is None else known


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
      counts: int32 [R], those of the last `append`; 2^31 - 1 if it had none.
      beam_width: rows of an example.
    """

    keys: tf.Tensor
    values: tf.Tensor
    lengths: tf.Tensor
    ancestors: tf.Tensor
    counts: tf.Tensor
    beam_width: int = 1

    @classmethod
    @autograph.ordered
    def create(
        cls,
        batch_size: TensorLike,
        max_length: TensorLike,
        num_heads: int,
        depth: int,
        *,
        value_depth: int | None = None,
        dtype: DTypeLike = tf.float32,
    ) -> "KeyValueCache":
        """Returns an empty cache, for the initial_state of a search, which repeats it for its beams.

        Args:
          batch_size: the rows.
          max_length: the positions S, those of a prompt included.
          num_heads: heads of keys and values.
          depth: of keys.
          value_depth: of values; None: depth.
          dtype: float16, bfloat16, float32 or float64.

        Raises:
          ValueError: a size that is no int in its range, another dtype.
          InvalidArgumentError: a size out of its range, found at run time.
        """
        batch_size = arguments.int_scalar("batch_size", batch_size, 0, decides_shape=True)
        max_length = arguments.int_scalar("max_length", max_length, 0, decides_shape=True)
        shape = batch_size, max_length, arguments.static_int("num_heads", num_heads, 1)
        depth = arguments.static_int("depth", depth, 1)
        value_depth = depth if value_depth is None else arguments.static_int("value_depth", value_depth, 1)
        dtype = arguments.float_dtype("dtype", dtype)
        return cls(
            keys=tf.zeros([*shape, depth], dtype),
            values=tf.zeros([*shape, value_depth], dtype),
            lengths=tf.zeros([batch_size], tf.int32),
            ancestors=tf.zeros([batch_size, max_length], tf.int32),
            counts=tf.fill([batch_size], arguments.MAX_INT32),
        )

    @autograph.ordered
    def append(self, key: TensorLike, value: TensorLike, *, counts: TensorLike | None = None) -> "KeyValueCache":
        """Returns the cache with T more positions: in a graph's loop without a copy of the others.

        Args:
          key: [R, T, K, D], cast to the cache's dtype from another float dtype.
          value: [R, T, K, Dv], cast likewise.
          counts: an int or integers [R], in [0, T]: of a prompt with padding at its end, the
            positions that count; the same for all beams of an example. None: T.

        Raises:
          ValueError: a wrong dtype, shapes that do not fit.
          InvalidArgumentError: shapes that do not fit, found at run time; wrong counts; positions
            beyond the cache's S (on a GPU they are not written).
        """
        rows = _size(self.lengths, 0)
        key = self._new("key", key, [rows, None, *self.keys.shape[2:]], "a row for each of the cache")
        count = _size(key, 1)
        value = self._new("value", value, [rows, count, *self.values.shape[2:]], "as many positions as key")
        added = count if counts is None else self._checked_counts(counts, rows, count)
        lengths = self._with_room(count)
        own = tf.broadcast_to((tf.range(rows) % self.beam_width)[:, tf.newaxis], [rows, count])
        return KeyValueCache(
            keys=update_cache.update_cache(self.keys, key, lengths),
            values=update_cache.update_cache(self.values, value, lengths),
            lengths=lengths + added,
            ancestors=update_cache.update_cache(self.ancestors, own, lengths),
            counts=tf.fill([rows], arguments.MAX_INT32) if counts is None else added,
            beam_width=self.beam_width,
        )

    @autograph.ordered
    def attend(
        self,
        query: TensorLike,
        *,
        scale: float | None = None,
        softcap: float | None = None,
        window: int | tuple[int | None, int | None] | None = None,
        alibi_slopes: TensorLike | None = None,
        sinks: TensorLike | None = None,
    ) -> tf.Tensor:
        """Returns the causal attention of the last T positions, [R, T, N, Dv].

        Args:
          query: [R, T, N, D], the cache's dtype, of the positions that `append` has just written,
            or of fewer. After an append with counts, the last T that count; where fewer than T
            do, these come first, and the padding after them gives 0.
          scale: of `tfo.nn.decode_attention`, as the other options.
          softcap: likewise.
          window: likewise.
          alibi_slopes: likewise.
          sinks: likewise.

        Raises:
          ValueError: a wrong dtype, shapes that do not fit.
          InvalidArgumentError: shapes that do not fit, found at run time.
        """
        query = arguments.dense_tensor("query", query, None if hasattr(query, "dtype") else self.keys.dtype)
        if query.dtype != self.keys.dtype:
            raise ValueError(f"query is {query.dtype.name}, expected {self.keys.dtype.name}: the cache's dtype")
        rows = _size(self.lengths, 0)
        sizes = [rows, None, None, self.keys.shape[3]]
        query = arguments.with_shape("query", query, sizes, "a row for each of the cache, of its keys' depth")
        options = {"scale": scale, "softcap": softcap, "window": window, "alibi_slopes": alibi_slopes, "sinks": sinks}
        count = _size(query, 1)
        counts = tf.minimum(self.counts, count)
        if self.beam_width == 1:
            decode_attention.keys_before(window)
            return attention.attention(
                query, self.keys, self.values, causal=True, lengths=counts, key_lengths=self.lengths, **options
            )
        sizes = [rows // self.beam_width, self.beam_width, _size(self.ancestors, 1)]
        ancestors = tf.reshape(self.ancestors, sizes)
        # The padding follows the positions that count.
        ends = self.lengths + (count - counts)
        output = decode_attention.decode_attention(query, self.keys, self.values, ends, ancestors=ancestors, **options)
        is_padding = tf.range(count) >= counts[:, tf.newaxis]
        return tf.where(is_padding[:, :, tf.newaxis, tf.newaxis], tf.zeros([], output.dtype), output)

    def repeated(self, beams):
        """Returns the cache of a search with as many rows for each of this one's. Positions so far lie in beam 0."""
        if self.beam_width != 1:
            raise ValueError(f"beam_width is {self.beam_width}, expected 1: the search repeats the cache")
        repeated = [tf.repeat(x, beams, axis=0) for x in (self.keys, self.values, self.lengths, self.counts)]
        keys, values, lengths, counts = repeated
        ancestors = tf.zeros(tf.shape(keys)[:2], tf.int32)
        return KeyValueCache(keys, values, lengths, ancestors, counts, beam_width=beams)

    def _new(self, name, tensor, shape, meaning):
        """Returns keys or values to append. Raises ValueError."""
        tensor = arguments.tensor_of_kind(name, tensor, self.keys.dtype)
        return arguments.with_shape(name, tensor, shape, meaning)

    def _with_room(self, count):
        """Returns lengths, checked to leave room for `count` positions."""
        size = _size(self.ancestors, 1)
        known = isinstance(size, int) and isinstance(count, int)
        if known and count > size:
            raise ValueError(f"key has {count} positions, expected at most {size}: the cache's max_length")
        expected = f"[0, {size - count if known else 'max_length - the positions of key'}]: the cache is full"
        valid = (self.lengths >= 0) & (self.lengths <= size - count)
        return arguments.checked("lengths", self.lengths, valid, expected, on_gpu=False)

    def _checked_counts(self, counts, rows, count):
        """Returns int32 [R]. Raises ValueError."""
        counts = arguments.int_of_each("counts", counts, lambda: rows)
        counts = arguments.with_shape("counts", counts, [rows], "one for each row of the cache")
        most = count if isinstance(count, int) else "the positions of key"
        counts = arguments.checked("counts", counts, (counts >= 0) & (counts <= count), f"[0, {most}]")
        if self.beam_width > 1:
            firsts = tf.repeat(counts[:: self.beam_width], self.beam_width)
            expected = f"the same for the {self.beam_width} beams of an example"
            counts = arguments.checked("counts", counts, arguments.equal(counts, firsts), expected)
        return counts
