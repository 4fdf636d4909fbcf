"""Attention, in functions and layers of Keras and in models of keras-hub."""

import math
from numbers import Real

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.layers.python.switch.served import Original, served
from tensorflow_ops.nn.python.ops import attention

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


@served("dot_product_attention", "backend.nn")
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


def _attention_layer(kind, scale):
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


for _kind, _scale in (
    ("MultiHeadAttention", "_inverse_sqrt_key_dim"),
    ("GroupQueryAttention", "_inverse_sqrt_head_dim"),
):
    _register = served("dot_product_attention", f"layers.{_kind}", "_compute_attention")
    _register(_attention_layer(getattr(keras.layers, _kind), _scale))


# Modules of keras-hub whose fused branch computes what the composed one does. Qwen's ignores the sliding window.
_HUB_ATTENTION = (
    "gemma.gemma_attention",
    "gemma3.gemma3_attention",
    "gemma4.gemma4_attention",
    "gpt_neo_x.gpt_neo_x_attention",
    "llama.llama_attention",
    "mistral.mistral_attention",
    "mixtral.mixtral_attention",
    "phi3.phi3_attention",
    "smollm3.smollm3_layers",
    "stable_diffusion_3.mmdit",
)
# The conditions of the fused branch, which these modules import by name. Gemma's and Mixtral's refuse CPUs.
_HUB_CONDITIONS = ("fused_attention_op_available", "running_on_gpu", "gpu_supports_fused_attention_op")
for _module in _HUB_ATTENTION:
    for _name in _HUB_CONDITIONS:
        served("dot_product_attention", f"keras_hub.{_module}", _name, is_counted=False)(lambda original: True)
