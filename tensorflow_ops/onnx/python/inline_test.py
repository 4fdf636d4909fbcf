"""Tests of the ops that become what TensorFlow's own ops compute them with, in ONNX Runtime."""

import keras
import numpy as np
import onnx_testing
import tensorflow as tf
from absl.testing import parameterized
from op_samples_testing import SAMPLES
from tensorflow.python.framework import op_def_registry

import tensorflow_ops as tfo
from tensorflow_ops.export.python import compositions
from tensorflow_ops.onnx.python import direct

# Layers and losses call the functions, whose samples are here.
_SAMPLES = {name: sample for name, sample in SAMPLES.items() if not name.startswith(("layers.", "losses."))}
# Samples whose inputs need static dims, or cannot be exported, and why.
_STATIC = ("nn.linear_cross_entropy", "nn.linear_cross_entropy (16 bits, no bias)")
_REFUSED = {"seq2seq.ctc_beam_search_decode (language model)": "a constant outside of the function becomes an input"}

# Forward ops without a form in ONNX.
_NO_FORM = {"BuildInfo": "describes this package's build"}


def _is_tensors(value):
    leaves = tf.nest.flatten(value)
    return bool(leaves) and all(map(tf.is_tensor, leaves))


def _function(sample):
    """Returns a sample's function of its tensors alone, as a flat list, and these."""
    tensors = [value for value in sample.args if _is_tensors(value)]

    def function(*flat):
        packed = iter(tf.nest.pack_sequence_as(tensors, flat))
        args = [next(packed) if _is_tensors(value) else value for value in sample.args]
        return sample.fn(*args, **(sample.kwargs or {}))

    return function, [x.numpy() for x in tf.nest.flatten(tensors)]


def _forward_ops():
    """Returns the names of the ops that are no gradients, without the prefix."""
    names = (line.partition("(")[0] for line in _ops())
    return {name for name in names if not name.endswith(("Grad", "Tangent"))}


def _ops():
    from tensorflow.python.framework import kernels

    registered = {kernel.op for kernel in kernels.get_all_registered_kernels().kernel}
    return sorted(op[len(compositions.PREFIX) :] for op in registered if op.startswith(compositions.PREFIX))


class SamplesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*_SAMPLES)
    def test_same_in_onnx_runtime(self, name):
        if name in _REFUSED:
            self.skipTest(_REFUSED[name])
        function, tensors = _function(_SAMPLES[name])
        onnx_testing.check(self, function, *tensors, dynamic=name not in _STATIC, optimize=False)
