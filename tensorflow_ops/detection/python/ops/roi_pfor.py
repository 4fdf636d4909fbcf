"""Vectorization of the region pooling ops (core/python/pfor.py).

One call pools the boxes of all iterations from the images of all iterations.
"""

import tensorflow as tf

from tensorflow_ops.core.python import pfor
from tensorflow_ops.core.python.gradients import input_names

# Names of inputs and outputs with images; the names of their shapes; all others have a row for each box.
_IMAGES = ("features", "dd_features", "d_features")
_IMAGE_SHAPES = ("features_shape", "features_shapes")
_SIZE = "output_size"

_OPS = (
    "RoiPool",
    "RoiPoolGrad",
    "RoiPoolGradGrad",
    "RoiAlign",
    "RoiAlignGrad",
    "RoiAlignBoxesGrad",
    "PsRoiPool",
    "PsRoiPoolGrad",
    "PsRoiAlign",
    "PsRoiAlignGrad",
    "PsRoiAlignBoxesGrad",
    "MultiscaleRoiAlign",
    "MultiscaleRoiAlignGrad",
    "MultiscaleRoiAlignBoxesGrad",
)


def _offset_images(box_indices, iterations, images):
    """Maps [P, K] indices in [0, N) to indices in [0, P * N), and those out of range to -1."""
    first = images * tf.range(iterations)[:, tf.newaxis]
    return tf.where((box_indices >= 0) & (box_indices < images), first + box_indices, -1)


def _convert(pfor_input):
    """Converts P iterations of an op on K boxes and N images to one op on P * K boxes and N or P * N images.

    It has N images if all iterations read the same ones.
    """
    op, inputs = pfor_input.op, pfor_input.inputs
    names = input_names(op)
    for name, value in zip(names, inputs, strict=True):
        if value.is_stacked and (name in _IMAGE_SHAPES or name == _SIZE):
            message = f"{name} of {op.type} differs between iterations, expected one for all"
            raise pfor.ConversionNotImplementedError(message)
    writes_images = op.op_def.output_arg[0].name in _IMAGES
    all_images = writes_images or any(
        value.is_stacked and name in _IMAGES for name, value in zip(names, inputs, strict=True)
    )
    unstacked = (*_IMAGE_SHAPES, _SIZE, *(() if all_images else _IMAGES))
    pfor_input.stack_inputs([i for i, name in enumerate(names) if name not in unstacked])

    iterations = tf.cast(pfor_input.pfor.loop_len_vector[0], tf.int32)
    tensors = [value.t for value in inputs]
    indices_at = names.index("box_indices")
    rows = tf.shape(tensors[indices_at])[1]
    if all_images:
        at = next(i for i, name in enumerate(names) if name in _IMAGES + _IMAGE_SHAPES)
        images = tf.cast(tensors[at][0], tf.int32) if names[at] in _IMAGE_SHAPES else tf.shape(tensors[at])[1]
        tensors[indices_at] = _offset_images(tensors[indices_at], iterations, images)
        factors = tf.cast(tf.stack([iterations, 1, 1, 1]), tf.int64)
        tensors = [t * factors if name in _IMAGE_SHAPES else t for name, t in zip(names, tensors, strict=True)]
        rows = images if writes_images else rows
    tensors = [t if name in unstacked else pfor.fold(t) for name, t in zip(names, tensors, strict=True)]
    return [pfor.stacked(pfor.unfold(y, iterations, size=rows)) for y in pfor.call(pfor_input, tensors)]


for _name in _OPS:
    pfor.register(f"TensorflowOps>{_name}")(_convert)
