"""The public functions map_coordinates and elastic_transform."""

import math
from numbers import Real
from typing import Literal, TypeAlias, get_args

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import NumberLike, TensorLike
from tensorflow_ops.image.python.ops import grid_sample_grad  # noqa: F401  (registers the gradients)

FillMode: TypeAlias = Literal[
    "constant", "grid-constant", "nearest", "reflect", "grid-mirror", "mirror", "wrap", "grid-wrap"
]
FILL_MODES = get_args(FillMode)
Order: TypeAlias = Literal[0, 1]
_MODES = {0: "nearest", 1: "bilinear"}
_PADDINGS = {
    "constant": "constant",
    "grid-constant": "zeros",
    "nearest": "border",
    "reflect": "reflection",
    "grid-mirror": "reflection",
    "mirror": "reflection",
    "wrap": "wrap",
    "grid-wrap": "grid_wrap",
}


def _options(order, fill_mode, fill_value):
    """Returns the op's attrs. Raises ValueError."""
    if not arguments.is_int(order) or order not in _MODES:
        raise ValueError(f"order is {order!r}, expected 0 or 1")
    arguments.one_of("fill_mode", fill_mode, FILL_MODES)
    value = arguments.to_python(fill_value)
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or arguments.MAX_FLOAT32 < abs(value) < math.inf:
        raise ValueError(f"fill_value is {fill_value!r}, expected a number of float32's range, infinity or NaN")
    value = float(value)
    return {
        "mode": _MODES[order],
        "padding_mode": _PADDINGS[fill_mode],
        "align_corners": fill_mode == "mirror",
        "coordinates": "indices",
        "fill_value": arguments.float32_parts(value) if math.isfinite(value) else [value],
    }


@autograph.op_function
def map_coordinates(
    images: TensorLike,
    coordinates: TensorLike,
    *,
    order: Order = 1,
    fill_mode: FillMode = "constant",
    fill_value: float = 0.0,
    name: str | None = None,
) -> tf.Tensor:
    """Samples each image at coordinates in pixels: `scipy.ndimage.map_coordinates` of batches and channels.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> images = tf.reshape([10.0, 20.0, 40.0], [1, 1, 3, 1])
    >>> coordinates = [[[0.0, -1.0], [0.0, 0.5], [0.0, 2.0], [0.0, 3.0]]]
    >>> tfo.image.map_coordinates(images, coordinates, fill_mode="mirror")[0, :, 0].numpy()
    array([20., 15., 40., 20.], dtype=float32)

    Modes and numbers are SciPy's. On an axis of size S:

        "constant"                  fill_value outside of [0, S - 1]
        "grid-constant"             pixels outside are fill_value; Keras's "constant"
        "nearest"                   the outer pixel
        "reflect", "grid-mirror"    reflection about -0.5 and S - 0.5
        "mirror"                    reflection about 0 and S - 1
        "wrap"                      period S - 1: the first and the last pixel coincide
        "grid-wrap"                 period S; Keras's "wrap"

    Args:
      images: [B, H, W, C]; float16, bfloat16, float32 or float64. H and W in [1, 2^30], H * W
        below 2^31. Volumes are not accepted.
      coordinates: [B, d1, ..., dk, 2] with k >= 1: the (y, x) of each sample in pixels, 0 the
        centre of the first one. float32, or float64 with float64 images; other floats are
        cast. NaN gives a NaN sample, and no gradient through it. Infinity is far outside;
        NaN where the mode reflects or wraps.
      order: 0 reads the nearest pixel, halves up. 1 interpolates 2 x 2 pixels.
      fill_mode: one of the table.
      fill_value: a Python number, of pixels outside with "constant" and "grid-constant".
      name: name of the op.

    Returns:
      [B, d1, ..., dk, C]; images' dtype. Sums are float32 (float64 for float64).
      Differentiable in images, to any order, and once in the coordinates, as
      `tfo.image.grid_sample`: with the slope between floor(p) and floor(p) + 1; 0 for order 0,
      where "nearest", "reflect" and "mirror" clip p or leave it on 0 or S - 1, and where
      "constant" and "wrap" leave it on S - 1.

    Raises:
      ValueError: an unknown option, a shape that does not fit.
      InvalidArgumentError: a shape that does not fit, found at run time.
    """
    options = _options(order, fill_mode, fill_value)
    images = arguments.float_tensor("images", images)
    coordinates = arguments.tensor_of_kind("coordinates", coordinates, arguments.at_least_float32(images.dtype))
    return ops.tensorflow_ops_grid_sample(images, coordinates, name=name, **options)


def _smoothing_matrix(size, sigma):
    """Returns the [size, size] matrix of a Gaussian filter, cut off at 3 * floor(sigma); pixels outside are 0."""
    reach = 3 * tf.floor(sigma)

    def weights(distance):
        return tf.where(tf.abs(distance) <= reach, tf.exp(-0.5 * (distance / sigma) ** 2), tf.zeros_like(distance))

    places = tf.range(tf.cast(size, sigma.dtype))
    return weights(places[:, tf.newaxis] - places) / tf.reduce_sum(weights(tf.range(-reach, reach + 1)))


def _smoothed(noise, sigma):
    """Returns noise [..., H, W], times sigma, filtered along both axes: by products of matrices.

    TensorFlow's depthwise convolutions along the axes take 40 times as long, at 256 x 256.
    """
    height, width = tf.unstack(tf.shape(noise)[-2:], num=2)
    along_x = tf.matmul(noise * sigma, _smoothing_matrix(width, sigma))
    return tf.matmul(_smoothing_matrix(height, sigma), along_x)


def _displaced(images, displacements, alpha, options, name=None):
    """Returns images sampled at each pixel's own place plus alpha times displacements [B, H, W, 2], (y, x)."""
    height, width = tf.unstack(tf.shape(images)[1:3], num=2)
    own = tf.stack(tf.meshgrid(tf.range(height), tf.range(width), indexing="ij"), -1)
    coordinates = tf.stop_gradient(tf.cast(own, displacements.dtype) + alpha * displacements)
    return ops.tensorflow_ops_grid_sample(images, coordinates, name=name, **options)


@autograph.op_function
def elastic_transform(
    images: TensorLike,
    *,
    seed: TensorLike,
    alpha: NumberLike = 20.0,
    sigma: NumberLike = 5.0,
    order: Order = 1,
    fill_mode: FillMode = "reflect",
    fill_value: float = 0.0,
    name: str | None = None,
) -> tf.Tensor:
    """Deforms each image by a random field of its own: `keras.ops.image.elastic_transform`.

    A pixel at p reads p + alpha * u(p). Along each axis, u is normal noise of standard deviation sigma,
    filtered by a Gaussian of the same sigma that is cut off at 3 * floor(sigma) (Simard et al., "Best
    Practices for Convolutional Neural Networks Applied to Visual Document Analysis", 2003).
    Noise outside of the image is 0. All channels of an image move together. Keras draws the
    same noise for both axes: there, pixels move along the diagonal only.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> images = tf.random.uniform([8, 64, 64, 3])
    >>> tfo.image.elastic_transform(images, seed=[1, 2], alpha=30.0).shape
    TensorShape([8, 64, 64, 3])

    Args:
      images: [B, H, W, C]; float16, bfloat16, float32 or float64. H and W in [1, 2^30], H * W
        below 2^31.
      seed: int32 or int64 [2], as of `tf.random.stateless_normal`. The same seed gives the same
        fields, under XLA only if it is a constant there, too.
      alpha: the scale of displacements; may be a tensor.
      sigma: of the noise and of the filter, in pixels, above 0; may be a tensor.
      order: as of `tfo.image.map_coordinates`, likewise fill_mode and fill_value.
      fill_mode: SciPy's: Keras's "constant" and "wrap" are "grid-constant" and "grid-wrap".
      fill_value: a Python number, of pixels outside.
      name: name of the op.

    Returns:
      [B, H, W, C], images' dtype. Differentiable in images, as `tfo.image.map_coordinates`. The
      filter takes memory of H^2 + W^2 numbers.

    Raises:
      ValueError: an unknown option, a shape that does not fit.
      InvalidArgumentError: the same, found at run time.
    """
    options = _options(order, fill_mode, fill_value)
    images = arguments.float_tensor("images", images)
    images = arguments.with_shape("images", images, [None] * 4, "[B, H, W, C]")
    seed = arguments.int_tensor("seed", seed)
    if not seed.dtype.is_integer or not seed.shape.is_compatible_with([2]):
        raise ValueError(f"seed is {seed.dtype.name} {arguments.shape_text(seed.shape)}, expected two integers")
    dtype = arguments.at_least_float32(images.dtype)
    alpha = arguments.constant_or_cast(arguments.number("alpha", alpha), dtype)
    sigma = arguments.constant_or_cast(
        arguments.number("sigma", sigma, "a finite number above 0", lambda value: value > 0), dtype
    )
    batch, height, width = tf.unstack(tf.shape(images)[:3], num=3)
    # Other dtypes would be other numbers, as those of other algorithms are.
    noise = tf.random.stateless_normal(tf.stack([batch, 2, height, width]), seed, alg="philox")
    displacements = tf.transpose(_smoothed(tf.cast(noise, dtype), sigma), [0, 2, 3, 1])
    result = _displaced(images, displacements, alpha, options, name)
    result.set_shape(images.shape)
    return result
