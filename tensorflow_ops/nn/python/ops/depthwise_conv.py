"""The public function depthwise_conv2d, its gradients and vectorization."""

import functools
from collections.abc import Sequence
from typing import get_args

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, axes, pfor
from tensorflow_ops.core.python.axes import DataFormat
from tensorflow_ops.core.python.gradients import call
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops.deform_conv import PaddingName

_PADDINGS = get_args(PaddingName)


def _pairs(name, value, data_format, neutral):
    """Returns the values of height and width of a sequence [N, H, W, C] (or [N, C, H, W])."""
    value = arguments.to_python(value)
    if not isinstance(value, list | tuple) or len(value) != 4:
        raise ValueError(f"{name} is {value!r}, expected one of each of the 4 dims")
    spatial = slice(2, 4) if data_format == "NCHW" else slice(1, 3)
    others = [value[0], value[1 if data_format == "NCHW" else 3]]
    if any((list(x) if isinstance(x, tuple) else x) != neutral for x in others):
        raise ValueError(f"{name} is {value!r}, expected {neutral} for the batch and the channels")
    return value[spatial]


def _check_padding(padding, data_format):
    """Returns the attrs padding and paddings (top, bottom, left, right). Raises ValueError."""
    if isinstance(padding, str):
        return arguments.one_of("padding", padding, _PADDINGS), (0, 0, 0, 0)
    sides = _pairs("padding", padding, data_format, [0, 0])
    if not all(isinstance(side, list | tuple) and len(side) == 2 for side in sides):
        raise ValueError(f"padding is {padding!r}, expected two numbers for each dim")
    return "EXPLICIT", tuple(arguments.static_int("padding", n, 0) for side in sides for n in side)


@functools.cache
def _has_gpus():
    return bool(tf.config.list_logical_devices("GPU"))


@autograph.op_function
def depthwise_conv2d(
    input: TensorLike,
    filter: TensorLike,
    strides: Sequence[int],
    padding: PaddingName | Sequence[Sequence[int]],
    data_format: DataFormat | None = None,
    dilations: Sequence[int] | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Convolves each channel with its own filters, as `tf.nn.depthwise_conv2d`.

    output[b, i, j, k * M + q] = sum over taps (di, dj) of filter[di, dj, k, q] *
    input[b, i * strides[1] + di * dilations[0] - top, ..., k]; pixels outside are 0.

    One kernel computes both gradients. Unlike TensorFlow's, strides may differ, and may be
    combined with dilations; an output of no images has the right shape; and the gradient of a
    tap that meets no pixel is 0 in bfloat16, too.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> image = tf.reshape(tf.range(6.0), [1, 1, 3, 2])
    >>> filters = tf.constant([1.0, 10.0])[tf.newaxis, tf.newaxis, :, tf.newaxis]
    >>> tfo.nn.depthwise_conv2d(image, filters, [1, 1, 2, 1], "SAME")[0, 0].numpy()
    array([[ 0., 10.],
           [ 4., 50.]], dtype=float32)

    Args:
      input: [N, H, W, C] (or [N, C, H, W]), float16, bfloat16, float32 or float64.
      filter: [kh, kw, C, M]. Cast to the input's dtype.
      strides: [1, vertical, horizontal, 1] (or [1, 1, vertical, horizontal]).
      padding: "VALID", "SAME" (more below and right), or [[0, 0], [top, bottom], [left, right],
        [0, 0]] (or [[0, 0], [0, 0], [top, bottom], [left, right]]).
      data_format: "NHWC", as None, or "NCHW", which is transposed to NHWC and back.
      dilations: (vertical, horizontal); None: 1.
      name: name of the op.

    Returns:
      [N, Ho, Wo, C * M] (or [N, C * M, Ho, Wo]), the input's dtype; sums are float32 for 16-bit
      inputs. Differentiable to any order.

    Raises:
      ValueError: a wrong dtype, an option out of its range, shapes that do not fit.
      InvalidArgumentError: shapes that do not fit, found at run time.
    """
    data_format = arguments.one_of("data_format", data_format or "NHWC", axes.DATA_FORMATS)
    strides = [arguments.static_int("strides", n, 1) for n in _pairs("strides", strides, data_format, 1)]
    dilations = arguments.to_python([1, 1] if dilations is None else dilations)
    if not isinstance(dilations, list | tuple) or len(dilations) != 2:
        raise ValueError(f"dilations is {dilations!r}, expected (vertical, horizontal)")
    dilations = [arguments.static_int("dilations", n, 1) for n in dilations]
    padding, paddings = _check_padding(padding, data_format)
    meaning = "[N, C, H, W]" if data_format == "NCHW" else "[N, H, W, C]"
    input = arguments.with_shape("input", arguments.float_tensor("input", input), [None] * 4, meaning)
    input = axes.to_channels_last("input", input, data_format)
    filter = tf.cast(arguments.float_tensor("filter", filter), input.dtype)
    shape = [None, None, input.shape[3], None]
    filter = arguments.with_shape("filter", filter, shape, "[kh, kw, C, M], with the input's channels")
    with tf.name_scope(name or "depthwise_conv2d"):
        is_supported = strides[0] == strides[1] and 1 in (max(strides), max(dilations))
        if is_supported and _has_gpus():  # our CUDA kernels are plain
            sides = [[0, 0], [*paddings[:2]], [*paddings[2:]], [0, 0]] if padding == "EXPLICIT" else padding
            output = tf.nn.depthwise_conv2d(input, filter, [1, *strides, 1], sides, dilations=dilations)
            return axes.from_channels_last(output, data_format)
        *size, channels, multiplier = filter.shape if filter.shape.is_fully_defined() else tf.unstack(tf.shape(filter))
        if filter.shape[3] != 1:
            input = tf.repeat(input, multiplier, axis=3)
        filter = tf.reshape(filter, [*size, channels * multiplier])
        output = ops.tensorflow_ops_depthwise_conv2d(
            input, filter, strides=strides, dilations=dilations, padding=padding, paddings=paddings
        )
        return axes.from_channels_last(output, data_format)


@tf.RegisterGradient("TensorflowOps>DepthwiseConv2d")
def _depthwise_conv_grad(op, d_output):
    return call(ops.tensorflow_ops_depthwise_conv2d_grad, op, d_output, *op.inputs)


@tf.RegisterGradient("TensorflowOps>DepthwiseConv2dGrad")
def _depthwise_conv_grad_grad(op, g_input, g_filter):
    """Differentiates the sum of d_output * (g_input conv filter + input conv g_filter), which is linear in each."""
    d_output, input, filter = op.inputs
    forward, gradient = ops.tensorflow_ops_depthwise_conv2d, ops.tensorflow_ops_depthwise_conv2d_grad
    return (
        call(forward, op, g_input, filter) + call(forward, op, input, g_filter),
        call(gradient, op, d_output, input, g_filter).d_input,
        call(gradient, op, d_output, g_input, filter).d_filter,
    )


@pfor.register("TensorflowOps>DepthwiseConv2d")
def _convert_depthwise_conv(pfor_input):
    return pfor.convert_folded(pfor_input, shared=[1])


@pfor.register("TensorflowOps>DepthwiseConv2dGrad")
def _convert_depthwise_conv_grad(pfor_input):
    # Sums over the batch would join the iterations, but not if these are channels.
    pfor_input.stack_inputs()
    tensors = [value.t for value in pfor_input.inputs]
    iterations = tf.shape(tensors[0])[0]
    folded = [pfor.fold(t, axis) for t, axis in zip(tensors, (3, 3, 2), strict=True)]
    outputs = pfor.call(pfor_input, folded)
    channels = tf.shape(tensors[2])[3]
    return [
        pfor.stacked(pfor.unfold(y, iterations, axis=rank - 1, size=channels))
        for y, rank in zip(outputs, (4, 3), strict=True)
    ]
