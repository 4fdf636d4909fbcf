"""What functions of Keras compute, by ops of this package: for the switch.

Each takes the original and its arguments, and returns Original(reason) where they do not fit.
"""

import math
from numbers import Integral, Real

import keras
import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.image.python.ops import warps
from tensorflow_ops.layers.python.original import Original
from tensorflow_ops.nn.python.ops import attention, sequence_arguments, update_cache
from tensorflow_ops.nn.python.ops.ctc_loss import ctc_loss as fused_ctc_loss

# Whether keras.layers.Softmax gives 0 where all is masked.
_ZEROES_MASKED = int(keras.__version__.split(".")[1]) >= 10


def _misfit(query, key, value):
    """Returns Original where no attention fits; else None."""
    if any(tensor.shape.rank != 4 for tensor in (query, key, value)):
        return Original("a rank other than 4")
    if {query.dtype, key.dtype, value.dtype} != {query.dtype}:
        return Original("mixed dtypes")
    return None if query.dtype in arguments.FLOAT_DTYPES else Original(f"{query.dtype.name} inputs")


def mask_of_rank_4(mask):
    """Returns a layer's mask [T, S], [B, T, S] or [B, N, T, S] as bools of rank 4; None for one of another rank."""
    axes = {2: (tf.newaxis, tf.newaxis), 3: (slice(None), tf.newaxis), 4: ()}
    return tf.cast(mask, tf.bool)[axes[mask.shape.rank]] if mask.shape.rank in axes else None


def dot_product_attention(
    original, query, key, value, bias=None, mask=None, scale=None, is_causal=False, flash_attention=None, **others
):
    del original, flash_attention, others
    query, key, value = map(tf.convert_to_tensor, (query, key, value))
    misfit = _misfit(query, key, value)
    if misfit:
        return misfit
    if not (scale is None or (isinstance(scale, Real) and math.isfinite(scale))):
        return Original(f"scale={scale}" if isinstance(scale, Real) else "a tensor as scale")
    # Keras takes arrays of other dtypes, and aligns the first query with the first key.
    bias = None if bias is None else tf.cast(bias, query.dtype)
    options = {"bias": bias, "causal": bool(is_causal), "query_offset": 0, "scale": scale}
    if mask is None:
        return attention.attention(query, key, value, **options)
    # Keras gives a query without any key the mean of all values, and the op gives 0.
    mask = tf.cast(mask, tf.bool)
    if mask.shape.rank is None:
        return Original("an unknown rank")
    mask = mask[(tf.newaxis,) * (4 - mask.shape.rank)]
    queries, keys = tf.shape(query)[1], tf.shape(key)[1]
    allowed = mask & (tf.range(keys) <= tf.range(queries)[:, tf.newaxis]) if is_causal else mask
    has_key = tf.reduce_any(allowed, -1, keepdims=True)
    has_key_by_query = tf.transpose(has_key, [0, 2, 1, 3])
    if query.shape[1] == 1 and bias is None and not is_causal:
        # In a step of a decoder, equal scores give the mean without reading the values once more.
        query = tf.where(has_key_by_query, query, tf.zeros([], query.dtype))
        return attention.attention(query, key, value, mask=mask | ~has_key, **options)
    outputs = attention.attention(query, key, value, mask=mask, **options)
    wide = arguments.at_least_float32(value.dtype)
    means = tf.reduce_sum(tf.cast(value, wide), 1, keepdims=True) / tf.cast(tf.maximum(keys, 1), wide)
    means = tf.repeat(tf.cast(means, value.dtype), tf.shape(query)[2] // tf.shape(value)[2], axis=2)
    result = tf.where(has_key_by_query, outputs, means)
    result.set_shape(outputs.shape)
    return result


def attention_layer(kind, scale):
    """Returns the method _compute_attention of a layer, whose attribute `scale` is a number.

    Keras composes attention in layers with dropout, also where they drop nothing.
    """

    def call(
        original, layer, query, key, value, attention_mask=None, training=None,
        return_attention_scores=None, use_causal_mask=False,
    ):  # fmt: skip
        from keras.src.backend.common import global_state  # private: after check_keras

        del original
        # Until Keras 3.8, and of GroupedQueryAttention, it is an attribute.
        if return_attention_scores or getattr(layer, "_return_attention_scores", False):
            return Original("return_attention_scores=True")
        if not layer.dropout:
            # Keras calls dot_product_attention, but for queries of other ranks.
            return Original("" if len(query.shape) == 4 else "queries of another rank")
        if training is None:
            training = getattr(global_state.get_global_attribute("current_call_ctx"), "training", None)
        if tf.is_tensor(training) or training:
            return Original("dropout")
        # Another class may use the scores. Those of keras-hub do so with return_attention_scores=True only.
        for method in ("call", "_compute_attention", "_masked_softmax"):
            owner = next(owner for owner in type(layer).__mro__ if method in vars(owner))
            if owner is not kind and not (method == "call" and owner.__module__.startswith("keras_hub.src.")):
                return Original("a subclass")
        tensors = [tf.convert_to_tensor(x) for x in (query, key, value)]
        mask = attention_mask
        if mask is not None:
            mask = tf.convert_to_tensor(mask)
            if mask.dtype.is_floating or not _ZEROES_MASKED:
                return Original("a mask of floats" if mask.dtype.is_floating else "a mask, before Keras 3.10")
            mask = mask_of_rank_4(mask)
            if mask is None:
                return Original("a mask of another rank")
        misfit = _misfit(*tensors)
        if misfit:
            return misfit
        options = {"causal": bool(use_causal_mask), "query_offset": 0, "scale": getattr(layer, scale)}
        # Here Keras, too, gives 0 for a query without any key.
        return attention.attention(*tensors, mask=mask, **options), None

    return call


multi_head_attention = attention_layer(keras.layers.MultiHeadAttention, "_inverse_sqrt_key_dim")
grouped_query_attention = attention_layer(keras.layers.GroupQueryAttention, "_inverse_sqrt_head_dim")


# What tf.nn.ctc_loss takes for the logarithm of 0.
_CTC_INFINITY = -np.log(1e-307)


def ctc_loss(original, target, output, target_length, output_length, mask_index=0):
    labels, logits = map(keras.ops.convert_to_tensor, (target, output))
    if not (isinstance(labels, tf.Tensor) and isinstance(logits, tf.Tensor)):
        return Original("sparse or ragged tensors")
    if (labels.shape.rank, logits.shape.rank) != (2, 3):
        return Original("labels or logits of another rank")
    lengths = [tf.cast(x, tf.int32) for x in (target_length, output_length)]  # fits: the original casts, too
    batches = [x.shape[0] if x.shape.rank else 0 for x in (logits, labels, *lengths)]
    if len(set(batches) - {None}) > 1:
        return Original("batches that differ")
    if not isinstance(mask_index, Integral) or mask_index < -1:
        return Original(f"mask_index={mask_index}" if isinstance(mask_index, Integral) else "a tensor as mask_index")
    if logits.dtype not in arguments.FLOAT_DTYPES:
        logits = tf.cast(logits, keras.backend.result_type(logits.dtype, "float32"))
    labels, (label_lengths, logit_lengths) = tf.cast(labels, tf.int32), lengths  # fits: as above
    width, (batch, frames, classes) = tf.shape(labels)[1], tf.unstack(tf.shape(logits))
    is_label = (labels >= 0) & (labels < classes)
    is_label &= tf.not_equal(labels, sequence_arguments.blank_class(mask_index, logits))
    are_labels = tf.reduce_all(is_label | ~tf.sequence_mask(label_lengths, width))
    for lengths, end in ((label_lengths, width), (logit_lengths, frames)):
        are_labels &= tf.reduce_all((lengths >= 0) & (lengths <= end))
    if None in batches:
        for tensor in (labels, label_lengths, logit_lengths):
            are_labels &= tf.equal(tf.shape(tensor)[0], batch)

    def fused():
        loss = fused_ctc_loss(labels, logits, label_lengths, logit_lengths, blank_index=mask_index)
        # One example without a path must not end a training that Keras continues. Its gradient is 0.
        return tf.where(tf.math.is_inf(loss), tf.constant(_CTC_INFINITY, loss.dtype), loss)

    # Keras takes blanks, and numbers that are no class, for labels; ours refuses them.
    return tf.cond(are_labels, fused, lambda: original(target, output, target_length, output_length, mask_index))


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


_SCIPY_MODES = {"constant": "grid-constant", "wrap": "grid-wrap"}


def _warp_options(order, fill_mode, fill_value):
    """Returns options of map_coordinates, or None where it has none for Keras's."""
    options = {"order": order, "fill_mode": _SCIPY_MODES.get(fill_mode, fill_mode), "fill_value": fill_value}
    is_keras = fill_mode in ("constant", "nearest", "wrap", "mirror", "reflect")
    try:
        return options if is_keras and warps.attributes(**options) else None
    except ValueError:
        return None


def map_coordinates(original, inputs, coordinates, order, fill_mode="constant", fill_value=0.0):
    del original
    image, places = map(tf.convert_to_tensor, (inputs, coordinates))
    options = _warp_options(order, fill_mode, fill_value)
    is_of_planes = image.shape.rank == 2 and (places.shape.rank or 0) >= 2 and places.shape[0] == 2
    is_integer = image.dtype.is_integer
    has_kernel = places.dtype in arguments.FLOAT_DTYPES and (is_integer or image.dtype in arguments.FLOAT_DTYPES)
    if options is None:
        return Original("fill options")
    if not is_of_planes:
        return Original("inputs of a rank other than 2")
    if not has_kernel:
        return Original(f"{image.dtype.name} inputs at {places.dtype.name} coordinates")
    if is_integer and fill_value % 1:
        return Original("a fraction as fill_value for inputs of integers")
    # Keras computes in the places' dtype.
    is_cast = is_integer or places.dtype == tf.float64
    images = tf.cast(image, arguments.at_least_float32(places.dtype) if is_cast else image.dtype)
    samples = warps.map_coordinates(
        images[tf.newaxis, ..., tf.newaxis], tf.stack(tf.unstack(places), -1)[tf.newaxis], **options
    )[0, ..., 0]
    return tf.cast(tf.round(samples) if is_integer else samples, image.dtype)


def elastic_transform(
    original,
    images,
    alpha=20.0,
    sigma=5.0,
    interpolation="bilinear",
    fill_mode="reflect",
    fill_value=0.0,
    seed=None,
    data_format=None,
):
    del original
    from keras.src.random.seed_generator import draw_seed  # private: after check_keras

    images = tf.convert_to_tensor(images)
    dtype, rank = images.dtype, images.shape.rank
    options = _warp_options({"nearest": 0, "bilinear": 1}.get(interpolation), fill_mode, fill_value)
    if options is None:
        return Original("fill options")
    if rank not in (3, 4):
        return Original("images of a rank other than 3 and 4")
    if dtype not in arguments.FLOAT_DTYPES:
        return Original(f"{dtype.name} images")
    has_channels_first = (data_format or keras.config.image_data_format()) == "channels_first"
    images = images if rank == 4 else images[tf.newaxis]
    images = tf.transpose(images, [0, 2, 3, 1]) if has_channels_first else images
    wide = arguments.at_least_float32(dtype)
    alpha, sigma = (keras.ops.convert_to_tensor(number, wide) for number in (alpha, sigma))
    # Keras draws both axes from one seed.
    noise = tf.random.stateless_normal(tf.shape(images)[:3], draw_seed(seed), dtype=dtype)
    moved = warps.displaced(images, tf.cast(noise, wide)[tf.newaxis], alpha, sigma, warps.attributes(**options))
    moved = tf.transpose(moved, [0, 3, 1, 2]) if has_channels_first else moved
    return moved if rank == 4 else moved[0]
