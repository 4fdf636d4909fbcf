"""The public functions grid_sample and dense_image_warp."""

from typing import Literal, TypeAlias, get_args

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, axes
from tensorflow_ops.core.python.axes import DataFormat
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.image.python.ops import grid_sample_grad  # noqa: F401  (registers the gradients)

Interpolation: TypeAlias = Literal["bilinear", "nearest", "bicubic"]
PaddingMode: TypeAlias = Literal["zeros", "border", "reflection"]
MODES, PADDING_MODES = get_args(Interpolation), get_args(PaddingMode)


def _image_tensors(names, images, places):
    """Returns images and places as tensors of the kernel's dtypes. Raises ValueError."""
    images = arguments.float_tensor(names[0], images)
    return images, arguments.tensor_of_kind(names[1], places, arguments.at_least_float32(images.dtype))


def _sample_in_one_image(features, grid, options, name):
    """Samples one image at the places of many grids, as one grid, [1, N * d1, ..., 2]: without copies of the image."""
    sizes = tf.shape(grid)
    samples = ops.tensorflow_ops_grid_sample(
        features, tf.reshape(grid, tf.concat([[1, sizes[0] * sizes[1]], sizes[2:]], 0)), name=name, **options
    )
    samples = tf.reshape(samples, tf.concat([sizes[:-1], tf.shape(features)[-1:]], 0))
    samples.set_shape([*grid.shape[:-1], features.shape[-1]])
    return samples


@autograph.op_function
def grid_sample(
    features: TensorLike,
    grid: TensorLike,
    *,
    mode: Interpolation = "bilinear",
    padding_mode: PaddingMode = "zeros",
    align_corners: bool = False,
    normalized: bool = True,
    data_format: DataFormat = "NHWC",
    name: str | None = None,
) -> tf.Tensor:
    """Samples features at the places of a grid: `torch.nn.functional.grid_sample`, any number of grid dims.

    A coordinate g of the grid becomes a place p in pixels, 0 the centre of the first one, on
    its axis of size S:

        p = (g + 1) / 2 * (S - 1)       align_corners: -1 and 1 are the outer pixels' centres
        p = ((g + 1) * S - 1) / 2       else: -1 and 1 are the image's edges
        p = g                           with normalized=False

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> features = tf.reshape(tf.range(6.0), [1, 2, 3, 1])
    >>> places = [[[0.0, 0.0], [1.5, 0.0], [2.0, 0.5], [2.5, 1.0]]]
    >>> tfo.image.grid_sample(features, places, normalized=False)[0, :, 0].numpy()
    array([0. , 1.5, 3.5, 2.5], dtype=float32)

    Args:
      features: [N, H, W, C], or [N, C, H, W] with data_format="NCHW"; float16, bfloat16,
        float32 or float64. H and W in [1, 2^30], H * W below 2^31.
      grid: [N, d1, ..., dk, 2] with k >= 1: the (x, y) of each sample. If the static batch
        size of features or of the grid is 1, it is used for the whole batch of the other.
        float32, or float64 with float64 features; other floats are cast. NaN gives a NaN sample, and no gradient
        through it. Infinity, and what overflows in the formula above, is a place far
        outside; NaN with padding_mode "reflection".
      mode: "bilinear" interpolates 2 x 2 pixels. "nearest" reads one: p rounded, halves to
        even. "bicubic" is the cubic convolution of 4 x 4 pixels with a = -0.75.
      padding_mode: "zeros": pixels outside are 0. "border": p is clipped to [0, S - 1].
        "reflection": p is reflected about 0 and S - 1 (align_corners), or about -0.5 and
        S - 0.5, then clipped. With mode "bicubic", the padding applies to each of the pixels,
        not to p. A pixel whose weight is 0 is not read.
      align_corners: where -1 and 1 lie, and what reflects.
      normalized: False: coordinates are pixels.
      data_format: "NHWC" or "NCHW". NCHW is transposed to NHWC and back, and errors name the
        transposed shapes.
      name: name of the op.

    Returns:
      [N, d1, ..., dk, C], or [N, C, d1, ..., dk]; features' dtype. Sums are float32 (float64
      for float64). Differentiable in features, to any order, and once in the grid: with the
      slope between floor(p) and floor(p) + 1, also on whole pixels; 0 where "border" and
      "reflection" clip p, or leave it on 0 or S - 1, and for mode "nearest". Derivatives of
      the gradient to the grid raise LookupError. Gradients have the same bits for any number
      of threads.

    Raises:
      ValueError: an unknown option, a shape that does not fit.
      InvalidArgumentError: a shape that does not fit, found at run time.
    """
    features, grid = _image_tensors(("features", "grid"), features, grid)
    options = {
        "mode": arguments.one_of("mode", mode, MODES),
        "padding_mode": arguments.one_of("padding_mode", padding_mode, PADDING_MODES),
        "align_corners": arguments.static_bool("align_corners", align_corners),
        "coordinates": "normalized" if arguments.static_bool("normalized", normalized) else "pixels",
    }
    arguments.one_of("data_format", data_format, axes.DATA_FORMATS)
    features = axes.to_channels_last("features", features, data_format)
    # The op refuses any other mismatch.
    if features.shape.rank == 4 and (grid.shape.rank or 0) >= 3 and features.shape[0] != grid.shape[0]:
        if features.shape[0] == 1:
            return axes.from_channels_last(_sample_in_one_image(features, grid, options, name), data_format)
        if grid.shape[0] == 1:
            grid = tf.broadcast_to(grid, tf.concat([tf.shape(features)[:1], tf.shape(grid)[1:]], 0))
    return axes.from_channels_last(ops.tensorflow_ops_grid_sample(features, grid, name=name, **options), data_format)


@autograph.op_function
def dense_image_warp(images: TensorLike, flow: TensorLike, *, name: str | None = None) -> tf.Tensor:
    """Warps images by a flow, subtracted from each pixel's place: TensorFlow Addons' function of this name.

        output[b, j, i] = images[b] at (j - flow[b, j, i, 0], i - flow[b, j, i, 1])

    The images are sampled bilinearly; places outside are clipped to the border. This is
    `tfo.image.grid_sample` with normalized=False and padding_mode="border", without a grid
    in memory. A flow from image 1 to image 2, as optical flow networks estimate it in (x, y),
    goes in as its negative, swapped: `dense_image_warp(image_2, -flow_12[..., ::-1])`.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> image = tf.reshape(tf.range(4.0), [1, 1, 4, 1])
    >>> to_the_right = tf.constant([[[[0.0, 1.0]] * 4]])
    >>> tfo.image.dense_image_warp(image, to_the_right)[0, 0, :, 0].numpy()
    array([0., 0., 1., 2.], dtype=float32)

    Args:
      images: [N, H, W, C]; float16, bfloat16, float32 or float64. H and W in [1, 2^30],
        H * W below 2^31.
      flow: [N, H, W, 2]: (y, x) in pixels. float32, or float64 with float64 images; other
        floats are cast. NaN gives a NaN pixel.
      name: name of the op.

    Returns:
      [N, H, W, C], images' dtype. Differentiable as `tfo.image.grid_sample`.

    Raises:
      ValueError: a shape that does not fit.
      InvalidArgumentError: the same, found at run time.
    """
    images, flow = _image_tensors(("images", "flow"), images, flow)
    return ops.tensorflow_ops_grid_sample(images, flow, padding_mode="border", coordinates="flow", name=name)
