"""The public function quantized_matmul, its gradient and vectorization."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, pfor
from tensorflow_ops.core.python.gradients import call, input_names, inputs_by_name
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike


def _pairs(bits, packed_axis, transposed):
    """Returns the attr pairs: the axis of W along which two numbers share a byte."""
    if not arguments.is_int(bits) or bits not in (4, 8):
        raise ValueError(f"bits is {bits!r}, expected 8 or 4")
    if bits == 8:
        if packed_axis is not None:
            raise ValueError(f"packed_axis is {packed_axis!r}, expected None: numbers of 8 bits are not packed")
        return "none"
    if packed_axis is None:
        return "columns"
    if not arguments.is_int(packed_axis) or not -2 <= packed_axis < 2:
        raise ValueError(f"packed_axis is {packed_axis!r}, expected None, 0, 1, -1 or -2")
    is_first_axis = packed_axis in (0, -2)
    return "columns" if is_first_axis is transposed else "depth"


def _weights(kernel, scale, zero, group_index, dtype):
    """Returns kernel, scale, and lists of zero and group_index. Raises ValueError."""
    kernel = arguments.dense_tensor("kernel", kernel)
    if kernel.dtype not in (tf.int8, tf.uint8):
        raise ValueError(f"kernel is {kernel.dtype.name}, expected int8 or uint8")
    scale = arguments.cast(arguments.float_tensor("scale", scale), arguments.at_least_float32(dtype))
    if zero is not None:
        zero = arguments.dense_tensor("zero", zero, dtype_hint=None if hasattr(zero, "dtype") else kernel.dtype)
        if not zero.dtype.is_integer and not zero.dtype.is_floating:
            raise ValueError(f"zero is {zero.dtype.name}, expected integers or floats")
        if zero.dtype != kernel.dtype:
            zero = arguments.cast(zero, scale.dtype)
    if group_index is not None:
        group_index = arguments.int_tensor("group_index", group_index)
        if not group_index.dtype.is_floating and not group_index.dtype.is_integer:
            raise ValueError(f"group_index is {group_index.dtype.name}, expected integers or floats")
    return (
        kernel,
        scale,
        [] if zero is None else [zero],
        [] if group_index is None else [arguments.whole_numbers("group_index", group_index, tf.int32)],
    )


@autograph.op_function
def quantized_matmul(
    inputs: TensorLike,
    kernel: TensorLike,
    scale: TensorLike,
    *,
    zero: TensorLike | None = None,
    bits: int = 8,
    block_size: int | None = None,
    group_index: TensorLike | None = None,
    transposed: bool = False,
    packed_axis: int | None = None,
    activation_bits: int | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Multiplies floats with weights of 8 or 4 bits, as Keras stores them.

    `result[.., n] = sum over k of inputs[.., k] * (q[k, n] - zero[g, n]) * scale[g, n]`, where g is the
    group of k. A few rows of inputs take the time to read the packed bytes. Weights are never unpacked
    as a whole. Kernels are those of quantized layers of Keras 3.15:

    | mode | kernel | arguments |
    |---|---|---|
    | int8 | [K, N] int8 | `1 / scale` |
    | int4, block_size -1 | [K, ceil(N / 2)] int8 | `1 / scale`, `bits=4` |
    | int4 | [K, ceil(N / 2)] int8 | `scale`, `zero`, `bits=4`, `block_size` |
    | int4, until Keras 3.13 | [ceil(K / 2), N] int8 | `1 / scale`, `bits=4`, `packed_axis=0`, `activation_bits=8` |
    | gptq of 4 bits, awq (divide inputs by awq_scales) | [ceil(N / 2), K] uint8 | as for the next, `bits=4` |
    | gptq of 2, 3, 8 bits | [N, K] uint8 | `scale`, `zero`, `group_index=g_idx`, `transposed=True` |
    | tied ReversibleEmbedding, int8 | [N, K] int8 | as for int8, `transposed=True` |
    | the same, int4 | [N, ceil(K / 2)] int8 | as for int4, `transposed=True`, `packed_axis=-1` |
    | ReversibleEmbedding that is not tied, int4 | [ceil(K / 2), N] int8 | as for int4, `packed_axis=0` |

    A layer with an `inputs_quantizer`, the default of int8, computes with `activation_bits=8`.
    Scales multiply; where a layer divides by its scale, pass the reciprocal.

    >>> import numpy as np, tensorflow_ops as tfo
    >>> kernel = np.array([[0xE1, 0x03], [0x78, 0x00]], "uint8").view("int8")  # [[1, -2, 3], [-8, 7, 0]]
    >>> tfo.nn.quantized_matmul([[1.0, 2.0]], kernel, [0.5, 0.5, 2.0], bits=4).numpy()
    array([[-7.5,  6. ,  6. ]], dtype=float32)

    Args:
      inputs: [.., K] float16, bfloat16, float32 or float64.
      kernel: int8 or uint8, the numbers q: [K, N], or [N, K] with transposed. With bits=4, two of them
        are in a byte along packed_axis, the first in its low half, as `keras.quantizers.pack_int4`
        writes them; those of int8 are signed.
      scale: [N], or of groups, also of one, [G, N], [N, G] with transposed. Cast to float32 (float64 for float64
        inputs).
      zero: None for 0, or any numbers of scale's shape. Those of the kernel's dtype are fastest, others count as
        scale's dtype.
      bits: 8 or 4.
      block_size: None for one group, or consecutive k in a group; G is ceil(K / block_size).
      group_index: None, or [K] integers in [0, G), or floats that are integers: the group of each k.
        Groups in no order are slower.
      transposed: whether the kernel is [N, K].
      packed_axis: axis of the kernel along which numbers share a byte; None: that of N.
      activation_bits: None for float inputs, or 8: rows of inputs are rounded to integers, as
        `keras.quantizers.AbsMaxQuantizer` does, and their scales divide the result. With one group, and no zero
        or one of the kernel's dtype, sums are of integers, exact modulo 2^32, as Keras's.
      name: name of the op.

    Returns:
      [.., N], inputs' dtype. Sums are float32 (float64 for float64 inputs); float32 inputs above 1e30
      may overflow. Differentiable in inputs, to any order, with activation_bits=8 as if they were not
      rounded. A row with an infinity or NaN is NaN with activation_bits=8.

    Raises:
      ValueError: wrong dtypes, options, or shapes that do not fit.
      InvalidArgumentError: shapes that do not fit, found at run time; a group_index that is no integer or
        outside of [0, G) (on a GPU such weights count as 0).
    """
    transposed = arguments.static_bool("transposed", transposed)
    pairs = _pairs(bits, packed_axis, transposed)
    if activation_bits is not None and (not arguments.is_int(activation_bits) or activation_bits != 8):
        raise ValueError(f"activation_bits is {activation_bits!r}, expected None or 8")
    if block_size is not None:
        block_size = arguments.static_int("block_size", block_size, 1)
        if group_index is not None:
            raise ValueError(f"block_size is {block_size} and group_index is given, expected one of them")
    inputs = arguments.float_tensor("inputs", inputs)
    kernel, scale, zero, group_index = _weights(kernel, scale, zero, group_index, inputs.dtype)
    return ops.tensorflow_ops_quantized_matmul(
        inputs=inputs,
        kernel=kernel,
        scale=scale,
        zero=zero,
        group_index=group_index,
        block_size=block_size or 0,
        transposed=transposed,
        pairs=pairs,
        quantize_inputs=activation_bits is not None,
        name=name,
    )


@tf.RegisterGradient("TensorflowOps>QuantizedMatmul")
def _quantized_matmul_grad(op, d_output):
    # Rounding of inputs has the gradient of the identity, as in Keras.
    d_inputs = call(ops.tensorflow_ops_quantized_matmul_grad, op, d_output, *inputs_by_name(op).values())
    return [d_inputs] + [None] * (len(op.inputs) - 1)


@tf.RegisterGradient("TensorflowOps>QuantizedMatmulGrad")
def _quantized_matmul_grad_grad(op, d_d_inputs):
    _, _, *weights = inputs_by_name(op).values()
    d_d_output = call(ops.tensorflow_ops_quantized_matmul, op, d_d_inputs, *weights)
    return [d_d_output] + [None] * (len(op.inputs) - 1)


@pfor.register("TensorflowOps>QuantizedMatmul")
@pfor.register("TensorflowOps>QuantizedMatmulGrad")
def _convert(pfor_input):
    """Calls the op once, of batch dims, unless weights differ between iterations."""
    batched = [i for i, name in enumerate(input_names(pfor_input.op)) if name in ("inputs", "d_output")]
    if any(pfor_input.inputs[i].is_stacked for i in range(pfor_input.num_inputs) if i not in batched):
        return pfor.loop(pfor_input)
    pfor_input.stack_inputs(batched)
    outputs = pfor.call(pfor_input, [value.t for value in pfor_input.inputs])
    return [pfor.stacked(output) for output in outputs]
