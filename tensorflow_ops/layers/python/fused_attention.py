"""Replaces the attention of Keras and keras-hub; lists the versions of Keras whose private functions are known."""

import contextlib
import functools
import sys
from numbers import Real

import keras
import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.nn.python.ops import attention

# The minors whose private functions are known. To add one, `pip install --no-deps --target FOLDER keras==3.MINOR.*`,
# and run attention_layers_test.py and fused_attention_test.py with FOLDER first in PYTHONPATH.
_KERAS_MINORS = range(7, 16)
# Modules of keras-hub whose fused branch computes what the composed one does. Qwen's ignores the sliding window.
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
# The conditions of the fused branch, which these modules import by name. Gemma's and Mixtral's refuse CPUs.
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
    """Replaces Keras's function, and calls it to promote dtypes, to scale by a tensor, or to raise its errors."""
    query, key, value = map(tf.convert_to_tensor, (query, key, value))
    is_fused = (
        all(tensor.shape.rank == 4 and tensor.dtype == query.dtype for tensor in (query, key, value))
        and query.dtype in arguments.FLOAT_DTYPES
        and (scale is None or isinstance(scale, Real))
    )
    if not is_fused:
        options = {"mask": mask, "scale": scale, "is_causal": is_causal, "flash_attention": flash_attention}
        return keras_function(query, key, value, bias, **options, **unsupported)
    # Keras takes arrays of other dtypes.
    mask = None if mask is None else tf.cast(mask, tf.bool)
    bias = None if bias is None else tf.cast(bias, query.dtype)
    # It aligns the first query with the first key.
    return attention.attention(
        query, key, value, mask=mask, bias=bias, causal=bool(is_causal), query_offset=0, scale=scale
    )


def _is_available():
    """Replaces the conditions of keras-hub."""
    return True


def _replacements():
    """Yields (module, name, function) for each function to replace."""
    from keras.src.backend import nn  # private: after check_keras

    if not isinstance(nn.dot_product_attention, functools.partial):
        yield nn, "dot_product_attention", functools.partial(_dot_product_attention, nn.dot_product_attention)
    for module in map(sys.modules.get, (f"keras_hub.src.models.{name}" for name in _HUB_MODULES)):
        for name in _HUB_CONDITIONS:
            if getattr(module, name, _is_available) is not _is_available:
                yield module, name, _is_available


@autograph.marked
def use_fused_attention() -> contextlib.ExitStack:
    """Makes unmodified layers of Keras and keras-hub call `tfo.nn.attention`: a switch and a context manager.

    Replaces the function behind `keras.ops.dot_product_attention`, so that layers and loaded
    models that call it become fused. `flash_attention=True` then raises no error.

    >>> import keras, numpy as np, tensorflow_ops as tfo
    >>> layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
    >>> x = np.random.default_rng(0).normal(size=[1, 6, 8])
    >>> expected = layer(x, x, use_causal_mask=True)
    >>> with tfo.layers.use_fused_attention():
    ...     fused = layer(x, x, use_causal_mask=True)
    >>> np.allclose(fused, expected, atol=1e-5)
    True

    Without `with`, it stays on until `close()` of the result is called. A traced function
    keeps the attention that it was traced with: call this before `fit` and `predict`, or
    compile the model again.

    Not fused are:

    - `keras.layers.MultiHeadAttention` and `GroupQueryAttention` with dropout, even outside of
      training, or with `return_attention_scores=True`: they do not call the function. The
      layers of `tfo.layers` fuse dropout.
    - `keras.layers.Attention` and `AdditiveAttention`, which do not call it either.
    - keras-hub's models of Qwen, whose fused branch ignores the sliding window, and of Gemma
      with `logit_soft_cap`. The page `attention` lists the models that are fused; import
      `keras_hub` before this call.
    - Calls that mix dtypes or scale by a tensor.

    A query without any key gives 0, where Keras gives the mean of all values. Models that mask
    padded queries but not padded keys, such as keras-hub's ESM and RoFormerV2, read these
    values at other tokens, so their results for padded batches differ.

    Returns:
      The context manager. A switch within another one has no effect.

    Raises:
      ImportError: the installed Keras is a minor release whose private functions are unknown.
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
