"""Lets unmodified layers of Keras and keras-hub use fused attention; the versions whose private names this needs."""

import contextlib
import functools
import sys
from numbers import Real

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments
from tensorflow_ops.nn.python.ops import attention

# The minors whose private names are known. Before adding one, run the tests of attention with it:
# PYTHONPATH with a folder of `pip install --no-deps --target FOLDER keras==MINOR.*`.
_KERAS_MINORS = range(7, 16)
# keras-hub's modules whose fused branch computes what the composed one does. Qwen's are left out: there it
# ignores the sliding window.
_HUB_MODULES = (
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
# What these modules ask first; those of Gemma and Mixtral refuse CPUs.
_HUB_CONDITIONS = ("fused_attention_op_available", "running_on_gpu", "gpu_supports_fused_attention_op")


def check_keras():
    """Raises ImportError unless the private functions of the installed Keras are known."""
    major, minor = keras.__version__.split(".")[:2]
    first, last = _KERAS_MINORS[0], _KERAS_MINORS[-1]
    if major != "3" or not first <= int(minor) <= last:
        raise ImportError(
            f"Attention in tfo.layers overrides private functions of Keras 3.{first} to 3.{last}, and Keras "
            f'{keras.__version__} is installed. Either install one of these: pip install "keras>=3.{first},'
            f'<3.{last + 1}", or a tensorflow-extra-ops that knows Keras {major}.{minor}.'
        )


def _dot_product_attention(
    keras_function,
    query,
    key,
    value,
    bias=None,
    mask=None,
    scale=None,
    is_causal=False,
    flash_attention=None,
    **unsupported,
):
    """Replaces Keras's function; calls it where it promotes dtypes, scales by a tensor, or raises an error."""
    query, key, value = map(tf.convert_to_tensor, (query, key, value))
    is_fused = (
        all(tensor.shape.rank == 4 and tensor.dtype == query.dtype for tensor in (query, key, value))
        and query.dtype in arguments.FLOAT_DTYPES
        and (scale is None or isinstance(scale, Real))
    )
    if not is_fused:
        options = {"mask": mask, "scale": scale, "is_causal": is_causal, "flash_attention": flash_attention}
        return keras_function(query, key, value, bias, **options, **unsupported)
    # Keras aligns the first query with the first key.
    return attention.attention(query, key, value, mask=mask, bias=bias, causal=is_causal, query_offset=0, scale=scale)


def _replacements():
    """Yields (module, name, function) for each function to replace."""
    from keras.src.backend import nn  # private: after check_keras

    if not isinstance(nn.dot_product_attention, functools.partial):
        yield nn, "dot_product_attention", functools.partial(_dot_product_attention, nn.dot_product_attention)
    for module in map(sys.modules.get, (f"keras_hub.src.models.{name}" for name in _HUB_MODULES)):
        for name in _HUB_CONDITIONS:
            if hasattr(module, name):
                yield module, name, lambda: True


def use_fused_attention() -> contextlib.ExitStack:
    """Makes unmodified layers of Keras and keras-hub use `tfo.nn.attention`; a switch and a context manager.

    `keras.ops.dot_product_attention`, and all layers and saved models that call it, become
    fused, in all their masks and biases; `flash_attention=True` no longer raises an error.

    >>> import keras, numpy as np, tensorflow_ops as tfo
    >>> layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
    >>> x = np.random.default_rng(0).normal(size=[1, 6, 8])
    >>> expected = layer(x, x, use_causal_mask=True)
    >>> with tfo.layers.use_fused_attention():
    ...     fused = layer(x, x, use_causal_mask=True)
    >>> np.allclose(fused, expected, atol=1e-5)
    True

    A call without `with` switches it on for the process; `close()` of the result, or the end
    of `with`, switches it off. What was traced before keeps its attention: call it before
    `fit`, or compile the model anew.

    Stay as they are:

    - `keras.layers.MultiHeadAttention` and `GroupQueryAttention` with dropout, even outside
      of training, and with `return_attention_scores`: Keras does not call the function. The
      layers here fuse dropout.
    - `keras.layers.Attention` and `AdditiveAttention`, which have their own code.
    - keras-hub's Qwen models, whose fused branch ignores the sliding window, and Gemma's
      with `logit_soft_cap`. Import keras_hub first.

    Rows without any key give 0, where Keras gives the mean of all values.

    Returns:
      The context manager.

    Raises:
      ImportError: Keras is of a minor release whose private functions are unknown.
      ValueError: Keras's backend is not TensorFlow.
    """
    check_keras()
    if keras.backend.backend() != "tensorflow":
        raise ValueError(f"Keras's backend is {keras.backend.backend()!r}, expected 'tensorflow'")
    switch = contextlib.ExitStack()
    for module, name, function in _replacements():
        switch.callback(setattr, module, name, getattr(module, name))
        setattr(module, name, function)
    return switch
