"""The public functions of RoIAlign, on one feature map and on a pyramid of them."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph
from tensorflow_ops.core.python.axes import DataFormat
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.detection.python.ops import roi_arguments
from tensorflow_ops.detection.python.ops.box_formats import BoxFormat
from tensorflow_ops.detection.python.ops.roi_arguments import BinValue, OutputSize


def _average_or_maximum(*, output_size, sampling_ratio, mode, name, **others):
    """Calls RoiAlign; in mode "max" with a bin for each of r x r samples, whose maximum it takes."""
    align, r = ops.tensorflow_ops_roi_align, sampling_ratio
    if mode == "avg":
        return align(output_size=output_size, sampling_ratio=r, name=name, **others)
    known = tf.get_static_value(output_size)
    size, clip = (output_size, tf.clip_by_value) if known is None else (known, np.clip)
    # Times r, sizes out of range stay out of range, and below 2^31.
    samples = align(output_size=clip(size, 0, roi_arguments.MAX_BINS + 1) * r, sampling_ratio=1, **others)
    sizes = [tf.shape(samples, tf.int64)[i] if n is None else n for i, n in enumerate(samples.shape)]
    boxes, ph, pw, channels = sizes[0], sizes[1] // r, sizes[2] // r, sizes[3]
    # Not tf.nn.max_pool2d: it may miss NaN, and under XLA its gradient has a gradient in float32 only, which compares
    # 8 bits of the samples. An axis at a time: TensorFlow does not broadcast tensors of more dims in jacobians.
    columns = tf.reduce_max(tf.reshape(samples, [boxes * ph, r, sizes[2] * channels]), 1)
    maxima = tf.reduce_max(tf.reshape(columns, [boxes * ph * pw, r, channels]), 1)
    return tf.reshape(maxima, [boxes, ph, pw, channels], name=name)


@autograph.op_function
def roi_align(
    features: TensorLike,
    boxes: TensorLike,
    box_indices: TensorLike | None = None,
    output_size: OutputSize | None = None,
    *,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    aligned: bool = True,
    mode: BinValue = "avg",
    data_format: DataFormat = "NHWC",
    box_format: BoxFormat = "xyxy",
    normalized: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Pools each box into bins by averaging bilinear samples of the features.

    RoIAlign of "Mask R-CNN" (arXiv:1703.06870), `aligned` as in Detectron2. Box
    corners, times `spatial_scale`, are not rounded. On each axis, bin p of P over a box
    from y to y + s has n samples, at y + (p + (i + 0.5) / n) s / P for i = 0 .. n - 1; a
    bin's value is the mean of its n x n samples. A sample interpolates the four pixels
    around it; it takes the map's edge up to one pixel outside of the map, and is 0
    further out. N images, K boxes, (ph, pw) = output_size.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> x = tf.reshape(tf.range(16.0), [1, 4, 4, 1])
    >>> tfo.detection.roi_align(x, [[1, 1, 3, 3]], [0], 2)[0, :, :, 0].numpy()
    array([[ 5.,  6.],
           [ 9., 10.]], dtype=float32)
    >>> tfo.detection.roi_align(x, [[1, 1, 3, 3]], [0], 2, aligned=False)[0, :, :, 0].numpy()
    array([[ 7.5,  8.5],
           [11.5, 12.5]], dtype=float32)

    Differences from torchvision: `aligned` defaults to True; boxes have a gradient; an
    inverted or non-finite box gives zeros (torchvision raises or crashes); 16-bit
    features keep float32 coordinates and sums; there is `mode="max"`; gradients are
    deterministic (on a GPU with `tf.config.experimental.enable_op_determinism()`).

    Args:
      features: [N, H, W, C], or [N, C, H, W] with data_format="NCHW"; float16,
        bfloat16, float32 or float64; H * W below 2**31.
      boxes: [K, 4], or by image, [N, R, 4] or a RaggedTensor [N, (R), 4], with
        box_indices=None; in pixels of the input image; float32 (float64 with float64
        features; other numbers are cast). Inverted, NaN or infinite boxes give zeros
        and no gradient.
      box_indices: int32 or int64 [K], each box's image, in [0, N).
      output_size: the number of bins, at most 2^20 on an axis: an int, (height, width), or
        an int tensor.
      spatial_scale: feature pixels per image pixel: 1/16 at stride 16.
      sampling_ratio: n, the samples of a bin on each axis, at most 1024; 0 means as
        many as the bin has pixels on the axis, rounded up. A box of size 0 then has no
        sample, and gives zeros. A box has at most 2^20 samples on an axis.
      aligned: True: pixel i's centre is at i + 0.5, so that [1, 1, 3, 3] is pixels 1
        and 2. False: it is at i, and a box is at least 1 x 1 pixels, as in the first
        RoIAlign.
      mode: "avg"; or "max", the largest of a bin's samples, with 0 for samples outside
        of the map; NaN if a sample is NaN. "max" requires a sampling_ratio above 0, and
        holds all samples in memory: sampling_ratio^2 times the output.
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
      UnimplementedError. With mode="max" a bin's gradient goes to its largest sample;
      samples that tie share it: first their columns, then each column's rows.

    Raises:
      ValueError: an unknown option, a wrong dtype, an output_size below 1, a
        sampling_ratio outside of [0, 1024], or 0 with mode="max", a spatial_scale that is
        not positive and finite, a shape that does not fit.
      InvalidArgumentError: the same errors, found at run time, a tensor of output_size
        below 1; on the CPU also "box_indices[3] is 7, expected [0, 2)" (a GPU gives
        zeros for that box).
    """
    return roi_arguments.pool(
        _average_or_maximum,
        arguments.float_tensor("features", features),
        boxes,
        box_indices,
        output_size,
        name,
        spatial_scale=spatial_scale,
        sampling_ratio=sampling_ratio,
        aligned=aligned,
        mode=mode,
        data_format=data_format,
        box_format=box_format,
        normalized=normalized,
    )


@autograph.op_function
def multiscale_roi_align(
    features: Sequence[TensorLike],
    boxes: TensorLike,
    box_indices: TensorLike | None = None,
    output_size: OutputSize | None = None,
    *,
    strides: Sequence[float],
    sampling_ratio: int = 2,
    aligned: bool = True,
    canonical_box_size: float = 224.0,
    canonical_stride: float = 16,
    data_format: DataFormat = "NHWC",
    box_format: BoxFormat = "xyxy",
    normalized: bool = False,
    name: str | None = None,
) -> tf.Tensor:
    """Pools each box from the level of a feature pyramid that fits its size.

    `roi_align` with the levels of "Feature Pyramid Networks for Object Detection"
    (arXiv:1612.03144): a box of width w and height h in the input image belongs to the
    last level l with

        sqrt(w h) * canonical_stride >= strides[l] * canonical_box_size

    and to the first level if there is none. With strides that are powers of two this is
    the paper's equation (1): a box of canonical_box_size is pooled at canonical_stride,
    a box of half the size at half the stride. A box whose size is below the limit by at
    most a relative 10**-6 is still on it, since corners are rounded numbers. One op
    pools all boxes, in their order. N images, K boxes, (ph, pw) = output_size.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> fine, coarse = tf.fill([1, 32, 32, 1], 4.0), tf.fill([1, 16, 16, 1], 8.0)
    >>> boxes = [[0, 0, 100, 100], [0, 0, 112, 112]]
    >>> tfo.detection.multiscale_roi_align([fine, coarse], boxes, [0, 0], 1, strides=(4, 8))[:, 0, 0, 0].numpy()
    array([4., 8.], dtype=float32)

    Differences from torchvision's `MultiScaleRoIAlign`: a function of tensors; strides
    are arguments, not guessed from the sizes of image and maps, and need not be powers
    of two; `aligned` defaults to True; and those of `roi_align`.

    Args:
      features: a list of 1 to 16 maps, the finest first: each [N, H, W, C], or
        [N, C, H, W] with data_format="NCHW", with one N, one C and one dtype; float16,
        bfloat16, float32 or float64; H * W below 2**31.
      boxes: [K, 4], or by image, [N, R, 4] or a RaggedTensor [N, (R), 4], with
        box_indices=None; in pixels of the input image; float32 (float64 with float64
        features; other numbers are cast). Inverted, NaN or infinite boxes give zeros
        and no gradient.
      box_indices: int32 or int64 [K], each box's image, in [0, N).
      output_size: the number of bins, at most 2^20 on an axis: an int, (height, width), or
        an int tensor.
      strides: image pixels per feature pixel, for each map, in increasing order.
      sampling_ratio: the samples of a bin on each axis, as for `roi_align`.
      aligned: where pixels have their centres, as for `roi_align`.
      canonical_box_size: the box size, in image pixels, that is pooled at
        canonical_stride.
      canonical_stride: the stride for a box of canonical_box_size.
      data_format: "NHWC" or "NCHW". NCHW is transposed to NHWC and back.
      box_format: "xyxy" = (x1, y1, x2, y2), "yxyx" = (y1, x1, y2, x2), "xywh" = (x1, y1,
        width, height), "center_xywh" or "center_yxhw", around the centre; "rel_xyxy",
        "rel_yxyx", "rel_xywh" and "rel_center_xywh" imply normalized=True.
      normalized: True: boxes are fractions of the area that the first map covers, which
        is the image where its sides are multiples of strides[0].
      name: name of the op.

    Returns:
      [K, ph, pw, C] or [K, C, ph, pw], for boxes by image [N, R, ...], ragged as they
        are; features' dtype. Differentiable in features, to
      any order, and in boxes, for a fixed level and number of samples, to first order: a
      derivative of the gradient to boxes raises LookupError, in a graph and in forward mode
      along boxes UnimplementedError.

    Raises:
      ValueError: features are no list of 1 to 16 maps or have several dtypes, strides do
        not increase or are not one for each map, an unknown option, a wrong dtype, an
        output_size below 1, a sampling_ratio outside of [0, 1024], a canonical size or
        stride that is not positive and finite, a shape that does not fit.
      InvalidArgumentError: the same errors, found at run time, a tensor of output_size
        below 1; on the CPU also "box_indices[3] is 7, expected [0, 2)" (a GPU gives
        zeros for that box).
    """
    strides = roi_arguments.check_levels(features, strides)
    return roi_arguments.pool(
        ops.tensorflow_ops_multiscale_roi_align,
        roi_arguments.feature_maps(features),
        boxes,
        box_indices,
        output_size,
        name,
        sampling_ratio=sampling_ratio,
        aligned=aligned,
        strides=strides,
        canonical_box_size=canonical_box_size,
        canonical_stride=canonical_stride,
        data_format=data_format,
        box_format=box_format,
        normalized=normalized,
    )
