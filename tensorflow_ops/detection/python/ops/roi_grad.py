"""Gradients and vectorization of the region pooling ops.

Boxes have a gradient in ops that average bilinear samples. They have none in ops that round
corners to pixels. The gradient to boxes has no gradient.

Vectorized, one call pools the boxes of all iterations from the images of all iterations.
"""

import functools

import tensorflow as tf

from tensorflow_ops.core.python import pfor
from tensorflow_ops.core.python.gradients import call, input_names, is_needed, refuse
from tensorflow_ops.core.python.library import ops


def _bins(pooled):
    """Returns (height, width) of a pooled tensor."""
    return tf.shape(pooled)[1:3]


def _boxes_grad_grad(function, op, dd_boxes):
    """Gradient of the gradient to boxes, an op of d_output, maps, boxes and box_indices: there is none."""
    reason = (
        f"the gradient of {function} to its boxes has no gradient, "
        "which forward mode (tf.autodiff.ForwardAccumulator) along boxes needs, too"
    )
    return [*(refuse(op, i, reason, [dd_boxes]) for i in range(len(op.inputs) - 1)), None]


def _register_average(name, function):
    """Registers the gradients of an op whose bins are weighted averages of pixels, except its own; returns that."""
    pool, to_features = (getattr(ops, f"tensorflow_ops_{function}{suffix}") for suffix in ("", "_grad"))
    to_boxes = getattr(ops, f"tensorflow_ops_{function}_boxes_grad", None)

    def features_of(maps):
        return list(maps) if function == "multiscale_roi_align" else maps[0]

    def gradient(op, d_output):
        """To features by the transpose, and to boxes."""
        *maps, boxes, box_indices, _ = op.inputs
        d_maps, d_boxes = [None] * len(maps), None
        if any(is_needed(op, i) for i in range(len(maps))):
            shapes = features_of([tf.shape(m) for m in maps])
            d_maps = tf.nest.flatten(call(to_features, op, d_output, boxes, box_indices, shapes))
        if to_boxes and is_needed(op, len(maps)):
            d_boxes = call(to_boxes, op, d_output, features_of(maps), boxes, box_indices)
        return [*d_maps, d_boxes, None, None]

    @tf.RegisterGradient(f"TensorflowOps>{name}Grad")
    def _grad_grad(op, *dd_maps):
        """The gradient to features is linear in d_output: its transpose is the op itself."""
        d_output, boxes, box_indices, *shapes = op.inputs
        dd_output = d_boxes = None
        if is_needed(op, 0):
            dd_output = call(pool, op, features_of(dd_maps), boxes, box_indices, _bins(d_output))
        if to_boxes and is_needed(op, 1):
            d_boxes = call(to_boxes, op, d_output, features_of(dd_maps), boxes, box_indices)
        return [dd_output, d_boxes, None, *[None] * len(shapes)]

    if to_boxes:
        tf.RegisterGradient(f"TensorflowOps>{name}BoxesGrad")(functools.partial(_boxes_grad_grad, function))
    return gradient


for _name, _function in (
    ("RoiAlign", "roi_align"),
    ("PsRoiPool", "ps_roi_pool"),
    ("PsRoiAlign", "ps_roi_align"),
    ("MultiscaleRoiAlign", "multiscale_roi_align"),
):
    tf.RegisterGradient(f"TensorflowOps>{_name}")(_register_average(_name, _function))


def _pool_to_features(op, d_output, argmax, boxes, box_indices, features):
    """Adds each d_output to the pixel of its argmax, in a tensor of features' shape."""
    return call(ops.tensorflow_ops_roi_pool_grad, op, d_output, argmax, boxes, box_indices, tf.shape(features))


@tf.RegisterGradient("TensorflowOps>RoiPool")
def _roi_pool_grad(op, d_output, d_argmax):
    del d_argmax
    features, boxes, box_indices, _ = op.inputs
    return _pool_to_features(op, d_output, op.outputs[1], boxes, box_indices, features), None, None, None


@tf.RegisterGradient("TensorflowOps>RoiPoolGrad")
def _roi_pool_grad_grad(op, dd_features):
    """RoiPoolGrad is linear in d_output: it adds each to one pixel; its transpose reads that pixel."""
    dd_output = call(ops.tensorflow_ops_roi_pool_grad_grad, op, dd_features, *op.inputs[1:4])
    return dd_output, None, None, None, None


@tf.RegisterGradient("TensorflowOps>RoiPoolGradGrad")
def _roi_pool_grad_grad_grad(op, d_output):
    """The two ops are each other's transpose, so gradients of any order exist."""
    dd_features, argmax, boxes, box_indices = op.inputs
    return _pool_to_features(op, d_output, argmax, boxes, box_indices, dd_features), None, None, None


# Names of inputs and outputs with images; the names of their shapes; all others have a row for each box.
_IMAGES = ("features", "dd_features", "d_features")
_IMAGE_SHAPES = ("features_shape", "features_shapes")
_SIZE = "output_size"

_VECTORIZED = (
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

    iterations = tf.cast(pfor_input.pfor.loop_len_vector[0], tf.int32)  # fits: a size
    tensors = [value.t for value in inputs]
    indices_at = names.index("box_indices")
    rows = tf.shape(tensors[indices_at])[1]
    if all_images:
        at = next(i for i, name in enumerate(names) if name in _IMAGES + _IMAGE_SHAPES)
        images = tensors[at][0] if names[at] in _IMAGE_SHAPES else tf.shape(tensors[at])[1]
        tensors[indices_at] = _offset_images(tensors[indices_at], iterations, images)
        factors = tf.stack([iterations, 1, 1, 1])
        tensors = [t * factors if name in _IMAGE_SHAPES else t for name, t in zip(names, tensors, strict=True)]
        rows = images if writes_images else rows
    tensors = [t if name in unstacked else pfor.fold(t) for name, t in zip(names, tensors, strict=True)]
    return [pfor.stacked(pfor.unfold(y, iterations, size=rows)) for y in pfor.call(pfor_input, tensors)]


for _name in _VECTORIZED:
    pfor.register(f"TensorflowOps>{_name}")(_convert)
