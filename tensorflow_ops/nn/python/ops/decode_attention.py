"""The public function of attention to a cache that beams share."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import attention


def keys_before(window):
    """Returns how many keys before its own position a query sees, -1 for all. Raises ValueError."""
    left, right = attention.left_and_right(False, window)
    if right > 0 and not arguments.is_int(window):
        raise ValueError(
            f"window is {window!r}, expected None, a positive int, (left, None) or (left, 0): no key is to the right"
        )
    return left


@autograph.op_function
def decode_attention(
    query: TensorLike,
    keys: TensorLike,
    values: TensorLike,
    lengths: TensorLike,
    *,
    ancestors: TensorLike | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    window: int | tuple[int | None, int | None] | None = None,
    alibi_slopes: TensorLike | None = None,
    sinks: TensorLike | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Attention of a decoder's step to a cache, in the order of a search's ancestors.

    Without ancestors this is attention(query, keys, values, causal=True,
    key_lengths=lengths): query t of row r has the position lengths[r] - T + t.

    A search with W beams has a row of the cache for each: row r = b * W + w. When beams
    are replaced, their past need not be copied: ancestors[b, w, j] is the beam whose row
    has position j of beam w's past. Results have the bits of attention to keys and values
    gathered in this order. Rows that nobody names are not read, so positions of a prompt
    that all beams share may be in beam 0's row alone.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> keys = tf.zeros([2, 3, 1, 1])  # two beams, three positions
    >>> values = tf.reshape(tf.constant([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]), [2, 3, 1, 1])
    >>> ancestors = [[[0, 0, 0], [0, 0, 1]]]  # beam 1 continues beam 0
    >>> tfo.nn.decode_attention(tf.ones([2, 1, 1, 1]), keys, values, 3, ancestors=ancestors).numpy().ravel()
    array([ 2., 11.], dtype=float32)

    Args:
      query: [R, T, heads, D]; float16, bfloat16, float32 or float64.
      keys: [R, S, key_heads, D], query's dtype. key_heads divides heads.
      values: [R, S, key_heads, Dv], query's dtype.
      lengths: an int, or integers [R], in [0, S]: the positions that are filled, the T new
        ones included. Those beyond are not read.
      ancestors: integers [B, W, S] in [0, W), R = B * W. None: each row has its own past.
      scale: a float in float32's range; None: 1 / sqrt(D).
      softcap: a float from 1e-30 to 1e30; None: no cap.
      window: an int w, (w - 1, None) or (w - 1, 0): a query sees its own position and the
        w - 1 before.
      alibi_slopes: [heads] or [R, heads], cast to float32 (float64 for float64 data).
      sinks: [heads], cast as alibi_slopes: logits that take probability and have no value.
      name: name of the op.

    Returns:
      [R, T, heads, Dv], query's dtype; 0 for queries that see no key.

      It has no gradient: LookupError, in a graph UnimplementedError. Forward mode raises
      UnimplementedError.

    Raises:
      ValueError: a wrong dtype, shapes that do not fit.
      InvalidArgumentError: shapes that do not fit, found at run time; lengths or ancestors
        outside of their range (on a GPU they are clamped to it).
    """
    tensors = {"query": query, "keys": keys, "values": values}
    query, keys, values = (arguments.float_tensor(name, tensor) for name, tensor in tensors.items())
    for name_of, tensor in ("keys", keys), ("values", values):
        if tensor.dtype != query.dtype:
            raise ValueError(f"{name_of} is {tensor.dtype.name}, expected {query.dtype.name}, as query is")
    dtype = arguments.at_least_float32(query.dtype)

    def rows():
        return tf.shape(query)[0]

    return ops.tensorflow_ops_decode_attention(
        query=query,
        keys=keys,
        values=values,
        lengths=arguments.int_of_each("lengths", lengths, rows),
        alibi_slopes=attention.option("alibi_slopes", alibi_slopes, dtype, rows),
        sinks=attention.option("sinks", sinks, dtype, rows),
        ancestors=[] if ancestors is None else [arguments.tensor_of_kind("ancestors", ancestors, tf.int32)],
        left=keys_before(window),
        **attention.score_attrs(scale, softcap),
        name=name,
    )
