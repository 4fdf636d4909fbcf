"""The public function update_cache, its gradient and vectorization."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, pfor
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike


@autograph.op_function
def update_cache(cache: TensorLike, rows: TensorLike, positions: TensorLike, *, name: str | None = None) -> tf.Tensor:
    """Writes rows into a cache of keys or values, without a copy where nothing else reads it.

    `result[b, positions[b] + t] = rows[b, t]`, and the cache's numbers elsewhere. A loop that passes
    a cache from step to step, in a tf.function or under XLA, writes the rows and copies nothing. An
    eager call copies: the caller's tensor never changes.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> cache = tf.zeros([2, 4, 1])
    >>> rows = tf.constant([[[1.0], [2.0]], [[3.0], [4.0]]])
    >>> tfo.nn.update_cache(cache, rows, [0, 2])[..., 0].numpy()
    array([[1., 2., 0., 0.],
           [0., 0., 3., 4.]], dtype=float32)

    Args:
      cache: [B, S, ...], of numbers or bools.
      rows: [B, T, ...], of the cache's dtype and inner dims.
      positions: an int, or integers [B], in [0, S - T]: where an example's rows go.
      name: name of the op.

    Returns:
      [B, S, ...], the cache's dtype. Differentiable in the cache and the rows, to any order.

    Raises:
      ValueError: dtypes or shapes that do not fit.
      InvalidArgumentError: a position outside of its range (on a GPU it writes nothing).
    """
    cache = arguments.number_tensor("cache", cache, or_bools=True)
    rows = arguments.dense_tensor("rows", rows, None if hasattr(rows, "dtype") else cache.dtype)
    if rows.dtype != cache.dtype:
        raise ValueError(f"rows are {rows.dtype.name}, expected {cache.dtype.name}: the cache's dtype")
    positions = arguments.int_of_each("positions", positions, lambda: tf.shape(cache)[0])
    return ops.tensorflow_ops_update_cache(cache, rows, positions, name=name)


@tf.RegisterGradient("TensorflowOps>UpdateCache")
def _update_cache_grad(op, d_output):
    _, rows, positions = op.inputs
    d_cache = ops.tensorflow_ops_update_cache(d_output, tf.zeros_like(rows), positions)
    places = positions[:, tf.newaxis] + tf.range(tf.shape(rows)[1])
    return d_cache, tf.gather(d_output, places, batch_dims=1), None


pfor.register("TensorflowOps>UpdateCache")(pfor.convert_folded)
