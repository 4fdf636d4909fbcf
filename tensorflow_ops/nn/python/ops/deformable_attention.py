"""The public function of multi-scale deformable attention."""

from collections.abc import Sequence

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import deformable_grad  # noqa: F401  (registers gradients)


def _num_points(num_points):
    """Returns a tuple of ints, empty for None. Raises ValueError."""
    if num_points is None:
        return ()
    numbers = tuple(num_points) if isinstance(num_points, list | tuple) else ()
    if not numbers:
        raise ValueError(f"num_points is {num_points!r}, expected None or a number of points for each level")
    return tuple(arguments.static_int("num_points", n, 0) for n in numbers)


@autograph.op_function
def multiscale_deformable_attention(
    values: TensorLike,
    spatial_shapes: TensorLike,
    sampling_locations: TensorLike,
    attention_weights: TensorLike,
    *,
    num_points: Sequence[int] | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Sums bilinear samples of feature maps of several sizes, weighted: deformable attention.

    Deformable DETR (arXiv:2010.04159), equation 2 after the projections: for each query and
    head, the sum over levels and points of the attention weight times the value at
    (x * width - 0.5, y * height - 0.5) in pixels of the level, interpolated bilinearly;
    pixels outside are 0. A location of 0 is the outer edge of the first pixel and 1 that of
    the last, as in `grid_sample` with align_corners=False.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> values = tf.reshape(tf.range(5.0), [1, 5, 1, 1])  # a map of 2 x 2 pixels, and one of 1 x 1
    >>> locations = tf.constant([[0.5, 0.5], [0.25, 0.25], [0.5, 0.5], [0.5, 1.0]])
    >>> weights = tf.constant([0.5, 0.25, 0.125, 0.125])
    >>> tfo.nn.multiscale_deformable_attention(
    ...     values, [[2, 2], [1, 1]], tf.reshape(locations, [1, 1, 1, 2, 2, 2]),
    ...     tf.reshape(weights, [1, 1, 1, 2, 2])).numpy()  # 0.5 * 1.5 + 0.25 * 0 + 0.125 * 4 + 0.125 * 2
    array([[[1.5]]], dtype=float32)

    Args:
      values: [N, S, heads, D], the pixels of all levels, row by row, a level after the
        other; float16, bfloat16, float32 or float64.
      spatial_shapes: [L, 2], (height, width) of each level, 1 to 2^24; the sum of height *
        width is S. At most 16 levels. Integers; with XLA, constants.
      sampling_locations: [N, Q, heads, L, P, 2], (x, y), 0 to 1 inside of the level; with
        num_points [N, Q, heads, sum of num_points, 2]. Cast to float32 (float64 for float64
        values). NaN makes its query and head NaN, and has no gradient; infinity is outside.
      attention_weights: [N, Q, heads, L, P], or [N, Q, heads, sum of num_points]; cast as
        locations.
      num_points: None, or the number of points of each level, a list of L ints (D-FINE and
        RT-DETR v2 use other numbers on each level).
      name: name of the op.

    Returns:
      [N, Q, heads * D], values' dtype; sums are float32 for 16-bit values. Differentiable
      once in values, locations and weights; on whole pixels the slope is that of the cell
      below and to the right. A pixel of weight 0 is not read: only that slope is NaN next
      to a NaN. Second derivatives raise LookupError.

    Raises:
      ValueError: a wrong dtype, shapes that do not fit.
      InvalidArgumentError: shapes that do not fit, found at run time; spatial_shapes that
        are not positive, above 2^24, or do not have S pixels.
    """
    num_points = _num_points(num_points)
    values = arguments.float_tensor("values", values)
    dtype = arguments.at_least_float32(values.dtype)
    # Python ints as int64: TensorFlow would wrap large ones in int32. Not on a GPU, from where they would come back.
    with tf.device("CPU:0"):
        spatial_shapes = arguments.dense_tensor("spatial_shapes", spatial_shapes, dtype_hint=tf.int64)
    if not spatial_shapes.dtype.is_integer:
        raise ValueError(f"spatial_shapes are {spatial_shapes.dtype.name}, expected integers")
    return ops.tensorflow_ops_multiscale_deformable_attention(
        values=values,
        spatial_shapes=arguments.in_host_memory(spatial_shapes, tf.int64),
        sampling_locations=tf.cast(arguments.float_tensor("sampling_locations", sampling_locations), dtype),
        attention_weights=tf.cast(arguments.float_tensor("attention_weights", attention_weights), dtype),
        num_points=num_points,
        name=name,
    )
