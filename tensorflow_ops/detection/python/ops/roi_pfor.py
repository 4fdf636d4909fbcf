"""tf.vectorized_map, tf.GradientTape.jacobian and their kin for the region pooling ops.

Without a converter TensorFlow calls an op once for each iteration, in a loop. These make
one call of it, with the boxes of all iterations on the images of all iterations.
"""

import tensorflow as tf

# Registering converters is no public API; the package is made for one TensorFlow.
from tensorflow.python.ops.parallel_for import pfor as pfor_lib

# What the ops' inputs and outputs hold, by name; all others have a row for each box.
_IMAGES = ("features", "values", "dd_features", "d_features")
_SHAPES_OF_IMAGES = ("features_shape", "features_shapes")
_SIZE = "output_size"

_OPS = (
    "RoiPool",
    "RoiPoolGrad",
    "RoiPoolGradGrad",
    "RoiAlign",
    "RoiAlignGrad",
    "RoiAlignBoxesGrad",
    "RoiAlignMaxGrad",
    "RoiAlignMaxGradGrad",
    "RoiAlignMaxBoxesGrad",
    "PsRoiPool",
    "PsRoiPoolGrad",
    "PsRoiAlign",
    "PsRoiAlignGrad",
    "PsRoiAlignBoxesGrad",
    "MultiscaleRoiAlign",
    "MultiscaleRoiAlignGrad",
    "MultiscaleRoiAlignBoxesGrad",
)


def _input_names(op):
    """The name of each input; tensors of a list share the list's."""
    args = op.op_def.input_arg
    return [arg.name for arg in args for _ in range(op.get_attr(arg.number_attr) if arg.number_attr else 1)]


def _fold(t):
    """[P, M, ...] as [P * M, ...]."""
    shape = tf.shape(t)
    return tf.reshape(t, tf.concat([shape[:1] * shape[1:2], shape[2:]], 0))


def _unfold(t, iterations, count):
    """[P * M, ...] as [P, M, ...], M being the count: no iterations leave no rows to count."""
    return tf.reshape(t, tf.concat([iterations, [count], tf.shape(t)[1:]], 0))


def _number_images(box_indices, iterations, images):
    """[P, K] numbers in [0, N) as numbers in [0, P * N). What names no image becomes -1, which names none either."""
    first = images * tf.range(iterations[0])[:, tf.newaxis]
    return tf.where((box_indices >= 0) & (box_indices < images), first + box_indices, -1)


def _convert(pfor_input):
    """P iterations of an op on K boxes and N images as one op on P * K boxes and on N or P * N images.

    Images are those of one iteration as long as all iterations read the same ones.
    """
    op, inputs = pfor_input.op, pfor_input.inputs
    names = _input_names(op)
    for name, value in zip(names, inputs, strict=True):
        if value.is_stacked and (name in _SHAPES_OF_IMAGES or name == _SIZE):
            message = f"{name} of {op.type} differs between iterations, expected one for all"
            raise pfor_lib.ConversionNotImplementedError(message)
    writes_images = op.op_def.output_arg[0].name in _IMAGES
    all_images = writes_images or any(
        value.is_stacked and name in _IMAGES for name, value in zip(names, inputs, strict=True)
    )
    kept = (*_SHAPES_OF_IMAGES, _SIZE, *(() if all_images else _IMAGES))
    pfor_input.stack_inputs([i for i, name in enumerate(names) if name not in kept])

    iterations = tf.cast(pfor_input.pfor.loop_len_vector, tf.int32)
    tensors = [value.t for value in inputs]
    boxes_at = names.index("box_indices")
    count = tf.shape(tensors[boxes_at])[1]
    if all_images:
        at = next(i for i, name in enumerate(names) if name in _IMAGES + _SHAPES_OF_IMAGES)
        images = tf.cast(tensors[at][0], tf.int32) if names[at] in _SHAPES_OF_IMAGES else tf.shape(tensors[at])[1]
        tensors[boxes_at] = _number_images(tensors[boxes_at], iterations, images)
        times = tf.cast(tf.concat([iterations, [1, 1, 1]], 0), tf.int64)
        tensors = [t * times if name in _SHAPES_OF_IMAGES else t for name, t in zip(names, tensors, strict=True)]
        count = images if writes_images else count
    tensors = [t if name in kept else _fold(t) for name, t in zip(names, tensors, strict=True)]

    dtypes = [output.dtype for output in op.outputs]
    outputs = pfor_lib._create_op(op.type, tensors, dtypes, attrs=op.node_def.attr).outputs
    return [pfor_lib.wrap(_unfold(output, iterations, count), True) for output in outputs]


for _name in _OPS:
    pfor_lib.RegisterPFor(f"TensorflowOps>{_name}")(_convert)
