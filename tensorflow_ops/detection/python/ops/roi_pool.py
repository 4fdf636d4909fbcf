"""The public functions of max pooling of regions."""

from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.axes import DataFormat
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.detection.python.ops import roi_arguments
from tensorflow_ops.detection.python.ops.box_formats import BoxFormat
from tensorflow_ops.detection.python.ops.roi_arguments import OutputSize


class RoIPoolWithArgmax(NamedTuple):
    """The result of `roi_pool_with_argmax`."""

    output: tf.Tensor
    argmax: tf.Tensor


@autograph.op_function
def roi_pool_with_argmax(
    features: TensorLike,
    boxes: TensorLike,
    box_indices: TensorLike | None = None,
    output_size: OutputSize | None = None,
    *,
    spatial_scale: float = 1.0,
    data_format: DataFormat = "NHWC",
    box_format: BoxFormat = "xyxy",
    normalized: bool = False,
    name: str | None = None,
) -> RoIPoolWithArgmax:
    """Pools as `roi_pool` does, and returns the pixel of each maximum.

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
      normalized: see `roi_pool`.
      name: name of the op.

    Returns:
      `(output, argmax)`: the result of `roi_pool`; and int32 of the same shape,
      `y * W + x` of the maximum in its plane, the first of equal ones, -1 for a bin
      without pixels.
    """
    output, argmax = roi_arguments.pool(
        ops.tensorflow_ops_roi_pool,
        arguments.float_tensor("features", features),
        boxes,
        box_indices,
        output_size,
        name,
        spatial_scale=spatial_scale,
        data_format=data_format,
        box_format=box_format,
        normalized=normalized,
    )
    return RoIPoolWithArgmax(output, argmax)


@autograph.op_function
def roi_pool(
    features: TensorLike,
    boxes: TensorLike,
    box_indices: TensorLike | None = None,
    output_size: OutputSize | None = None,
    *,
    spatial_scale: float = 1.0,
    data_format: DataFormat = "NHWC",
    box_format: BoxFormat = "xyxy",
    normalized: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Pools each box into bins by taking the maximum of each bin's pixels.

    RoI pooling of "Fast R-CNN" (arXiv:1504.08083), with the rounding of its original
    code and of torchvision's `roi_pool`: box corners, times `spatial_scale`, are
    rounded to the nearest pixel (halves away from zero). The box includes both corners
    and is at least 1 x 1. Bin p of P over a box of size s starts at floor(p s / P) and
    ends before ceil((p + 1) s / P). N images, K boxes, (ph, pw) = output_size.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> x = tf.reshape(tf.range(16.0), [1, 4, 4, 1])
    >>> tfo.detection.roi_pool(x, [[0, 0, 3, 3]], [0], 2)[0, :, :, 0].numpy()
    array([[ 5.,  7.],
           [13., 15.]], dtype=float32)

    Differences from torchvision: bin edges are computed in integers (a float bin size
    can end a bin one pixel late); a NaN pixel makes its bin NaN (torchvision skips it);
    a bin of -inf is -inf; an inverted or non-finite box gives zeros (torchvision turns
    an inverted one into one pixel, and crashes on others); 16-bit features keep float32
    coordinates; the gradient is deterministic (on a GPU with
    `tf.config.experimental.enable_op_determinism()`).

    Args:
      features: [N, H, W, C], or [N, C, H, W] with data_format="NCHW"; float16,
        bfloat16, float32 or float64; H * W below 2**31.
      boxes: [K, 4], or by image, [N, R, 4] or a RaggedTensor [N, (R), 4], with
        box_indices=None; in pixels of the input image; float32 (float64 with float64
        features; other numbers are cast). Inverted, NaN or infinite boxes give zeros
        and no gradient; boxes are clipped to the image.
      box_indices: int32 or int64 [K], each box's image, in [0, N).
      output_size: the number of bins, at most 2^20 on an axis: an int, (height, width), or
        an int tensor.
      spatial_scale: feature pixels per image pixel: 1/16 at stride 16.
      data_format: "NHWC" or "NCHW". NCHW is transposed to NHWC and back.
      box_format: "xyxy" = (x1, y1, x2, y2), "yxyx" = (y1, x1, y2, x2), "xywh" = (x1, y1,
        width, height), "center_xywh" or "center_yxhw", around the centre; "rel_xyxy",
        "rel_yxyx", "rel_xywh" and "rel_center_xywh" imply normalized=True.
      normalized: True: boxes are fractions of the area that features cover, which is the
        image where its sides are multiples of the stride; spatial_scale must be 1.
      name: name of the op.

    Returns:
      [K, ph, pw, C] or [K, C, ph, pw], for boxes by image [N, R, ...], ragged as they
        are; features' dtype; 0 for a bin without pixels.
      Differentiable in features, to any order; boxes and indices have no gradient.

    Raises:
      ValueError: an unknown option, a wrong dtype, an output_size below 1, a
        spatial_scale that is not positive and finite, a shape that does not fit.
      InvalidArgumentError: the same errors, found at run time, a tensor of output_size
        below 1; on the CPU also "box_indices[3] is 7, expected [0, 2)" (a GPU gives
        zeros for that box).
    """
    return roi_pool_with_argmax(
        features,
        boxes,
        box_indices,
        output_size,
        spatial_scale=spatial_scale,
        data_format=data_format,
        box_format=box_format,
        normalized=normalized,
        name=name,
    ).output
