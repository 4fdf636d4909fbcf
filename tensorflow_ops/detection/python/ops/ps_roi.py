"""The public functions of position-sensitive region pooling."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.axes import DataFormat
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.detection.python.ops import roi_arguments
from tensorflow_ops.detection.python.ops.box_formats import BoxFormat
from tensorflow_ops.detection.python.ops.roi_arguments import ChannelOrder, OutputSize


@autograph.op_function
def ps_roi_pool(
    features: TensorLike,
    boxes: TensorLike,
    box_indices: TensorLike | None = None,
    output_size: OutputSize | None = None,
    *,
    spatial_scale: float = 1.0,
    channel_order: ChannelOrder = "channel_major",
    data_format: DataFormat = "NHWC",
    box_format: BoxFormat = "xyxy",
    normalized: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Pools each box into bins by averaging pixels, each bin from its own channels.

    Position-sensitive RoI pooling of "R-FCN" (arXiv:1605.06409). Box corners, times
    `spatial_scale`, are rounded to the nearest pixel (halves away from zero). The box
    excludes the second corner and is at least 1 x 1. On each axis, bin p of P over a box
    of size s starts at floor(p s / P) and ends before ceil((p + 1) s / P). A bin is the
    mean of its pixels in the map. Features have ph * pw channels for each channel of the
    output, one for each bin. N images, K boxes, (ph, pw) = output_size.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> x = tf.reshape(tf.range(64.0), [1, 4, 4, 4])  # 4 channels: one for each of 2 x 2 bins
    >>> tfo.detection.ps_roi_pool(x, [[0, 0, 4, 4]], [0], 2)[0, :, :, 0].numpy()
    array([[10., 19.],
           [44., 53.]], dtype=float32)

    Differences from torchvision: bins include the map's last row and column (torchvision
    omits them, but not in its gradient); bin edges are computed in integers; an inverted
    or non-finite box gives zeros (torchvision turns an inverted one into one pixel);
    16-bit features keep float32 coordinates and sums; there is
    `channel_order="bin_major"`; the gradient is deterministic (on a GPU with
    `tf.config.experimental.enable_op_determinism()`).

    Args:
      features: [N, H, W, ph * pw * C], or [N, ph * pw * C, H, W] with
        data_format="NCHW"; float16, bfloat16, float32 or float64; H * W below 2**31.
      boxes: [K, 4], or by image, [N, R, 4] or a RaggedTensor [N, (R), 4], with
        box_indices=None; in pixels of the input image; float32 (float64 with float64
        features; other numbers are cast). Inverted, NaN or infinite boxes give zeros
        and no gradient; boxes are clipped to the image.
      box_indices: int32 or int64 [K], each box's image, in [0, N).
      output_size: the number of bins, at most 2^20 on an axis: an int, (height, width), or
        an int tensor.
      spatial_scale: feature pixels per image pixel: 1/16 at stride 16.
      channel_order: the position of channel c of bin (p, q) in features:
        "channel_major", (c * ph + p) * pw + q, as in torchvision and R-FCN's own code; or
        "bin_major", (p * pw + q) * C + c, which is faster with NHWC.
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
        spatial_scale that is not positive and finite, a shape that does not fit, such
        as channels that are no multiple of ph * pw.
      InvalidArgumentError: the same errors, found at run time, a tensor of output_size
        below 1; on the CPU also "box_indices[3] is 7, expected [0, 2)" (a GPU gives
        zeros for that box).
    """
    return roi_arguments.pool(
        ops.tensorflow_ops_ps_roi_pool,
        arguments.float_tensor("features", features),
        boxes,
        box_indices,
        output_size,
        name,
        spatial_scale=spatial_scale,
        channel_order=channel_order,
        data_format=data_format,
        box_format=box_format,
        normalized=normalized,
    )


@autograph.op_function
def ps_roi_align(
    features: TensorLike,
    boxes: TensorLike,
    box_indices: TensorLike | None = None,
    output_size: OutputSize | None = None,
    *,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    channel_order: ChannelOrder = "channel_major",
    data_format: DataFormat = "NHWC",
    box_format: BoxFormat = "xyxy",
    normalized: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Pools each box into bins by averaging bilinear samples, each bin from its own channels.

    The channels of `ps_roi_pool` ("R-FCN", arXiv:1605.06409) with the samples of
    `roi_align` ("Mask R-CNN", arXiv:1703.06870), aligned, as in "Light-Head R-CNN"
    (arXiv:1711.07264). N images, K boxes, (ph, pw) = output_size.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> x = tf.reshape(tf.range(64.0), [1, 4, 4, 4])  # 4 channels: one for each of 2 x 2 bins
    >>> tfo.detection.ps_roi_align(x, [[1, 1, 3, 3]], [0], 2)[0, :, :, 0].numpy()
    array([[20., 25.],
           [38., 43.]], dtype=float32)

    Differences from torchvision: boxes have a gradient; a box of size 0 with
    sampling_ratio=0 gives zeros (torchvision: NaN), as does an inverted or non-finite
    one; 16-bit features keep float32 coordinates and sums; there is
    `channel_order="bin_major"`; gradients are deterministic (on a GPU with
    `tf.config.experimental.enable_op_determinism()`).

    Args:
      features: [N, H, W, ph * pw * C], or [N, ph * pw * C, H, W] with
        data_format="NCHW"; float16, bfloat16, float32 or float64; H * W below 2**31.
      boxes: [K, 4], or by image, [N, R, 4] or a RaggedTensor [N, (R), 4], with
        box_indices=None; in pixels of the input image; float32 (float64 with float64
        features; other numbers are cast). Inverted, NaN or infinite boxes give zeros
        and no gradient.
      box_indices: int32 or int64 [K], each box's image, in [0, N).
      output_size: the number of bins, at most 2^20 on an axis: an int, (height, width), or
        an int tensor.
      spatial_scale: feature pixels per image pixel: 1/16 at stride 16.
      sampling_ratio: the samples of a bin on each axis, as for `roi_align`.
      channel_order: "channel_major" or "bin_major", as for `ps_roi_pool`.
      data_format: "NHWC" or "NCHW". NCHW is transposed to NHWC and back.
      box_format: "xyxy" = (x1, y1, x2, y2), "yxyx" = (y1, x1, y2, x2), "xywh" = (x1, y1,
        width, height), "center_xywh" or "center_yxhw", around the centre; "rel_xyxy",
        "rel_yxyx", "rel_xywh" and "rel_center_xywh" imply normalized=True.
      normalized: True: boxes are fractions of the area that features cover, which is the
        image where its sides are multiples of the stride; spatial_scale must be 1.
      name: name of the op.

    Returns:
      [K, ph, pw, C] or [K, C, ph, pw], for boxes by image [N, R, ...], ragged as they
        are; features' dtype. Differentiable in features, to
      any order, and in boxes, for a fixed number of samples, to first order: a derivative of
      the gradient to boxes raises LookupError, in a graph and in forward mode along boxes
      UnimplementedError.

    Raises:
      ValueError: an unknown option, a wrong dtype, an output_size below 1, a
        sampling_ratio outside of [0, 1024], a spatial_scale that is not positive and
        finite, a shape that does not fit, such as channels that are no multiple of ph *
        pw.
      InvalidArgumentError: the same errors, found at run time, a tensor of output_size
        below 1; on the CPU also "box_indices[3] is 7, expected [0, 2)" (a GPU gives
        zeros for that box).
    """
    return roi_arguments.pool(
        ops.tensorflow_ops_ps_roi_align,
        arguments.float_tensor("features", features),
        boxes,
        box_indices,
        output_size,
        name,
        spatial_scale=spatial_scale,
        sampling_ratio=sampling_ratio,
        channel_order=channel_order,
        data_format=data_format,
        box_format=box_format,
        normalized=normalized,
    )
