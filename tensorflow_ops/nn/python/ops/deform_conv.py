"""The public function of deformable convolution."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, axes
from tensorflow_ops.core.python.axes import DataFormat
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import deformable_grad  # noqa: F401  (registers gradients)

PaddingName: TypeAlias = Literal["VALID", "SAME"]
_PADDINGS = get_args(PaddingName)
PaddingSizes: TypeAlias = int | Sequence[int] | Sequence[Sequence[int]]


def pair(name, value, minimum):
    """Returns an int or a pair of ints as a pair. Raises ValueError."""
    value = arguments.to_python(value)
    numbers = (value, value) if arguments.is_int(value) else value
    if not isinstance(numbers, list | tuple) or len(numbers) != 2:
        raise ValueError(f"{name} is {value!r}, expected an int or (vertical, horizontal)")
    return tuple(arguments.static_int(name, n, minimum) for n in numbers)


def check_padding(padding):
    """Returns the attrs padding and paddings (top, bottom, left, right). Raises ValueError."""
    if isinstance(padding, str):
        return arguments.one_of("padding", padding, _PADDINGS), (0, 0, 0, 0)
    if isinstance(padding, list | tuple) and len(padding) == 2 and all(isinstance(p, list | tuple) for p in padding):
        sides = [pair("padding", p, 0) for p in padding]
    else:
        sides = [(n, n) for n in pair("padding", padding, 0)]
    return "EXPLICIT", (*sides[0], *sides[1])


def _tensor(name, value, dtype, shape):
    """Returns a tensor of the dtype. Raises ValueError unless it has this rank."""
    tensor = tf.cast(arguments.float_tensor(name, value), dtype)
    arguments.check_shape(name, tensor, [None] * len(shape.split(",")), f"expected {shape}")
    return tensor


@autograph.op_function
def deform_conv2d(
    features: TensorLike,
    offsets: TensorLike,
    filters: TensorLike,
    *,
    mask: TensorLike | None = None,
    bias: TensorLike | None = None,
    strides: int | Sequence[int] = 1,
    padding: PaddingName | PaddingSizes = "VALID",
    dilations: int | Sequence[int] = 1,
    data_format: DataFormat = "NHWC",
    name: str | None = None,
) -> tf.Tensor:
    """Convolves features that are read at learned offsets: deformable convolution, v1 and v2.

    Deformable Convolutional Networks (arXiv:1703.06211), with `mask` v2 (arXiv:1811.11168).
    With tap (i, j) of kh x kw, output place (p, q) and channel c,

    output[p, q, o] = bias[o] + sum of filters[i, j, c, o] * mask * features[y, x, c], where
    y = p * stride - top + i * dilation + offset_y, likewise x.

    Features between pixels are interpolated bilinearly; pixels outside are 0, so values fade
    from 0 at -1 and at H. Offsets of zero give `tf.nn.conv2d`. Columns of samples are never
    stored: memory beyond the result is a few tiles for each thread, and in the backward
    pass the features' size for 16-bit ones.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> features = tf.reshape(tf.range(9.0), [1, 3, 3, 1])
    >>> filters = tf.ones([1, 1, 1, 1])
    >>> offsets = tf.tile([[[[0.0, 0.5]]]], [1, 3, 3, 1])  # half a pixel to the right
    >>> tfo.nn.deform_conv2d(features, offsets, filters)[0, :, :, 0].numpy()
    array([[0.5, 1.5, 1. ],
           [3.5, 4.5, 2.5],
           [6.5, 7.5, 4. ]], dtype=float32)

    Args:
      features: [N, H, W, C] (or [N, C, H, W]), float16, bfloat16, float32 or float64.
      offsets: [N, Ho, Wo, G kh kw 2] (or [N, G kh kw 2, Ho, Wo]), pixels; each of G offset
        groups moves C / G channels that follow each other. Channel ((g kh + i) kw + j) 2 +
        (0: y, 1: x): torchvision's order. Cast to float32 (float64 for float64 features).
        NaN makes its output NaN, and has no gradient; infinity is outside.
      filters: [kh, kw, C / groups, Co], as `tf.nn.conv2d`; the groups follow from the
        shape. Cast to features' dtype.
      mask: [N, Ho, Wo, G kh kw] (or [N, G kh kw, Ho, Wo]), factors of the samples, channel
        (g kh + i) kw + j; or None. Cast to features' dtype.
      bias: [Co], or None. Cast to features' dtype.
      strides: an int or (vertical, horizontal).
      padding: "VALID", "SAME" (TensorFlow's: more below and right), an int, (vertical,
        horizontal), or ((top, bottom), (left, right)).
      dilations: an int or (vertical, horizontal).
      data_format: "NHWC" or "NCHW". NCHW is transposed to NHWC and back.
      name: name of the op.

    Returns:
      [N, Ho, Wo, Co] (or [N, Co, Ho, Wo]), features' dtype; sums are float32 for 16-bit
      features. Differentiable once in features, offsets, filters, mask and bias. On whole
      pixels the slope is that of the cell below and to the right, so padded taps at -1 can
      learn, too; a pixel of weight 0 has an effect on that slope only. Second derivatives raise
      LookupError.

    Raises:
      ValueError: a wrong dtype, an option out of its range, shapes that do not fit.
      InvalidArgumentError: shapes that do not fit, found at run time.
    """
    arguments.one_of("data_format", data_format, axes.DATA_FORMATS)
    strides, dilations = pair("strides", strides, 1), pair("dilations", dilations, 1)
    padding, paddings = check_padding(padding)
    features = arguments.float_tensor("features", features)
    dtype = features.dtype
    first = data_format == "NCHW"
    features = _tensor("features", features, dtype, "[N, C, H, W]" if first else "[N, H, W, C]")
    offsets = _tensor(
        "offsets",
        offsets,
        arguments.at_least_float32(dtype),
        "[N, G kh kw 2, Ho, Wo]" if first else "[N, Ho, Wo, G kh kw 2]",
    )
    filters = _tensor("filters", filters, dtype, "[kh, kw, C / groups, Co]")
    if mask is not None:
        mask = _tensor("mask", mask, dtype, "[N, G kh kw, Ho, Wo]" if first else "[N, Ho, Wo, G kh kw]")
    if bias is not None:
        bias = _tensor("bias", bias, dtype, "[Co]")
    with tf.name_scope(name or "deform_conv2d"):
        output = ops.tensorflow_ops_deform_conv2d(
            features=axes.to_channels_last("features", features, data_format),
            offsets=axes.to_channels_last("offsets", offsets, data_format),
            filters=filters,
            mask=[] if mask is None else [axes.to_channels_last("mask", mask, data_format)],
            bias=[] if bias is None else [bias],
            strides=strides,
            dilations=dilations,
            padding=padding,
            paddings=paddings,
        )
        return axes.from_channels_last(output, data_format)
