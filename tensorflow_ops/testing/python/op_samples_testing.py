"""SAMPLES: calls of every public op, from the tables beside the ops. OP_SAMPLES: for opcheck. CALLS: with variants.

A new op needs an entry in its namespace's table, NAMESPACE_samples_testing.py, or op_samples_test fails; one that
tools/new_op writes has a table of its own, OP_samples_testing.py. From it opcheck, the tests of exports, the tests on a
GPU and tools/same_bits.py call the op: core/python/sample_testing.py describes an entry.
"""

from collections.abc import Sequence
from typing import NamedTuple

import detection_samples_testing
import hinge_loss_samples_testing
import image_samples_testing
import layers_samples_testing
import losses_samples_testing
import nn_samples_testing
import seq2seq_samples_testing
import shapes_samples_testing
import tensorflow as tf
import zero_out_samples_testing

from tensorflow_ops.testing import OpSample
from tensorflow_ops.testing.python.inputs import Inputs

_TABLES = (
    zero_out_samples_testing,
    detection_samples_testing,
    nn_samples_testing,
    losses_samples_testing,
    layers_samples_testing,
    shapes_samples_testing,
    seq2seq_samples_testing,
    image_samples_testing,
    hinge_loss_samples_testing,
)
SAMPLES = {name: sample for table in _TABLES for name, sample in table.SAMPLES.items()}
OP_SAMPLES = {name: OpSample(*sample.of_opcheck()) for name, sample in SAMPLES.items()}


class Call(NamedTuple):
    """A sample's call, with its edge cases, or one of its variants."""

    inputs: Inputs
    edges: Sequence[Sequence[tf.Tensor]]
    dtypes: Sequence[str]
    onnx: tuple[str, int] | str | None  # a string: why ONNX Runtime computes something else


def _calls(name, sample):
    for i, variant in enumerate(({}, *sample.variants)):
        changes = dict(variant)
        onnx = changes.pop("onnx", sample.onnx)
        inputs = Inputs(sample.fn, *sample.changed(changes), fixed_dtype=sample.options.get("fixed_dtype", ()))
        edges = [inputs.of(*sample.changed(edge)) for edge in sample.edge if not i]
        if None in edges:
            raise ValueError(f"an edge case of {name} differs in more than its tensors' values and sizes")
        dtypes = sample.options.get("dtypes", ("float32", "float64", "float16", "bfloat16"))
        yield f"{name} {i}" if i else name, Call(inputs, edges, dtypes, onnx)


# Layers and losses call functions, which have entries of their own; shapes have no ops. Exported models do not match:
# training does.
_NOT_EXPORTED = ("layers.", "losses.", "shapes.", "detection.linear_sum_assignment")
CALLS = {
    call_name: call
    for name, sample in SAMPLES.items()
    if not name.startswith(_NOT_EXPORTED)
    for call_name, call in _calls(name, sample)
}
