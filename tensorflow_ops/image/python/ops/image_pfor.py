"""Vectorization of the ops of masks (core/python/pfor.py): the iterations become part of the batch."""

from tensorflow_ops.core.python import pfor


def _convert(pfor_input):
    """Converts an op whose first input is images [H, W], [N, H, W] or [N, H, W, C]."""
    rank = pfor_input.op.inputs[0].shape.rank
    if rank is None:
        raise pfor.ConversionNotImplementedError("the rank of images is unknown")
    shared = range(1, pfor_input.num_inputs)
    if rank == 2 and not any(pfor_input.inputs[i].is_stacked for i in shared):
        outputs = pfor.call(pfor_input, [value.t for value in pfor_input.inputs])
        return [pfor.stacked(y) for y in outputs]
    return pfor.convert_folded(pfor_input, shared)


for _name in ("EuclideanDistanceTransform", "ConnectedComponents"):
    pfor.register(f"TensorflowOps>{_name}")(_convert)
