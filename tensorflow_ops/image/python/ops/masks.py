"""What the ops of masks share: checks of arguments, and vectorization (core/python/pfor.py)."""

import tensorflow as tf

from tensorflow_ops.core.python import arguments, pfor

_INTEGERS = (tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64)
DISCRETE_DTYPES = (tf.bool, *_INTEGERS)


def images_tensor(value, dtypes, expected):
    """Returns images as a tensor of rank 2 to 4 and one of the dtypes. Raises ValueError."""
    images = arguments.dense_tensor("images", value)
    if images.dtype not in dtypes:
        raise ValueError(f"images are {images.dtype.name}, expected {expected}")
    if images.shape.rank is not None and not 2 <= images.shape.rank <= 4:
        text = arguments.shape_text(images.shape)
        raise ValueError(f"images are {text}, expected [H, W], [N, H, W] or [N, H, W, C]")
    return images


def _convert(pfor_input):
    """Makes the iterations part of the batch of images [H, W], [N, H, W] or [N, H, W, C], the first input."""
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
