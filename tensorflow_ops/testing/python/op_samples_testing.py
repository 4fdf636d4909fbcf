"""SAMPLES: calls of every public op, from the tables beside the ops. OP_SAMPLES: for opcheck. CALLS: with variants.

A new op needs an entry in its namespace's table, NAMESPACE_samples_testing.py, or op_samples_test fails. From it
opcheck, the tests of exports, the tests on a GPU and tools/same_bits.py call the op: core/python/sample_testing.py
describes an entry. An op that tools/new_op writes is in op_samples_test's _OWN_TESTS instead.
"""

from collections.abc import Sequence
from typing import NamedTuple

import detection_samples_testing
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
)
SAMPLES = {name: sample for table in _TABLES for name, sample in table.SAMPLES.items()}


def _op_sample(sample):
    """Returns an entry for opcheck, whose function takes all tensors by position, for edge_args."""
    tensors = [name for name, value in sample.kwargs.items() if any(map(tf.is_tensor, tf.nest.flatten(value)))]
    count = len(sample.args)

    @tf.autograph.experimental.do_not_convert
    def by_position(*args, **options):
        return sample.fn(*args[:count], **dict(zip(tensors, args[count:], strict=True)), **options)

    def arguments(changes):
        args, kwargs = sample.changed(changes)
        return [*args, *(kwargs.pop(name) for name in tensors)], kwargs

    args, kwargs = arguments({})
    edge_args = [arguments(changes)[0] for changes in sample.edge]
    bad_args = [(*arguments(changes), message) for changes, message in sample.bad]
    options = {"edge_args": edge_args, "bad_args": bad_args, **sample.options}
    return OpSample(by_position if tensors else sample.fn, args, kwargs, options)


OP_SAMPLES = {name: _op_sample(sample) for name, sample in SAMPLES.items()}


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
        dtypes = sample.options.get("dtypes", ("float32", "float64", "float16", "bfloat16"))
        yield f"{name} {i}" if i else name, Call(inputs, edges, dtypes, onnx)


# Layers and losses call functions, which have entries of their own; shapes have no ops.
CALLS = {
    call_name: call
    for name, sample in SAMPLES.items()
    if not name.startswith(("layers.", "losses.", "shapes."))
    for call_name, call in _calls(name, sample)
}
