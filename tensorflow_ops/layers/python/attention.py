"""Keras's layers of attention, with fused attention between their projections."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import keras
import tensorflow as tf

from tensorflow_ops.core.python import library
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.layers.python import fused_attention
from tensorflow_ops.nn.python.ops import attention


class _Masks(NamedTuple):
    """What Keras passes from `_compute_attention_mask` to `_compute_attention`, here before it is of size T * S."""

    keras_mask: Callable[[], Any]  # builds Keras's mask, [B, T, S]
    mask: tf.Tensor | None  # bool, broadcasts to [B, N, T, S]
    queries: tf.Tensor | None = None  # bool [B, T]: False for results that are 0
    is_causal: bool = False
    window: int | None = None


def _of_rank_4(mask):
    """Returns a mask [T, S], [B, T, S] or [B, N, T, S] as bools of rank 4."""
    mask = tf.cast(mask, tf.bool)
    return {2: mask[tf.newaxis, tf.newaxis], 3: mask[:, tf.newaxis], 4: mask}[mask.shape.rank]


class _FusedAttention:
    """Overrides the methods of Keras's layers that compute masks and attention."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fused_attention.check_keras()
        super().__init__(*args, **kwargs)
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
            masks.append(_of_rank_4(attention_mask))
        return _Masks(
            keras_mask,
            functools.reduce(tf.logical_and, masks) if masks else None,
            None if query_mask is None else tf.cast(query_mask, tf.bool),
            use_causal_mask,
            # MultiHeadAttention's is private, and both are new in Keras 3.15.
            getattr(self, "sliding_window", getattr(self, "_sliding_window", None)),
        )

    def _compute_attention(self, query, key, value, attention_mask=None, training=None, return_attention_scores=None):
        masks = attention_mask
        # Keras passes this argument to MultiHeadAttention only, since 3.9; else it is an attribute.
        attribute = getattr(self, "_return_attention_scores", False)
        returns_scores = attribute if return_attention_scores is None else return_attention_scores
        if returns_scores or not isinstance(masks, _Masks):
            mask = masks.keras_mask() if isinstance(masks, _Masks) else masks
            key, value = (keras.ops.repeat(x, query.shape[-2] // x.shape[-2], axis=-2) for x in (key, value))
            last = () if return_attention_scores is None else (return_attention_scores,)
            return super()._compute_attention(query, key, value, mask, training, *last)
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
            query: keras.KerasTensor,
            value: keras.KerasTensor,
            key: keras.KerasTensor | None = None,
            **kwargs: Any,
        ) -> Any: ...
        @overload
        def __call__(
            self,
            query: TensorLike,
            value: TensorLike,
            key: TensorLike | None = None,
            **kwargs: Any,
        ) -> Any: ...


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class MultiHeadAttention(_FusedAttention, keras.layers.MultiHeadAttention):
    """`keras.layers.MultiHeadAttention` with fused attention: `tfo.nn.attention` between its projections.

    The arguments, weights and configuration are those of Keras's layer; either loads what the
    other saved.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> layer = tfo.layers.MultiHeadAttention(num_heads=8, key_dim=64, dropout=0.1)
    >>> x = np.zeros([2, 100, 512])
    >>> layer(x, x, use_causal_mask=True, training=True).shape
    TensorShape([2, 100, 512])

    Nothing of size query length times key length is stored: neither scores, nor a causal mask
    or a mask of padding, nor dropout. Differences to Keras's layer:

    - Dropout keeps other elements for the same seed. Its rate is rounded to 1/65536.
    - Padded queries, and queries without any key, give 0 before the output projection. Keras
      gives the mean of all values, padding included, where it has no dropout.
    - Scores are float32 also in 16-bit policies.
    - `flash_attention` has no effect: attention is always fused.

    Keras's own attention computes calls with `return_attention_scores`, and those with more than
    one dimension between batch and features.

    Args:
      *args: the arguments of `keras.layers.MultiHeadAttention`.
      **kwargs: the same.

    Raises:
      ImportError: Keras is of a minor release whose private functions are unknown.
    """


# The class has the name of Keras's: files of weights contain it.
@keras.saving.register_keras_serializable(package="tensorflow_ops")
class GroupedQueryAttention(_FusedAttention, keras.layers.GroupQueryAttention):
    """`keras.layers.GroupQueryAttention` with fused attention: `tfo.nn.attention` between its projections.

    As `tfo.layers.MultiHeadAttention`. Keys and values are not repeated for the heads that
    share them.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> layer = tfo.layers.GroupQueryAttention(head_dim=64, num_query_heads=8, num_key_value_heads=2)
    >>> x = np.zeros([2, 100, 512])
    >>> layer(x, x, use_causal_mask=True).shape
    TensorShape([2, 100, 512])

    Args:
      *args: the arguments of `keras.layers.GroupQueryAttention`.
      **kwargs: the same.

    Raises:
      ImportError: Keras is of a minor release whose private functions are unknown.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_repeats = 1  # of keys and values, in Keras's call
