"""Places gradients on the device of the forward pass."""

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.ops import gradients_util


class PlacedGradient:
    """A region of a graph whose gradient runs on the region's own device.

    A GradientTape differentiates op by op, and TensorFlow places the new ops on the first
    device, independent of the forward op's. This class records one operation on the tape
    for the whole region, from its inputs to its outputs, with a gradient that is built
    under `tf.device`. The tape still differentiates the computation of the inputs.

        region = PlacedGradient(device)
        with region, tf.device(device):
            outputs = ...
        outputs = region.place(outputs)

    Eagerly, and where no tape watches, it does nothing.
    """

    def __init__(self, device):
        self._device = device
        self._graph = None

    def __enter__(self):
        if not tf.executing_eagerly():
            self._graph = tf.compat.v1.get_default_graph()
            self._first = len(self._graph.get_operations())
        return self

    def __exit__(self, *_):
        if self._graph is not None:
            self._ops = self._graph.get_operations()[self._first :]

    def place(self, tensors):
        """Returns the region's tensors, with their gradient placed."""
        if self._graph is None:
            return tensors
        inside = {id(op) for op in self._ops if _is_part(op)}
        mine = [i for i, t in enumerate(tensors) if t.dtype.is_floating and id(t.op) in inside]
        incoming = {id(t): t for op in self._ops if id(op) in inside for t in op.inputs if id(t.op) not in inside}
        sources = [t for t in incoming.values() if record.should_record_backprop([t])]
        if not mine or not sources:
            return tensors
        outputs = [tensors[i] for i in mine]

        def gradient(*upstream):
            with tf.device(self._device):
                return gradients_util._GradientsHelper(
                    outputs, sources, upstream, stop_gradients=sources, src_graph=self._graph
                )

        # In the graph these are identities: tf.gradients, which uses no tape, differentiates
        # through them.
        with record.stop_recording():
            placed = [tf.identity(t) for t in outputs]
        record.record_operation("PlacedGradient", placed, sources, gradient)
        placed = dict(zip(mine, placed, strict=True))
        return [placed.get(i, t) for i, t in enumerate(tensors)]


def _is_part(op):
    """Returns whether the op belongs to the region and is not one of its inputs.

    The tape and the graph have different tensors for variables and for tensors from outside
    of the graph: ops that read these stay on the tape. An op without inputs may be the
    placeholder of such a tensor.
    """
    return len(op.inputs) > 0 and all(t.dtype != tf.resource for t in op.inputs)
