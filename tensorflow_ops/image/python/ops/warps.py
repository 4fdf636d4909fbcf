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


def attributes(order, fill_mode, fill_value):
    """Returns the attrs of grid_sample's op. Raises ValueError."""
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
    attrs = attributes(order, fill_mode, fill_value)
    images = arguments.float_tensor("images", images)
    coordinates = arguments.tensor_of_kind("coordinates", coordinates, arguments.at_least_float32(images.dtype))
    return ops.tensorflow_ops_grid_sample(images, coordinates, name=name, **attrs)


_SUMMED = 4096.0  # distances
_ROWS = 512  # of a block, at most


def _sum_of_weights(sigma):
    """Returns the sum of exp(-d^2 / (2 sigma^2)) for whole d, cut off at 3 * floor(sigma), in float64."""
    sigma = tf.cast(sigma, tf.float64)
    reach = 3 * tf.floor(sigma)
    summed = tf.minimum(reach, _SUMMED)
    distances = tf.cast(tf.range(1, tf.cast(summed, tf.int32) + 1), tf.float64)  # fits: at most _SUMMED
    head = tf.reduce_sum(tf.exp(-0.5 * tf.math.divide_no_nan(distances, sigma) ** 2))

    def integral(distance):
        """By Euler and Maclaurin: the next term is below 1e-14 of the sum."""
        x = tf.math.divide_no_nan(distance, sigma)
        value = tf.exp(-0.5 * x**2)
        slope = -tf.math.divide_no_nan(x, sigma) * value
        return sigma * math.sqrt(math.pi / 2) * tf.math.erf(x / math.sqrt(2)) + value / 2 + slope / 12

    return 1 + 2 * (head + integral(reach) - integral(summed))


def _smoothed_along_y(noise, sigma, total):
    """Returns noise [..., H, W] after a Gaussian filter along y, cut off at 3 * floor(sigma); pixels outside are 0.

    Multiplies overlapping blocks of rows by a matrix of weights: TensorFlow's depthwise convolution along an axis
    takes 40 times as long. Where the filter reaches far, adds products of a part of the weights, in linear memory.
    """
    *dims, height, width = tf.unstack(tf.shape(noise))
    # Farther away, all pixels are 0.
    farthest = tf.cast(tf.maximum(height - 1, 0), sigma.dtype)
    reach = tf.cast(tf.minimum(3 * tf.floor(sigma), farthest), tf.int32)  # fits: less than the height
    rows = tf.minimum(reach + 16, _ROWS)  # that a block computes
    part = rows + 2 * tf.minimum(reach, rows)  # of the rows that it reads
    blocks = -(-height // rows)
    known = tf.get_static_value(sigma)
    has_parts = known is None or known > _ROWS // 3
    behind = blocks * rows - height + reach + (part if has_parts else 0)
    padded = tf.pad(noise, [[0, 0]] * len(dims) + [[reach, behind], [0, 0]])
    read = tf.range(part)
    distances = tf.range(reach, reach + rows)[:, tf.newaxis] - read
    read += rows * tf.range(blocks)[:, tf.newaxis]

    def product(first):
        away = distances - first
        # A sigma of 0 leaves each pixel as it is.
        weights = tf.exp(-0.5 * tf.math.divide_no_nan(tf.cast(away, sigma.dtype), sigma) ** 2)
        weights = tf.where(tf.abs(away) <= reach, weights, tf.zeros_like(weights))
        return tf.matmul(weights / total, tf.gather(padded, read + first, axis=-2))

    filtered = product(0)
    if has_parts:
        filtered = tf.while_loop(
            lambda first, _: first < rows + 2 * reach,
            lambda first, sums: (first + part, sums + product(first)),
            (part, filtered),
            shape_invariants=(part.shape, tf.TensorShape([None] * (len(dims) + 3))),
        )[1]
    return tf.reshape(filtered, [*dims, blocks * rows, width])[..., :height, :]


def displaced(images, noise, alpha, sigma, attrs, name=None):
    """Returns images [B, H, W, C], moved by noise [2, B, H, W], y first, after a Gaussian filter, times alpha * sigma.

    Noise [1, B, H, W] counts for both axes.
    """
    total = tf.cast(_sum_of_weights(sigma), sigma.dtype)
    across = tf.transpose(sigma * _smoothed_along_y(noise, sigma, total), [0, 1, 3, 2])
    moves = tf.transpose(_smoothed_along_y(across, sigma, total), [1, 3, 2, 0])
    height, width = tf.unstack(tf.shape(images)[1:3])
    own = tf.stack(tf.meshgrid(tf.range(height), tf.range(width), indexing="ij"), -1)
    coordinates = tf.stop_gradient(tf.cast(own, sigma.dtype) + alpha * moves)
    result = ops.tensorflow_ops_grid_sample(images, coordinates, name=name, **attrs)
    result.set_shape(images.shape)
    return result


def _normal_pairs(shape, seed):
    """Returns float32 normal noise [2, *shape].

    Not tf.random.stateless_normal, which XLA computes in another way: it draws the same bits.
    """
    bits = tf.random.stateless_uniform(tf.concat([[2], shape], 0), seed, None, None, tf.uint32, alg="philox")
    # All have a float32: 23 bits and a half.
    first, second = tf.unstack((tf.cast(tf.bitwise.right_shift(bits, 9), tf.float32) + 0.5) * 2.0**-23)
    radius, angle = tf.sqrt(-2 * tf.math.log(first)), 2 * math.pi * second
    return tf.stack([radius * tf.cos(angle), radius * tf.sin(angle)])


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
      images: [B, H, W, C], or one image [H, W, C] of a known rank; float16, bfloat16, float32 or
        float64. H and W in [1, 2^30], H * W below 2^31.
      seed: two integers, of which the lower 32 bits count, as of `tf.random.stateless_uniform`. The
        same seed gives the same fields, under XLA, too.
      alpha: the scale of displacements; may be a tensor.
      sigma: of the noise and of the filter, in pixels, above 0; may be a tensor. Under XLA, it
        decides a shape: a constant, or computed from arguments of the compiled function.
      order: as of `tfo.image.map_coordinates`, likewise fill_mode and fill_value.
      fill_mode: SciPy's: Keras's "constant" and "wrap" are "grid-constant" and "grid-wrap".
      fill_value: a Python number, of pixels outside.
      name: name of the op.

    Returns:
      images' shape and dtype. Differentiable in images, as `tfo.image.map_coordinates`.

    Raises:
      ValueError: an unknown option, a shape that does not fit.
      InvalidArgumentError: the same, found at run time.
    """
    attrs = attributes(order, fill_mode, fill_value)
    images = arguments.float_tensor("images", images)
    is_one = images.shape.rank == 3
    images = images[tf.newaxis] if is_one else images
    images = arguments.with_shape("images", images, [None] * 4, "[B, H, W, C] or [H, W, C]")
    seed = arguments.seed(seed)
    dtype = arguments.at_least_float32(images.dtype)
    alpha = arguments.constant_or_cast(arguments.number("alpha", alpha), dtype)
    sigma = arguments.constant_or_cast(
        arguments.number("sigma", sigma, "a finite number above 0", lambda value: value > 0, decides_shape=True), dtype
    )
    # The same noise for all dtypes.
    noise = tf.cast(_normal_pairs(tf.shape(images)[:3], seed), dtype)
    moved = displaced(images, noise, alpha, sigma, attrs, name)
    return moved[0] if is_one else moved
