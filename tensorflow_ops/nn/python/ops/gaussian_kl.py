"""The public function of Gaussians."""

import functools

import tensorflow as tf

from tensorflow_ops.core.python.library import ops
from tensorflow_ops.nn.python.ops import nn_arguments

_NAMES = ("q's means", "q's log variances", "p's means", "p's log variances")


def gaussian_kl(q, p=None, *, axis: int = -1, name=None) -> tf.Tensor:
    """The Kullback-Leibler divergence KL(q || p) of Gaussians with independent dimensions.

    With means m and logarithms s of variances it is the sum over the axis of

        1/2 (e^(s_q - s_p) - 1 - (s_q - s_p) + (m_q - m_p)^2 e^-s_p)

    (appendix B of "Auto-Encoding Variational Bayes", arXiv:1312.6114, for the unit
    Gaussian p).

    >>> import tensorflow as tf, tensorflow_ops as tfo
    >>> mean, log_variance = tf.constant([[1.0, 0.0]]), tf.constant([[0.0, 1e-4]])
    >>> tfo.nn.gaussian_kl((mean, log_variance)).numpy()
    array([0.5], dtype=float32)
    >>> tfo.nn.gaussian_kl((0.0, [[1e-4]]), (0.0, [[0.0]])).numpy()
    array([2.5000833e-09], dtype=float32)

    Variances do not appear: their quotient is e to a difference, and e^d - 1 - d is
    computed as a whole. (The usual recipe gives 0 for the second line, and NaN for log
    variances of -110 in both.)

    Args:
      q: a pair (mean, log_variance), each [..., dims], or with dims on another axis;
        float16, bfloat16, float32 or float64, both one dtype; numbers take the other's.
      p: the same, cast to q's dtype; None is the unit Gaussian. The shapes of all are
        broadcast against each other.
      axis: the axis of dimensions, of the broadcast shape.
      name: name of the op.

    Returns:
      Nats, of the broadcast shape without the axis; float32, for float64 q float64. 0 for
      no dims. NaN in a row makes that row NaN, and no other. An infinite mean or log
      variance makes its row +inf, the limit; but NaN where there is none: where the means
      or the log variances of q and p are the same infinity, and for an infinite mean
      where p's log variance is +inf. Differentiable in all four tensors, to any order.

    Raises:
      ValueError: q or p that is no pair, wrong dtypes, shapes that do not broadcast, an
        axis that they do not have.
      InvalidArgumentError: the same where only the run tells.
    """
    tensors = _tensors(_pair("q", q), None if p is None else _pair("p", p))
    tensors = _broadcast(tensors)
    nn_arguments.check_axis("means and log variances", tensors[0].shape, axis)
    q_mean, q_log_variance, *p = (nn_arguments.move_axis_last(tensor, axis)[0] for tensor in tensors)
    value_dtype = nn_arguments.value_dtype(q_mean.dtype)
    return ops.tensorflow_ops_gaussian_kl(q_mean, q_log_variance, p, Tvalue=value_dtype, name=name)


def _pair(name, pair):
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        got = f"{len(pair)} tensors" if isinstance(pair, tuple | list) else f"a {type(pair).__name__}"
        raise ValueError(f"{name} is {got}, expected a pair (mean, log_variance)")
    return pair


def _tensors(q, p):
    """All as tensors of q's dtype."""
    with_dtype = [nn_arguments.floating(name, t) for name, t in zip(_NAMES, q, strict=False) if hasattr(t, "dtype")]
    if len({t.dtype for t in with_dtype}) > 1:
        raise ValueError(f"q's tensors are {' and '.join(t.dtype.name for t in with_dtype)}, expected one dtype")
    dtype = with_dtype[0].dtype if with_dtype else tf.float32
    return [nn_arguments.converted(t, dtype) for t in (*q, *(p or ()))]


def _broadcast(tensors):
    """To one shape; those that have it stay as they are."""
    shapes = [t.shape for t in tensors]
    known = [shape for shape in shapes if shape.rank is not None]
    try:
        shape = functools.reduce(tf.broadcast_static_shape, known, tf.TensorShape([]))
    except ValueError:
        listed = ", ".join(f"{name} {nn_arguments.text(s)}" for name, s in zip(_NAMES, shapes, strict=False))
        raise ValueError(f"got {listed}, expected shapes that broadcast") from None
    if len(known) < len(shapes):
        # One of unknown rank may have more dims than all others.
        shape = tf.TensorShape(None)
    if shape.is_fully_defined():
        return [t if t.shape == shape else tf.broadcast_to(t, shape) for t in tensors]
    # Costs nothing where the shapes turn out to be one.
    run_shape = functools.reduce(tf.broadcast_dynamic_shape, [tf.shape(t) for t in tensors])
    return [tf.ensure_shape(tf.broadcast_to(t, run_shape), shape) for t in tensors]
