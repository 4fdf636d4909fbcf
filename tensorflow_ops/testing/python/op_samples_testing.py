"""SAMPLES: calls of every public op, from the tables beside the ops. OP_SAMPLES: for opcheck. CALLS: with variants.

A new op needs an entry in a table, OP_samples_testing.py, or op_samples_test fails. From it opcheck, the tests of
exports, the tests on a GPU and tools/same_bits.py call the op: core/python/sample_testing.py describes an entry.
"""

import importlib
import pkgutil
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tensorflow_ops.testing import OpSample
from tensorflow_ops.testing.python.inputs import Inputs

# In the folders from which tests import *_testing.py.
TABLES = [
    importlib.import_module(name)
    for name in sorted(name for _, name, _ in pkgutil.iter_modules() if name.endswith("_samples_testing"))
    if name != __name__
]
SAMPLES = {name: sample for table in TABLES for name, sample in table.SAMPLES.items()}
OP_SAMPLES = {name: OpSample(*sample.of_opcheck()) for name, sample in SAMPLES.items()}


class Call(NamedTuple):
    """A sample's call, with its edge cases, or one of its variants."""

    inputs: Inputs
    turn: int  # for tests that take one dtype or kind of values: of the name, so that other ops do not change it
    edges: Sequence[Sequence[tf.Tensor]]
    dtypes: Sequence[str]
    finite: Sequence[str]
    onnx: tuple[str, int] | str | None  # a string: why ONNX Runtime computes something else


def _calls(name, sample):
    for i, variant in enumerate(({}, *sample.variants)):
        changes = dict(variant)
        onnx = changes.pop("onnx", sample.onnx)
        inputs = Inputs(sample.fn, *sample.changed(changes), fixed_dtype=sample.options.get("fixed_dtype", ()))
        edges = [inputs.of(*sample.changed(edge)) for edge in sample.edge if not i]
        if None in edges:
            raise ValueError(f"an edge case of {name} differs in more than its tensors' values and sizes")
        finite = [f"args[{sample.names.index(x)}]" if x in sample.names else x for x in sample.finite]
        dtypes = sample.options.get("dtypes", ("float32", "float64", "float16", "bfloat16"))
        call_name = f"{name} {i}" if i else name
        yield call_name, Call(inputs, zlib.crc32(call_name.encode()), edges, dtypes, finite, onnx)


# Layers and losses call functions, which have entries of their own; shapes have no ops. Exported models do not match:
# training does.
_NOT_EXPORTED = ("layers.", "losses.", "shapes.", "detection.linear_sum_assignment")
CALLS = {
    call_name: call
    for name, sample in SAMPLES.items()
    if not name.startswith(_NOT_EXPORTED)
    for call_name, call in _calls(name, sample)
}
