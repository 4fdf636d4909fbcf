"""The public functions of region pooling."""

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python.library import ops
from tensorflow_ops.detection.python.ops import roi_grad  # noqa: F401  (registers the gradients)


class RoIPoolWithArgmax(NamedTuple):
    """What `roi_pool_with_argmax` returns."""

    output: tf.Tensor
    argmax: tf.Tensor


def check_option(name, value, options):
    """Raises ValueError unless value is one of the options."""
    if value not in options:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, options))}")


def check_spatial_scale(spatial_scale):
    """Raises ValueError unless it is a positive, finite number."""
    if not (isinstance(spatial_scale, Real) and 0 < np.float32(spatial_scale) < math.inf):
        raise ValueError(f"spatial_scale is {spatial_scale!r}, expected a positive, finite number")


def _is_bin_count(n):
    return isinstance(n, Integral) and not isinstance(n, bool) and 1 <= n < 2**30


def check_output_size(output_size):
    """An int or a pair as a pair (height, width). Raises ValueError; tensors in the pair are left to the kernel."""
    if isinstance(output_size, np.ndarray):
        output_size = output_size.tolist()
    pair = tuple(output_size) if isinstance(output_size, Iterable) else (output_size, output_size)
    if len(pair) != 2 or not all(tf.is_tensor(n) or _is_bin_count(n) for n in pair):
        raise ValueError(f"output_size is {output_size!r}, expected an int or (height, width), at least 1 each")
    return pair


def _output_size(output_size):
    """An int, a pair or an int tensor as an int32 tensor (height, width)."""
    if not tf.is_tensor(output_size):
        output_size = check_output_size(output_size)
    output_size = tf.convert_to_tensor(output_size)
    if not output_size.dtype.is_integer:
        raise ValueError(f"output_size is {output_size.dtype.name}, expected integers")
    if output_size.dtype != tf.int32:
        output_size = tf.saturate_cast(output_size, tf.int32)  # the kernel refuses what is too large
    return tf.stack([output_size, output_size]) if output_size.shape.rank == 0 else output_size


def _pool_arguments(features, boxes, box_indices, output_size, spatial_scale, data_format, box_format):
    """Checks and converts what the region pooling ops have in common."""
    check_option("data_format", data_format, ("NHWC", "NCHW"))
    check_option("box_format", box_format, ("xyxy", "yxyx"))
    check_spatial_scale(spatial_scale)
    features = tf.convert_to_tensor(features)
    if features.dtype not in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
        raise ValueError(f"features are {features.dtype.name}, expected float16, bfloat16, float32 or float64")
    coordinates = tf.float64 if features.dtype == tf.float64 else tf.float32
    boxes = tf.cast(boxes, coordinates) if tf.is_tensor(boxes) else tf.convert_to_tensor(boxes, coordinates)
    if tf.is_tensor(box_indices) and box_indices.dtype != tf.int32:
        raise ValueError(f"box_indices are {box_indices.dtype.name}, expected int32")
    return {
        "features": features,
        "boxes": boxes,
        "box_indices": tf.convert_to_tensor(box_indices, tf.int32),
        "output_size": _output_size(output_size),
        "spatial_scale": spatial_scale,
        "data_format": data_format,
        "box_format": box_format,
    }


def roi_pool_with_argmax(
    features,
    boxes,
    box_indices,
    output_size,
    *,
    spatial_scale: float = 1.0,
    data_format: str = "NHWC",
    box_format: str = "xyxy",
    name=None,
) -> RoIPoolWithArgmax:
    """`roi_pool`, and which pixel each maximum came from.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> x = tf.reshape(tf.range(16.0), [1, 4, 4, 1])
    >>> output, argmax = tfo.detection.roi_pool_with_argmax(x, [[0, 0, 3, 3]], [0], 2)
    >>> argmax[0, :, :, 0].numpy()
    array([[ 5,  7],
           [13, 15]], dtype=int32)

    Args:
      features: as for `roi_pool`, as are all arguments.
      boxes: see `roi_pool`.
      box_indices: see `roi_pool`.
      output_size: see `roi_pool`.
      spatial_scale: see `roi_pool`.
      data_format: see `roi_pool`.
      box_format: see `roi_pool`.
      name: name of the op.

    Returns:
      `(output, argmax)`: what `roi_pool` returns; and int32 of the same shape,
      `y * W + x` of the maximum in its plane, the first of equal ones, -1 where the
      bin has no pixel.
    """
    arguments = _pool_arguments(features, boxes, box_indices, output_size, spatial_scale, data_format, box_format)
    return RoIPoolWithArgmax(*ops.tensorflow_ops_roi_pool(**arguments, name=name))


def roi_pool(
    features,
    boxes,
    box_indices,
    output_size,
    *,
    spatial_scale: float = 1.0,
    data_format: str = "NHWC",
    box_format: str = "xyxy",
    name=None,
) -> tf.Tensor:
    """Pools each box into bins by taking the maximum of each bin's pixels.

    RoI pooling of "Fast R-CNN" (arXiv:1504.08083), with the rounding of its
    original code and of torchvision's `roi_pool`: box corners, times
    `spatial_scale`, are rounded to the nearest pixel (halves away from zero) and both
    belong to the box, which is at least 1 x 1; bin p of P over a box of size s starts
    at floor(p s / P) and ends before ceil((p + 1) s / P). N images, K boxes,
    (ph, pw) = output_size.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> x = tf.reshape(tf.range(16.0), [1, 4, 4, 1])
    >>> tfo.detection.roi_pool(x, [[0, 0, 3, 3]], [0], 2)[0, :, :, 0].numpy()
    array([[ 5.,  7.],
           [13., 15.]], dtype=float32)

    Differences to torchvision: bins are cut in integers (a float bin size can end a
    bin one pixel late); a NaN pixel makes its bin NaN (torchvision skips it); a bin
    of -inf is -inf; an inverted or non-finite box gives zeros (torchvision turns an
    inverted one into one pixel, and crashes on others); 16-bit features keep float32
    coordinates; the gradient is deterministic.

    Args:
      features: [N, H, W, C], or [N, C, H, W] with data_format="NCHW"; float16,
        bfloat16, float32 or float64; H * W below 2**31.
      boxes: [K, 4], in pixels of the input image; float32 (float64 with float64
        features; other numbers are cast). Inverted, NaN or infinite boxes give zeros
        and no gradient; what lies outside of the image is cut off.
      box_indices: int32 [K], each box's image, in [0, N).
      output_size: the number of bins: an int, (height, width), or an int tensor.
      spatial_scale: feature pixels per image pixel: 1/16 at stride 16.
      data_format: "NHWC" or "NCHW".
      box_format: "xyxy" = (x1, y1, x2, y2) or "yxyx" = (y1, x1, y2, x2).
      name: name of the op.

    Returns:
      [K, ph, pw, C] or [K, C, ph, pw], features' dtype; 0 where a bin has no pixel.
      Differentiable in features, to any order; boxes and indices have no gradient.

    Raises:
      ValueError: an unknown option, a wrong dtype, an output_size below 1, a
        spatial_scale that is not positive and finite; in a tf.function also a static
        shape that does not fit.
      InvalidArgumentError: a shape or a tensor of output_size that does not fit; on
        the CPU also "box_indices[3] is 7, expected [0, 2)" (a GPU gives zeros for
        that box).
    """
    arguments = _pool_arguments(features, boxes, box_indices, output_size, spatial_scale, data_format, box_format)
    return ops.tensorflow_ops_roi_pool(**arguments, name=name)[0]
