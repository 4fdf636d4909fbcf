"""The region pooling ops as calls to time, and their results to compare."""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf


@dataclasses.dataclass
class Candidate:
    """An implementation of an op, on one case."""

    passes: dict[str, Callable]  # calls to time, by name
    output: Callable  # -> array, NHWC
    d_features: Callable | None  # -> [one array per map, NHWC, channel_major]
    moved: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)  # bytes read and written, by pass


def both_passes(forward, backward):
    return {"forward": forward, "backward": backward, "forward+backward": lambda: (forward(), backward())}


def nchw(array):
    return np.moveaxis(array, 3, 1).copy()


def nhwc(array):
    return np.moveaxis(array, 1, 3)


def _reorder_channels(array, case, to_bin_major):
    """Permutes channels from [C, ph, pw] to [ph, pw, C], or back."""
    bins, outer = [case.bins] * 2, array.shape[:3]
    if to_bin_major:
        split, axes = [case.output_channels, *bins], (0, 1, 2, 4, 5, 3)
    else:
        split, axes = [*bins, case.output_channels], (0, 1, 2, 5, 3, 4)
    return array.reshape(*outer, *split).transpose(axes).reshape(*outer, -1)


def load(threads):
    """Sets TensorFlow's number of threads; returns the kernels' functions."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    from tensorflow_ops.core.python.library import ops as raw

    return raw


class Arguments:
    """An op's tensors and attributes, in the form of its forward and gradient kernels."""

    def __init__(self, op, attrs, inputs, dtype, data_format):
        case = inputs.case
        self.case = case
        self.channels_first = data_format == "NCHW"
        self.bin_major = attrs.get("channel_order") == "bin_major"
        self.maps = [self._to_tensor(array, dtype, is_map=True) for array in inputs.maps]
        self.d_output = self._to_tensor(inputs.d_output, dtype)
        self.boxes = {"boxes": tf.constant(inputs.boxes), "box_indices": tf.zeros([case.boxes], tf.int32)}
        self.output_size = {"output_size": tf.constant([case.bins, case.bins])}
        self.attrs = {**attrs, "data_format": data_format, "box_format": "xyxy"}
        strides = [level.stride for level in case.levels]
        shapes = [tf.shape(array, out_type=tf.int64) for array in self.maps]
        if op == "multiscale_roi_align":
            self.attrs["strides"] = strides
            self.features, self.features_shape = {"features": self.maps}, {"features_shapes": shapes}
        else:
            self.attrs["spatial_scale"] = 1 / strides[0]
            self.features, self.features_shape = {"features": self.maps[0]}, {"features_shape": shapes[0]}

    def _to_tensor(self, array, dtype, is_map=False):
        if is_map and self.bin_major:
            array = _reorder_channels(array, self.case, to_bin_major=True)
        return tf.cast(nchw(array) if self.channels_first else array, dtype)

    def to_array(self, tensor, is_map=False):
        """Converts a tensor back to an input's form."""
        array = tf.cast(tensor, tf.float32).numpy()
        array = nhwc(array) if self.channels_first else array
        return _reorder_channels(array, self.case, to_bin_major=False) if is_map and self.bin_major else array


def candidate(raw, op, attrs, inputs, dtype, data_format):
    """Returns our op's kernels: "forward", "backward" (to features), "forward+backward", "box gradient".

    For roi_pool also "infer": the forward pass of a graph in which nothing reads argmax.
    """
    given = Arguments(op, attrs, inputs, dtype, data_format)
    call, gradient_attrs = getattr(raw, f"tensorflow_ops_{op}"), dict(given.attrs)
    is_max = gradient_attrs.pop("mode", "avg") == "max"
    gradient = getattr(raw, f"tensorflow_ops_{op}_max_grad" if is_max else f"tensorflow_ops_{op}_grad")
    of_gradient = given.boxes | gradient_attrs | (given.features if is_max else given.features_shape)
    of_gradient["d_output"] = given.d_output

    def forward():
        return call(**given.features, **given.boxes, **given.output_size, **given.attrs)

    if op == "roi_pool":
        of_gradient["argmax"] = forward().argmax

    def backward():
        return gradient(**of_gradient)

    def output():
        pooled = forward()
        return given.to_array(pooled.output if op == "roi_pool" else pooled)

    def d_features():
        result = backward()
        return [given.to_array(d, is_map=True) for d in (result if isinstance(result, list) else [result])]

    passes = both_passes(forward, backward)
    maps, pooled = (sum(t.shape.num_elements() * t.dtype.size for t in ts) for ts in (given.maps, [given.d_output]))
    argmax = pooled // given.d_output.dtype.size * 4 if op == "roi_pool" else 0
    moved = {
        "forward": (maps, pooled + argmax),
        "backward": (pooled + argmax + (maps if is_max else 0), maps),
    }
    moved["forward+backward"] = tuple(map(sum, zip(moved["forward"], moved["backward"], strict=True)))
    if op == "roi_pool":
        infer = tf.function(lambda features: call(features, **given.boxes, **given.output_size, **given.attrs)[0])
        passes["infer"] = lambda: infer(given.maps[0])
        moved["infer"] = (maps, pooled)
    elif op != "ps_roi_pool":
        of_boxes = given.features | given.boxes | gradient_attrs | {"d_output": given.d_output}
        if is_max:
            of_boxes["values"] = of_boxes["features"]
        boxes_gradient = getattr(raw, f"tensorflow_ops_{op}_{'max_' if is_max else ''}boxes_grad")
        passes["box gradient"] = lambda: boxes_gradient(**of_boxes)
        moved["box gradient"] = (maps + pooled, 0)
    return Candidate(passes, output, d_features, moved)
