"""Normalizations of layers: Keras's, and the root-mean-square norms of keras-hub's language models."""

import functools

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, library
from tensorflow_ops.layers.python.switch.served import Original, served
from tensorflow_ops.nn.python.ops import normalization

_MINOR = int(keras.__version__.split(".")[1])


def _axes(inputs, axis, epsilon):
    """Returns axes as the last ones, [..., -2, -1], or Original where ours does not fit."""
    if not isinstance(epsilon, int | float) or epsilon < 0:
        return Original("no number as epsilon")
    if isinstance(inputs, tf.RaggedTensor):
        return Original("ragged inputs")
    x = tf.convert_to_tensor(inputs)
    if library.is_compiled_by_xla():
        return Original("XLA")
    if x.dtype not in arguments.FLOAT_DTYPES:
        return Original(f"{x.dtype.name} inputs")
    axes = [axis] if isinstance(axis, int) else list(axis)
    rank, count = x.shape.rank, len(axes)
    if rank is None or rank < count or None in x.shape[-count:]:
        return Original("unknown sizes")
    last = list(range(-count, 0))
    return last if [a - rank if a >= 0 else a for a in axes] == last else Original("other axes than the last ones")


@served("layer_normalization", "layers.LayerNormalization", "call")
def layer_normalization(original, layer, inputs):
    del original
    # It divides by the deviation from the mean, which is no root mean square.
    axes = Original("rms_scaling=True") if layer.rms_scaling else _axes(inputs, layer.axis, layer.epsilon)
    if isinstance(axes, Original):
        return axes
    x = tf.convert_to_tensor(inputs)
    if _MINOR < 11 and x.dtype != layer.compute_dtype:
        x = tf.cast(x, arguments.at_least_float32(x.dtype))  # it does not round to the inputs' dtype
    y = normalization.layer_norm(x, layer.gamma, layer.beta, axis=axes, epsilon=layer.epsilon)
    return tf.cast(y, layer.compute_dtype)


@served("group_normalization", "layers.GroupNormalization", "call")
def group_normalization(original, layer, inputs):
    del original
    axes = _axes(inputs, layer.axis, layer.epsilon)
    if isinstance(axes, Original):
        return axes
    y = normalization.group_norm(inputs, layer.gamma, layer.beta, groups=layer.groups, epsilon=layer.epsilon)
    return tf.cast(y, layer.compute_dtype) if _MINOR >= 15 else y


@served("rms_normalization", "layers.RMSNormalization", "call")
def rms_normalization(original, layer, x):
    del original
    axes = _axes(x, layer.axis, layer.epsilon)
    if isinstance(axes, Original):
        return axes
    return normalization.rms_norm(x, layer.scale, axis=axes, epsilon=layer.epsilon)


def _of_hub(original, layer, x, *, plus=0.0, keeps_dtype=False):
    del original
    axes = _axes(x, -1, layer.epsilon)
    if isinstance(axes, Original):
        return axes
    x = tf.convert_to_tensor(x)
    if x.dtype == tf.float64:
        return Original("float64 inputs")  # the original casts to float32
    y = normalization.rms_norm(x, tf.cast(layer.scale, tf.float32) + plus, epsilon=layer.epsilon)
    return tf.cast(y, x.dtype if keeps_dtype else layer.compute_dtype)


# Classes of keras-hub, and what sets their formula apart.
_HUB = {
    "gemma.rms_normalization.RMSNormalization": {"plus": 1.0},
    "gemma3.gemma3_layers.RMSNormalization": {"plus": 1.0},
    "gemma3.rms_normalization.RMSNormalization": {"plus": 1.0},  # in older minors
    "gpt_oss.gpt_oss_layer_norm.GptOssLayerNormalization": {},
    "llama.llama_layernorm.LlamaLayerNorm": {},
    "mistral.mistral_layer_norm.MistralLayerNormalization": {},
    "mixtral.mixtral_layer_norm.MixtralLayerNormalization": {},
    "phi3.phi3_layernorm.Phi3LayerNorm": {},
    "qwen.qwen_layernorm.QwenLayerNorm": {},
    "qwen3.qwen3_layernorm.Qwen3LayerNorm": {"keeps_dtype": True},
    "qwen3_moe.qwen3_moe_layernorm.Qwen3MoeLayerNorm": {"keeps_dtype": True},
    "qwen_moe.qwen_moe_layernorm.QwenMoeLayerNorm": {},
}

for _name, _options in _HUB.items():
    served("rms_normalization", f"keras_hub.{_name}", "call")(functools.partial(_of_hub, **_options))
