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


def _log(nodes):
    """Log: tf2onnx casts doubles to floats, which ONNX Runtime no longer needs."""
    return [nodes.Log(nodes.inputs[0])]


STANDARD = {"BroadcastArgs": _broadcast_args, "Log": _log, "SelectV2": _select}
