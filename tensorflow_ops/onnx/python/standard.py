"""Ops of TensorFlow itself that compositions call, where tf2onnx converts them not at all or not for all values."""

from onnx import TensorProto

# The dtypes of ONNX Runtime's Where that hold those that it lacks.
_WIDE = {
    **dict.fromkeys([TensorProto.INT8, TensorProto.INT16, TensorProto.UINT16], TensorProto.INT32),
    **dict.fromkeys([TensorProto.UINT32, TensorProto.UINT64], TensorProto.INT64),
    TensorProto.FLOAT16: TensorProto.FLOAT,
}


def _broadcast_args(nodes):
    """The shape that two shapes broadcast to: the shorter one is padded with 1, and a size of 1 gives way."""
    one = nodes.ints(1)
    shapes = [nodes.to_int64(shape) for shape in nodes.inputs]
    sizes = [nodes.Shape(shape) for shape in shapes]
    rank = nodes.Max(*sizes)
    left, right = (
        nodes.Pad(shape, nodes.Concat(nodes.Sub(rank, size), nodes.ints(0), axis=0), nodes.scalar(1))
        for shape, size in zip(shapes, sizes, strict=True)
    )
    return [nodes.Where(nodes.Equal(left, one), right, left)]


def _select(nodes):
    """Where: tf2onnx multiplies by 0 and 1, which makes NaN of infinities that are not selected."""
    condition, x, y = nodes.inputs
    if nodes.dtype(x) == TensorProto.BOOL:
        return [nodes.Or(nodes.And(condition, x), nodes.And(nodes.Not(condition), y))]
    dtype = _WIDE.get(nodes.dtype(x), nodes.dtype(x))
    return [nodes.Where(condition, nodes.cast(x, dtype), nodes.cast(y, dtype))]


def _erfc(nodes):
    """Erfc: off by 1e-7, so small results are not exact."""
    x = nodes.widened(nodes.inputs[0])
    return [nodes.Sub(nodes.like(x, 1), nodes.Erf(x))]


def _expm1(nodes):
    """Expm1: e^x - 1 = tanh(x / 2) (e^x + 1), which keeps the digits of a small x."""
    x = nodes.widened(nodes.inputs[0])
    return [nodes.Mul(nodes.Tanh(nodes.Mul(x, nodes.like(x, 0.5))), nodes.Add(nodes.Exp(x), nodes.like(x, 1)))]


def _log1p(nodes):
    """Log1p: log(sum) x / (sum - 1), for sum = 1 + x, keeps the digits of a small x."""
    x = nodes.widened(nodes.inputs[0])
    one = nodes.like(x, 1)
    total = nodes.Add(x, one)
    added, log = nodes.Sub(total, one), nodes.Log(total)
    rounded = nodes.Where(nodes.Equal(added, nodes.like(x, 0)), x, nodes.Mul(log, nodes.Div(x, added)))
    return [nodes.Where(nodes.Equal(added, x), log, rounded)]  # also for infinity, where sum - 1 = x


def _log(nodes):
    """Log: tf2onnx casts doubles to floats, which ONNX Runtime no longer needs."""
    return [nodes.Log(nodes.inputs[0])]


def _reshape(nodes):
    """Reshape: without allowzero, a size of 0 is that of the input."""
    tensor, shape = nodes.inputs
    is_plain = nodes.opset < 14 or (nodes.is_constant(shape) and 0 not in nodes.value(1))
    return [nodes.Reshape(tensor, nodes.to_int64(shape), **({} if is_plain else {"allowzero": 1}))]


def _top_k(nodes):
    """TopKV2: tf2onnx casts doubles, the lowest of which become -infinity, and integers to floats."""
    x, k = nodes.inputs
    kept = (TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64)
    x = x if nodes.dtype(x) in kept else nodes.cast(x, TensorProto.FLOAT)
    return nodes.TopK(x, nodes.Reshape(nodes.to_int64(k), nodes.ints(-1)), axis=-1, outputs=2)


STANDARD = {
    "BroadcastArgs": _broadcast_args,
    "Erfc": _erfc,
    "Expm1": _expm1,
    "Log": _log,
    "Log1p": _log1p,
    "Reshape": _reshape,
    "SelectV2": _select,
    "TopKV2": _top_k,
}
