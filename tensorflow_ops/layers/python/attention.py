"""Keras's layers of attention, which call the fused op between their projections."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import keras
import tensorflow as tf

from tensorflow_ops.core.python import autograph, keras3, library
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.layers.python.switch import attention as switch_attention
from tensorflow_ops.nn.python.ops import attention


class _Masks(NamedTuple):
    """Masks of a call, which Keras passes from `_compute_attention_mask` to `_compute_attention`."""

    keras_mask: Callable[[], Any]  # builds Keras's mask, [B, T, S], of all of them
    mask: tf.Tensor | None  # bool, broadcasts to [B, N, T, S]
    queries: tf.Tensor | None  # bool [B, T]; False: padding
    is_causal: bool
    window: int | None


def _of_rank_4(mask, queries):
    """Returns `mask_of_rank_4`; `queries`: T, or None. Raises ValueError."""
    mask = tf.convert_to_tensor(mask)
    expected = f"attention_mask is {mask.shape}, expected [T, S], [B, T, S] or [B, heads, T, S]"
    of_rank_4 = switch_attention.mask_of_rank_4(mask)
    if of_rank_4 is None:
        raise ValueError(expected)
    if mask.shape.rank == 2 and queries and mask.shape[0] not in (None, 1, queries):
        raise ValueError(f"{expected}: for padding of keys pass attention_mask[:, None, None] or key_mask")
    return of_rank_4


class _FusedAttention(keras3.Layer):
    """Overrides the methods of Keras's layers that compute masks and attention."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        keras3.check_keras("attention in tfo.layers")
        super().__init__(*args, **kwargs)
        attention.checked_dropout(self.dropout)
        self.supports_jit = library.supports_xla()

    def _compute_attention_mask(
        self,
        query,
        value,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        use_causal_mask=False,
    ):
        keras_mask = functools.partial(
            super()._compute_attention_mask,
            query,
            value,
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
        )
        if len(query.shape) != 3:
            return keras_mask()
        masks = [
            tf.cast(mask, tf.bool)[:, tf.newaxis, tf.newaxis] for mask in (value_mask, key_mask) if mask is not None
        ]
        if attention_mask is not None:
            masks.append(_of_rank_4(attention_mask, query.shape[1]))
        return _Masks(
            keras_mask,
            functools.reduce(tf.logical_and, masks) if masks else None,
            None if query_mask is None else tf.cast(query_mask, tf.bool),
            bool(use_causal_mask),
            # MultiHeadAttention's is private, and both are new in Keras 3.15.
            getattr(self, "sliding_window", getattr(self, "_sliding_window", None)),
        )

    def _compute_attention(
        self, query, key, value, attention_mask=None, training=None, return_attention_scores=None, **others
    ):
        masks = attention_mask
        # Keras passes this argument to MultiHeadAttention only, since 3.9; else it is an attribute.
        attribute = getattr(self, "_return_attention_scores", False)
        returns_scores = attribute if return_attention_scores is None else return_attention_scores
        if returns_scores or not isinstance(masks, _Masks):
            mask = masks.keras_mask() if isinstance(masks, _Masks) else masks
            key, value = (keras.ops.repeat(x, query.shape[-2] // x.shape[-2], axis=-2) for x in (key, value))
            last = () if return_attention_scores is None else (return_attention_scores,)
            return super()._compute_attention(query, key, value, mask, training, *last, **others)
        dropout = self.dropout if training else 0.0
        output = attention.attention(
            query,
            key,
            value,
            mask=masks.mask,
            causal=masks.is_causal,
            window=masks.window,
            query_offset=0,  # Keras aligns the first query with the first key
            dropout=dropout,
            seed=self._dropout_layer.seed_generator.next() if dropout else None,
        )
        if masks.queries is not None:
            output = tf.where(masks.queries[:, :, tf.newaxis, tf.newaxis], output, tf.zeros([], output.dtype))
        return output, None

    if TYPE_CHECKING:  # Keras's has no types

        @overload
        def __call__(
            self,
            query: TensorLike,
            value: TensorLike,
            key: TensorLike | None = None,
            *,
            return_attention_scores: Literal[True],
            **kwargs: Any,
        ) -> tuple[tf.Tensor, tf.Tensor]: ...
        @overload
        def __call__(
            self, query: TensorLike, value: TensorLike, key: TensorLike | None = None, **kwargs: Any
        ) -> tf.Tensor: ...
    else:

        def __call__(self, *args, **kwargs):
            if autograph.is_among(tf.RaggedTensor, args, kwargs):
                name = f"{type(self).__name__} got a RaggedTensor"
                raise ValueError(f"{name}, expected dense tensors and a mask; tfo.nn.attention takes RaggedTensors")
            return super().__call__(*args, **kwargs)


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class MultiHeadAttention(_FusedAttention, keras.layers.MultiHeadAttention):
    """Keras's multi-head attention, fused: calls `tfo.nn.attention` between its projections.

    A subclass of `keras.layers.MultiHeadAttention` with its arguments, weights and config;
    either layer loads what the other saved.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> layer = tfo.layers.MultiHeadAttention(num_heads=8, key_dim=64, dropout=0.1)
    >>> x = np.zeros([2, 100, 512])
    >>> layer(x, x, use_causal_mask=True, training=True).shape
    TensorShape([2, 100, 512])

    Stores nothing of size [query length, key length]: neither scores nor dropout nor the
    masks that Keras builds of causality, windows and padding. Results differ from Keras's
    layer as follows:

    - Padded queries, and queries without any key, have attention 0. Keras's have the mean of
      all values, padding included, unless the layer has dropout.
    - Dropout keeps other elements for the same seed. Its rate is rounded to 1/65536.
    - Scores are float32 in 16-bit policies, too.
    - `flash_attention` has no effect.

    Calls with `return_attention_scores=True`, and inputs with more than one dimension between
    batch and features, use Keras's own attention. RaggedTensors are for `tfo.nn.attention`.

    Args:
      num_heads: the number of heads.
      key_dim: the features of queries and keys in each head.
      *args: the other arguments of `keras.layers.MultiHeadAttention`.
      **kwargs: the same.

    Raises:
      ImportError: the installed Keras is a minor release whose private functions are unknown.
      ValueError: a dropout that rounds to 1, a RaggedTensor.
    """

    def __init__(self, num_heads: int, key_dim: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(num_heads, key_dim, *args, **kwargs)


# Keras's class has this name, which files of weights contain.
@keras.saving.register_keras_serializable(package="tensorflow_ops")
class GroupedQueryAttention(_FusedAttention, keras.layers.GroupQueryAttention):
    """Keras's grouped-query attention, fused: calls `tfo.nn.attention` between its projections.

    A subclass of `keras.layers.GroupQueryAttention`, as `tfo.layers.MultiHeadAttention` is of
    its own. Keys and values are not repeated for the heads that share them.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> layer = tfo.layers.GroupQueryAttention(head_dim=64, num_query_heads=8, num_key_value_heads=2)
    >>> x = np.zeros([2, 100, 512])
    >>> layer(x, x, use_causal_mask=True).shape
    TensorShape([2, 100, 512])

    Args:
      head_dim: the features of each head.
      num_query_heads: the heads of queries, a multiple of num_key_value_heads.
      num_key_value_heads: the heads of keys and values.
      *args: the other arguments of `keras.layers.GroupQueryAttention`.
      **kwargs: the same.

    Raises:
      ImportError: the installed Keras is a minor release whose private functions are unknown.
      ValueError: a dropout that rounds to 1, a RaggedTensor.
    """

    def __init__(
        self, head_dim: int, num_query_heads: int, num_key_value_heads: int, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(head_dim, num_query_heads, num_key_value_heads, *args, **kwargs)
        self.num_repeats = 1  # of keys and values, in Keras's call
