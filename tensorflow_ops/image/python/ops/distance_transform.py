"""The public function euclidean_distance_transform."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import DTypeLike, TensorLike
from tensorflow_ops.image.python.ops import masks

# Distances count pixels: they do not change with a pixel's value until it is zero.
tf.no_gradient("TensorflowOps>EuclideanDistanceTransform")

_MIN_SPACING, _MAX_SPACING = 1e-38, 1e38


@autograph.op_function
def euclidean_distance_transform(
    images: TensorLike, *, spacing: TensorLike = (1.0, 1.0), dtype: DTypeLike = tf.float32, name: str | None = None
) -> tf.Tensor:
    """Returns the distance from each pixel to the nearest zero pixel of its plane.

    A plane is one channel of one image. Its distances are

        distances[y, x] = min over zero pixels (v, u) of
            sqrt((spacing[0] * (y - v))^2 + (spacing[1] * (x - u))^2)

    Zero pixels have distance 0. In a plane without zero pixels, all distances are infinite.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> mask = [[0, 1, 1, 1, 1], [0, 1, 1, 1, 1], [0, 1, 1, 0, 1]]
    >>> tfo.image.euclidean_distance_transform(mask).numpy().round(2)
    array([[0.  , 1.  , 2.  , 2.  , 2.24],
           [0.  , 1.  , 1.41, 1.  , 1.41],
           [0.  , 1.  , 1.  , 0.  , 1.  ]], dtype=float32)

    Distances are exact: squares are computed in integers or in float64, and the root is
    rounded once. The time does not depend on the distances: O(H W) for each plane, with the
    lower envelope of parabolas of Felzenszwalb and Huttenlocher, "Distance Transforms of
    Sampled Functions", doi.org/10.4086/toc.2012.v008a019.

    Args:
      images: [H, W], [N, H, W] or [N, H, W, C]; bool, an integer or a float. NaN is not
        zero; -0.0 is. Height and width are below 2^30.
      spacing: the (height, width) of a pixel: two numbers, or a tensor [2], in
        [1e-38, 1e38].
      dtype: of the distances: float16, bfloat16, float32 or float64.
      name: name of the op.

    Returns:
      Distances, of images' shape. No gradient.

    Raises:
      ValueError: images of another dtype or rank, a spacing out of its range, another
        dtype.
      InvalidArgumentError: the same errors, found at run time.
    """
    images = masks.images_tensor(
        images,
        (*masks.DISCRETE_DTYPES, *arguments.FLOAT_DTYPES),
        "bool, an integer or a float: float16, bfloat16, float32 or float64",
    )
    of_distances = arguments.float_dtype("dtype", dtype)
    return ops.tensorflow_ops_euclidean_distance_transform(images, _spacing(spacing), T=of_distances, name=name)


def _spacing(spacing):
    """Returns the spacing as a float64 tensor [2]. Raises ValueError."""
    if arguments.is_tensor(spacing):
        known = tf.get_static_value(spacing)
        if known is None or spacing.dtype == tf.string:
            return arguments.in_host_memory(arguments.tensor_of_kind("spacing", spacing, tf.float64), tf.float64)
        spacing = known.tolist()
    try:
        values = list(spacing)
    except TypeError:
        values = []
    if len(values) != 2:
        raise ValueError(f"spacing is {spacing!r}, expected two numbers: the height and width of a pixel")
    values = [
        arguments.static_number(
            f"spacing[{i}]", value, "a number in [1e-38, 1e38]", lambda value: _MIN_SPACING <= value <= _MAX_SPACING
        )
        for i, value in enumerate(values)
    ]
    return arguments.in_host_memory(values, tf.float64)
