"""The public function of Gaussians."""

import functools
from collections.abc import Sequence

import tensorflow as tf

from tensorflow_ops.core.python import arguments, autograph, axes, ragged
from tensorflow_ops.core.python.library import ops
from tensorflow_ops.core.python.type_aliases import TensorLike

_NAMES = ("q's means", "q's log variances", "p's means", "p's log variances")


@autograph.op_function
@ragged.on_flat_values("q", "p")
def gaussian_kl(
    q: Sequence[TensorLike], p: Sequence[TensorLike] | None = None, *, axis: int = -1, name: str | None = None
) -> tf.Tensor:
    """Kullback-Leibler divergence KL(q || p) of Gaussians with independent dimensions.

    With means m and log variances s it is the sum over the axis of

        1/2 (e^(s_q - s_p) - 1 - (s_q - s_p) + (m_q - m_p)^2 e^-s_p)

    (appendix B of "Auto-Encoding Variational Bayes", arXiv:1312.6114, for the unit
    Gaussian p).

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> mean, log_variance = tf.constant([[1.0, 0.0]]), tf.constant([[0.0, 1e-4]])
    >>> tfo.nn.gaussian_kl((mean, log_variance)).numpy()
    array([0.5], dtype=float32)
    >>> tfo.nn.gaussian_kl((0.0, [[1e-4]]), (0.0, [[0.0]])).numpy()
    array([2.5000833e-09], dtype=float32)

    The kernel computes e^d - 1 - d of d = s_q - s_p as one function, and no variances.
    (The usual recipe returns 0 for the second example, and NaN if both log variances are
    -110.)

    Args:
      q: a pair (mean, log_variance), each [..., dims], also ragged before dims, or with
        dims on another axis; float16, bfloat16, float32 or float64, both of one dtype; a
        Python number takes the other's dtype.
      p: like q, cast to q's dtype; None is the unit Gaussian. All shapes are broadcast
        against each other.
      axis: the axis of dimensions, of the broadcast shape.
      name: name of the op.

    Returns:
      Nats, of the broadcast shape without the axis; float32, for float64 q float64. 0 for
      no dims. A NaN makes its own row NaN. An infinite mean or log variance makes its row
      +inf, the limit. The row is NaN where no limit exists: if the means or the log
      variances of q and p are the same infinity, or if a mean is infinite and p's log
      variance +inf. Differentiable in all four tensors, to any order.

    Raises:
      ValueError: q or p is no pair, dtypes are wrong, shapes do not broadcast or do not
        have the axis.
      InvalidArgumentError: the same errors, found at run time.
    """
    tensors = _tensors(_pair("q", q), None if p is None else _pair("p", p))
    tensors = _broadcast(tensors)
    axes.check_axis("means and log variances", tensors[0].shape, axis)
    q_mean, q_log_variance, *p = (axes.move_axis_last(tensor, axis)[0] for tensor in tensors)
    value_dtype = arguments.at_least_float32(q_mean.dtype)
    return ops.tensorflow_ops_gaussian_kl(q_mean, q_log_variance, p, Tvalue=value_dtype, name=name)


def _pair(name, pair):
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        got = f"{len(pair)} tensors" if isinstance(pair, tuple | list) else f"a {type(pair).__name__}"
        raise ValueError(f"{name} is {got}, expected a pair (mean, log_variance)")
    return pair


def _tensors(q, p):
    """Converts all to tensors of q's dtype. Raises ValueError."""
    with_dtype = [arguments.float_tensor(name, t) for name, t in zip(_NAMES, q, strict=False) if hasattr(t, "dtype")]
    if len({t.dtype for t in with_dtype}) > 1:
        raise ValueError(f"q's tensors are {' and '.join(t.dtype.name for t in with_dtype)}, expected one dtype")
    dtype = with_dtype[0].dtype if with_dtype else tf.float32
    return [arguments.cast_tensor(name, t, dtype) for name, t in zip(_NAMES, (*q, *(p or ())), strict=False)]


def _broadcast(tensors):
    """Broadcasts tensors to one shape; copies only those of other shapes. Raises ValueError."""
    shapes = [t.shape for t in tensors]
    known = [shape for shape in shapes if shape.rank is not None]
    try:
        shape = functools.reduce(tf.broadcast_static_shape, known, tf.TensorShape([]))
    except ValueError:
        listed = ", ".join(f"{name} {arguments.shape_text(s)}" for name, s in zip(_NAMES, shapes, strict=False))
        raise ValueError(f"got {listed}, expected shapes that broadcast") from None
    if len(known) < len(shapes):
        # A tensor of unknown rank may have the most dims.
        shape = tf.TensorShape(None)
    if shape.is_fully_defined():
        return [t if t.shape == shape else tf.broadcast_to(t, shape) for t in tensors]
    # Copies nothing where the run-time shapes are equal.
    run_shape = functools.reduce(tf.broadcast_dynamic_shape, [tf.shape(t) for t in tensors])
    return [tf.ensure_shape(tf.broadcast_to(t, run_shape), shape) for t in tensors]
