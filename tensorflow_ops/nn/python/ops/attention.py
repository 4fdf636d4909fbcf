"""The public function of attention."""

from typing import Literal, overload

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, ragged
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import (
    attention_grad,  # noqa: F401  (registers gradients)
    nn_arguments,
)


def _operands(query, key, value):
    """Returns query, key, value and lists of query_splits, key_splits and longest, empty for dense tensors."""
    named = {"query": query, "key": key, "value": value}
    found = [name for name, tensor in named.items() if isinstance(tensor, tf.RaggedTensor)]
    if not found:
        ragged_inputs = [], [], []
    elif len(found) < 3:
        dense = next(name for name in named if name not in found)
        raise ValueError(f"{dense} is dense, expected a RaggedTensor, as {found[0]} is; or pass all of them dense")
    else:
        for name, tensor in named.items():
            ragged.rows(name, tensor, "[B, (T), heads, depth]")
            if not tensor.row_splits.shape.is_compatible_with(query.row_splits.shape):
                examples = tensor.row_splits.shape[0] - 1, query.row_splits.shape[0] - 1
                raise ValueError(f"{name} has {examples[0]} examples, expected {examples[1]}, as query has")
        key_splits = value.row_splits
        if key_splits is not key.row_splits:
            fit = arguments.equal(key_splits, tf.cast(key.row_splits, key_splits.dtype))
            key_splits = arguments.checked("value.row_splits", key_splits, fit, "those of key")
        longest = tf.stack([t.bounding_shape(1, out_type=tf.int64) for t in (query, key)])
        ragged_inputs = [tf.cast(query.row_splits, tf.int64)], [tf.cast(key_splits, tf.int64)], [longest]  # fits: sizes
        named = {name: tensor.values for name, tensor in named.items()}
    query, key, value = (arguments.float_tensor(name, tensor) for name, tensor in named.items())
    for name, tensor in ("key", key), ("value", value):
        if tensor.dtype != query.dtype:
            raise ValueError(f"{name} is {tensor.dtype.name}, expected {query.dtype.name}, as query is")
    return query, key, value, *ragged_inputs


def left_and_right(causal, window):
    """Returns how many keys to the left and to the right a query sees, -1 for all. Raises ValueError."""
    if window is None:
        left, right = None, None
    elif arguments.is_int(window):
        arguments.static_int("window", window, 1)
        left, right = window - 1, window - 1
    elif isinstance(window, list | tuple) and len(window) == 2:
        left, right = window
        for side in window:
            if side is not None:
                arguments.static_int("window", side, 0)
    else:
        raise ValueError(f"window is {window!r}, expected None, a positive int, or (left, right)")
    if arguments.static_bool("causal", causal):
        right = 0
    return tuple(-1 if side is None else int(side) for side in (left, right))


def score_attrs(scale, softcap):
    """Returns attrs, of those that are not None. Raises ValueError."""
    attrs = {}
    if scale is not None:
        # The op has it as a sum of float32 numbers.
        expected = "a number in [-3.4e38, 3.4e38]"
        scale = arguments.static_number("scale", scale, expected, lambda x: abs(x) <= arguments.MAX_FLOAT32)
        attrs["scale"] = arguments.float32_parts(scale) or [0.0]
    if softcap is not None:
        attrs["softcap"] = arguments.float32_parts(nn_arguments.softcap_or_none(softcap))
    return attrs


def _with_rank(rank, name, tensor):
    """Returns a tensor with leading dims of 1. Raises ValueError."""
    found = tensor.shape.rank
    if found is None:
        # A higher rank stays, so that the op refuses it.
        shape = tf.shape(tensor)
        return tf.reshape(tensor, tf.concat([tf.ones([tf.maximum(rank - tf.rank(tensor), 0)], shape.dtype), shape], 0))
    if found > rank:
        dims = ", ".join(("B", "heads", "T", "S")[:rank])
        raise ValueError(f"{name} has {found} dims, expected at most {rank}: it broadcasts to [{dims}]")
    return tf.reshape(tensor, tf.concat([[1] * (rank - found), tf.shape(tensor)], 0)) if found < rank else tensor


def checked_dropout(dropout):
    """Returns a float. Raises ValueError."""
    # The kernels round it to 1/65536.
    expected = "a number in [0, 1) that does not round to 1 in steps of 1/65536"
    return arguments.static_number("dropout", dropout, expected, lambda x: 0 <= x < 1 - 2.0**-17)


def _seed(seed, dropout):
    """Returns an optional input: int32 [2], none without dropout. Raises ValueError."""
    if dropout == 0:
        return []
    if seed is None:
        raise ValueError(f"seed is None, expected two integers: dropout is {dropout}")
    return [arguments.seed(seed)]


def option(name, value, kind, batch):
    """Returns an optional input of the op: a list of no tensor, or of one. batch() is B. Raises ValueError."""
    if value is None:
        return []
    if kind == tf.int32:
        return [arguments.int_of_each(name, value, batch)]
    tensor = arguments.tensor_of_kind(name, value, kind)
    if name in ("mask", "bias", "alibi_slopes"):
        return [_with_rank(2 if name == "alibi_slopes" else 4, name, tensor)]
    return [tensor]


@overload
def attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    *,
    mask: TensorLike | None = None,
    bias: TensorLike | None = None,
    causal: bool = False,
    window: int | tuple[int | None, int | None] | None = None,
    query_offset: TensorLike | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    alibi_slopes: TensorLike | None = None,
    sinks: TensorLike | None = None,
    lengths: TensorLike | None = None,
    key_lengths: TensorLike | None = None,
    dropout: float = 0.0,
    seed: TensorLike | None = None,
    return_log_sum_exp: Literal[False] = False,
    name: str | None = None,
) -> tf.Tensor: ...
@overload
def attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    *,
    mask: TensorLike | None = None,
    bias: TensorLike | None = None,
    causal: bool = False,
    window: int | tuple[int | None, int | None] | None = None,
    query_offset: TensorLike | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    alibi_slopes: TensorLike | None = None,
    sinks: TensorLike | None = None,
    lengths: TensorLike | None = None,
    key_lengths: TensorLike | None = None,
    dropout: float = 0.0,
    seed: TensorLike | None = None,
    return_log_sum_exp: Literal[True],
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]: ...
@autograph.op_function
def attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    *,
    mask: TensorLike | None = None,
    bias: TensorLike | None = None,
    causal: bool = False,
    window: int | tuple[int | None, int | None] | None = None,
    query_offset: TensorLike | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    alibi_slopes: TensorLike | None = None,
    sinks: TensorLike | None = None,
    lengths: TensorLike | None = None,
    key_lengths: TensorLike | None = None,
    dropout: float = 0.0,
    seed: TensorLike | None = None,
    return_log_sum_exp: bool = False,
    name: str | None = None,
) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
    """Scaled dot-product attention (arXiv:1706.03762), fused: no scores [T, S] are stored.

    For query t of head n let i = t + query_offset. Its score of key j, of head
    n // (heads / key_heads), is

        s = scale * (query . key)
        s = softcap * tanh(s / softcap)                            with softcap
        s = s - alibi_slopes[n] * |i - j| + bias[b, n, t, j]       with alibi_slopes, bias

    and the output is the sum of e^(s - lse) * value[j], lse = log(sum of e^s + e^sinks[n]),
    over the keys that remain after mask, lengths, causal and window. A score of -inf, for
    example from the bias, excludes a key, too. Computed in tiles, as FlashAttention does
    (arXiv:2205.14135).

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> query = key = tf.constant([[[[1.0]], [[2.0]]]])  # [1, 2, 1, 1]
    >>> value = tf.constant([[[[1.0]], [[3.0]]]])
    >>> tfo.nn.attention(query, key, value, causal=True).numpy().ravel().round(3)  # (e^2 + 3 e^4) / (e^2 + e^4)
    array([1.   , 2.762], dtype=float32)
    >>> tfo.nn.attention(query, key, value, bias=[0.0, -1.0]).numpy().ravel().round(3)
    array([2.   , 2.462], dtype=float32)

    Args:
      query: [B, T, heads, D], Keras's order; float16, bfloat16, float32 or float64.
      key: [B, S, key_heads, D], query's dtype. key_heads divides heads.
      value: [B, S, key_heads, Dv], query's dtype. All three may be RaggedTensors
        [B, (T), heads, D] and so on; key and value have the same rows. T and S are then
        those of the longest example.
      mask: bool, broadcasts to [B, heads, T, S]; True: the query attends to the key.
      bias: broadcasts to [B, heads, T, S]; cast to query's dtype.
      causal: whether query i sees only the keys j <= i.
      window: (left, right): query i sees the keys i - left <= j <= i + right, None: without
        bound; or an int w: |i - j| < w.
      query_offset: an int, or integers [B]: the position of query 0. None: the last query is
        beside the last key, S - T, or key_lengths - lengths. (Keras and torch: 0.)
      scale: a float in float32's range; None: 1 / sqrt(D).
      softcap: a float from 1e-30 to 1e30; None: no cap.
      alibi_slopes: [heads] or [B, heads], cast to float32 (float64 for float64 data). ALiBi
        (arXiv:2108.12409); no gradient. The penalties are rounded as scores are: with a
        query_offset far beyond the keys, weights are off by slope * |i - j| * 2^-24.
      sinks: [heads], cast as alibi_slopes: logits that take probability and have no value.
      lengths: an int, or integers [B], in [0, T]: queries beyond give 0. None: T.
      key_lengths: an int, or integers [B], in [0, S]: keys beyond are not read. None: S.
      dropout: the fraction of weights to drop, in [0, 1), rounded to 1/65536, but not to 1;
        the others are scaled by 1 / (1 - dropout).
      seed: two integers, of which the lower 32 bits count; required with dropout. Weight
        (b, n, t, j) is kept if the 16-bit word j % 8 of Philox4x32-10 with the key seed
        and the counter (j // 8, t, b * heads + n, 0) is at least 65536 * dropout.
      return_log_sum_exp: whether to return lse, too.
      name: name of the op.

    Returns:
      [B, T, heads, Dv], query's dtype; or (it, lse), lse [B, heads, T] in float32 (float64
      for float64 data). For RaggedTensors the output is ragged, and lse a RaggedTensor
      [B, (T), heads]. Scores and sums of 16-bit data are float32.

      Without any key the output is 0 and lse is sinks[n] or -inf; only lse has a gradient,
      to sinks. Queries beyond lengths give the same, and have no gradient. A pair that is
      excluded, or whose weight is 0, adds nothing, whatever its key and value hold. NaN or
      +inf among a query's scores make its row NaN, and no other.

      Differentiable once in query, key, value, bias and sinks, and through lse. Second
      derivatives raise LookupError, in a graph UnimplementedError, which forward mode
      raises everywhere.

    Raises:
      ValueError: a wrong dtype, shapes that do not fit; dropout without seed.
      InvalidArgumentError: shapes that do not fit, found at run time; lengths outside of
        their range (on a GPU they are clamped to it).
    """
    ragged_query = query
    query, key, value, query_splits, key_splits, longest = _operands(query, key, value)
    dtype = arguments.at_least_float32(query.dtype)
    left, right = left_and_right(causal, window)
    attrs = {"left": left, "right": right, "Tvalue": dtype, **score_attrs(scale, softcap)}
    dropout = checked_dropout(dropout)
    seed = _seed(seed, dropout)
    attrs["dropout"] = arguments.float32_parts(dropout)
    return_log_sum_exp = arguments.static_bool("return_log_sum_exp", return_log_sum_exp)
    if query_splits and (lengths is not None or key_lengths is not None):
        raise ValueError("lengths or key_lengths are given, expected None: query and key are RaggedTensors")

    def batch():
        return tf.size(query_splits[0]) - 1 if query_splits else tf.shape(query)[0]

    output, log_sum_exp = ops.tensorflow_ops_attention(
        query=query,
        key=key,
        value=value,
        mask=option("mask", mask, tf.bool, batch),
        bias=option("bias", bias, query.dtype, batch),
        alibi_slopes=option("alibi_slopes", alibi_slopes, dtype, batch),
        sinks=option("sinks", sinks, dtype, batch),
        query_splits=query_splits,
        key_splits=key_splits,
        lengths=option("lengths", lengths, tf.int32, batch),
        key_lengths=option("key_lengths", key_lengths, tf.int32, batch),
        query_offset=option("query_offset", query_offset, tf.int32, batch),
        seed=seed,
        longest=longest,
        **attrs,
        name=name,
    )
    if query_splits:
        output = ragged_query.with_values(output)
        log_sum_exp = ragged_query.with_values(tf.transpose(log_sum_exp))
    return (output, log_sum_exp) if return_log_sum_exp else output
