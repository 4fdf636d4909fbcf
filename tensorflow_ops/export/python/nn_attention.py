"""Compositions of attention, whose scores [batch, heads, queries, keys] are in memory, and of update_cache."""

import math

import tensorflow as tf

from tensorflow_ops.export.python.compositions import composition
from tensorflow_ops.export.python.nn import NOTHING, expand, finite_or_zero, widened, zero_if

# Philox4x32: its multipliers, and what each round adds to its key.
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEYS = (0x9E3779B9, 0xBB67AE85)


def _padded(rows, splits):
    """Returns the rows of examples [rows, heads, depth] as [batch, longest, heads, depth], and lengths [batch]."""
    splits = tf.cast(splits, tf.int32)
    starts, lengths = splits[:-1], splits[1:] - splits[:-1]
    at = tf.range(tf.reduce_max(tf.pad(lengths, [[0, 1]])))
    # Beyond an example, a row of zeros after the last one.
    index = tf.where(at < expand(lengths, 1), expand(starts, 1) + at, tf.shape(rows)[0])
    return tf.gather(tf.pad(rows, [[0, 1], [0, 0], [0, 0]]), index), lengths


def _words(seed, *counters):
    """Returns words of Philox4x32-10 [..., 4] as uint64. The counters broadcast."""
    low = tf.constant(0xFFFFFFFF, tf.uint64)
    key = tf.unstack(tf.cast(seed, tf.uint64) & low, 2)
    shape = [tf.shape(x) for x in counters]
    shape = tf.broadcast_dynamic_shape(tf.broadcast_dynamic_shape(shape[0], shape[1]), shape[2])
    words = [tf.broadcast_to(tf.cast(x, tf.uint64), shape) for x in counters]
    words.append(tf.zeros_like(words[0]))
    for _ in range(10):
        a, b = (tf.constant(m, tf.uint64) * words[i] for m, i in zip(_MULTIPLIERS, (0, 2), strict=True))
        words = [
            tf.bitwise.bitwise_xor(tf.bitwise.right_shift(b, tf.constant(32, tf.uint64)), words[1] ^ key[0]),
            tf.bitwise.bitwise_and(b, low),
            tf.bitwise.bitwise_xor(tf.bitwise.right_shift(a, tf.constant(32, tf.uint64)), words[3] ^ key[1]),
            tf.bitwise.bitwise_and(a, low),
        ]
        key = [(k + tf.constant(added, tf.uint64)) & low for k, added in zip(key, _KEYS, strict=True)]
    return tf.stack(words, -1)


def _with_dropout(weights, seed, dropout):
    """Drops weights by their places (attention.h), and scales the others."""
    threshold = math.floor(65536 * dropout + 0.5)
    batch, heads, queries, keys = tf.unstack(tf.shape(weights), 4)
    row = expand(tf.range(batch * heads), 1, 2)
    words = _words(seed, tf.range((keys + 7) // 8), expand(tf.range(queries), 1), row)
    halves = tf.stack([words & tf.constant(0xFFFF, tf.uint64), words // 65536], -1)
    halves = tf.reshape(halves, tf.stack([batch, heads, queries, (keys + 7) // 8 * 8]))[..., :keys]
    is_kept = tf.cast(halves, tf.int32) >= threshold
    return zero_if(tf.logical_not(is_kept), weights * (65536 / (65536 - threshold)))


def _times_values(weights, values):
    """Returns weights [..., queries, keys] @ values [..., keys, depth]; a weight of 0 adds nothing to a sum."""
    finite = tf.equal(values - values, 0)
    output = tf.matmul(weights, zero_if(tf.logical_not(finite), values))
    is_nan = tf.math.is_nan(values)
    # How many values make a sum infinite: NaN does both ways.
    kinds = tf.concat([is_nan | (values >= -NOTHING), is_nan | (values <= NOTHING)], -1)
    counts = tf.matmul(tf.cast(tf.not_equal(weights, 0), weights.dtype), tf.cast(kinds, weights.dtype))
    up, down = (count > 0 for count in tf.split(counts, 2, -1))  # LiteRT splits no bools
    infinity, zeros = tf.constant(-NOTHING, output.dtype), tf.zeros_like(output)
    return output + tf.where(up, infinity, zeros) + tf.where(down, -infinity, zeros)


@composition("Attention", [None, None, None, 4, 4, 2, 1, 1, 1, 1, 1, 1, 1, 1])
def _attention(
    query,
    key,
    value,
    mask,
    bias,
    alibi_slopes,
    sinks,
    query_splits,
    key_splits,
    lengths,
    key_lengths,
    query_offset,
    seed,
    longest,
    *,
    scale,
    softcap,
    left,
    right,
    dropout,
):
    """Takes a list of no tensor or of one for each input from mask on."""
    del longest
    dtype, cap, is_ragged = query.dtype, sum(softcap), bool(query_splits)
    for tensor in (query, key, value):
        tensor.set_shape([None] * (3 if is_ragged else 4))
    if is_ragged:
        (query, *lengths), (key, *key_lengths) = _padded(query, *query_splits), _padded(key, *key_splits)
        value, _ = _padded(value, *key_splits)
    batch, queries, heads, depth = tf.unstack(tf.shape(query), 4)
    _, keys, key_heads, value_depth = tf.unstack(tf.shape(value), 4)
    # The queries of the heads that share a key head are rows of one matrix.
    by_key_head = tf.stack([batch, key_heads, heads // tf.maximum(key_heads, 1) * queries])
    by_head = tf.stack([batch, heads, queries])

    rows = tf.reshape(tf.transpose(widened(query), [0, 2, 1, 3]), tf.concat([by_key_head, [depth]], 0))
    scores = tf.matmul(rows, tf.transpose(widened(key), [0, 2, 3, 1]))
    scores *= sum(scale) if scale else tf.math.rsqrt(tf.cast(tf.maximum(depth, 1), scores.dtype))
    scores = tf.reshape(scores, tf.concat([by_head, [keys]], 0))
    if cap:
        scores = cap * tf.tanh(scores / cap)

    def of_longest(tensor):
        """Returns a mask or bias, which of ragged examples may be longer than the longest one."""
        return tensor[:, :, :queries, :keys] if is_ragged else tensor

    t, j = expand(tf.range(queries), 1), tf.range(keys)
    num_queries = tf.reshape(lengths[0] if lengths else queries, [-1, 1, 1, 1])
    num_keys = tf.reshape(key_lengths[0] if key_lengths else keys, [-1, 1, 1, 1])
    offset = tf.reshape(query_offset[0], [-1, 1, 1, 1]) if query_offset else num_keys - num_queries
    distance = t + offset - j
    if alibi_slopes:
        scores -= expand(alibi_slopes[0], 2, 3) * tf.cast(tf.abs(distance), scores.dtype)
    if bias:
        scores += widened(of_longest(bias[0]))
    attends = (t < num_queries) & (j < num_keys)
    if left >= 0:
        attends &= distance <= left
    if right >= 0:
        attends &= distance >= -right
    if mask:
        attends &= of_longest(mask[0])
    scores = tf.where(attends, scores, NOTHING)

    high = tf.reduce_max(scores, -1)
    if sinks:
        high = tf.maximum(high, expand(sinks[0], 1))
    high = finite_or_zero(high)
    weights = tf.exp(scores - expand(high, -1))
    total = tf.reduce_sum(weights, -1)
    if sinks:
        total += tf.exp(expand(sinks[0], 1) - high)
    log_sum_exp = tf.math.log(total) + high
    weights = zero_if(scores <= NOTHING, weights / expand(total, -1))
    if seed:
        weights = _with_dropout(weights, seed[0], sum(dropout))

    weights = tf.reshape(weights, tf.concat([by_key_head, [keys]], 0))
    output = _times_values(weights, tf.transpose(widened(value), [0, 2, 1, 3]))
    output = tf.reshape(output, tf.concat([by_head, [value_depth]], 0))
    output = tf.cast(tf.transpose(output, [0, 2, 1, 3]), dtype)
    if is_ragged:
        is_query = tf.range(queries) < expand(lengths[0], 1)
        output = tf.boolean_mask(output, is_query)
        log_sum_exp = tf.transpose(tf.boolean_mask(tf.transpose(log_sum_exp, [0, 2, 1]), is_query))
    return output, log_sum_exp


@composition("UpdateCache", [None, None, 1])
def _update_cache(cache, rows, positions):
    """Writes no rows where a position is out of range, as a GPU does."""
    length, count = tf.shape(cache)[1], tf.shape(rows)[1]
    place = tf.range(length) - expand(positions, 1)
    is_inside = (positions >= 0) & (positions <= length - count)
    is_new = expand(is_inside, 1) & (place >= 0) & (place < count)
    return tf.gather(tf.concat([rows, cache], 1), tf.where(is_new, place, count + tf.range(length)), batch_dims=1)


@composition("DecodeAttention", [4, 4, 4, 1, 2, 1, 3])
def _decode_attention(query, keys, values, lengths, alibi_slopes, sinks, ancestors, *, scale, softcap, left):
    if ancestors:
        examples, beams, positions = tf.unstack(tf.shape(ancestors[0]), 3)
        row = ancestors[0] + expand(tf.range(examples) * beams, 1, 2)
        at = tf.reshape(row * positions + tf.range(positions), tf.stack([examples * beams, positions]))
        keys, values = (tf.gather(tf.reshape(x, tf.concat([[-1], tf.shape(x)[2:]], 0)), at) for x in (keys, values))
    options = {"scale": scale, "softcap": softcap, "left": left, "right": 0, "dropout": []}
    return _attention(query, keys, values, [], [], alibi_slopes, sinks, [], [], [], [lengths], [], [], [], **options)[0]
