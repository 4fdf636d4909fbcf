"""The Keras layer of multi-scale deformable attention."""

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments, keras3
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import deformable_attention, softmax


def _first_offsets(heads, levels, points):
    """Returns the bias of offsets: each head looks in a direction of its own, each point one step further."""
    angles = np.arange(heads) * (2 * np.pi / heads)
    directions = np.stack([np.cos(angles), np.sin(angles)], -1)
    directions /= np.abs(directions).max(-1, keepdims=True)
    steps = np.arange(1, points + 1)[:, np.newaxis]
    return np.broadcast_to(directions[:, np.newaxis, np.newaxis] * steps, [heads, levels, points, 2])


@keras.saving.register_keras_serializable(package="tensorflow_ops")
class MultiScaleDeformableAttention(keras3.OpLayer):
    """Deformable attention with its projections, as in Deformable DETR.

    Queries choose, in each head and on each level of a feature pyramid, `num_points` places
    near their reference points, and the weights of the samples there ("Deformable DETR",
    arXiv:2010.04159, equation 2). `tfo.nn.multiscale_deformable_attention` takes the samples.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> layer = tfo.layers.MultiScaleDeformableAttention(num_heads=8, num_levels=2)
    >>> query, values = tf.ones([1, 100, 256]), tf.ones([1, 32 * 32 + 16 * 16, 256])
    >>> layer(query, tf.fill([1, 100, 2, 2], 0.5), values, spatial_shapes=[[32, 32], [16, 16]]).shape
    TensorShape([1, 100, 256])

    The weights are those of the authors' module MSDeformAttn: the dense layers
    `sampling_offsets`, `attention_weights`, `value_proj` and `output_proj`, with its first
    values. Places are computed in float32, also in a mixed_float16 policy.

    Args:
      num_heads: the number of heads; divides the queries' last dim.
      num_levels: L, the levels of the pyramid, at most 16.
      num_points: the places on each level.
      **kwargs: keras.layers.Layer's: name, dtype, trainable.

    Call arguments:
      query: [N, Q, D], with the positional embedding.
      reference_points: [N, Q, L, 2], (x, y), 0 to 1 inside of the image; or [N, Q, L, 4],
        boxes (x, y, width, height) around centres, whose sizes scale the offsets.
      values: [N, S, D], the pixels of all levels, row by row, a level after the other.
      spatial_shapes: [L, 2], (height, width) of each level; with XLA, constants. Pass a list
        by keyword.
      values_mask: [N, S], bools or numbers: False or 0 for padding, whose values are 0.
        None: the Keras mask of values, if it has one.

    Returns:
      [N, Q, D], in the layer's compute dtype.

    Raises:
      ValueError: an option out of its range, num_heads that does not divide D, shapes that
        do not fit.
    """

    def __init__(self, num_heads: int = 8, num_levels: int = 4, num_points: int = 4, **kwargs: Any) -> None:
        num_heads = arguments.static_int("num_heads", num_heads, 1)
        num_levels = arguments.static_int("num_levels", num_levels, 1)
        num_points = arguments.static_int("num_points", num_points, 1)
        # Keras would cast reference points, too: float16 cannot hold places.
        super().__init__(locals(), autocast=False)

    def build(self, query_shape, reference_points_shape=None, values_shape=None, spatial_shapes_shape=None):
        """Creates the dense layers."""
        del spatial_shapes_shape, reference_points_shape
        size = query_shape[-1]
        if size is None or size % self.num_heads:
            raise ValueError(f"query has {size} channels, expected a multiple of num_heads, {self.num_heads}")
        places = self.num_heads * self.num_levels * self.num_points
        offsets = _first_offsets(self.num_heads, self.num_levels, self.num_points)

        def dense(name, units, inputs, dtype=self.dtype_policy, **options):
            layer = keras.layers.Dense(units, name=name, dtype=dtype, **options)
            layer.build([None, None, inputs])
            return layer

        wide = arguments.at_least_float32(tf.as_dtype(self.variable_dtype)).name
        of_places = {"dtype": wide, "kernel_initializer": "zeros"}
        first = keras.initializers.Constant(offsets.reshape([-1]))
        self.sampling_offsets = dense("sampling_offsets", 2 * places, size, bias_initializer=first, **of_places)
        self.attention_weights = dense("attention_weights", places, size, **of_places)
        self.value_proj = dense("value_proj", size, values_shape[-1] if values_shape else size)
        self.output_proj = dense("output_proj", size, size)

    def call(self, query, reference_points, values, spatial_shapes, values_mask=None):
        heads, levels, points = self.num_heads, self.num_levels, self.num_points
        wide = arguments.at_least_float32(tf.as_dtype(self.compute_dtype))
        query = arguments.cast_tensor("query", query, wide)
        values = self.value_proj(arguments.cast_tensor("values", values, self.compute_dtype))
        if values_mask is not None:
            is_value = tf.cast(arguments.dense_tensor("values_mask", values_mask), tf.bool)[..., tf.newaxis]
            values = tf.where(is_value, values, tf.zeros([], values.dtype))
        batch, rows = tf.shape(query)[0], tf.shape(query)[1]
        values = tf.reshape(values, [batch, tf.shape(values)[1], heads, values.shape[-1] // heads])
        offsets = tf.reshape(self.sampling_offsets(query), [batch, rows, heads, levels, points, 2])
        weights = tf.reshape(self.attention_weights(query), [batch, rows, heads, levels * points])
        weights = tf.reshape(softmax.softmax(weights), [batch, rows, heads, levels, points])
        reference = arguments.cast_tensor("reference_points", reference_points, wide)
        reference = arguments.with_shape(
            "reference_points", reference, [None, None, levels, None], "[N, Q, L, 2] or [N, Q, L, 4]"
        )
        text = arguments.shape_text(reference.shape)
        reference = reference[:, :, tf.newaxis, :, tf.newaxis, :]
        shapes = arguments.dense_tensor("spatial_shapes", spatial_shapes, dtype_hint=tf.int64)
        if reference.shape[-1] == 4:
            places = reference[..., :2] + offsets / points * reference[..., 2:] / 2
        elif reference.shape[-1] == 2:
            size = tf.cast(shapes[:, ::-1], wide)
            places = reference + offsets / size[:, tf.newaxis, :]
        else:
            raise ValueError(f"reference_points are {text}, expected [N, Q, L, 2] or [N, Q, L, 4]")
        samples = deformable_attention.multiscale_deformable_attention(values, shapes, places, weights)
        return self.output_proj(samples)

    if TYPE_CHECKING:  # Keras's has no types

        def __call__(
            self,
            query: TensorLike,
            reference_points: TensorLike,
            values: TensorLike,
            spatial_shapes: TensorLike,
            values_mask: TensorLike | None = None,
            **kwargs: Any,
        ) -> tf.Tensor: ...

    def compute_output_shape(self, query_shape, *args, **kwargs):
        del args, kwargs
        return query_shape
