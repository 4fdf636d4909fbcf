"""For tests: the definition of attention in NumPy, in float64."""

import numpy as np


def kept(seed, rows, queries, keys, dropout):
    """Returns the factors [rows, queries, keys] of dropout: Philox4x32-10 (Salmon et al. 2011), by place."""
    threshold = int(np.floor(65536 * dropout + 0.5))
    counters = [
        np.arange((keys + 7) // 8),
        np.arange(queries)[:, np.newaxis],
        np.arange(rows)[:, np.newaxis, np.newaxis],
    ]
    low = np.uint64(0xFFFFFFFF)
    x = [c.astype(np.uint64) for c in np.broadcast_arrays(*counters, 0)]
    k = [np.uint64(int(s) & 0xFFFFFFFF) for s in seed]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        x = [b >> np.uint64(32) ^ x[1] ^ k[0], b & low, a >> np.uint64(32) ^ x[3] ^ k[1], a & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    halves = np.stack([word >> np.uint64(shift) & np.uint64(0xFFFF) for word in x for shift in (0, 16)], -1)
    halves = halves.reshape(rows, queries, -1)[..., :keys]
    return np.where(halves >= threshold, 65536 / max(65536 - threshold, 1), 0)


def _sides(causal, window):
    """Returns how many keys a query sees on its left and right."""
    if isinstance(window, int):
        window = window - 1, window - 1
    left, right = (np.inf if side is None else side for side in window or (None, None))
    return left, min(right, 0) if causal else right


def attention(
    query,
    key,
    value,
    *,
    mask=True,
    bias=0.0,
    causal=False,
    window=None,
    query_offset=None,
    scale=None,
    softcap=None,
    alibi_slopes=0.0,
    sinks=-np.inf,
    lengths=None,
    key_lengths=None,
    dropout=0.0,
    seed=(0, 0),
):
    """Returns the output and the log-sum-exp of dense tensors, as `tfo.nn.attention` defines them."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    (batch, queries, heads, depth), (_, keys, key_heads, value_depth) = query.shape, value.shape
    places = [batch, heads, queries, keys]
    mask, bias = np.broadcast_to(mask, places), np.broadcast_to(np.asarray(bias, np.float64), places)
    slopes = np.broadcast_to(np.asarray(alibi_slopes, np.float64), [batch, heads])
    sinks = np.broadcast_to(np.asarray(sinks, np.float64), [heads])
    lengths = np.full([batch], queries) if lengths is None else np.asarray(lengths)
    key_lengths = np.full([batch], keys) if key_lengths is None else np.asarray(key_lengths)
    offsets = np.broadcast_to(key_lengths - lengths if query_offset is None else query_offset, [batch])
    left, right = _sides(causal, window)
    factors = np.reshape(kept(seed, batch * heads, queries, keys, dropout), places) if dropout else np.ones(places)
    output, log_sum_exp = np.zeros([batch, queries, heads, value_depth]), np.zeros([batch, heads, queries])
    for b, n in np.ndindex(batch, heads):
        of_key = n // (heads // key_heads)
        t, j = np.arange(queries)[:, np.newaxis], np.arange(keys)
        i = t + offsets[b]
        with np.errstate(all="ignore"):
            scores = (depth**-0.5 if scale is None else scale) * (query[b, :, n] @ key[b, :, of_key].T)
            if softcap is not None:
                scores = softcap * np.tanh(scores / softcap)
            scores = scores - slopes[b, n] * abs(i - j) + bias[b, n]
            attends = mask[b, n] & (j < key_lengths[b]) & (t < lengths[b]) & (i - left <= j) & (j <= i + right)
            scores = np.where(attends, scores, -np.inf)
            high = np.max(scores, -1, initial=sinks[n])
            high = np.where(high == -np.inf, 0, high)[:, np.newaxis]
            total = np.exp(scores - high).sum(-1) + np.exp(sinks[n] - high[:, 0])
            log_sum_exp[b, n] = np.log(total) + high[:, 0]
            weights = np.where(scores == -np.inf, 0, np.exp(scores - high) / total[:, np.newaxis]) * factors[b, n]
            pairs = weights[:, :, np.newaxis] * value[b, np.newaxis, :, of_key]
            # A pair of weight 0 adds nothing, whatever its value is.
            output[b, :, n] = np.where(weights[:, :, np.newaxis] == 0, 0, pairs).sum(1)
    return output, log_sum_exp


def operands(batch=2, queries=5, keys=9, heads=4, key_heads=2, depth=3, value_depth=2, seed=0):
    """Returns normal query, key and value."""
    rng = np.random.default_rng(seed)
    sizes = [batch, queries, heads, depth], [batch, keys, key_heads, depth], [batch, keys, key_heads, value_depth]
    return [rng.normal(size=size) for size in sizes]


_RNG = np.random.default_rng(1)

# A value of each option, for the operands above.
OPTIONS = {
    "mask": _RNG.random([2, 1, 5, 9]) < 0.6,
    "bias": _RNG.normal(size=[4, 1, 9]),
    "causal": True,
    "window": (3, 1),
    "query_offset": [2, -1],
    "scale": -0.7,
    "softcap": 1.5,
    "alibi_slopes": _RNG.uniform(size=[2, 4]),
    "sinks": _RNG.normal(size=[4]),
    "lengths": [3, 5],
    "key_lengths": [9, 4],
    "dropout": 0.3,
}


def chosen(*names):
    """Returns the options of these names, with a seed."""
    seed = {"seed": [7, -16]} if "dropout" in names else {}
    return {name: OPTIONS[name] for name in names} | seed
