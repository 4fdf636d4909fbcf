"""`keras.ops.slice_update`, which writes into caches."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.layers.python.switch.served import Original, served
from tensorflow_ops.nn.python.ops import update_cache


@served("slice_update", "backend.core")
def slice_update(original, inputs, start_indices, updates):
    del original
    cache, rows = map(tf.convert_to_tensor, (inputs, updates))
    rank = cache.shape.rank
    if not isinstance(start_indices, list | tuple):
        return Original("start indices in one tensor")
    if rank is None or rows.shape.rank != rank:
        return Original("an unknown rank")
    if rows.dtype != cache.dtype:
        return Original("mixed dtypes")
    if not (cache.dtype.is_bool or cache.dtype.is_floating or cache.dtype.is_integer):
        return Original(f"{cache.dtype.name} inputs")
    is_batch_unknown = None in (cache.shape[0], rows.shape[0])

    def is_whole(axis):
        has_size = rows.shape[axis] == cache.shape[axis] is not None or (axis == 0 and is_batch_unknown)
        return has_size and arguments.static_value(start_indices[axis]) == 0

    axes = [axis for axis in range(rank) if not is_whole(axis)]
    if not axes:
        return Original("")  # the updates are the result
    if len(axes) > 1:
        return Original("updates of a part of more than one axis")
    (axis,) = axes
    static = cache.shape
    shape, count = tf.shape(cache), tf.shape(rows)[axis]
    start = tf.convert_to_tensor(start_indices[axis])
    # As Keras, it clamps.
    start = tf.clip_by_value(start, 0, tf.cast(shape[axis] - count, start.dtype))
    if axis and is_batch_unknown:
        # Examples beyond the updates keep their rows. There are none where both have one batch.
        first, place = tf.shape(rows)[0], tf.cast(start, tf.int32)  # fits: clipped to the size
        begin = tf.tensor_scatter_nd_update(tf.zeros([rank], tf.int32), [[0], [axis]], [first, place])
        kept = tf.slice(cache, begin, tf.concat([[shape[0] - first], shape[1:axis], [count], shape[axis + 1 :]], 0))
        rows = tf.concat([rows, kept], 0)
    if axis != 1:
        outer, inner = (tf.reduce_prod(sizes) for sizes in (shape[:axis], shape[axis + 1 :]))
        cache, rows = (tf.reshape(x, [outer, size, inner]) for x, size in ((cache, shape[axis]), (rows, count)))
    result = update_cache.update_cache(cache, rows, start)
    return tf.ensure_shape(result if axis == 1 else tf.reshape(result, shape), static)
