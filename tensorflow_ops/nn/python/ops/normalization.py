"""The public normalizations, their gradients and vectorization: one op, of groups of channels."""

import math
from collections.abc import Sequence

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, gradients, pfor
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike
from tensorflow_ops.nn.python.ops import nn_arguments


@autograph.op_function
def layer_norm(
    inputs: TensorLike,
    gamma: TensorLike | None = None,
    beta: TensorLike | None = None,
    *,
    axis: int | Sequence[int] = -1,
    epsilon: float = 1e-3,
    name: str | None = None,
) -> tf.Tensor:
    """Layer normalization: each example in units of its standard deviation, from its mean.

    `(x - mean) / sqrt(variance + epsilon) * gamma + beta`, with the mean and the variance (that
    of all n numbers, divided by n) of the trailing axes (Ba et al., "Layer Normalization",
    arXiv:1607.06450).

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> tfo.nn.layer_norm([[0.0, 2.0], [10.0, 14.0]], [1.0, 2.0], epsilon=0.0).numpy()
    array([[-1.,  2.],
           [-1.,  2.]], dtype=float32)

    One op each for values and gradients, which reads each number once where an example fits in
    the processor's cache.

    Args:
      inputs: [..., *dims]; float16, bfloat16, float32 or float64. A NaN or infinity makes its
        own example NaN.
      gamma: of the shape of the axes, the factors; None: 1. Cast to float32, for float64 inputs
        to float64.
      beta: as gamma, the offsets; None: 0.
      axis: the last axis, or all axes from one to the last, in order.
      epsilon: a number that is not negative.
      name: name of the op.

    Returns:
      inputs' shape and dtype, computed in float32 for 16-bit inputs. Differentiable to any
      order; the gradients have the same bits for any number of threads.

    Raises:
      ValueError: axes that are not the last ones, shapes or dtypes that do not fit.
      InvalidArgumentError: the same errors, found at run time.
    """
    return _of_trailing_axes(inputs, gamma, beta, axis, epsilon, True, name)


@autograph.op_function
def rms_norm(
    inputs: TensorLike,
    gamma: TensorLike | None = None,
    *,
    axis: int | Sequence[int] = -1,
    epsilon: float = 1e-6,
    name: str | None = None,
) -> tf.Tensor:
    """Root-mean-square normalization: each example in units of its root mean square.

    `x / sqrt(mean(x^2) + epsilon) * gamma` over the trailing axes (Zhang and Sennrich, "Root Mean
    Square Layer Normalization", arXiv:1910.07467).

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> tfo.nn.rms_norm([[3.0, 3.0], [-4.0, 4.0]], [1.0, 2.0], epsilon=0.0).numpy()
    array([[ 1.,  2.],
           [-1.,  2.]], dtype=float32)

    Args:
      inputs: [..., *dims]; float16, bfloat16, float32 or float64. A NaN or infinity makes its
        own example NaN.
      gamma: of the shape of the axes, the factors; None: 1. Cast to float32, for float64 inputs
        to float64.
      axis: the last axis, or all axes from one to the last, in order.
      epsilon: a number that is not negative.
      name: name of the op.

    Returns:
      inputs' shape and dtype, computed in float32 for 16-bit inputs. Differentiable to any
      order; the gradients have the same bits for any number of threads.

    Raises:
      ValueError: axes that are not the last ones, shapes or dtypes that do not fit.
      InvalidArgumentError: the same errors, found at run time.
    """
    return _of_trailing_axes(inputs, gamma, None, axis, epsilon, False, name)


@autograph.op_function
def group_norm(
    inputs: TensorLike,
    gamma: TensorLike | None = None,
    beta: TensorLike | None = None,
    *,
    groups: int = 32,
    epsilon: float = 1e-3,
    name: str | None = None,
) -> tf.Tensor:
    """Group normalization: each group of channels of an example in units of its standard deviation, from its mean.

    `(x - mean) / sqrt(variance + epsilon) * gamma + beta`, with the mean and the variance (that
    of all n numbers, divided by n) of channels / groups adjacent channels at all positions (Wu and
    He, "Group Normalization", arXiv:1803.08494). One group per channel is instance normalization.

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> image = tf.constant([[[0.0, 4.0, 5.0, 5.0], [0.0, 4.0, 7.0, 7.0]]])
    >>> tfo.nn.group_norm(image, groups=2, epsilon=0.0).numpy()
    array([[[-1.,  1., -1., -1.],
            [-1.,  1.,  1.,  1.]]], dtype=float32)

    Args:
      inputs: [N, ..., channels]; float16, bfloat16, float32 or float64. A NaN or infinity makes
        its own group NaN.
      gamma: [channels], the factors; None: 1. Cast to float32, for float64 inputs to float64.
      beta: as gamma, the offsets; None: 0.
      groups: a divisor of the number of channels.
      epsilon: a number that is not negative.
      name: name of the op.

    Returns:
      inputs' shape and dtype, computed in float32 for 16-bit inputs. Differentiable to any
      order; the gradients have the same bits for any number of threads.

    Raises:
      ValueError: shapes or dtypes that do not fit, groups that do not divide the channels.
      InvalidArgumentError: the same errors, found at run time.
    """
    inputs = arguments.float_tensor("inputs", inputs)
    groups = arguments.static_int("groups", groups, 1)
    inputs = _with_rank(inputs, 2, "[N, ..., channels]")
    planes = [_count(inputs, 0, 1), _count(inputs, 1, -1), _count(inputs, -1, None)]
    return _normalize(inputs, planes, 1, gamma, beta, groups, epsilon, True, name)


def _with_rank(inputs, least, expected):
    """Returns inputs, of at least so many dims. Raises ValueError."""
    rank = inputs.shape.rank
    if rank is None:
        return arguments.checked("inputs' rank", inputs, tf.rank(inputs) >= least, f"inputs of {expected}")
    if rank < least:
        raise ValueError(f"inputs are {arguments.shape_text(inputs.shape)}, expected {expected}")
    return inputs


def _count(inputs, begin, end):
    """Returns the number of elements of some dims: an int, or a tensor if it is unknown."""
    dims = inputs.shape[begin:end]
    return math.prod(dims) if dims.is_fully_defined() else tf.reduce_prod(tf.shape(inputs)[begin:end])


def _trailing(rank, axis):
    """Returns how many last axes `axis` names. Raises ValueError."""
    axes = tuple(axis) if isinstance(axis, Sequence) else (nn_arguments.static_axis(axis),)
    if not axes or not all(arguments.is_int(a) for a in axes):
        raise ValueError(f"axis is {axis!r}, expected an int, or ints")
    expected = range(-len(axes), 0)
    if rank is not None and len(axes) <= rank:
        axes = tuple(a - rank if 0 <= a < rank else a for a in axes)
    if axes != tuple(expected):
        text = "" if rank is None else f" of {rank}"
        raise ValueError(f"axis is {axis!r}, expected the last axes{text}, in order, such as -1 or [-2, -1]")
    return len(axes)


def _of_trailing_axes(inputs, gamma, beta, axis, epsilon, centered, name):
    inputs = arguments.float_tensor("inputs", inputs)
    rank = inputs.shape.rank
    count = _trailing(rank, axis)
    inputs = _with_rank(inputs, count, f"at least {count} dims")
    size = _count(inputs, -count, None)
    rows = -1 if arguments.is_int(size) and size else _count(inputs, 0, -count)
    return _normalize(inputs, [rows, 1, size], count, gamma, beta, 1, epsilon, centered, name)


def _factors(name, value, dtype, inputs, count):
    tensor = arguments.cast_tensor(name, value, dtype)
    dims = [None] * count if inputs.shape.rank is None else inputs.shape[-count:]
    if None in dims:
        dims = tf.unstack(tf.shape(inputs)[-count:], count)
    tensor = arguments.with_shape(name, tensor, dims, "the dims of the axes")
    return tensor if count == 1 else tf.reshape(tensor, [-1])


def _normalize(inputs, planes, count, gamma, beta, groups, epsilon, centered, name):
    dtype = arguments.at_least_float32(inputs.dtype)
    epsilon = arguments.static_number("epsilon", epsilon, "a number that is not negative", lambda x: x >= 0)
    gamma = tf.ones([planes[-1]], dtype) if gamma is None else _factors("gamma", gamma, dtype, inputs, count)
    beta = [] if beta is None else [_factors("beta", beta, dtype, inputs, count)]
    outputs = ops.tensorflow_ops_normalization(
        tf.reshape(inputs, planes),
        gamma,
        beta,
        epsilon=arguments.float32_parts(epsilon),
        groups=groups,
        centered=centered,
        name=name,
    ).y
    return tf.reshape(outputs, inputs.shape if inputs.shape.is_fully_defined() else tf.shape(inputs))


@tf.RegisterGradient("TensorflowOps>Normalization")
def _normalization_grad(op, d_y, _):
    x, gamma, *beta = op.inputs
    d = gradients.call(ops.tensorflow_ops_normalization_grad, op, d_y, x, op.outputs[1], gamma)
    return [d.d_x, d.d_gamma, d.d_beta][: 2 + len(beta)]


@tf.RegisterGradient("TensorflowOps>NormalizationGrad")
def _normalization_grad_grad(op, *upstream):
    """Differentiates P(d gamma), sum d z and sum d, for P(t) = (t - mean(t) - z mean(t z)) / deviation.

    P is its own transpose, and dz = P(dx). Without centering, there is no mean(t).
    """
    *tensors, statistics, gamma = op.inputs
    dtype, shape = statistics.dtype, tf.shape(tensors[0])
    groups, is_centered = op.get_attr("groups"), op.get_attr("centered")
    by_group = tf.concat([shape[:2], [groups, shape[2] // groups]], 0)
    d, x, g = (tf.reshape(tf.cast(t, dtype), by_group) for t in (*tensors, upstream[0]))
    factors, g_gamma, g_beta = (tf.reshape(t, by_group[2:]) for t in (gamma, *upstream[1:]))

    def mean(t):
        return tf.reduce_mean(t, [1, 3], keepdims=True)

    def projected(t):
        return inverse * ((t - mean(t) if is_centered else t) - z * mean(t * z))

    # The saved value, as a function of x.
    distance = x - mean(x) if is_centered else x
    variance = mean(tf.square(distance))
    saved = 1 / tf.square(statistics[:, tf.newaxis, :, tf.newaxis, 1])
    inverse = tf.math.rsqrt(variance + tf.stop_gradient(saved - variance))
    z = distance * inverse
    scaled, by_g = d * factors, projected(g)
    to_d = factors * by_g + g_gamma * z + g_beta
    to_x = projected(g_gamma * d - inverse * (g * mean(scaled * z) + scaled * mean(g * z)))
    to_x -= inverse * z * mean(g * projected(scaled))
    to_gamma = tf.reshape(tf.reduce_sum(d * by_g, [0, 1]), tf.shape(gamma))
    return *(tf.cast(tf.reshape(t, shape), tensors[0].dtype) for t in (to_d, to_x)), None, to_gamma


@pfor.register("TensorflowOps>Normalization")
def _convert(pfor_input):
    return pfor.convert_folded(pfor_input, shared=range(1, pfor_input.num_inputs))


@pfor.register("TensorflowOps>NormalizationGrad")
def _convert_grad(pfor_input):
    if pfor_input.inputs[3].is_stacked:
        return pfor.loop(pfor_input)
    pfor_input.stack_inputs([0, 1, 2])
    d, x, statistics, gamma = (value.t for value in pfor_input.inputs)
    d_x = pfor.call(pfor_input, [*map(pfor.fold, (d, x, statistics)), gamma])[0]
    # Iterations have sums of their own.
    width = tf.shape(x)[-1] // pfor_input.op.get_attr("groups")
    mean, inverse = (tf.repeat(t, width, -1)[:, :, tf.newaxis] for t in tf.unstack(statistics, axis=-1))
    d = tf.cast(d, statistics.dtype)
    z = (tf.cast(x, statistics.dtype) - mean) * inverse
    sums = (tf.reduce_sum(t, [1, 2]) for t in (d * z, d))
    return [pfor.stacked(t) for t in (tf.reshape(d_x, tf.shape(x)), *sums)]
